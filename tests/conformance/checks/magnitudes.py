"""Check 8, magnitudes: numbers of every size that a dtype has, and special ones in every pair.

The special values of the covering array are eight numbers among random ones near zero. A kernel
changes its formula where a function turns or overflows - at 9, at -37, at 2**-27 - and treats
pairs: 1 to the power of NaN, what an infinity leaves over. Here the exponents of the numbers are
even over the dtype's range, most of them where functions turn, and every two special numbers meet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import Context, NotRun
from ..distributions import limits
from ..growth import takes
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from ..templates import Template, named, templates
from . import check
from .drawn import BY_MEMORY
from .sizes import pointwise
from .values import arrays_of, in_domain

#: dtypes that are asked; of a composite those that kernels of their own are written for
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "complex64")
OF_COMPOSITES = ("float32", "float64", "float16", "complex64")
#: numbers in the place of an operand, for which kernels have short cuts; but for a half, as whose
#: power some take the square root, of -0 and of minus infinity as well
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 0.25, -1.5, np.inf, -np.inf, np.nan)
#: numbers of an array besides the special ones
COUNT = 400
#: exponents between which functions turn: half of the numbers lie there
TURNS = 9.0
#: combinations of options that are tried
CALLS = 6
#: requests of a sampler whose arrays may hold any number, or any that is no less than zero
FREE = ("__call__", "positive", "float")
#: operators by way of a difference, which is infinite for two numbers of opposite signs
BETWEEN = ("lerp",)
#: operators of complex numbers that give a number of the dtype wherever there is one, but for the
#: last few of its range
SCALED = ("add", "sub", "mul", "div", "reciprocal")
#: operators whose results are whole quotients
QUOTIENTS = ("floor_divide", "trunc_divide")
#: operators that are undefined for some integers: division by zero, shifts beyond the width
UNDEFINED = ("shift", "div", "remainder", "fmod")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or not metadata.native or metadata.op.samples is None or metadata.layouts:
        return
    op = metadata.op
    if not op.tensors or op.view or op.mutates or op.random or op.factory:
        return
    if op.name in (*BY_MEMORY, *BETWEEN) or "with_indices" in op.name:  # windows need two dims
        return
    if not in_domain(op, "special", "contiguous"):
        return
    for dtype in OF_COMPOSITES if op.kind == "composite" else DTYPES:
        if dtype == "complex64" and not metadata.elementwise:
            continue  # a sum may leave the range on the way
        if dtype == "complex64" and op.kind == "composite" and op.name not in SCALED:
            continue  # and so may what a decomposition computes
        if dtype in metadata.dtypes and dtype in subject.dtypes:
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(8, op.name, dtype, variant="magnitudes", mandatory=mandatory)


def _special(dtype: Any, positive: bool) -> Any:
    """The numbers that are not like others, and some that are."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        found = [0, 1, 2, 3, 7, 96, info.max - 1, info.max, info.max // 2 + 1]
        found += [-1, -2, -3, -5, info.min, info.min + 1] if dtype.kind == "i" else []
        found += [2**53, 2**53 + 1, -(2**53) - 1] if dtype.itemsize == 8 else []
        return np.array([n for n in found if n > 0 or not positive], dtype)
    if dtype.kind == "c":  # both parts; what becomes of infinities and NaN is left open
        part = _special(np.dtype(np.float32), positive)
        part = part[np.isfinite(part)]
        found = np.empty(part.size**2, dtype)
        found.real, found.imag = np.repeat(part, part.size), np.tile(part, part.size)
        return found
    info = limits(dtype)
    sizes = [1.0, 2.0, 3.0, 0.5, 1.5, np.inf, float(info.max), float(info.smallest_normal)]
    sizes.append(float(info.smallest_subnormal))
    if positive:
        return np.array(sizes).astype(dtype)
    return np.array([np.nan, 0.0, -0.0, *sizes, *(-n for n in sizes)]).astype(dtype)


