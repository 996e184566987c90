"""Shape and dtype rules that operator definitions share.

A rule gets an op's complete argument list in schema order. Rules run for meta tensors, for
error messages and in the conformance suite, never on the path of an ordinary call. Tensor
arguments have ``shape``, ``ndim`` and ``dtype``; everything else is passed as the caller wrote
it (dims already ints or tuples of ints).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from coredispatch.ops.support.tolerance import (
    conditioned,
    dot,
    exact,
    recurrence,
    transform,
    ulp,
)
from coredispatch.registry.model.dtypes import (
    ALL_DTYPES,
    DType,
    Promotion,
    bool_,
    int64,
    same,
)
from coredispatch.registry.model.errors import ChoiceError, DTypeError, OptionError, ShapeError
from coredispatch.registry.model.sizes import normalize_dim, normalize_dims

__all__ = [
    "NUMBER",
    "REAL_NUMBER",
    "accumulated",
    "boolean",
    "broadcast",
    "broadcast_shapes",
    "conditioned",
    "dot",
    "exact",
    "indices",
    "normalize_dim",
    "normalize_dims",
    "promote",
    "promote_float",
    "real_like",
    "recurrence",
    "reduced",
    "reduced_shape",
    "require_int",
    "require_one_of",
    "same",
    "same_shape",
    "transform",
    "ulp",
    "values_and_indices",
]

Shape = tuple[int, ...]

# Domains for ops that refuse bool (an op's ``dtypes=``).
NUMBER = tuple(d for d in ALL_DTYPES if d.category > 0)
REAL_NUMBER = tuple(d for d in NUMBER if not d.is_complex)

promote = Promotion("promote")
promote_float = Promotion("promote_float", to_float=True)
boolean = Promotion("boolean", result=bool_)


# ---- dims -------------------------------------------------------------------------------------


# ---- shape rules ------------------------------------------------------------------------------


def broadcast_shapes(shapes: Iterable[Shape]) -> Shape:
    """The common shape of ``shapes`` under NumPy's broadcasting rules.

    Raises :class:`ShapeError` naming the first dimension that does not fit.
    """
    shapes = [tuple(shape) for shape in shapes]
    result = [1] * max((len(s) for s in shapes), default=0)
    for shape in shapes:
        offset = len(result) - len(shape)
        for i, size in enumerate(shape, offset):
            if size == 1 or size == result[i]:
                continue
            if result[i] != 1:
                raise ShapeError(
                    f"shapes {' and '.join(map(str, shapes))} do not broadcast: "
                    f"they have {result[i]} and {size} elements along dimension {i - len(result)}",
                    fix="make the sizes equal, or one of them 1 (unsqueeze adds such a dimension)",
                )
            result[i] = size
    return tuple(result)


def broadcast(*args: Any) -> Shape:
    """The broadcast shape of all tensor arguments; numbers and options do not take part."""
    return broadcast_shapes(a.shape for a in args if hasattr(a, "shape"))


def same_shape(self: Any, *_: Any) -> Shape:
    """The shape of the first tensor."""
    return tuple(self.shape)


def reduced_shape(shape: Shape, dim: int | Sequence[int] | None, keepdim: bool = False) -> Shape:
    """``shape`` with the reduced dims removed, or kept with size 1."""
    dims = normalize_dims(dim, len(shape))
    if keepdim:
        return tuple(1 if i in dims else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in dims)


def reduced(self: Any, dim: Any = None, keepdim: bool = False, *_: Any) -> Shape:
    """Shape rule of ``op(self, dim, keepdim, ...)``; ``dim`` None reduces every dimension."""
    return reduced_shape(tuple(self.shape), dim, keepdim)


# ---- dtype rules ------------------------------------------------------------------------------


def indices(*_: Any) -> DType:
    """int64, the dtype of every index result."""
    return int64


def values_and_indices(self: Any, *_: Any) -> tuple[DType, DType]:
    """The input's dtype for the values, int64 for the indices."""
    return DType.of(self.dtype), int64


def accumulated(self: Any, dim: Any = None, keepdim: Any = None, dtype: Any = None) -> DType:
    """Sums and products: ``dtype`` when given, int64 for bool and integers, else the input's."""
    if dtype is not None:
        return DType.of(dtype)
    own = DType.of(self.dtype)
    return int64 if own.category < 2 else own


def real_like(self: Any, *_: Any) -> DType:
    """The input's dtype, or the component dtype of a complex input (``abs``, ``angle``)."""
    return DType.of(self.dtype).to_real()


# ---- argument checks for decompositions and kernels
# ---------------------------------------------------


def require_int(op: str, *tensors: Any) -> None:
    """Raise :class:`DTypeError` unless every argument is a bool or integer tensor or number."""
    for t in tensors:
        if isinstance(t, int):
            continue
        dtype = DType.of(t.dtype) if hasattr(t, "dtype") else None
        if dtype is None or dtype.category > 1:
            raise DTypeError(
                f"{op} is defined for bool and integer tensors, got {dtype or type(t).__name__}",
                fix="convert with x.to(cd.int64)",
            )


def require_one_of(
    name: str, value: Any, allowed: Sequence[Any], error: type[OptionError] = ChoiceError
) -> None:
    """Raise ``error`` unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise error.among(name, value, allowed)
