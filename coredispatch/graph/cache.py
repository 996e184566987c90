"""What compilers keep on disk: keyed by graph and machine, safe when several processes fill it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coredispatch._version import __version__
from coredispatch.graph.graph import Graph
from coredispatch.graph.values import info_of
from coredispatch.plugin import CoreDispatchError

__all__ = ["DIRECTORY_VARIABLE", "GraphCache", "graph_key"]

#: names the directory of all caches of graphs; the empty string turns them off
DIRECTORY_VARIABLE = "COREDISPATCH_CACHE_DIR"
_DIGEST = hashlib.sha256().digest_size


def graph_key(graph: Graph, inputs: Sequence[Any], *details: str) -> str | None:
    """A name for what a graph compiles to: equal for equal graphs, inputs and machines.

    The operators and their arguments count, the names of values do not, nor the lines they come
    from. Of tensors among ``inputs`` shapes, strides, dtypes and devices count, of numbers the
    type. ``details`` are the compiler's own: its name and version, its options. None for a graph
    that is no data (a function of the program's stands in it): it is compiled in each process.
    """
    try:
        document = _without_names(graph)
    except CoreDispatchError:
        return None
    values = [str(info_of(v)) if hasattr(v, "raw") else type(v).__name__ for v in inputs]
    parts = [__version__, sys.version, platform.machine(), platform.processor(), *_features()]
    text = json.dumps([document, values, parts, list(details)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_names(graph: Graph) -> Any:
    from coredispatch.graph.storing import to_document

    copy = graph.copy()
    for i, node in enumerate(copy.nodes):
        node.name = f"v{i}"
        node.meta.pop("source", None)
        if node.op == "placeholder":
            node.target = node.name
    return to_document(copy)


def _features() -> list[str]:
    """What distinguishes processors that one directory may serve."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n\n", 1)[0].splitlines()
    except OSError:
        return []
    wanted = ("model name", "flags", "Features", "CPU part")
    return [line for line in lines if line.startswith(wanted)]


class GraphCache:
    """Bytes by key in a directory of the user's, ``~/.cache/coredispatch/graphs/NAME``.

    An entry is written beside its place and moved there, so that a reader sees a whole one or none,
    also while other processes write. An entry that is damaged counts as none. Nothing here fails:
    where the directory cannot be used, nothing is found and nothing kept.

    What a compiler reads it may run, so the directory belongs to the user alone.

    Args:
        name: of the compiler.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def directory(self) -> Path | None:
        """Where the entries lie; None where caching is off or nobody may write."""
        chosen = os.environ.get(DIRECTORY_VARIABLE)
        if chosen == "":
            return None
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        base = Path(chosen) if chosen else Path(home) / "coredispatch" / "graphs"
        path = base / self.name
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = path.stat()
        except OSError:
            return None
        if hasattr(os, "getuid") and (
            status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o002
        ):
            return None
        return path

    def get(self, key: str | None) -> bytes | None:
        """What was kept under ``key``, None where there is nothing whole."""
        directory = None if key is None else self.directory()
        if directory is None or key is None:
            return None
        try:
            data = (directory / key).read_bytes()
        except OSError:
            return None
        body = data[_DIGEST:]
        return body if hashlib.sha256(body).digest() == data[:_DIGEST] else None

    def put(self, key: str | None, data: bytes) -> None:
        """Keep ``data`` under ``key``; the last of several writers wins, with the same bytes."""
        directory = None if key is None else self.directory()
        if directory is None or key is None:
            return
        try:
            handle, name = tempfile.mkstemp(prefix=".new-", dir=directory)
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(data).digest() + data)
            os.replace(name, directory / key)
        except OSError:
            pass
        finally:
            if os.path.exists(name):
                os.unlink(name)