def _numbers(
    dtype: Any, count: int, positive: bool, rng: np.random.Generator, margin: float = 0.0
) -> Any:
    """Numbers of either sign, their exponents even over the range or where functions turn."""
    if dtype.kind in "iu":
        bits = rng.integers(0, dtype.itemsize * 8 - (dtype.kind == "i"), count)
        found = rng.integers(0, 2**63, count, np.uint64) >> (np.uint64(63) - bits.astype(np.uint64))
        found = np.maximum(found, np.uint64(1)).astype(dtype)
        signs = rng.integers(0, 2, count).astype(bool) & (dtype.kind == "i" and not positive)
        return np.where(signs, -found, found).astype(dtype)
    if dtype.kind == "c":
        found = np.empty(count, dtype)
        found.real, found.imag = (
            _numbers(found.real.dtype, count, positive, rng, margin) for _ in range(2)
        )
        return found
    info = limits(dtype)
    least, most = (float(np.log2(float(n))) for n in (info.smallest_normal, info.max))
    least, most = least + margin, most - margin
    near = rng.uniform(-TURNS, TURNS, count)
    exponents = np.where(rng.random(count) < 0.6, near, rng.uniform(least, most, count))
    signs = 1.0 if positive else rng.choice((-1.0, 1.0), count)
    with np.errstate(all="ignore"):
        found = (signs * np.exp2(exponents)).astype(dtype)
    # Where many functions end, or have a pole: on both sides of 1, as near as there are numbers.
    steps = np.exp2(-rng.uniform(1, -np.log2(float(info.eps)), count)) * rng.choice((-1, 1), count)
    return np.where(rng.random(count) < 0.1, (signs * (1 + steps)).astype(dtype), found)


def _arrays(op: Any, template: Template, dtype: Any, rng: np.random.Generator) -> list[Any] | None:
    """New arrays for a sample's, of one dimension; None where one of them has a meaning."""
    requests = [template.requests.get(id(a)) for a in template.arrays]
    if not template.whole or any(a.ndim == 0 for a in template.arrays):
        return None
    free = [
        r is not None and r.method in FREE and r.low is None and r.high is None for r in requests
    ]
    if not any(free) or any(r is not None and r.points for r in requests):
        return None
    if dtype.kind == "c" and len(requests) > 1 and op.name not in SCALED:
        return None  # of two complex numbers what is computed on the way may overflow
    # Numbers are positive for the sake of integers: zero divides nothing there.
    kept = [dtype.kind in "iu" and r is not None and r.method == "positive" for r in requests]
    chosen = [_special(dtype, positive) for positive in kept]
    if dtype.kind == "c" and op.name in SCALED:  # zeros and the largest numbers leave the range
        chosen = [c[:1] for c in chosen]
    pairs = list(itertools.product(*(range(len(c)) for c in chosen[:2])))
    rng.shuffle(pairs)
    found = []
    for i, (request, special) in enumerate(zip(requests, chosen, strict=True)):
        assert request is not None
        if request.method == "mask":
            found.append(rng.random(len(pairs) + COUNT) < 0.5)
            continue
        positive = kept[i]
        places = [p[i] for p in pairs] if i < 2 else rng.integers(0, len(special), len(pairs))
        many = _numbers(dtype, COUNT, positive, rng, 4.0 if op.name in SCALED[3:] else 0.0)
        if i:  # some are near the first array's
            first = found[0][len(pairs) :]
            near = (rng.random(COUNT) < 0.2) & (first > 0 if positive else first == first)
            many = np.where(near, first, many).astype(dtype)
        found.append(np.concatenate([special[np.array(places, int)], many]))
    return found


def _held_back(dividend: Any, divisor: Any, divided: bool) -> Any:
    """The divisor where the dtype holds each whole quotient; the dividend itself elsewhere.

    What cuts off the fraction of a quotient that was ``divided`` finds it rounded, now and then up
    to the next integer. It is held to the others.
    """
    if dividend.dtype.kind in "iu":
        return divisor
    with np.errstate(all="ignore"):
        quotient = np.abs(dividend.astype(np.float64) / divisor.astype(np.float64))
        rounded = quotient.astype(np.float32 if dividend.dtype.itemsize < 8 else np.float64)
        beyond = np.isfinite(quotient) & (quotient >= 1 / float(limits(dividend.dtype).eps))
        if divided:
            beyond |= np.isfinite(quotient) & (np.floor(rounded) != np.floor(quotient))
    return np.where(beyond, dividend, divisor).astype(divisor.dtype)


