"""The execution context of a kernel: a ``contextvars.Context`` prepared once and entered per call.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from typing import Any


class KernelContext:
    """The :class:`contextvars.Context` that kernels run in; ``run(fn, *args)`` prepares it.

    A context can be entered once at a time. A caller that finds it ``busy`` (another thread, or a
    finalizer that runs inside a kernel) takes a copy, which costs 0.1 us more. No Python function
    may be called between looking at ``busy`` and setting it: another thread could take over there.
    """

    def __init__(self, context: Any = None) -> None:
        if context is None:
            context = Context()
        self.context: Any = context
        self.run: Any = context.run
        self.busy: bool = False

    def call(self, fn: Any, raws: Sequence[Any]) -> Any:
        """``fn(*raws)`` inside the context."""
        if self.busy:
            return self.context.copy().run(fn, *raws)
        self.busy = True
        try:
            return self.run(fn, *raws)
        finally:
            self.busy = False
