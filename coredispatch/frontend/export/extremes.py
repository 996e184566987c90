"""``min`` and ``max`` of open sizes, as a program that is exported calls them.

Python's own compare and return one of their arguments, so that a graph would hold for one order of
the sizes only. While a program is followed, others stand in ``builtins``: of open sizes they give
an expression, and of everything else what Python's own give.
"""

from __future__ import annotations

import builtins
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from coredispatch.graph.symbols import EXTREMES, Expression, SymbolTable, extreme

__all__ = ["open_extremes"]

_LOCK = threading.Lock()
#: the tables of the programs that are followed now, in any thread
_TABLES: list[SymbolTable] = []
_PLAIN: dict[str, Callable[..., Any]] = {kind: function for function, kind in EXTREMES.items()}


@contextmanager
def open_extremes(table: SymbolTable) -> Iterator[None]:
    """A block in which ``min`` and ``max`` of the sizes of ``table`` stay open."""
    with _LOCK:
        _TABLES.append(table)
        _put(_OPEN)
    try:
        yield
    finally:
        with _LOCK:
            del _TABLES[next(i for i, other in enumerate(_TABLES) if other is table)]
            if not _TABLES:
                _put(_PLAIN)


def _put(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Write to ``builtins`` what is not somebody else's: a test may have put his own there."""
    for kind, function in functions.items():
        if getattr(builtins, kind) in (_PLAIN[kind], _OPEN[kind]):
            setattr(builtins, kind, function)


class _Open:
    """``min`` or ``max`` of open sizes too; equal to Python's own.

    Numba looks functions up by equality. It may compile in another thread while a program is
    followed, and remembers for good what it could not compile.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.plain = _PLAIN[kind]
        functools.update_wrapper(self, self.plain)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs:
            args = tuple(args[0])
            if len(args) < 2:
                return self.plain(args)
        if not kwargs and any(map(_followed, args)) and all(map(_number, args)):
            return functools.reduce(functools.partial(extreme, self.kind), args)
        return self.plain(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.plain

    def __hash__(self) -> int:
        return hash(self.plain)


_OPEN = {kind: _Open(kind) for kind in _PLAIN}


def _followed(value: Any) -> bool:
    return isinstance(value, Expression) and any(value.table is table for table in _TABLES)


def _number(value: Any) -> bool:
    return isinstance(value, Expression) or type(value) in (bool, int, float)
