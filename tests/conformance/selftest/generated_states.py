"""Generated mutants of state: what a kernel remembers, shares, keeps, and leaves behind.

As the others they are trigger x effect. The trigger is when: after so many calls, on the second
size, in another thread; the effect is a wrong result, memory, or a change of the process.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd

from ..context import has_values
from ..subject import Subject
from .mutants import Mutant, Mutation, drawn
from .size_faults import arrays_in, outputs_of

__all__ = ["OPERATORS", "generate_states"]

PER_OP = 1
#: operators whose state goes wrong unless others are asked for
OPERATORS = (
    "sub", "div", "neg", "log", "cos", "erf", "reciprocal", "lt", "logical_and", "minimum",
    "hardtanh", "silu", "leaky_relu", "amin", "argmin", "all", "cumprod", "topk", "std", "mm",
    "addmm", "dot", "convolution", "max_pool", "avg_pool", "log_softmax", "group_norm", "triu",
    "roll", "stack", "scatter_add", "index_put", "masked_fill", "isnan", "round", "atan2",
    "linalg_inv", "cholesky", "fft_c2c", "where", "gather", "pow", "repeat", "sign", "bmm",
    "softmax", "sum", "cat",
)  # fmt: skip

Occasion = Callable[[list[Any]], bool]


class _From:
    """From the call ``first`` on, every ``every``-th."""

    def __init__(self, first: int, every: int) -> None:
        self.calls, self.first, self.every = 0, first, every

    def __call__(self, arrays: list[Any]) -> bool:
        self.calls += 1
        return self.calls >= self.first and self.calls % self.every == 0


class _NewSize:
    """At the first call of each size but the first."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def __call__(self, arrays: list[Any]) -> bool:
        shapes = tuple(a.shape for a in arrays)
        new = shapes not in self.seen
        self.seen.add(shapes)
        return new and len(self.seen) > 1


class _SizeAgain:
    """Where a size comes back after another one."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()
        self.last: Any = None

    def __call__(self, arrays: list[Any]) -> bool:
        shapes = tuple(a.shape for a in arrays)
        again = shapes in self.seen and self.last != shapes
        self.seen.add(shapes)
        self.last = shapes
        return again


class _Smaller:
    """After a call with more elements: a buffer that is too large now."""

    def __init__(self) -> None:
        self.largest = 0

    def __call__(self, arrays: list[Any]) -> bool:
        size = max((a.size for a in arrays), default=0)
        smaller = 0 < size < self.largest
        self.largest = max(self.largest, size)
        return smaller


def _other_thread(arrays: list[Any]) -> bool:
    return threading.current_thread() is not threading.main_thread()


class _ThirdThread:
    """In each thread but the first two that call."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, arrays: list[Any]) -> bool:
        here = threading.get_ident()
        if here not in self.seen:
            self.seen.append(here)
        return self.seen.index(here) > 1


OCCASIONS: dict[str, Callable[[], Occasion]] = {
    "from call 100 on": lambda: _From(100, 1),
    "at every 50th call": lambda: _From(0, 50),
    "from call 300 on, now and then": lambda: _From(300, 11),
    "on each new size": _NewSize,
    "where a size comes back": _SizeAgain,
    "after a larger call": _Smaller,
    "in another thread": lambda: _other_thread,
    "in the third thread": _ThirdThread,
}
#: a change of what is not the kernel's -> when
_ERRORS: dict[str, Callable[[], Any]] = {
    "prints": lambda: print("kernel"),
    "writes to the descriptor of output": lambda: os.write(1, b"kernel\n"),
    "draws from NumPy's generator": lambda: np.random.random(),  # noqa: NPY002
    "draws from Python's generator": random.random,
    "draws from coredispatch's generator": lambda: cd.rand(1),
    "sets a variable of the environment": lambda: os.environ.update(CONFORMANCE_MUTANT="1"),
    "changes the working directory": lambda: os.chdir("/"),
    "extends the search path": lambda: sys.path.append("conformance-mutant"),
    "adds a filter of warnings": lambda: warnings.simplefilter("error", BytesWarning),
    "changes the default dtype": lambda: cd.set_default_dtype(cd.float64),
    "turns gradients off": lambda: cd.set_grad_enabled(False),
    "changes how arrays are printed": lambda: np.set_printoptions(precision=3),
    "changes the mask of new files": lambda: os.umask(0o077),
    "raises the limit of recursion": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
}
LEFT: dict[str, tuple[Callable[[], Any], Callable[[], Occasion]]] = {
    f"{what} {when}": (change, occasion)
    for what, change in _ERRORS.items()
    for when, occasion in (
        ("at every call", lambda: _From(0, 1)),
        ("from call 60 on", lambda: _From(60, 1)),
    )
}


