"""Events as a trace in the format of Chrome's tracing, which Perfetto opens.

The format: "Trace Event Format", Google, complete events (``ph: X``) and metadata (``ph: M``).
"""

from __future__ import annotations

import gzip
import json
import os
import socket
from collections.abc import Iterable
from typing import Any

from coredispatch._version import __version__

__all__ = ["write_trace"]


def write_trace(
    path: str | os.PathLike[str], events: Iterable[Any], metadata: dict[str, Any]
) -> None:
    """Write ``events`` to ``path``, compressed if that ends in ``.gz``."""
    process = os.getpid()
    entries: list[dict[str, Any]] = []
    threads: dict[int, int] = {}
    for event in events:
        thread = threads.setdefault(event.thread, len(threads) + 1)
        details: dict[str, Any] = {"External id": event.id + 1}
        if event.input_shapes:
            details["Input Dims"] = event.input_shapes
            details["Input type"] = event.input_dtypes
        if event.kernel:
            details["Kernel"] = event.kernel
        if event.own_memory:
            details["Bytes"] = event.own_memory
        if event.sequence_nr >= 0:
            details["Sequence number"] = event.sequence_nr
        if event.stack:
            details["Call stack"] = ";".join(event.stack)
        entries.append(
            {
                "ph": "X",
                "cat": "user_annotation" if event.is_user_annotation else "cpu_op",
                "name": event.name,
                "pid": process,
                "tid": thread,
                "ts": event.time_range.start,
                "dur": event.time_range.elapsed_us(),
                "args": details,
            }
        )
    named = [("process_name", 0, {"name": f"coredispatch {__version__}"})]
    named += [
        ("thread_name", number, {"name": f"thread {ident}"}) for ident, number in threads.items()
    ]
    for name, thread, args in named:
        entries.append(
            {"ph": "M", "name": name, "pid": process, "tid": thread, "ts": 0, "args": args}
        )
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "displayTimeUnit": "ms",
        "host_name": socket.gethostname(),
        "traceName": os.fspath(path),
        **metadata,
        "traceEvents": entries,
    }
    opened: Any = gzip.open if os.fspath(path).endswith(".gz") else open
    with opened(path, "wt") as file:
        json.dump(trace, file)
