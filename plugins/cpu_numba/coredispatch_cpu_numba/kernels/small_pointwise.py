"""Elementwise operators on few elements, where what counts is the number of calls.

A kernel here is one call of a compiled function, which looks at the arguments, makes the result and
has the loop of ``kernels.elementwise.pointwise`` fill it. The function takes contiguous arrays of
float32 or float64 of one shape, and beside an array also a number or a row for each of its rows.
Arrays in another order, and others that broadcast, go on to ``kernels.elementwise.strided``, half
precision to ``half_pointwise``; what else there is, and large arrays, it leaves to the next kernel
of the table. So it does while something is compiled in the background.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from coredispatch_cpu_numba import background
from coredispatch_cpu_numba.arrays import is_dense, is_like
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels import half_pointwise
from coredispatch_cpu_numba.kernels.elementwise.pointwise import BINARY, COMPARISON, UNARY
from coredispatch_cpu_numba.kernels.elementwise.strided import ACCEPTS_ONE, ACCEPTS_TWO, PLAIN

__all__ = ["ACCEPTS", "CALLS", "KERNELS", "PATIENT", "PRIORITY", "Tasks"]

#: the kernels reject by themselves what is not compiled yet
PATIENT = True
#: in the place of NumPy's kernels, below what others register later
PRIORITY = 0

# As ``loops.small_pointwise`` has them.
_VARIANTS = ("", "_inplace", "_scalar", "_scalar_inplace", "_row")
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))
_RESULT, _MOST, _MISSING, _TASKS = range(4)


def _made(name: str, cached_only: bool) -> Any:
    from coredispatch_cpu_numba.loops.small_pointwise import compile_function

    return compile_function(name, cached_only)


#: so many calls are left to NumPy while nothing else has asked for Numba, whose import takes 0.5 s
_FIRST_CALLS = 1000


class _Calls:
    """The compiled functions of ``loops.small_pointwise``, loaded when they are called."""

    waiting = _FIRST_CALLS

    def one(self, x: Any, out: Any, tasks: np.ndarray) -> Any:
        """An operator of one array."""
        return self._loaded("one", x, out, tasks)

    def two(self, x: Any, y: Any, out: Any, tasks: np.ndarray) -> Any:
        """An operator of an array and an array or a number."""
        return self._loaded("two", x, y, out, tasks)

    def several(self, given: tuple[Any, ...], arrays: int, out: Any, tasks: np.ndarray) -> Any:
        """An operator of so many arrays, and of numbers."""
        return self._loaded("several", given, arrays, out, tasks)

    def _loaded(self, name: str, *arguments: Any) -> Any:
        if self.waiting and "numba" not in sys.modules:
            self.waiting -= 1
            return NotImplemented
        try:
            function = background.made_by(partial(_made, name), ("small_pointwise", name))
        except background.NotReady:
            return NotImplemented
        setattr(self, name, function)  # which hides the method
        return function(*arguments)


CALLS = _Calls()


class Tasks:
    """The loops of an operator, in the array where the compiled functions look for them.

    ``split`` is the number of elements from which threads share the work of an operator.
    """

    def __init__(
        self, name: str, split: int, result: int = -1, module: str = "elementwise.pointwise"
    ) -> None:
        self.name, self.module = name, module
        self.words = np.zeros(_TASKS + len(_DTYPES) * len(_VARIANTS), np.int64)
        self.words[_RESULT], self.words[_MOST] = result, split - 1
        if result >= 0:  # no loop compares with rows
            self.words[_TASKS + _VARIANTS.index("_row") :: len(_VARIANTS)] = -1

    def complete(self, call: str, *arguments: Any) -> Any:
        """The call once more, with the loop that it was missing; NotImplemented without."""
        place = int(self.words[_MISSING])
        dtype, variant = divmod(place - _TASKS, len(_VARIANTS))
        loop = Loop(self.module, self.name + _VARIANTS[variant], 1)
        try:
            self.words[place] = loop.compiled[_DTYPES[dtype]][1]
        except background.NotReady:
            return NotImplemented
        return getattr(CALLS, call)(*arguments, self.words)


#: of arrays that lie otherwise, or broadcast
_STRIDED = {name: background.patient(kernel) for name, kernel in PLAIN.items()}


def _halves(name: str, arrays: tuple[Any, ...], out: Any) -> Any:
    """What is of half precision, by the loops for more elements."""
    if not half_pointwise.accepts(*arrays):
        return NotImplemented
    try:
        kernel = half_pointwise.FEW[name]
        return kernel(*arrays) if out is None else kernel(*arrays, out)
    except background.NotReady:
        return NotImplemented


def _unary(name: str, split: int) -> Callable[..., Any]:
    tasks = Tasks(name, split)
    words = tasks.words

    def kernel(self: Any, out: Any = None) -> Any:
        result = CALLS.one(self, out, words)
        if result is NotImplemented:
            return _STRIDED[name](self, out) if ACCEPTS_ONE(self) else _halves(name, (self,), out)
        return tasks.complete("one", self, out) if result is None else result

    kernel.__name__ = name
    return kernel


def _binary(name: str, split: int) -> Callable[..., Any]:
    tasks = Tasks(name, split)
    words = tasks.words

    def kernel(self: Any, other: Any, out: Any = None) -> Any:
        result = CALLS.two(self, other, out, words)
        if result is NotImplemented:
            if ACCEPTS_TWO(self, other):
                return _STRIDED[name](self, other, out)
            return _halves(name, (self, other), out)
        return tasks.complete("two", self, other, out) if result is None else result

    kernel.__name__ = name
    return kernel


def _fresh(name: str, split: int, result: int = -1) -> Callable[..., Any]:
    """A binary operator whose result is written into nothing that is given."""
    tasks = Tasks(name, split, result)
    words = tasks.words
    is_plain = name in PLAIN

    def kernel(self: Any, other: Any) -> Any:
        result = CALLS.two(self, other, None, words)
        if result is NotImplemented:
            if is_plain and ACCEPTS_TWO(self, other):
                return _STRIDED[name](self, other)
            return _halves(name, (self, other), None)
        return tasks.complete("two", self, other, None) if result is None else result

    kernel.__name__ = name
    return kernel


_NONE = 0.0  # no operand


def _accepts(split: int) -> Callable[..., bool]:
    """What the compiled functions find out, in short."""

    def accepts(self: Any, other: Any = _NONE, *_: Any) -> bool:
        if (ACCEPTS_ONE if other is _NONE else ACCEPTS_TWO)(self, other):
            return True
        if half_pointwise.accepts(self, other):
            return True
        if not is_dense(self, 0) or self.size >= split:
            return False
        if type(other) is not np.ndarray:
            return True
        return is_like(other, self) or other.shape == self.shape[-1:]

    return accepts


_BOOL = np.dtype(np.bool_).num
KERNELS: dict[str, Callable[..., Any]] = {}
for _name, (_, _split) in UNARY.items():
    KERNELS[_name] = _unary(_name, _split)
for _name, (_, _split) in BINARY.items():
    KERNELS[_name] = (_fresh if _name.endswith("backward") else _binary)(_name, _split)
for _name, (_, _split) in COMPARISON.items():
    KERNELS[_name] = _fresh(_name, _split, _BOOL)
ACCEPTS = {name: _accepts(split) for name, (_, split) in {**UNARY, **BINARY, **COMPARISON}.items()}
