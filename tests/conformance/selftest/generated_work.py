"""Generated mutants of the size of the work, of time, and of rounding.

As the others they are trigger x effect, derived from the operator: sizes that its calls reach,
calls that were made before, and the operations whose results the standard fixes to the last bit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..checks.exactness import PRODUCTS, ROUNDED, SUMS, WHOLE
from ..context import has_values
from ..subject import OpMetadata, Subject
from .mutants import Mutant, Mutation, drawn
from .rounding_faults import half_sums, in_floats, naive, rounding, tensor_floats
from .size_faults import arrays_in, outputs_of

__all__ = ["generate_work"]

PER_OP = 5
Change = Callable[[Any], None]


def _largest(arrays: list[Any]) -> int:
    return max((a.size for a in arrays), default=0)


def _longest(arrays: list[Any]) -> int:
    return max((n for a in arrays for n in a.shape), default=0)


def _ranks(arrays: list[Any]) -> int:
    return max((a.ndim for a in arrays), default=0)


#: name -> when a call is large; those of elementwise operators alone come last
SIZES: dict[str, Callable[[list[Any]], bool]] = {
    "over 1000 elements": lambda arrays: _largest(arrays) > 1000,
    "over 2048 elements": lambda arrays: _largest(arrays) > 2048,
    "a dimension over 500": lambda arrays: _longest(arrays) > 500,
    "a dimension over 1024": lambda arrays: _longest(arrays) > 1024,
    "five dimensions or more": lambda arrays: _ranks(arrays) > 4,
}
ELEMENTWISE: dict[str, Callable[[list[Any]], bool]] = {
    "over 4096 elements": lambda arrays: _largest(arrays) > 4096,
    "over 32768 elements": lambda arrays: _largest(arrays) > 32768,
    "eight dimensions": lambda arrays: _ranks(arrays) > 7,
}


def _last(flat: Any) -> None:
    flat[-1:] = _other(flat[-1:])


def _middle(flat: Any) -> None:
    flat[flat.size // 2 : flat.size // 2 + 1] = _other(flat[flat.size // 2 : flat.size // 2 + 1])


def _tail(flat: Any) -> None:
    left = flat.size % 8 or 1
    flat[-left:] = _other(flat[-left:])


def _everything(flat: Any) -> None:
    flat[:] = _other(flat)


def _other(values: Any) -> Any:
    """Other values of the same dtype, far enough to be wrong."""
    if values.dtype.kind == "b":
        return ~values
    if values.dtype.kind in "iu":
        return values + values.dtype.type(1)
    return values * values.dtype.type(1.25) + values.dtype.type(0.37)  # no integer stays


CHANGES: dict[str, Change] = {
    "the last element": _last,
    "the middle element": _middle,
    "the tail at n % 8": _tail,
    "everything": _everything,
}


def _changed(result: Any, change: Change) -> Any:
    parts = outputs_of(result)
    if parts[0].size:
        flat = parts[0].reshape(-1)
        change(flat)
        parts[0] = flat.reshape(parts[0].shape)
    if not isinstance(result, (list, tuple)):
        return parts[0]
    return type(result)(parts) if type(result) in (list, tuple) else tuple(parts)


def _large(mutant: Mutant, when: Callable[[list[Any]], bool], change: Change) -> Mutation:
    def mutation(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        if not when(arrays_in(raws)):
            return result
        mutant.fired += 1
        return _changed(result, change)

    return mutation


def _late(mutant: Mutant, first: int, change: Change) -> Mutation:
    """Wrong from the ``first`` call on, now and then."""
    calls = [0]

    def mutation(correct: Any, raws: Any) -> Any:
        calls[0] += 1
        result = correct(*raws)
        if calls[0] < first or calls[0] % 7:
            return result
        mutant.fired += 1
        return _changed(result, change)

    return mutation


def _crowded(mutant: Mutant, most: int, change: Change) -> Mutation:
    """Wrong while more than ``most`` threads are inside."""
    inside = [0]

    def mutation(correct: Any, raws: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return correct(*raws)
        inside[0] += 1
        try:
            time.sleep(1e-4)
            crowded = inside[0] > most
            result = correct(*raws)
        finally:
            inside[0] -= 1
        mutant.fired += crowded
        return _changed(result, change) if crowded else result

    return mutation


def _keeping(mutant: Mutant, what: str) -> Mutation:
    """Keeps its inputs or its results alive, now and then."""
    kept: list[Any] = []
    calls = [0]

    def mutation(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        calls[0] += 1
        if calls[0] % 3 == 0 and len(kept) < 4000:
            kept.append(np.array(result[0] if isinstance(result, (list, tuple)) else result))
            kept.append(arrays_in(raws) if what == "inputs" else bytearray(600))
        mutant.fired += 1
        return result

    return mutation


def _rounding(metadata: OpMetadata) -> Iterator[tuple[str, Any]]:
    """Mutations of what the standard fixes for this operator."""
    name, dtypes = metadata.name, metadata.dtypes
    if name in ROUNDED and name != "sqrt":
        exact = ROUNDED[name]
        for dtype in ("float16", "float32", "float64"):
            kind = np.dtype(dtype)
            up = lambda a, b, e=exact: np.nextafter(e(a, b), np.inf, dtype=a.dtype)  # noqa: E731
            yield f"rounds up in {dtype}", rounding((kind,), up)
    if (
        name in WHOLE
        and "int64" in dtypes
        and name not in ("cat", "gather", "flip", "index_select")
    ):
        yield "64-bit integers in double", in_floats
    if name in ("sum", "mean", "cumsum"):
        for dtype in (np.float16, np.float32):
            plain = naive((dtype,), mean=name == "mean", scan=name == "cumsum")
            yield f"one accumulator of {np.dtype(dtype).name}", plain
    if name in PRODUCTS and name not in ("mv", "dot", "addmm"):
        inner = lambda arrays: int(arrays[0].shape[-1])  # noqa: E731
        channels = lambda arrays: int(arrays[0].shape[1])  # noqa: E731
        length = channels if "conv" in name else inner
        yield "TF32 from 300 on", tensor_floats(300, length)
        if name in ("matmul", "mm", "bmm"):
            yield "halves add up in half precision from 128 on", half_sums(128)


def _pairs(metadata: OpMetadata) -> Iterator[tuple[str, str, Callable[[Mutant], Mutation]]]:
    op = metadata.op
    whole = op.name == "to_dtype" or (metadata.elementwise and not op.view)
    sizes = {**SIZES, **(ELEMENTWISE if whole and op.name not in SUMS else {})}
    for name, when in sizes.items():
        for what, change in CHANGES.items():
            yield "size", f"{what} on {name}", lambda m, w=when, c=change: _large(m, w, c)
    for first in (60, 200, 400):
        for what, change in CHANGES.items():
            yield (
                "state",
                f"{what} from call {first} on",
                (lambda m, f=first, c=change: _late(m, f, c)),
            )
    for most in (1, 4):
        yield (
            "state",
            f"everything where more than {most} threads are inside",
            (lambda m, n=most: _crowded(m, n, _everything)),
        )
    for what in ("inputs", "results"):
        yield "state", f"{what} stay alive", lambda m, w=what: _keeping(m, w)


_CHECKS = {"size": 30, "state": 31, "rounding": 32}


def generate_work(subject: Subject, name: str, count: int = PER_OP) -> list[Mutant]:
    """``count`` mutants of one operator, beside those of its rounding; all of them for -1."""
    metadata = subject.metadata(name)
    op = metadata.op
    if op.samples is None or not has_values(op) or op.factory or op.mutates or not metadata.native:
        return []
    pairs = [(f"{kind}/{what}", (kind, what, make)) for kind, what, make in _pairs(metadata)]
    made = []
    for _, (kind, what, make) in drawn(name, pairs, count):
        mutant = Mutant(f"{name}: {what}", name, ops=(name,), checks=(_CHECKS[kind],))
        mutant.mutation = make(mutant)
        mutant.details.update(trigger=what, effect=kind)
        made.append(mutant)
    for what, mutation in _rounding(metadata):
        mutant = Mutant(f"{name}: {what}", name, ops=(name,), checks=(32,))
        mutant.mutation = _noted(mutant, mutation)
        mutant.details.update(trigger=what, effect="rounding")
        made.append(mutant)
    return made


def _noted(mutant: Mutant, mutation: Mutation) -> Mutation:
    """The mutation, with a count of the calls whose bits it changed."""

    def run(correct: Any, raws: Any) -> Any:
        found, plain = mutation(correct, raws), correct(*raws)
        mutant.fired += np.asarray(found).tobytes() != np.asarray(plain).tobytes()
        return found

    return run
