"""Curated mutants: faults that real backends and frameworks had, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..subject import Subject
from .framework import FRAMEWORK
from .mutants import Mutant, Mutation

__all__ = ["curated"]

_found: list[tuple[str, str, tuple[str, ...], str | None, Any]] = []


def mutant(
    name: str, op: str, *others: str, needs: str | None = None, profile: str | None = None
) -> Any:
    """Register a mutation under ``name``; ``others`` are further operators that must notice."""

    def register(make: Any) -> Any:
        _found.append((name, op, (op, *others), needs, (make, profile)))
        return make

    return register


def curated(subject: Subject) -> list[Mutant]:
    """All curated mutants, kernels first, fresh state in each."""
    kernels = [
        Mutant(
            name,
            op,
            _stateful(make),
            ops=ops,
            needs=needs,
            profiles=(profile,) if profile else (),
        )
        for name, op, ops, needs, (make, profile) in _found
    ]
    framework = [Mutant(name, "", patch=patch, ops=ops) for name, (patch, ops) in FRAMEWORK.items()]
    return [*kernels, *framework]


def _stateful(make: Any) -> Mutation:
    """A mutation; classes keep state of their own."""
    return make() if isinstance(make, type) else make


@mutant("left-aligned broadcast", "add")
def left_aligned(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and 0 < b.ndim < a.ndim:
        wide = b.reshape(b.shape + (1,) * (a.ndim - b.ndim))
        if all(m in (1, n) for m, n in zip(wide.shape, a.shape, strict=True)):
            return correct(a, wide)
    return correct(*raws)


@mutant("drops the tail at n % 4", "mul")
def no_tail(correct: Any, raws: Any) -> Any:
    result = np.array(correct(*raws))
    tail = result.size % 4
    if result.size > 4 and tail:
        result.reshape(-1)[-tail:] = 0
    return result


@mutant("ignores transpose", "matmul")
def no_transpose(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    if b.ndim == 2 and not b.flags.c_contiguous and b.T.flags.c_contiguous:
        b = b.T.reshape(b.shape)
    return correct(a, b)


@mutant("integer division stays integer", "div")
def integer_division(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    result = correct(*raws)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.all(a == np.floor(a)):
        whole = np.floor_divide(a, b)
        return np.where(np.isfinite(result), whole, result).astype(result.dtype)
    return result


@mutant("int32 accumulator", "sum")
def narrow_sum(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    if raws[0].dtype.kind in "iu":
        return np.asarray(result).astype(np.int32).astype(np.asarray(result).dtype)
    return result


@mutant("E[x^2] - E[x]^2", "var", "std", "layer_norm")
def cancelling_variance(correct: Any, raws: Any) -> Any:
    result = np.asarray(correct(*raws))
    x, dim, correction, keepdim = (*raws, *(None,) * 4)[:4]
    if result.dtype not in (np.float32, np.float64) or x.dtype.kind == "c":
        return result
    axes = dim if dim is None or isinstance(dim, int) else tuple(dim) or None
    moment = (x * x).mean(axes, keepdims=bool(keepdim)) - x.mean(axes, keepdims=bool(keepdim)) ** 2
    n = x.size / max(moment.size, 1)
    with np.errstate(all="ignore"):
        scaled = moment * (n / (n - (1 if correction is None else correction)))
    ok = np.isfinite(result) & np.isfinite(scaled)
    return np.where(ok, scaled, result).astype(result.dtype)


@mutant("no max-subtract in softmax", "softmax")
def plain_softmax(correct: Any, raws: Any) -> Any:
    x, dim = raws[0], raws[1]
    if x.ndim == 0 or x.size == 0 or x.dtype.kind not in "f":
        return correct(*raws)
    e = np.exp(x)
    return (e / e.sum(dim, keepdims=True)).astype(x.dtype)


@mutant("max drops NaN", "amax", "maximum")
def nan_max(correct: Any, raws: Any) -> Any:
    x = raws[0]
    if x.dtype.kind == "f" and x.size:
        return correct(np.where(np.isnan(x), -np.inf, x).astype(x.dtype), *raws[1:])
    return correct(*raws)


@mutant("where by multiplication", "where")
def multiplied_where(correct: Any, raws: Any) -> Any:
    result = np.asarray(correct(*raws))
    if result.dtype.kind != "f":
        return result
    c, a, b = raws
    return np.asarray(c * a + (~c) * b).astype(result.dtype)


@mutant("clone aliases", "clone")
def aliasing_clone(correct: Any, raws: Any) -> Any:
    return raws[0].view()


@mutant("view copies", "permute")
def copying_view(correct: Any, raws: Any) -> Any:
    return np.array(correct(*raws))


@mutant("result cache keyed by pointer", "exp")
class CachedByPointer:
    """Returns what it computed for the address, whatever stands there now."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def __call__(self, correct: Any, raws: Any) -> Any:
        x = raws[0]
        key = (x.__array_interface__["data"][0], x.shape, x.strides, x.dtype)
        if key not in self.known:
            self.known[key] = (x, correct(*raws))
        return self.known[key][1].copy()


@mutant("JIT key lacks the dtype", "sqrt")
class OneCompiledForm:
    """Compiles for the first dtype of a rank and uses that for all others."""

    def __init__(self) -> None:
        self.forms: dict[int, Any] = {}

    def __call__(self, correct: Any, raws: Any) -> Any:
        x = raws[0]
        dtype = self.forms.setdefault(x.ndim, x.dtype)
        result = correct(x)
        return result.astype(dtype).astype(result.dtype) if x.dtype != dtype else result