def _remembered(parts: list[Any], memory: dict[Any, Any]) -> None:
    """The first element is that of the last result with the same shape."""
    first = parts[0]
    key = (first.shape, first.dtype.str)
    before, memory[key] = memory.get(key), first.reshape(-1)[:1].copy()
    if before is not None:
        first.reshape(-1)[:1] = before


def _off(parts: list[Any], memory: dict[Any, Any]) -> None:
    """The last element is another."""
    flat = parts[0].reshape(-1)
    flat[-1:] = ~flat[-1:] if flat.dtype.kind == "b" else flat[-1:] + flat.dtype.type(1)


def _cleared(parts: list[Any], memory: dict[Any, Any]) -> None:
    """Everything is what a buffer holds that nobody filled."""
    parts[0][...] = parts[0].dtype.type(1)


WRONG: dict[str, Callable[[list[Any], dict[Any, Any]], None]] = {
    "the first element of the call before": _remembered,
    "another last element": _off,
    "a buffer that nobody filled": _cleared,
}


def _again(result: Any, parts: list[Any]) -> Any:
    if not isinstance(result, (list, tuple)):
        return parts[0]
    return type(result)(parts) if type(result) in (list, tuple) else tuple(parts)


def _wrong(change: Any, occasion: Occasion) -> Mutation:
    memory: dict[Any, Any] = {}

    def mutation(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        parts = outputs_of(result)
        if not parts or not parts[0].size or not occasion(arrays_in(raws)):
            return result
        change(parts, memory)
        return _again(result, parts)

    return mutation


def _leaving(change: Callable[[], Any], occasion: Occasion) -> Mutation:
    def mutation(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        if occasion(arrays_in(raws)):
            change()
        return result

    return mutation


def _ring(length: int) -> Mutation:
    """The memory of a result is handed out again after ``length`` others of its shape."""
    rings: dict[Any, list[Any]] = {}
    turns: dict[Any, int] = {}

    def mutation(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        parts = outputs_of(result)
        if not parts:
            return result
        key = (parts[0].shape, parts[0].dtype.str)
        ring = rings.setdefault(key, [])
        if len(ring) < length:
            ring.append(parts[0])
            return _again(result, parts)
        turns[key] = turns.get(key, -1) + 1
        buffer = ring[turns[key] % length]
        buffer[...] = parts[0]
        return _again(result, [buffer, *parts[1:]])

    return mutation


def _keeping(every: int, what: str) -> Mutation:
    """Every so many calls, inputs, results or a log of them stay alive."""
    kept: list[Any] = []
    calls = [0]

    def mutation(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        calls[0] += 1
        if calls[0] % every == 0 and len(kept) < 5000:
            held = {"inputs": arrays_in(raws), "results": outputs_of(result), "a log": None}[what]
            kept.append(bytearray(900) if held is None else (held, bytearray(200)))
        return result

    return mutation


def _scratch(every: int) -> Mutation:
    """An operand is written to, every so many calls."""
    calls = [0]

    def mutation(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        parts = outputs_of(result)
        calls[0] += 1
        arrays = [a for a in arrays_in(raws) if a.size and a.flags.writeable]
        if calls[0] % every == 0 and arrays:
            spot = (0,) * arrays[-1].ndim
            arrays[-1][spot] = ~arrays[-1][spot] if arrays[-1].dtype.kind == "b" else 1
        return _again(result, parts)

    return mutation


def _faults() -> Iterator[tuple[str, Callable[[], Mutation]]]:
    for when, occasion in OCCASIONS.items():
        for what, change in WRONG.items():
            if change is _remembered and occasion is _NewSize:
                continue  # of a new size nothing is remembered
            yield f"{what} {when}", lambda c=change, o=occasion: _wrong(c, o())
    for what, (effect, occasion) in LEFT.items():
        yield what, lambda c=effect, o=occasion: _leaving(c, o())
    for length in (1, 2, 20, 200):
        yield f"memory is handed out again after {length}", lambda n=length: _ring(n)
    for every in (1, 4, 8):
        for what in ("inputs", "results", "a log"):
            yield (
                f"{what} of every {every}. call stay alive",
                lambda n=every, w=what: _keeping(n, w),
            )
    for every in (1, 10, 120):
        yield f"an operand is written to at every {every}. call", lambda n=every: _scratch(n)


def generate_states(subject: Subject, name: str, count: int = PER_OP) -> list[Mutant]:
    """``count`` mutants of one operator's state, or all of them for -1."""
    metadata = subject.metadata(name)
    op = metadata.op
    if op.samples is None or not has_values(op) or op.factory or op.mutates or not metadata.native:
        return []
    if op.view:
        return []
    made = []
    for what, make in drawn(name, [*_faults()], count):
        checks = (31,) if what in LEFT else (1, 6, 26, 31)
        mutant = Mutant(f"{name}: {what}", name, make(), ops=(name,), checks=checks)
        mutant.details.update(trigger=what)
        made.append(mutant)
    return made
