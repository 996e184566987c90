"""Creation functions and questions about dtypes of the array API standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend import creation, limits
from coredispatch.frontend.array_api.promotion import call, result_type
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.dtypes import DType, default_dtype, promote_types
from coredispatch.registry.model.errors import ArgumentError, DTypeError

__all__ = [
    "arange", "asarray", "astype", "can_cast", "empty", "empty_like", "eye", "finfo", "from_dlpack",
    "full", "full_like", "iinfo", "isdtype", "linspace", "meshgrid", "ones", "ones_like",
    "result_type", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

Shape = int | tuple[int, ...]


def _shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _kind(values: Any) -> DType | None:
    """The default dtype of Python numbers of this kind, None of what else is left to others."""
    if isinstance(values, bool):
        return dtypes.bool_
    if isinstance(values, int):
        return dtypes.int64
    if isinstance(values, float):
        return default_dtype()
    if isinstance(values, complex):
        return default_dtype().to_complex()
    return None


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """``obj`` as an array; see :func:`coredispatch.asarray`."""
    return creation.asarray(obj, dtype=dtype, device=device, copy=copy)


def arange(
    start: float, /, stop: Any = None, step: float = 1, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Evenly spaced numbers in ``[start, stop)``; none where the step leads away."""
    if stop is None:
        start, stop = 0, start
    if (stop - start) * step <= 0:
        if dtype is None:
            whole = all(isinstance(v, int) for v in (start, stop, step))
            dtype = dtypes.int64 if whole else default_dtype()
        return zeros(0, dtype=dtype, device=device)
    return call("arange", start, stop, step, dtype=dtype, device=device)  # type: ignore[no-any-return]


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """``num`` evenly spaced numbers from ``start`` to ``stop``, that included with ``endpoint``."""
    if dtype is None and (isinstance(start, complex) or isinstance(stop, complex)):
        dtype = default_dtype().to_complex()
    count = num if endpoint else num + 1
    if dtype is not None and DType.of(dtype).is_complex:
        parts = [
            call("linspace", complex(start).real, complex(stop).real, count, dtype=dtypes.float64),
            call("linspace", complex(start).imag, complex(stop).imag, count, dtype=dtypes.float64),
        ]
        out = call("complex", *parts).to(dtype)
        out = out if device is None else out.to(device)
    else:
        out = call("linspace", start, stop, count, dtype=dtype, device=device)
    return out[:num]  # type: ignore[no-any-return]


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Ones on the diagonal ``k``, zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    dtype = default_dtype() if dtype is None else dtype
    k = max(-n_rows, min(k, n_cols))  # all diagonals beyond have no elements, whatever their number
    rows = call("arange", n_rows, device=device)
    columns = call("arange", n_cols, device=device)
    return (columns == rows[:, None] + k).to(dtype)  # type: ignore[no-any-return]


def empty(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """An array of any values."""
    return call("empty", _shape(shape), dtype=dtype, device=device)  # type: ignore[no-any-return]


def zeros(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros."""
    return call("zeros", _shape(shape), dtype=dtype, device=device)  # type: ignore[no-any-return]


def ones(shape: Shape, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones."""
    return call("ones", _shape(shape), dtype=dtype, device=device)  # type: ignore[no-any-return]


def full(shape: Shape, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """``fill_value`` everywhere."""
    dtype = _kind(fill_value) if dtype is None else dtype
    return call("full", _shape(shape), fill_value, dtype=dtype, device=device)  # type: ignore[no-any-return]


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """:func:`empty` with the shape, and unless given the dtype and device, of ``x``."""
    return call("empty_like", x, dtype=dtype, device=device)  # type: ignore[no-any-return]


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """:func:`zeros` with the shape, and unless given the dtype and device, of ``x``."""
    return call("zeros_like", x, dtype=dtype, device=device)  # type: ignore[no-any-return]


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """:func:`ones` with the shape, and unless given the dtype and device, of ``x``."""
    return call("ones_like", x, dtype=dtype, device=device)  # type: ignore[no-any-return]


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """:func:`full` with the shape, and unless given the dtype and device, of ``x``."""
    return call("full_like", x, fill_value, dtype=dtype, device=device)  # type: ignore[no-any-return]


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array that shares the memory of ``x``, unless it is copied or moved."""
    out = creation.from_dlpack(x)
    out = out if device is None else out.to(device)
    return out.clone() if copy else out


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid, one array for each dimension."""
    if len(arrays) < 2 or indexing not in ("xy", "ij"):
        if indexing not in ("xy", "ij"):
            raise ArgumentError(f"indexing={indexing!r} is neither 'xy' nor 'ij'", fix="'xy'")
        return [x.clone() for x in arrays]
    return list(call("meshgrid", list(arrays), indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle, zeros elsewhere."""
    return call("tril", x, k)  # type: ignore[no-any-return]


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle, zeros elsewhere."""
    return call("triu", x, k)  # type: ignore[no-any-return]


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """``x`` converted; without ``copy`` itself where there is nothing to do."""
    out = x.to(DType.of(dtype))
    out = out if device is None else out.to(device)
    return out.clone() if copy and out is x else out


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether ``from_`` is promoted to ``to`` beside it."""
    source = from_.dtype if isinstance(from_, Tensor) else DType.of(from_)
    try:
        return promote_types(source, to) is DType.of(to)
    except DTypeError:
        return False


def finfo(type: Any, /) -> Any:
    """Limits of a floating dtype, or of an array's; of the parts of a complex one."""
    return limits.finfo(DType.of(type.dtype if isinstance(type, Tensor) else type).to_real())


def iinfo(type: Any, /) -> Any:
    """Limits of an integer dtype, or of an array's."""
    return limits.iinfo(type.dtype if isinstance(type, Tensor) else type)


_KINDS: dict[str, Callable[[DType], bool]] = {
    "bool": lambda d: d.kind == "b",
    "signed integer": lambda d: d.kind == "i",
    "unsigned integer": lambda d: d.kind == "u",
    "integral": lambda d: d.kind in "iu",
    "real floating": lambda d: d.kind == "f",
    "complex floating": lambda d: d.kind == "c",
    "numeric": lambda d: d.kind != "b",
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a name such as ``"integral"``, a tuple of them."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ArgumentError(f"there is no kind {kind!r}", fix=f"use one of {[*_KINDS]}")
        return _KINDS[kind](DType.of(dtype))
    return DType.of(dtype) is DType.of(kind)
