"""How long the compilers of a compiled function take, for its report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from coredispatch.graph import Graph
from coredispatch.graph.compilers import Compiler, eager

__all__ = ["Timed", "timed"]


class Timed:
    """A compiler, and how long it took in all.

    Attributes:
        seconds: of all its calls, also of those that failed.
    """

    def __init__(self, compiler: Compiler) -> None:
        self.compiler, self.seconds = compiler, 0.0

    def __call__(self, graph: Graph, inputs: Sequence[Any]) -> Any:
        begin = time.perf_counter()
        try:
            return self.compiler(graph, inputs)
        finally:
            self.seconds += time.perf_counter() - begin


def timed(compiler: Any) -> Any:
    """The compiler with its time. The interpreter compiles nothing, and is known by what it is."""
    return compiler if compiler is eager else Timed(compiler)
