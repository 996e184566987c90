"""Products of matrices of 8-bit floats by cuBLASLt, which has them from sm_89 on.

Scales of the whole matrices are applied by the library, those of rows and columns afterwards in
float32. What it does not take (other types, lengths that are no multiples of 16) and older devices
multiply in float32, as the operator is defined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from coredispatch.plugin import DType, dtypes, numpy_dtype
from coredispatch_cuda_cupy import cublaslt
from coredispatch_cuda_cupy.cublaslt import Matrix, Product, Products, alignment_of
from coredispatch_cuda_cupy.cuda.eight_bits import EightBits, plain
from coredispatch_cuda_cupy.cuda.layout import dense
from coredispatch_cuda_cupy.sharing import is_for_all_streams

__all__ = ["kernels"]

_TAKEN = (
    ("float8_e4m3fn", "float8_e4m3fn"),
    ("float8_e4m3fn", "float8_e5m2"),
    ("float8_e5m2", "float8_e4m3fn"),
)
#: dtypes that the library writes
_WRITTEN = ("float32", "bfloat16", "float16")
#: lengths, and the addresses of matrices, are multiples of so many bytes
_UNIT = 16
#: the first compute capability with tensor cores for 8-bit floats
_LEAST = (8, 9)


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernel, under its operator; none without the library."""
    found = cublaslt.library(cupy)
    if found is None:
        return {}
    products, conversions = Products(cupy, found), EightBits(cupy)

    @cache
    def capable(device: int) -> bool:
        details = cupy.cuda.runtime.getDeviceProperties(device)
        return (int(details["major"]), int(details["minor"])) >= _LEAST

    ones: dict[int, Any] = {}

    def unscaled(device: int) -> Any:
        """The scale 1, in the memory of the device."""
        found = ones.get(device)
        if found is None:
            found = cupy.ones(1, np.float32)
            if is_for_all_streams(cupy):
                ones[device] = found
        return found

    def _scaled_mm(
        self: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any, scale_result: Any,
        out_dtype: DType | None, use_fast_accum: bool,
    ) -> Any:  # fmt: skip
        device = int(cupy.cuda.runtime.getDevice())
        if not capable(device) or not _fits(self, mat2, scale_a, scale_b, bias, scale_result):
            return NotImplemented
        wanted = DType.of(self.dtype) if out_dtype is None else out_dtype
        whole = scale_a.size == scale_b.size == 1
        # Rounded once: what follows the library is computed in float32.
        direct = whole and wanted.name in _WRITTEN
        beside = bias is not None and bias.dtype.name == wanted.name != "float32"
        epilogue = "bias" if direct and beside else ""
        direct = direct and (bias is None or epilogue != "")
        native = numpy_dtype(wanted if direct else dtypes.float32)
        a, b = dense(cupy, plain(self)), dense(cupy, plain(mat2).T)
        out = cupy.empty((a.shape[0], b.shape[0]), native)
        scales = (scale_b, scale_a) if whole else (unscaled(device),) * 2
        given = None if not epilogue else dense(cupy, bias)
        product = _product(self, mat2, a, b, out, given, epilogue, bool(use_fast_accum))
        if product is None or not products.run(product, b, a, out, bias=given, scales=scales):
            return NotImplemented
        if not whole:
            out *= scale_a * scale_b
        if bias is not None and not epilogue:
            out += bias.astype(np.float32)
        if wanted not in dtypes.STORAGE_DTYPES:
            return out if direct else out.astype(numpy_dtype(wanted), copy=False)
        if scale_result is not None:
            out /= scale_result.reshape(())
        return conversions.converted(out, numpy_dtype(wanted))

    return {"_scaled_mm": _scaled_mm}


def _name(x: Any) -> str:
    return DType.of(x.dtype).name


def _fits(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, scale_result: Any) -> bool:
    """Whether the operator takes these arguments; what it refuses is refused by its definition."""
    if (_name(a), _name(b)) not in _TAKEN or a.ndim != 2 or b.ndim != 2:
        return False
    if a.shape[1] != b.shape[0] or not a.size or not b.size:
        return False
    shapes = (scale_a.shape, scale_b.shape)
    whole = scale_a.size == scale_b.size == 1
    if not whole and shapes != ((a.shape[0], 1), (1, b.shape[1])):
        return False
    numbers = [scale_a, scale_b] + ([] if scale_result is None else [scale_result])
    if any(x.dtype != np.float32 for x in numbers):
        return False
    if scale_result is not None and scale_result.size != 1:
        return False
    return bias is None or bias.shape == (b.shape[1],)


def _product(
    first: Any, second: Any, a: Any, b: Any, out: Any, bias: Any, epilogue: str, fast: bool
) -> Product | None:
    """``b``, transposed, times ``a``, as column-major matrices; None for odd lengths."""
    (m, k), n = a.shape, b.shape[0]
    if k % _UNIT or n % _UNIT:
        return None
    places = [alignment_of(x.data.ptr) for x in (b, a, out)]
    if min(places) < _UNIT:
        return None
    beside = 0 if bias is None else alignment_of(bias.data.ptr)
    left = Matrix(_name(second), k, n, k, True)
    right = Matrix(_name(first), k, m, k)
    d = Matrix(out.dtype.name, n, m, n)
    alignment = (*places, beside)
    return Product(left, right, d, 1, epilogue, False, alignment, fast=fast)  # type: ignore[arg-type]
