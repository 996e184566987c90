"""Curated mutants: faults that real backends and frameworks had, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import from_raw, to_raw

from ..subject import Subject
from ..tensor_layouts import extras
from .argument_faults import ARGUMENTS
from .coordinate_faults import coordinate_faults
from .corner_faults import CORNERS
from .edge_faults import BACKWARD_KERNELS, EDGES
from .extent_faults import EXTENTS, SPECIAL_INPUTS
from .fake_backend import NAME
from .forms import INPLACE, KERNELS
from .framework import FRAMEWORK
from .layer_faults import LAYERS
from .mutants import Mutant, Mutation
from .option_faults import OPTIONS
from .passes import PASSES
from .process_faults import PROCESS
from .rounding_faults import ROUNDINGS
from .shape_faults import SHAPES
from .size_faults import SIZES
from .state_faults import STATES
from .stream_faults import DISTRIBUTIONS, STREAMS
from .stride_faults import STRIDES
from .value_faults import VALUES as VALUE_FAULTS

__all__ = ["curated"]

_TABLES = (
    EXTENTS, SIZES, SHAPES, STATES, PROCESS, ROUNDINGS, CORNERS, STRIDES, ARGUMENTS, VALUE_FAULTS,
)  # fmt: skip
#: the checks that compare values with the reference
VALUES = (1, 3, 4, 5, 8, 9)
_found: list[tuple[Any, dict[str, Any]]] = []


def mutant(
    name: str,
    op: str,
    *others: str,
    checks: tuple[int, ...] = VALUES,
    **details: Any,
) -> Any:
    """Register a mutation under ``name``; ``others`` are further operators that must notice.

    ``details`` are fields of :class:`Mutant`: which cases see the fault, and what they say.
    """
    details.update(name=name, op=op, ops=(op, *others), checks=checks)

    def register(make: Any) -> Any:
        _found.append((make, details))
        return make

    return register


def curated(subject: Subject) -> list[Mutant]:
    """All curated mutants, kernels first, fresh state in each."""
    kernels = [Mutant(mutation=_stateful(make), **details) for make, details in _found]
    kernels += _of_kernels({**KERNELS, **OPTIONS, **BACKWARD_KERNELS, **DISTRIBUTIONS})
    kernels += [
        Mutant(f"{name} ({details['op']})", mutation=_stateful(make), **details)
        for table in _TABLES
        for name, (make, details) in table.items()
    ]
    kernels += layout_faults()
    kernels += coordinate_faults()
    faults = {**FRAMEWORK, **INPLACE, **PASSES, **EDGES, **SPECIAL_INPUTS, **STREAMS, **LAYERS}
    framework = [Mutant(name, "", **details) for name, details in faults.items()]
    return [*kernels, *framework]


def _of_kernels(listed: dict[str, tuple[Any, dict[str, Any]]]) -> list[Mutant]:
    return [
        Mutant(name, mutation=_stateful(make), **details)
        for name, (make, details) in listed.items()
    ]


def layout_faults() -> list[Mutant]:
    """The faults that plugins of layouts name, which the cases of their profile must catch."""
    return [
        Mutant(
            name,
            op,
            fault,
            ops=("backend", op),
            profiles=(plugin,),
            needs=key,
            checks=(27,),
            says=says,
        )
        for plugin, asked in extras().items()
        for name, (op, key, fault, says) in getattr(asked, "FAULTS", {}).items()
    ]


def _stateful(make: Any) -> Mutation:
    """A mutation; classes keep state of their own."""
    return make() if isinstance(make, type) else make


@mutant("left-aligned broadcast", "add", checks=(3,))
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


@mutant("ignores transpose", "matmul", checks=(5,))
def no_transpose(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    if b.ndim == 2 and not b.flags.c_contiguous and b.T.flags.c_contiguous:
        b = b.T.reshape(b.shape)
    return correct(a, b)


@mutant("integer division stays integer", "div", cases=r"/u?int\d+/")
def integer_division(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    result = correct(*raws)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.all(a == np.floor(a)):
        whole = np.floor_divide(a, b)
        return np.where(np.isfinite(result), whole, result).astype(result.dtype)
    return result


@mutant("int32 accumulator", "sum", cases=r"/u?int\d+/")
def narrow_sum(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    if raws[0].dtype.kind in "iu":
        return np.asarray(result).astype(np.int32).astype(np.asarray(result).dtype)
    return result


@mutant("E[x^2] - E[x]^2", "var", cases="offset_mean")
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


@mutant("no max-subtract in softmax", "softmax", cases="offset_mean|extremes", says="NaN")
def plain_softmax(correct: Any, raws: Any) -> Any:
    x, dim = raws[0], raws[1]
    if x.ndim == 0 or x.size == 0 or x.dtype.kind not in "f":
        return correct(*raws)
    e = np.exp(x)
    return (e / e.sum(dim, keepdims=True)).astype(x.dtype)


@mutant("max drops NaN", "amax", checks=(8,), says="NaN")
def nan_max(correct: Any, raws: Any) -> Any:
    x = raws[0]
    if x.dtype.kind == "f" and x.size:
        return correct(np.where(np.isnan(x), -np.inf, x).astype(x.dtype), *raws[1:])
    return correct(*raws)


@mutant("where by multiplication", "where", checks=(8,), says="NaN")
def multiplied_where(correct: Any, raws: Any) -> Any:
    result = np.asarray(correct(*raws))
    if result.dtype.kind != "f":
        return result
    c, a, b = raws
    return np.asarray(c * a + (~c) * b).astype(result.dtype)


@mutant("clone aliases", "clone", checks=(6,), says="shares memory")
def aliasing_clone(correct: Any, raws: Any) -> Any:
    return raws[0].view()


@mutant("view copies", "permute", checks=(6,), says="does not reach its base")
def copying_view(correct: Any, raws: Any) -> Any:
    return np.array(correct(*raws))


@mutant("windows further apart than they are long are copies", "unfold", checks=(6,), says="base")
def copying_windows(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    return np.array(result) if raws[3] > raws[2] else result


@mutant("a running product takes no dtype", "cumprod", checks=(33,))
def untyped(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    if raws[2] is None:
        return result
    return np.asarray(correct(raws[0], raws[1], None)).astype(result.dtype) * 1.5


@mutant("result cache keyed by pointer", "exp", checks=(26,))
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


@mutant("JIT key lacks the dtype", "sqrt", cases="/float(32|64)/")
class OneCompiledForm:
    """Compiles for the first dtype of a rank and uses that for all others."""

    def __init__(self) -> None:
        self.forms: dict[int, Any] = {}

    def __call__(self, correct: Any, raws: Any) -> Any:
        x = raws[0]
        dtype = self.forms.setdefault(x.ndim, x.dtype)
        result = correct(x)
        return result.astype(dtype).astype(result.dtype) if x.dtype != dtype else result


@mutant("shared scratch buffer", "tanh", checks=(6,), says="two calls returned the same memory")
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


@mutant("signed zero lost", "mul", says="signs of zeros")
def no_signed_zero(correct: Any, raws: Any) -> Any:
    result = np.asarray(correct(*raws))
    return result + result.dtype.type(0) if result.dtype.kind == "f" else result


@mutant("a comparison with NaN is false", "ne", checks=(8,))
def equal_nan(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    result = np.array(correct(*raws))
    if isinstance(a, np.ndarray) and a.dtype.kind == "f":
        result &= ~np.isnan(a)
    return result


@mutant("floor division truncates", "floor_divide", cases=r"/int\d+/")
def truncated_division(correct: Any, raws: Any) -> Any:
    a, b = raws[:2]
    result = correct(*raws)
    if getattr(result, "dtype", None) is not None and result.dtype.kind == "i":
        with np.errstate(all="ignore"):
            wide = np.trunc(np.true_divide(a, b))
        return np.where(np.isfinite(wide), wide, result).astype(result.dtype)
    return result


@mutant("rounds half away from zero", "round", cases="offset_mean|ties")
def away_from_zero(correct: Any, raws: Any) -> Any:
    x = raws[0]
    if x.dtype.kind == "f" and (len(raws) < 2 or not raws[1]):
        return np.copysign(np.floor(np.abs(x) + 0.5), x).astype(x.dtype)
    return correct(*raws)


@mutant("a sigmoid wrong in the sixth digit", "sigmoid", says="beyond the bound")
def off_by_a_hair(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    return (result * result.dtype.type(1 + 2e-6)) if result.dtype == np.float32 else result


@mutant("cat repeats an element of the last tensor", "cat")
def truncating_cat(correct: Any, raws: Any) -> Any:
    tensors = [*raws[0]]
    if len(tensors) > 1 and tensors[-1].size:
        last = np.array(tensors[-1])
        last.reshape(-1)[-1] = last.reshape(-1)[0]
        tensors[-1] = last
    return correct(tensors, *raws[1:])


@mutant("an index is off by one", "index_select")
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


@mutant("sort takes NaN for the smallest", "sort", checks=(8,), says="NaN")
def reversed_nan(correct: Any, raws: Any) -> Any:
    result = correct(*raws)
    values = np.array(result[0])
    if values.dtype.kind == "f" and values.size:
        values = np.where(np.isnan(values), -np.inf, values).astype(values.dtype)
    return type(result)([values, *result[1:]])


@mutant("dropout tail is not scaled", "dropout", "backend", checks=(11,), says="the mean is")
def unscaled_tail(correct: Any, raws: Any) -> Any:
    result = np.array(correct(*raws))
    if result.ndim == 1 and result.size > 1000:
        half = result.size // 2
        result[half:] = np.where(result[half:] != 0, raws[0][half:], 0)
    return result


@mutant(
    "out= strides ignored",
    "copy_",
    "cumsum",
    "softmax",
    checks=(7,),
    says="out= with strides|strides of out|beside out",
)
def ignored_strides(correct: Any, raws: Any) -> Any:
    """Writes into a target as if it were contiguous."""
    target, source = raws[:2]
    if target.flags.c_contiguous or target.size < 2:
        return correct(*raws)
    owner = target
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    owner.reshape(-1)[: target.size] = np.broadcast_to(source, target.shape).reshape(-1)
    return None


@mutant("silent fallback", "neg", checks=(21,), says="silent fallback", fake_backend=True)
def silent_fallback(correct: Any, raws: Any) -> Any:
    """Takes its data to the embedded backend and computes there."""
    return to_raw(cd.neg(from_raw(raws[0], backend=NAME).to("cpu")).to(NAME))
