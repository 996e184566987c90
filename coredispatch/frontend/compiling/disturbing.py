"""Python that is no part of the program: kernels of third parties, derivatives of their functions.

A graph calls it as it stands. What it does to Python's state it does at each such call; a capture
that took it for the program's own would do it once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.frontend.compiling.records import FIXED, Record, equal

__all__ = ["undisturbed"]


@contextmanager
def undisturbed(state: Iterable[Record], recorder: Any, what: str, *, back: bool) -> Iterator[None]:
    """Refuse the capture where the block changes something that the program depends on.

    ``back`` says that the program itself would not have run the block: then it is put back.
    """
    before = {id(record): record.now() for record in state}
    yield
    for record in list(state):
        was = before.get(id(record), record.value)
        now = record.now()
        if now is was or equal(now, was):
            continue
        if back and record.kind not in FIXED:
            record.put(was)
        recorder.refuse(f"{what} changes {record.how}, each time that it runs")
