"""Array-API kernels of ``gather``, ``scatter`` and ``scatter_add``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.indexing.subscripts import Writer, check_bounds
from coredispatch.backends.array_api.namespace import Namespace
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import DTypeError, ShapeError
from coredispatch.registry.model.sizes import normalize_dim

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family over the namespace ``xp``."""
    xp = Namespace.of(xp)
    writer = Writer(xp)

    def places(x: Any, dim: int, index: Any) -> tuple[Any, ...]:
        """The open index that ``index`` stands for; both have at least one dimension."""
        dtype = DType.of(index.dtype)
        if not (dtype.is_integral and dtype.is_signed):
            raise DTypeError(f"index must be int64 or int32, got {dtype}")
        ndim = x.ndim
        normalize_dim(dim, ndim)
        if index.ndim != ndim:
            raise ShapeError(f"index has {index.ndim} dimensions, self has {ndim}")
        check_bounds(xp, index, x.shape[dim])
        where = []
        for d, size in enumerate(index.shape):
            if d == dim % ndim:
                where.append(index)
                continue
            if size > x.shape[d]:
                raise ShapeError(f"index {index.shape} exceeds self {x.shape} outside dim {dim}")
            where.append(xp.reshape(xp.arange(size), _along(d, ndim)))
        return tuple(where)

    def wide(x: Any) -> Any:
        return xp.reshape(x, (1,)) if getattr(x, "shape", None) == () else x

    def cropped(src: Any, index: Any) -> Any:
        if not hasattr(src, "shape"):
            return src
        src = wide(src)
        if src.ndim != index.ndim or any(a > b for a, b in zip(index.shape, src.shape)):
            raise ShapeError(f"index {index.shape} exceeds src {src.shape}")
        return src[tuple(slice(n) for n in index.shape)]

    def gather(x: Any, dim: int, index: Any) -> Any:
        shape = index.shape
        if 0 in shape:
            return xp.zeros(shape, dtype=x.dtype)
        source, index = wide(x), wide(index)
        at = places(source, dim, index)
        if xp.strided:
            return xp.reshape(source[at], shape)
        return taken_along(source, dim, index, shape)

    def along(source: Any, dim: int, index: Any, shape: tuple[int, ...]) -> Any:
        lengths = list(index.shape)
        lengths[dim] = source.shape[dim]
        source = source[tuple(slice(n) for n in lengths)]
        return xp.reshape(xp.take_along_axis(source, index, axis=dim), shape)

    taken_along = xp.program(along)

    def written(write: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(x: Any, dim: int, index: Any, src: Any) -> Any:
            if 0 in index.shape:
                return writer.put(x, (...,), x)
            target, index = wide(x), wide(index)
            out = write(target, places(target, dim, index), cropped(src, index))
            return xp.reshape(out, x.shape)

        return kernel

    return {
        "gather": gather,
        "scatter": written(writer.put),
        "scatter_add": written(writer.add),
    }


def _along(dim: int, ndim: int) -> tuple[int, ...]:
    """The shape of a vector that lies along ``dim``."""
    return tuple(-1 if d == dim else 1 for d in range(ndim))
