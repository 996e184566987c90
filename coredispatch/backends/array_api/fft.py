"""Array-API kernels of Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.array_api.namespace import Namespace
from coredispatch.registry.model.dtypes import DType

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, where the namespace ``xp`` has the ``fft`` extension."""
    xp = Namespace.of(xp)
    if not xp.has("fft"):
        return {}

    def of_kind(out: Any, dtype: DType) -> Any:
        """``out`` in the precision of the input: releases before 2023.12 may have widened it."""
        wanted = xp.native(dtype)
        return out if out.dtype == wanted else xp.astype(out, wanted)

    def empty(shape: list[int], dtype: DType) -> Any:
        """The transform of no signals, which some libraries (PyTorch over MKL) refuse."""
        return xp.zeros(tuple(shape), dtype=xp.native(dtype))

    def c2c(x: Any, dim: tuple[int, ...], norm: str, forward: bool) -> Any:
        if 0 in x.shape and not xp.strided:
            return empty([*x.shape], DType.of(x.dtype))
        transform = xp.fft.fftn if forward else xp.fft.ifftn
        return of_kind(transform(x, axes=dim, norm=norm), DType.of(x.dtype))

    def r2c(x: Any, dim: tuple[int, ...], norm: str, onesided: bool) -> Any:
        dtype = DType.of(x.dtype).to_complex()
        if onesided and 0 in x.shape and not xp.strided:
            shape = [*x.shape]
            shape[dim[-1]] = shape[dim[-1]] // 2 + 1
            return empty(shape, dtype)
        if onesided:
            return of_kind(xp.fft.rfftn(x, axes=dim, norm=norm), dtype)
        return c2c(xp.astype(x, xp.native(dtype)), dim, norm, True)

    def c2r(x: Any, dim: tuple[int, ...], norm: str, last_dim_size: int) -> Any:
        sizes = (*(x.shape[d] for d in dim[:-1]), last_dim_size)
        if 0 in x.shape and not xp.strided:
            shape = [*x.shape]
            shape[dim[-1]] = last_dim_size
            return empty(shape, DType.of(x.dtype).to_real())
        out = xp.fft.irfftn(x, s=sizes, axes=dim, norm=norm)
        return of_kind(out, DType.of(x.dtype).to_real())

    return {"fft_c2c": c2c, "fft_r2c": r2c, "fft_c2r": c2r}