@mutant("shared scratch buffer", "tanh")
class SharedScratch:
    """All results of a shape live in one buffer."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Any] = {}

    def __call__(self, correct: Any, raws: Any) -> Any:
        result = np.asarray(correct(*raws))
        buffer = self.buffers.setdefault((result.shape, result.dtype.str), np.empty_like(result))
        buffer[...] = result
        return buffer


@mutant("half-precision accumulator", "matmul")
def half_accumulator(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    if a.dtype == np.float32:
        return correct(a.astype(np.float16), b.astype(np.float16)).astype(np.float32)
    return correct(*raws)


@mutant("sum skips the last block", "sum")
def blocked_sum(correct: Any, raws: Any) -> Any:
    x = raws[0]
    if x.ndim == 1 and x.size > 256 and x.dtype.kind == "f":
        return correct(x[:256], *raws[1:])
    return correct(*raws)


@mutant("signed zero lost", "mul")
def no_signed_zero(correct: Any, raws: Any) -> Any:
    result = np.asarray(correct(*raws))
    return result + result.dtype.type(0) if result.dtype.kind == "f" else result


@mutant("comparison with NaN is true", "ne")
def equal_nan(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    result = np.array(correct(*raws))
    if isinstance(a, np.ndarray) and a.dtype.kind == "f":
        result &= ~np.isnan(a)
    return result


@mutant("wraps the shift of a negative", "floor_divide")
def truncated_division(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    result = correct(*raws)
    if getattr(result, "dtype", None) is not None and result.dtype.kind == "i":
        with np.errstate(all="ignore"):
            wide = np.trunc(np.true_divide(a, b))
        return np.where(np.isfinite(wide), wide, result).astype(result.dtype)
    return result


@mutant("rounds half away from zero", "round")
def away_from_zero(correct: Any, raws: Any) -> Any:
    x = raws[0]
    if x.dtype.kind == "f" and (len(raws) < 2 or not raws[1]):
        return np.copysign(np.floor(np.abs(x) + 0.5), x).astype(x.dtype)
    return correct(*raws)


@mutant("gradient of a broadcast input is not summed", "sigmoid")
def off_by_a_hair(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    return (result * result.dtype.type(1 + 2e-6)) if result.dtype == np.float32 else result


@mutant("cat ignores the last tensor's dtype", "cat")
def truncating_cat(correct: Any, raws: Any) -> Any:
    tensors = [*raws[0]]
    if len(tensors) > 1 and tensors[-1].size:
        last = np.array(tensors[-1])
        last.reshape(-1)[-1] = last.reshape(-1)[0]
        tensors[-1] = last
    return correct(tensors, *raws[1:])


@mutant("gather reads beyond the end", "index_select")
def clamped_index(correct: Any, raws: Any) -> Any:
    x, dim, index = raws[:3]
    if x.ndim:
        return correct(x, dim, np.maximum(index - 1, 0) if index.size > 2 else index)
    return correct(*raws)


@mutant("cumulative sum restarts at 256", "cumsum")
def restarting_cumsum(correct: Any, raws: Any) -> Any:
    x = raws[0]
    result = np.array(correct(*raws))
    if x.ndim == 1 and x.size > 256:
        result[256:] = np.cumsum(x[256:]).astype(result.dtype)
    return result


@mutant("sort is not stable in NaN", "sort")
def reversed_nan(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    values = np.array(result[0])
    if values.dtype.kind == "f" and values.size:
        values = np.where(np.isnan(values), -np.inf, values).astype(values.dtype)
    return type(result)([values, *result[1:]])


@mutant("dropout tail is not scaled", "dropout", "backend")
def unscaled_tail(correct: Any, raws: Any) -> Any:
    result = np.array(correct(*raws))
    if result.ndim == 1 and result.size > 1000:
        half = result.size // 2
        result[half:] = np.where(result[half:] != 0, raws[0][half:], 0)
    return result


@mutant("silent fallback", "neg")
class SilentFallback:
    """Computes through another key of the table than the backend's own."""

    def __call__(self, correct: Any, raws: Any) -> Any:
        import coredispatch as cd
        from coredispatch.plugin import from_raw

        x = from_raw(raws[0], backend="cpu")
        cd.neg(x.to("meta"))  # stands for the detour: another backend's kernel runs
        return correct(*raws)


@mutant("CSR empty-row shift", "to_sparse_csr", "backend", needs="cpu", profile="sparse")
def shifted_rows(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    rows = getattr(result, "crow", getattr(result, "crow_indices", getattr(result, "indptr", None)))
    if isinstance(rows, np.ndarray) and rows.size > 1:
        rows.flags.writeable = True
        rows[1:-1] = rows[2:]
    return result


@mutant(
    "wraps instead of saturating", "quantize_per_tensor", "backend", needs="cpu", profile="quant"
)
def wrapping(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    data = next(
        (v for v in _arrays_of(result) if v.dtype.kind in "iu" and v.shape == raws[0].shape), None
    )
    if data is not None:
        scale, zero = raws[1], raws[2]
        wrapped = np.rint(raws[0] / scale) + zero
        data[...] = wrapped.astype(np.int64).astype(data.dtype)
    return result


@mutant(
    "rounds quantized ties away from zero",
    "quantize_per_tensor",
    "backend",
    needs="cpu",
    profile="quant",
)
def quantized_ties(correct: Any, raws: Any) -> Any:
    x, scale = raws[0], raws[1]
    steps = np.asarray(x / scale)
    away = np.copysign(np.floor(np.abs(steps) + 0.5), steps) * scale
    return correct(away.astype(x.dtype), *raws[1:])


def _arrays_of(value: Any) -> list[Any]:
    names = getattr(type(value), "__slots__", ()) or vars(value)
    found = [getattr(value, n, None) for n in names]
    return [v for v in found if isinstance(v, np.ndarray)]