def _calls(context: Context) -> Iterator[Any]:
    """A call of each combination of options that the samples have."""
    seen: set[str] = set()
    rng = context.rng
    for template in templates(context.op, lambda kind: context.make(kind=kind)):
        if any(a.dtype != context.make().dtype for a in template.arrays if a.dtype.kind != "b"):
            continue
        if len({a.shape for a in template.arrays}) != 1:
            continue
        options = repr([(n, v) for n, v in named(context.op, template.sample) if not _held(v)])
        if options in seen or len(seen) == CALLS:
            continue
        made = _arrays(context.op, template, context.make().dtype, rng)
        if made is None:
            continue
        seen.add(options)
        if context.op.name in QUOTIENTS and len(made) == 2:
            made[1] = _held_back(*made, divided=context.op.name == "trunc_divide")
        by_id = {id(a): m for a, m in zip(template.arrays, made, strict=True)}
        yield template.sample.map(lambda a, by_id=by_id: by_id[id(a)])


def _held(value: Any) -> bool:
    return isinstance(value, (np.ndarray, list, tuple))


@check(8, plan=_plan, variant="magnitudes")
def magnitudes(context: Context) -> None:
    """Numbers over the whole range of the dtype, and all pairs of special ones."""
    if context.make().dtype.kind in "iu" and any(p in context.op.name for p in UNDEFINED):
        raise NotRun("not defined for all integers")
    for sample in _calls(context):
        context.placed(sample)
        try:
            result = context.call(context.subject.tensors(sample))
        except CoreDispatchError:
            continue  # shapes or values that the samples never have
        context.close(result, sample)
        for with_number in _with_numbers(context, sample):
            try:
                result = context.call(context.subject.tensors(context.placed(with_number)))
            except CoreDispatchError:
                continue  # a number that the operator does not take
            context.close(result, with_number)
    if not context.asserted:
        raise NotRun("no sample's arrays may hold any number")


def _with_numbers(context: Context, sample: Any) -> Iterator[Any]:
    """The call with a number in the place of each operand that may be one."""
    if context.make().dtype.kind not in "fV" or len(arrays_of(sample)) < 2:
        return
    if context.op.name in QUOTIENTS:
        return  # a quotient beyond the whole numbers of the dtype may be rounded twice
    for place, param in enumerate(context.op.schema.params[: len(sample.args)]):
        if "Scalar" not in param.annotation or not isinstance(sample.args[place], np.ndarray):
            continue
        for number in NUMBERS:
            args = [*sample.args]
            args[place] = number
            yield type(sample)(*args, **sample.kwargs)


# ---- derivatives of one element, far from zero --------------------------------------------------


def _plan_far(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or not metadata.native or metadata.op.samples is None or metadata.layouts:
        return
    op = metadata.op
    if "_backward" not in op.name or op.values is not None or op.mutates or op.random:
        return
    for dtype in ("float32", "float64"):
        if dtype in metadata.dtypes and dtype in subject.dtypes:
            yield Case(8, op.name, dtype, variant="far", mandatory=dtype in MANDATORY_DTYPES)


@check(8, plan=_plan_far, variant="far")
def far(context: Context) -> None:
    """The derivative of an elementwise operator has its digits up to 100 as well.

    Differences show less than a percent of it, and samples lie between -2 and 2.
    """
    seen: set[str] = set()
    for template in templates(context.op, lambda kind: context.make(kind=kind)):
        options = repr([(n, v) for n, v in named(context.op, template.sample) if not _held(v)])
        if options in seen or not template.whole or len(seen) == CALLS:
            continue
        if not template.arrays or len({a.shape for a in template.arrays}) != 1:
            continue
        sample = _distant(template, context.make().dtype, context.rng)
        if not takes(context, sample) or not pointwise(context, sample, COUNT):
            continue
        seen.add(options)
        context.close(context.call(context.subject.tensors(context.placed(sample))), sample)
    if not seen:
        raise NotRun("no sample's arrays may hold any number, each for itself")


def _distant(template: Template, dtype: Any, rng: np.random.Generator) -> Any:
    """The sample with arrays of one dimension; their numbers are as large as 100."""
    made = {}
    for array in template.arrays:
        request = template.requests[id(array)]
        if request.method == "mask":
            made[id(array)] = rng.random(COUNT) < 0.5
            continue
        if request.method not in FREE or array.dtype != dtype:
            return None
        numbers = rng.choice((-1.0, 1.0), COUNT) * np.exp2(rng.uniform(-9, 6.7, COUNT))
        if request.low is not None or request.high is not None or request.method == "positive":
            low = 0.25 if request.low is None else request.low
            numbers = rng.uniform(low, 2.0 if request.high is None else request.high, COUNT)
        made[id(array)] = numbers.astype(dtype)
    return template.sample.map(lambda a: made[id(a)])
