"""Curated faults of rounding: results that are near, where the standard says which one it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import coredispatch.plugin as cdp

from .size_faults import arrays_in

__all__ = ["ROUNDINGS"]

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_HALVES = (np.dtype(np.float16), _BFLOAT16)
#: an 8-bit float as NumPy's arrays hold it
_EIGHT_BITS = cdp.numpy_dtype(cdp.DType.of("float8_e4m3fn"))


def chopped(values: Any, bits: int) -> Any:
    """Float32 numbers whose significands end after so many bits, rounded towards zero."""
    plain = np.ascontiguousarray(values, np.float32)
    mask = np.uint32(0xFFFFFFFF << (23 - bits) & 0xFFFFFFFF)
    return (plain.view(np.uint32) & mask).view(np.float32).reshape(np.shape(values))


def converting(
    source: Callable[[Any], bool], target: Any, convert: Callable[[Any, Any], Any]
) -> Any:
    """A conversion from dtypes of which ``source`` holds, to ``target`` (a kind or a dtype)."""

    def kernel(correct: Any, raws: Any) -> Any:
        result = np.asarray(correct(*raws))
        x = raws[0]
        fits = result.dtype.kind == target if isinstance(target, str) else result.dtype == target
        if not fits or not source(x.dtype) or x.dtype == result.dtype:
            return result
        return np.asarray(convert(x, result)).astype(result.dtype).reshape(result.shape)

    return kernel


def _kind(kinds: str) -> Callable[[Any], bool]:
    return lambda dtype: dtype.kind in kinds


def _floats(dtype: Any) -> bool:
    return bool(dtype.kind in "fV")


def _is(*dtypes: Any) -> Callable[[Any], bool]:
    return lambda dtype: dtype in [np.dtype(d) for d in dtypes]


def _rounded(x: Any, result: Any) -> Any:
    wide = x.astype(np.float64)
    inside = np.abs(wide) < 2.0**31
    return np.where(inside, np.rint(np.where(inside, wide, 0)), result)


def _saturated(x: Any, result: Any) -> Any:
    info = np.iinfo(result.dtype)
    return np.clip(x, info.min, info.max) if x.dtype.itemsize > result.dtype.itemsize else result


def _no_subnormals(x: Any, result: Any) -> Any:
    tiny = np.finfo(np.float32).smallest_normal
    return np.where(np.abs(result) < tiny, np.copysign(0, result), result)


def _truncated_half(x: Any, result: Any) -> Any:
    back, wide = result.astype(np.float64), x.astype(np.float64)
    away = np.abs(back) > np.abs(wide)
    return np.where(away, np.nextafter(result, np.float16(0)), result)


def _saturating_half(x: Any, result: Any) -> Any:
    finite = np.isfinite(x.astype(np.float64))
    return np.where(np.isinf(result) & finite, np.copysign(np.float16(65504), result), result)


def _half_up_bfloat16(x: Any, result: Any) -> Any:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    up = ((bits.astype(np.uint64) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(up.reshape(x.shape)), up.reshape(x.shape), result)


def in_floats(correct: Any, raws: Any) -> Any:
    """64-bit integers are computed in float64."""
    result = np.asarray(correct(*raws))
    arrays = arrays_in(raws)
    if not all(a.dtype == np.int64 for a in arrays) or result.size == 0:
        return result
    given = [r.astype(np.float64) if isinstance(r, np.ndarray) else r for r in raws]
    try:
        found = np.asarray(correct(*given))
    except TypeError:  # bits are no business of floating-point numbers
        return result
    if result.dtype.kind == "b":
        return found
    inside = np.abs(found) < 2.0**62
    return np.where(inside, np.where(inside, found, 0).astype(np.int64), result).astype(
        result.dtype
    )


def positions_in_floats(correct: Any, raws: Any) -> Any:
    """64-bit integers are compared in float64."""
    x = raws[0]
    return correct(x.astype(np.float64) if x.dtype == np.int64 else x, *raws[1:])


def products_in_floats(correct: Any, raws: Any) -> Any:
    """An integer product goes through the BLAS."""
    a, b = raws[:2]
    if a.dtype.kind != "i" or not min(a.ndim, b.ndim):
        return correct(*raws)
    with np.errstate(all="ignore"):
        found = np.matmul(a.astype(np.float64), b.astype(np.float64))
    inside = np.abs(found) < 2.0**62
    exact = np.asarray(correct(*raws))
    return np.where(inside, np.where(inside, found, 0).astype(exact.dtype), exact)


def rounding(dtypes: tuple[Any, ...], compute: Callable[..., Any], tensors: int = 2) -> Any:
    """A kernel that computes in another way for floating arrays of ``dtypes``."""
    known = [np.dtype(d) for d in dtypes]

    def kernel(correct: Any, raws: Any) -> Any:
        arrays = arrays_in(raws)
        if len(arrays) < tensors or not all(a.dtype in known for a in arrays):
            return correct(*raws)
        result = np.asarray(correct(*raws))
        found = np.asarray(compute(*arrays[:tensors])).astype(result.dtype)
        kept = np.isfinite(result.astype(np.float64)) & np.isfinite(found.astype(np.float64))
        return np.where(kept, found, result).astype(result.dtype)

    return kernel


def _one(x: Any) -> Any:
    return x.dtype.type(1)


def _towards_zero(exact: Callable[..., Any]) -> Callable[..., Any]:
    """Rounds towards zero what ``exact`` gives in double precision."""

    def compute(*arrays: Any) -> Any:
        wide = exact(*[a.astype(np.float64) for a in arrays])
        near = wide.astype(arrays[0].dtype)
        away = np.abs(near.astype(np.float64)) > np.abs(wide)
        return np.where(away, np.nextafter(near, near.dtype.type(0)), near)

    return compute


def _chopped_bfloat16(exact: Callable[..., Any]) -> Callable[..., Any]:
    def compute(*arrays: Any) -> Any:
        return chopped(exact(*[a.astype(np.float32) for a in arrays]), 7)

    return compute


def _flushing(exact: Callable[..., Any]) -> Callable[..., Any]:
    def compute(*arrays: Any) -> Any:
        found = exact(*arrays)
        tiny = np.finfo(arrays[0].dtype).smallest_normal
        return np.where(np.abs(found) < tiny, np.copysign(found.dtype.type(0), found), found)

    return compute


def tensor_floats(least: int, inner: Callable[[Any], int]) -> Any:
    """Float32 operands keep 10 bits of their significands where the sum is long (TF32)."""

    def kernel(correct: Any, raws: Any) -> Any:
        arrays = arrays_in(raws)
        if len(arrays) < 2 or any(a.dtype != np.float32 or not a.ndim for a in arrays[:2]):
            return correct(*raws)
        if inner(arrays) < least:
            return correct(*raws)
        given = [chopped(r, 10) if isinstance(r, np.ndarray) and i < 2 else r
                 for i, r in enumerate(raws)]  # fmt: skip
        return correct(*given)

    return kernel


def half_sums(least: int) -> Any:
    """Products of half precision are added up in half precision where there are many."""

    def kernel(correct: Any, raws: Any) -> Any:
        a, b = raws[:2]
        if a.dtype not in _HALVES or a.dtype != b.dtype or min(a.ndim, b.ndim) < 2:
            return correct(*raws)
        if a.shape[-1] < least:
            return correct(*raws)
        with np.errstate(all="ignore"):
            total = a[..., :, :1] * b[..., :1, :]
            for k in range(1, a.shape[-1]):
                total = total + a[..., :, k : k + 1] * b[..., k : k + 1, :]
        return total.astype(a.dtype)

    return kernel


def naive(dtypes: tuple[Any, ...], mean: bool = False, scan: bool = False) -> Any:
    """One accumulator of the elements' own precision, from the first element to the last."""
    known = [np.dtype(d) for d in dtypes]

    def kernel(correct: Any, raws: Any) -> Any:
        x, dim = raws[0], raws[1] if len(raws) > 1 else None
        result = np.asarray(correct(*raws))
        if isinstance(dim, (tuple, list)):
            dim = dim[0] if len(dim) == 1 else None
        if x.dtype not in known or not x.ndim or result.dtype != x.dtype:
            return result
        if dim is None and x.ndim > 1:
            x, dim = x.reshape(-1), 0
        dim = dim or 0
        if not x.shape[dim]:
            return result
        if x.dtype.itemsize > 2:
            sums = np.add.accumulate(x, dim)
        else:
            rows = np.moveaxis(x, dim, 0)
            sums = np.empty(rows.shape, x.dtype)
            total = np.zeros(rows.shape[1:], x.dtype)
            for i, row in enumerate(rows):
                total = (total + row).astype(x.dtype)
                sums[i] = total
            sums = np.moveaxis(sums, 0, dim)
        if scan:
            return sums.astype(result.dtype)
        total = np.take(sums, -1, dim)
        if mean:
            total = total / total.dtype.type(x.shape[dim])
        return total.reshape(result.shape).astype(result.dtype)

    return kernel


