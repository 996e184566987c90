"""Check 31: how a kernel compares in speed with the backend's others. Reported, and not judged."""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import coredispatch as cd

from ..case import Case
from ..context import Context, sample_tensors, tensors_in
from ..growth import Filling, counted, growths
from ..subject import Subject, numpy_dtype
from . import check
from .state import plan
from .values import decomposes

#: elements of what is timed, of a loop over elements, and the factor that is suspicious
TIMED, LEAST_TIMED, COUNTED, FACTOR = 20_000, 4_000, (64, 576), 50.0


@check(31, plan=plan, variant="speed")
def speed(context: Context) -> None:
    """Loops over elements in Python, and kernels far slower than their neighbours, are reported."""
    lines = _lines(context)
    if lines is not None and lines > 0.5:
        context.found["suspicious"] = (
            f"Python runs {lines:.1f} lines or calls for each element: it loops over them"
        )
    own = _seconds(context.subject, context.case.op)
    known = context.subject.speeds
    for name in _neighbours(context):
        if name not in known:
            known[name] = _seconds(context.subject, name)
    others = [s for n in _neighbours(context) if (s := known[n]) is not None]
    if own is not None:
        context.found["nanoseconds_per_element"] = round(own * 1e9, 3)
        if len(others) > 1 and not decomposes(context.op):
            usual = statistics.median(others)
            ratio = own / usual
            if ratio > FACTOR and own > 2e-8:
                report = (
                    f"{ratio:.0f} times as slow as its neighbours, {own * 1e9:.0f} ns an element"
                )
                looped = context.found.get("suspicious")
                context.found["suspicious"] = f"{looped}; {report}" if looped else report
    context.expect(True, "")


def _neighbours(context: Context) -> list[str]:
    """Native operators from the same file of definitions, and three that every backend has."""
    subject, op = context.subject, context.op
    if not subject.files:
        for name in dir(cd.ops):
            other = getattr(cd.ops, name)
            if other.derived_from is None and subject.kernel(name) is not None:
                subject.files.setdefault(other.file, []).append(name)
    beside = [n for n in subject.files.get(op.file, ()) if n != op.name]
    usual = [n for n in ("add", "exp", "sum") if n != op.name and subject.kernel(n) is not None]
    return [*beside[:3], *usual]


def _long(context: Context, size: int) -> Any:
    """The op's sample of fewest dimensions with one dimension as long as ``size`` elements need.

    None where no dimension grows.
    """
    dtype = numpy_dtype(context.case.dtype)
    found = growths(context, dtype, 2)
    if not found:
        return None
    growth = found[0]
    fits = max(2, min(size, growth.longest(size)))
    # A power of two: transforms of lengths with large prime factors take ten times as long.
    return growth.sample(context, 1 << (fits.bit_length() - 1), Filling(context, dtype=dtype))


def _seconds(subject: Subject, name: str) -> float | None:
    """Seconds for each element of a large call of an operator; None where it has no such call."""
    metadata = subject.metadata(name)
    dtype = next((d for d in ("float32", *metadata.dtypes) if d in metadata.dtypes), None)
    if dtype is None or metadata.op.samples is None or metadata.op.mutates:
        return None
    context = Context(subject, Case(31, name, dtype, variant="speed"), metadata)
    tensors = _called(context, _long(context, TIMED))
    return None if tensors is None else _timed(context, tensors)


def _called(context: Context, sample: Any) -> Any:
    """The tensors of a call that was made once; None without a call, or where the op refuses it."""
    if sample is None:
        return None
    tensors = context.subject.tensors(context.placed(sample))
    try:
        context.op(*tensors.args, **tensors.kwargs)
        context.subject.synchronize()
    except cd.CoreDispatchError:  # what grew at small lengths does not at this one
        return None
    return tensors


def _timed(context: Context, tensors: Any) -> float | None:
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        result = context.op(*tensors.args, **tensors.kwargs)
        context.subject.synchronize()
        best = min(best, time.perf_counter() - start)
    count = sum(t.numel() for t in (*sample_tensors(tensors), *tensors_in(result)))
    return best / count if count >= LEAST_TIMED else None  # of fewer it is the call's own time


def _lines(context: Context) -> float | None:
    """Lines and calls that Python runs for each further element of a call."""
    counts = []
    for size in COUNTED:
        tensors = _called(context, _long(context, size))
        if tensors is None:
            return None
        total = sum(t.numel() for t in sample_tensors(tensors))
        with counted() as seen:
            context.op(*tensors.args, **tensors.kwargs)
        counts.append((total, seen.steps))
    (small, few), (large, many) = counts
    return None if large <= small else (many - few) / (large - small)
