"""Where CuPy differs from NumPy in a way that the array-API kernels cannot know of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DType, DTypeError, OpError, dtypes

__all__ = ["guarded", "overrides", "refuse_bfloat16", "refuse_shared_memory"]

Kernel = Callable[..., Any]

#: decompositions whose failure CuPy reports only when asked to
_CHECKED = ("cholesky", "linalg_solve", "linalg_eigh", "linalg_eig", "linalg_svd")


def refuse_bfloat16(dtype: DType) -> None:
    """Raise :class:`DTypeError` for the one dtype that CuPy has no full set of kernels for."""
    if dtype is dtypes.bfloat16:
        raise DTypeError(
            "the backend 'cuda' has no bfloat16: CuPy lacks kernels for it",
            fix="use float16 (autocast's default on cuda) or float32",
        )


def overrides(cupy: Any) -> dict[str, Kernel]:
    """Kernels that replace those of the array-API base."""

    def eig_on_the_host(x: Any) -> tuple[Any, Any]:
        # cuSOLVER has no such routine before CUDA 12.6, CuPy none before 14.
        complex_type = np.result_type(x.dtype, np.complex64)
        values, vectors = np.linalg.eig(cupy.asnumpy(x).astype(complex_type))
        return cupy.asarray(values), cupy.asarray(vectors)

    # cuBLAS accumulates float16 products in float32, so matmul needs no widening beforehand.
    # `add` is the ufunc itself; the namespace's has another `at` (see .namespace).
    table: dict[str, Kernel] = {"add": cupy.add, "matmul": lambda a, b: cupy.matmul(a, b)}
    if not hasattr(cupy.linalg, "eig"):
        table["linalg_eig"] = eig_on_the_host
    return table


def guarded(name: str, kernel: Kernel) -> Kernel:
    """The kernel of the operator ``name`` behind the checks that CuPy leaves to its caller."""
    if type(kernel).__name__ == "ufunc":
        return _writing(kernel)
    if name in _CHECKED:
        kernel = _strict_linalg(kernel)
    return _without_bfloat16(kernel)


def refuse_shared_memory(out: Any) -> None:
    """Raise :class:`OpError` where elements of ``out`` share memory, which CuPy would write to."""
    if 0 in out.strides and any(n > 1 and s == 0 for n, s in zip(out.shape, out.strides)):
        raise OpError(
            "more than one element of the written-to tensor refers to a single memory location",
            fix="clone() it before writing",
        )


def _writing(function: Kernel) -> Kernel:
    """A ufunc that looks at where it is told to write."""

    def run(*args: Any, out: Any = None) -> Any:
        if out is None:
            return function(*args)
        refuse_shared_memory(out)
        return function(*args, out=out)

    return run


def _strict_linalg(kernel: Kernel) -> Kernel:
    """Without this CuPy returns garbage for a singular matrix, to save a synchronization."""
    import cupyx

    @functools.wraps(kernel)
    def run(*args: Any) -> Any:
        with cupyx.errstate(linalg="raise"):
            return kernel(*args)

    return run


def _without_bfloat16(kernel: Kernel) -> Kernel:
    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        for argument in args:
            if argument is dtypes.bfloat16:
                refuse_bfloat16(argument)
        return kernel(*args, **kwargs)

    return run
