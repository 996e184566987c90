"""``cd._dynamo``: marks and settings of a compiler that is not there yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from coredispatch.frontend.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
)

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "disallow_in_graph",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "reset",
]

#: settings are kept, and read by nobody while there is no compiler
config = SimpleNamespace(
    cache_size_limit=8, recompile_limit=8, suppress_errors=False, verbose=False, disable=False
)


def disallow_in_graph(fn: Any) -> Any:
    """A mark: a compiler leaves ``fn`` to Python. Returns it."""
    return fn


def graph_break(msg: str = "") -> None:
    """A mark: a compiler stops here and goes on behind it."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """A mark: the length of a dimension varies."""


def mark_static(t: Any, index: Any = None) -> None:
    """A mark: the length of a dimension does not vary."""
