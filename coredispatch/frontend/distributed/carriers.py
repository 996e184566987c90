"""Arrays as engines take them: contiguous, of plain dtypes.

MPI and sockets know neither bool nor float16 nor bfloat16. What is copied travels as unsigned
integers of the same width. What is added up travels as float32, which is also more accurate; bool
is combined as 0 and 1. Arrays with strides travel as contiguous copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coredispatch.registry.model.errors import ArgumentError

__all__ = [
    "LIBRARIES",
    "bits",
    "check_reduction",
    "check_writable",
    "contiguous",
    "divided",
    "entry_of",
    "joined",
    "library_of",
    "reduced",
    "settle",
]

#: class of arrays -> the backend key that they have, and the library that computes with them
LIBRARIES: dict[type, tuple[str, Any]] = {np.ndarray: ("cpu", np)}

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_PLAIN = {np.dtype(name) for name in "bBhHiIlLqQfdFD"}
_BOOL = {"sum": "max", "max": "max", "bor": "max", "product": "min", "min": "min", "band": "min"}
Finish = Callable[[], None]


def entry_of(array: Any) -> tuple[str, Any]:
    """The backend key and the library of an array. TypeError for one that nobody declared."""
    found = LIBRARIES.get(type(array))
    if found is None:
        found = next((e for kind, e in LIBRARIES.items() if isinstance(array, kind)), None)
    if found is None:
        raise TypeError(f"collectives know no arrays of class {type(array).__name__}")
    return found


def library_of(array: Any) -> Any:
    """NumPy, or the library that made the array."""
    return entry_of(array)[1]


def _ready(array: Any) -> bool:
    """Whether an engine can take the memory as it is; a device's is always aligned."""
    flags = array.flags
    return bool(flags.c_contiguous and getattr(flags, "aligned", True))


def bits(array: Any) -> Any:
    """The same memory under a plain dtype of the same width."""
    return array if array.dtype in _PLAIN else array.view(_WORDS[array.dtype.itemsize])


def check_writable(*arrays: Any) -> None:
    """Refuse outputs whose elements share memory: the values of some would be lost."""
    for array in arrays:
        if not getattr(array.flags, "writeable", True):
            raise ArgumentError(
                f"several elements of an output of shape {tuple(array.shape)} share memory, as in "
                "an expanded tensor",
                fix="clone() it, and pass the clone",
            )


def contiguous(array: Any, *, read: bool, written: bool) -> tuple[Any, Finish | None]:
    """`array` as contiguous memory to read or write, and what copies the result back."""
    if _ready(array):
        return bits(array), None
    if written:
        check_writable(array)
    xp = library_of(array)
    copy = xp.ascontiguousarray(array) if read else xp.empty(array.shape, array.dtype)

    def back() -> None:
        array[...] = copy

    return bits(copy), back if written else None


def check_reduction(name: str, dtype: Any, op: str) -> None:
    """Refuse operations that the dtype has not."""
    if op == "sum":
        return
    kind = dtype.kind
    if kind == "c" and op != "avg":
        raise ArgumentError(
            f"{name} does not support ReduceOp.{op.upper()} on complex tensors",
            fix="reduce view_as_real(tensor)",
        )
    if op in ("band", "bor", "bxor") and kind not in "iub":
        raise ArgumentError(
            f"{name}: ReduceOp.{op.upper()} combines bits, and {dtype} is no integer",
            fix="use an integer tensor, or another operation",
        )
    if op == "avg" and kind == "b":
        raise ArgumentError(f"{name}: no ReduceOp.AVG of bool", fix="use a float tensor")


def reduced(array: Any, op: str) -> tuple[Any, str]:
    """A contiguous array and an operation that stand for combining `array` by `op`.

    The array is `array` itself where that will do, so that an engine can write it in place.
    """
    op = "sum" if op == "avg" else op
    dtype = array.dtype
    plain = dtype in _PLAIN
    if plain and _ready(array):
        return array, op
    xp = library_of(array)
    if dtype.kind == "b":
        return xp.ascontiguousarray(array).view(np.uint8), _BOOL.get(op, op)
    if plain:
        return xp.ascontiguousarray(array), op
    return xp.ascontiguousarray(array).astype(np.float32), op


def divided(value: Any, size: int) -> Any:
    """The average that a sum of `size` ranks means; integers are rounded down."""
    if value.dtype.kind in "iu":
        return value // size
    if value.dtype.kind == "c":  # a quotient of complex numbers would be rounded more than once
        value = value.copy()
        value.real /= size
        value.imag /= size
        return value
    return value / size


def settle(target: Any, carried: Any, op: str, size: int) -> Finish | None:
    """What writes the combined `carried` into `target`; None where nothing is left to do."""
    average = op == "avg"
    if carried is target and not average:
        return None
    same_memory = carried.dtype == np.uint8 and library_of(target).shares_memory(carried, target)
    if same_memory and not average:
        return None
    check_writable(target)

    if carried is target and target.dtype.kind == "f":

        def divide() -> None:
            library_of(target).divide(target, size, out=target)

        return divide

    @np.errstate(over="ignore", invalid="ignore")  # what float16 cannot hold is infinite
    def finish() -> None:
        value = carried
        if average:
            value = divided(value, size)
        if target.dtype.kind == "b" and value.dtype == np.uint8:
            value = value.view(np.bool_)
        target[...] = (
            library_of(target).asarray(value).astype(target.dtype, copy=False).reshape(target.shape)
        )

    return finish


def joined(arrays: Sequence[Any], *, read: bool) -> tuple[Any, Finish]:
    """Several arrays of one dtype as one flat array, and what copies it back to them."""
    counts = [array.size for array in arrays]
    if not read:
        check_writable(*arrays)
    xp = library_of(arrays[0])
    if read:
        flat = xp.concatenate([array.reshape(-1) for array in arrays])
    else:
        flat = xp.empty(sum(counts), arrays[0].dtype)

    def back() -> None:
        at = 0
        for array, count in zip(arrays, counts, strict=True):
            array[...] = flat[at : at + count].reshape(array.shape)
            at += count

    return flat, back
