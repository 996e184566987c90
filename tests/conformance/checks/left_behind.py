"""Check 31: that many calls leave nothing behind, where few would not show it.

``process`` in ``state`` looks around a hundred small calls. A kernel that prints at its 500th
call, or sets a variable where an operand is large, is seen around the calls that are made so.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..context import Context
from ..process_state import Outputs, drifting, growing, lasting

__all__ = ["SETTLES", "leaves_nothing", "leaves_nothing_twice", "silent"]

#: seconds that a backend's own threads may need to end what they began
SETTLES = 0.5


@contextmanager
def silent(context: Context, what: str) -> Iterator[None]:
    """Assert that the calls inside print nothing."""
    with Outputs() as outputs:
        yield
    said = outputs.text()
    context.expect(not said, f"one of {what} prints: {said[:80]!r}")


@contextmanager
def leaves_nothing(context: Context, what: str) -> Iterator[None]:
    """Assert that the calls inside print nothing and change nothing that nobody else changes.

    What is imported or compiled once, and may set something once, is so already: similar calls were
    made before. What they set is put back first, so that what sets it every time shows.
    """
    context.subject.state.restore()
    kept, filters = (lasting(), drifting()), [*warnings.filters]
    with silent(context, what):
        yield
    later = lasting(), drifting()
    changed = [text for a, b in zip(kept, later, strict=True) for text in a.differences(b)]
    if [*warnings.filters] != filters:
        changed.append("the filters of warnings")
    for state in kept:
        state.restore()
    warnings.filters[:] = filters  # type: ignore[index]
    context.expect(not changed, f"one of {what} changes {'; '.join(changed)}")


def leaves_nothing_twice(context: Context, calls: Callable[[], None], what: str) -> None:
    """Like :func:`leaves_nothing`; and open files and threads do not grow with every round.

    A backend may open a file or start a thread in the middle of its work, and close it later.
    Only what grows in two rounds, and has not gone after a while, counts.
    """
    for _ in range(2):
        kept = growing()
        with leaves_nothing(context, what):
            calls()
        if not kept.grown(growing()):
            return
        time.sleep(SETTLES)
        grown = kept.grown(growing())
        if not grown:
            return
    context.expect(False, f"{what} leave more behind each time: {'; '.join(grown)}")
