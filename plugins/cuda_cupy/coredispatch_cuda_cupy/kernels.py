"""Where CuPy differs from NumPy in a way that the array-API kernels cannot know of."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.plugin import DType, OpError, ShapeError
from coredispatch_cuda_cupy import memory_views

__all__ = ["guarded", "overrides", "refuse_shared_memory"]

Kernel = Callable[..., Any]

#: decompositions whose failure CuPy reports only when asked to
_CHECKED = ("cholesky", "linalg_solve", "linalg_eigh", "linalg_eig", "linalg_svd")


def overrides(cupy: Any) -> dict[str, Kernel]:
    """Kernels that replace those of the array-API base."""

    def eig_on_the_host(x: Any) -> tuple[Any, Any]:
        # cuSOLVER has no such routine before CUDA 12.6, CuPy none before 14.
        complex_type = np.result_type(x.dtype, np.complex64)
        values, vectors = np.linalg.eig(cupy.asnumpy(x).astype(complex_type))
        return cupy.asarray(values), cupy.asarray(vectors)

    def linear(input: Any, weight: Any, bias: Any) -> Any:
        if bias is not None and bias.ndim and tuple(bias.shape) != tuple(weight.shape[:-1]):
            raise ValueError(f"bias of shape {bias.shape} for a weight of shape {weight.shape}")
        result = cupy.matmul(input, weight.T if weight.ndim == 2 else weight)
        return result if bias is None else result + bias

    def linear_weight_grad(grad_output: Any, input: Any) -> Any:
        rows = math.prod(input.shape[:-1])
        grad = grad_output.reshape(rows, grad_output.shape[-1])
        return cupy.matmul(grad.T, input.reshape(rows, input.shape[-1]))

    def fill_(x: Any, value: Any) -> None:
        if getattr(value, "ndim", 0):
            raise ShapeError(f"fill takes a number or a 0-dim tensor, got shape {value.shape}")
        if type(value) is int and x.dtype.kind in "iu":
            value = np.array(value, x.dtype)[()]  # OverflowError where it does not fit
        x[...] = value  # elements may share memory: all get the same

    def zero_(x: Any) -> None:
        x[...] = 0

    # cuBLAS accumulates the products of float16 and bfloat16 in float32, on the tensor cores, so
    # they are not widened beforehand. `add` is the ufunc itself; the namespace's has another `at`
    # (see .namespace).
    table: dict[str, Kernel] = {
        "add": cupy.add,
        "matmul": lambda a, b: cupy.matmul(a, b),
        "gcd": cupy.gcd,
        "linear": linear,
        "linear_weight_grad": linear_weight_grad,
        "fill_": fill_,
        "zero_": zero_,
        **memory_views.kernels(cupy),
    }
    if not hasattr(cupy.linalg, "eig"):
        table["linalg_eig"] = eig_on_the_host
    return table


def guarded(name: str, kernel: Kernel, native: Callable[[DType], Any]) -> Kernel:
    """The kernel of the operator ``name`` behind the checks that CuPy leaves to its caller.

    ``native(dtype)`` raises for a dtype that the backend does not have.
    """
    if type(kernel).__name__ == "ufunc":
        return _writing(kernel)
    if name in _CHECKED:
        kernel = _strict_linalg(kernel)
    code = getattr(kernel, "__code__", None)
    return _with_dtype(kernel, native) if code and "dtype" in _arguments(code) else kernel


def _arguments(code: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return found


def _with_dtype(kernel: Kernel, native: Callable[[DType], Any]) -> Kernel:
    """The kernel for a call that may name a dtype the backend does not have."""
    place = _arguments(kernel.__code__).index("dtype")

    @functools.wraps(kernel)
    def run(*args: Any) -> Any:
        if len(args) > place and args[place] is not None:
            native(args[place])
        return kernel(*args)

    return run


def refuse_shared_memory(out: Any) -> None:
    """Raise :class:`OpError` where elements of ``out`` share memory, which CuPy would write to."""
    shared = 0 in out.strides and any(n > 1 and s == 0 for n, s in zip(out.shape, out.strides))
    if shared and out.size:
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