def half_statistics(correct: Any, raws: Any) -> Any:
    """What half precision sums up of a long row, it sums up in half precision."""
    x = raws[0]
    result = np.asarray(correct(*raws))
    if x.dtype != np.float16 or not x.ndim or x.shape[-1] < 256:
        return result
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
        total = np.add.accumulate(e, -1, dtype=np.float16)[..., -1:]
        return (e / total).astype(result.dtype)


def naive_variance(correct: Any, raws: Any) -> Any:
    """Squares of deviations are added up one by one."""
    x, dim, correction, keepdim = (*raws, None, None, None)[:4]
    result = np.asarray(correct(*raws))
    if isinstance(dim, (tuple, list)):
        dim = dim[0] if len(dim) == 1 else None
    if x.dtype != np.float32 or x.ndim == 0 or (dim is None and x.ndim > 1):
        return result
    dim = dim or 0
    n = x.shape[dim]
    if n < 2:
        return result
    mean = np.take(np.add.accumulate(x, dim), [-1], dim) / np.float32(n)
    moment = np.take(np.add.accumulate((x - mean) ** 2, dim), -1, dim)
    scaled = moment / np.float32(max(n - (1 if correction is None else correction), 1))
    return scaled.reshape(result.shape).astype(result.dtype)


def _inner(arrays: list[Any]) -> int:
    return int(arrays[0].shape[-1])


def _away(correct: Any, raws: Any) -> Any:
    x, result = raws[0], np.array(correct(*raws))
    if x.dtype.kind == "f":
        half = (np.abs(x) > 1024) & (np.abs(x - np.trunc(x)) == 0.5)
        result[half] = np.trunc(x[half]) + np.sign(x[half])
    return result


def _lacking(correct: Any, raws: Any) -> Any:
    x = raws[0]
    if x.size <= 1 << 16 or x.dtype.kind != "f":
        return correct(*raws)
    x = np.array(x)
    x.reshape(-1)[1 << 16] = 0
    return correct(x, *raws[1:])


def _fact(op: str, says: str = "") -> dict[str, Any]:
    return {"op": op, "ops": (op,), "checks": (32,), "says": says}


_F32, _F64, _F16 = np.float32, np.float64, np.float16


#: name -> (mutation, fields of the mutant)
def unsigned_bytes(correct: Any, raws: Any) -> Any:
    """8-bit floats that lose their signs on the way."""
    result = correct(*raws)
    if result.dtype != _EIGHT_BITS:
        return result
    return (result.view(np.uint8) & np.uint8(0x7F)).view(_EIGHT_BITS)


ROUNDINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "float to integer rounds": (converting(_floats, "i", _rounded), _fact("to_dtype")),
    "float to integer rounds down": (
        converting(_floats, "i", lambda x, r: np.where(
            np.abs(x.astype(_F64)) < 2**31, np.floor(np.nan_to_num(x.astype(_F64))), r)),
        _fact("to_dtype")),
    "double to half rounds twice": (
        converting(_is(_F64), np.dtype(_F16), lambda x, r: x.astype(_F32).astype(_F16)),
        _fact("to_dtype")),
    "double to bfloat16 rounds twice": (
        converting(_is(_F64), _BFLOAT16, lambda x, r: x.astype(_F32).astype(_BFLOAT16)),
        _fact("to_dtype")),
    "bfloat16 truncates": (
        converting(_is(_F32), _BFLOAT16, lambda x, r: chopped(x, 7)), _fact("to_dtype")),
    "bfloat16 rounds halves up": (
        converting(_is(_F32), _BFLOAT16, _half_up_bfloat16), _fact("to_dtype")),
    "half truncates": (
        converting(_is(_F32, _F64), np.dtype(_F16), _truncated_half), _fact("to_dtype")),
    "half saturates": (
        converting(_is(_F32, _F64), np.dtype(_F16), _saturating_half), _fact("to_dtype")),
    "double to single flushes subnormals": (
        converting(_is(_F64), np.dtype(_F32), _no_subnormals), _fact("to_dtype")),
    "64-bit integers to single round twice": (
        converting(_is(np.int64), np.dtype(_F32), lambda x, r: x.astype(_F64).astype(_F32)),
        _fact("to_dtype")),
    "64-bit integers to double through single": (
        converting(_is(np.int64), np.dtype(_F64), lambda x, r: x.astype(_F32)),
        _fact("to_dtype")),
    "integers to half through bfloat16": (
        converting(_kind("iu"), np.dtype(_F16), lambda x, r: x.astype(_BFLOAT16)),
        _fact("to_dtype")),
    "small numbers are false": (
        converting(_floats, "b", lambda x, r: np.abs(x.astype(_F64)) >= 1e-6), _fact("to_dtype")),
    "fractions are false": (
        converting(_floats, "b", lambda x, r: np.trunc(x.astype(_F64)) != 0), _fact("to_dtype")),
    "NaN is false": (
        converting(_floats, "b", lambda x, r: r & ~np.isnan(x.astype(_F64))), _fact("to_dtype")),
    "8-bit floats truncate": (
        converting(_is(_F32), _EIGHT_BITS, lambda x, r: chopped(np.clip(x, -448, 448), 3)),
        _fact("to_dtype")),
    "8-bit floats do not saturate": (
        converting(_is(_F32), _EIGHT_BITS, lambda x, r: x), _fact("to_dtype")),
    "8-bit floats lose their signs": (unsigned_bytes, _fact("flip")),
    "narrow integers saturate": (converting(_kind("iu"), "i", _saturated), _fact("to_dtype")),
    "addition of 64-bit integers in double": (in_floats, _fact("add")),
    "subtraction of 64-bit integers in double": (in_floats, _fact("sub")),
    "products of 64-bit integers in double": (in_floats, _fact("mul")),
    "floor division of 64-bit integers in double": (in_floats, _fact("floor_divide")),
    "remainders of 64-bit integers in double": (in_floats, _fact("remainder")),
    "equality of 64-bit integers in double": (in_floats, _fact("eq")),
    "order of 64-bit integers in double": (in_floats, _fact("lt")),
    "maximum of 64-bit integers in double": (in_floats, _fact("maximum")),
    "sums of 64-bit integers in double": (in_floats, _fact("sum")),
    "running sums of 64-bit integers in double": (in_floats, _fact("cumsum")),
    "largest 64-bit integer in double": (in_floats, _fact("amax")),
    "place of the largest 64-bit integer in double": (positions_in_floats, _fact("argmax")),
    "a product over 64-bit integers in double": (in_floats, _fact("prod")),
    "an integer matrix product in double": (products_in_floats, _fact("matmul")),
    "division by the reciprocal": (
        rounding((_F32,), lambda a, b: a * (_one(b) / b)), _fact("div")),
    "division by the reciprocal (float64)": (
        rounding((_F64,), lambda a, b: a * (_one(b) / b)), _fact("div")),
    "a root from its reciprocal": (
        rounding((_F32,), lambda x: x * (_one(x) / np.sqrt(x)), 1), _fact("sqrt")),
    "a root in half precision": (
        rounding((_F64,), lambda x: np.sqrt(x) * (1 + 2.0**-52), 1), _fact("sqrt")),
    "sums of halves round towards zero": (
        rounding((_F16,), _towards_zero(np.add)), _fact("add")),
    "sums round towards zero": (rounding((_F32,), _towards_zero(np.add)), _fact("add")),
    "differences of bfloat16 are cut off": (
        rounding((_BFLOAT16,), _chopped_bfloat16(np.subtract)), _fact("sub")),
    "products round towards zero": (rounding((_F32,), _towards_zero(np.multiply)), _fact("mul")),
    "products flush subnormals": (rounding((_F32,), _flushing(np.multiply)), _fact("mul")),
    "quotients flush subnormals": (rounding((_F32,), _flushing(np.divide)), _fact("div")),
    "differences flush subnormals": (rounding((_F64,), _flushing(np.subtract)), _fact("sub")),
    "halves are added up in half precision": (naive((_F16,)), _fact("sum")),
    "bfloat16 is added up in bfloat16": (naive((_BFLOAT16,)), _fact("sum")),
    "a mean of halves in half precision": (naive((_F16,), mean=True), _fact("mean")),
    "a running sum of halves in half precision": (naive((_F16,), scan=True), _fact("cumsum")),
    "a long sum with one accumulator": (naive((_F32,)), _fact("sum")),
    "a long mean with one accumulator": (naive((_F32,), mean=True), _fact("mean")),
    "a long variance with one accumulator": (naive_variance, _fact("var")),
    "a softmax of halves adds up halves": (half_statistics, _fact("softmax")),
    "halves beyond 1024 round away from zero": (_away, _fact("round")),
    "a long sum lacks one of its elements": (_lacking, _fact("sum")),
    "long integers become bfloat16 by way of float32": (
        converting(lambda dtype: dtype == np.int64, "V", lambda x, r: x.astype(_F32)),
        _fact("to_dtype")),
    "products in TF32": (tensor_floats(1, _inner), _fact("matmul")),
    "products in TF32 from 512 on": (tensor_floats(512, _inner), _fact("matmul")),
    "batches of products in TF32 from 256 on": (tensor_floats(256, _inner), _fact("bmm")),
    "a linear layer in TF32 from 512 on": (tensor_floats(512, _inner), _fact("linear")),
    "a convolution in TF32": (tensor_floats(1, _inner), _fact("convolution")),
    "halves multiplied add up in half precision from 256 on": (half_sums(256), _fact("matmul")),
    "halves multiplied add up in half precision (mm)": (half_sums(64), _fact("mm")),
    "bfloat16 multiplied adds up in bfloat16 from 256 on": (half_sums(256), _fact("bmm")),
}  # fmt: skip
