"""Check 32, ends: of what goes from one number to another, exactly, and how many there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd

from ..case import Case
from ..context import Context
from ..exact import nearest
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from . import check

__all__: list[str] = []

#: ends of decimal fractions and of very different sizes
PAIRS = ((0.1, 1.1), (-0.3, 0.7), (1e3, 1e-3), (-7.3, -0.1), (0.0, 1 / 3), (5.0, -1e-4))
STEPS = (0.1, 0.3, 0.07, 1 / 3, 0.7, 1.1)
#: starts and steps of ranges of integers that doubles cannot hold
STARTS, FAR_STEPS = (2**53 + 1, -(2**53) - 3, 2**62 + 5, -(2**63)), (1, 3, 2**53 + 1)
#: operators that count from one number to another
RANGES = ("arange", "range")
COUNTS = (*range(2, 40), 49, 98, 107, 1000)


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.name not in ASKED:
        return
    if not metadata.native and metadata.name not in RANGES:
        return
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        if dtype in metadata.dtypes and dtype in subject.dtypes:
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(32, metadata.name, dtype, variant="ends", mandatory=mandatory)
    if metadata.name in RANGES and "int64" in metadata.dtypes and "int64" in subject.dtypes:
        yield Case(32, metadata.name, "int64", variant="whole-range")


def _own(context: Context) -> dict[str, Any]:
    return {"dtype": getattr(cd, context.case.dtype), "device": context.subject.device}


def _linspace(context: Context) -> None:
    dtype = numpy_dtype(context.case.dtype)
    for start, end in PAIRS:
        for steps in COUNTS:
            found = context.subject.array(context.op(start, end, steps, **_own(context)))
            wanted = nearest(np.array([start, end]), dtype)
            ends = found[[0, -1]].astype(np.float64)
            same = np.array_equal(ends, wanted.astype(np.float64))
            context.expect(same, f"linspace({start}, {end}, {steps}) has the ends {ends.tolist()}")


def _count(start: float, end: float, step: float, closed: bool) -> int:
    """How many numbers there are, as PyTorch counts them: from the quotient in double precision."""
    quotient = (end - start) / step
    return math.floor(quotient) + 1 if closed else math.ceil(quotient)


def _range(context: Context) -> None:
    closed = context.case.op != "arange"
    for step in STEPS:
        for count in (1, 2, 3, 6, 7, 10, 29, 49, 100):
            for start in (0.0, 0.3, -1.7):
                end = start + count * step
                for sign in (1, -1):
                    given = (sign * start, sign * end, sign * step)
                    found = context.subject.array(context.op(*given, **_own(context)))
                    name = f"{context.case.op}{given}"
                    wanted = _count(*given, closed)
                    context.expect(
                        found.size == wanted, f"{name} has {found.size} numbers, not {wanted}"
                    )
                    first = nearest(np.array([given[0]]), found.dtype)
                    context.expect(float(found[0]) == float(first[0]), f"{name}: the first end")


def _lerp(context: Context) -> None:
    dtype = numpy_dtype(context.case.dtype)
    rng = np.random.default_rng(context.case.seed)
    start, end = (
        (rng.choice((-1.0, 1.0), 300) * np.exp2(rng.uniform(-9, 9, 300))).astype(dtype)
        for _ in range(2)
    )
    a, b = context.subject.tensor(start), context.subject.tensor(end)
    for weight, wanted in ((0.0, start), (1.0, end), (0, start), (1, end)):
        for w in (weight, context.subject.tensor(np.full(300, weight, dtype))):
            found = context.subject.array(context.op(a, b, w))
            kind = "number" if w is weight else "tensor"
            same = np.array_equal(found, wanted)
            context.expect(same, f"a weight of {weight} ({kind}) does not give the end")


#: operators that go from one number to another
ASKED: dict[str, Callable[[Context], None]] = {
    "linspace": _linspace,
    "arange": _range,
    "range": _range,
    "lerp": _lerp,
}


@check(32, plan=_plan, variant="ends")
def ends(context: Context) -> None:
    """Both ends are reached exactly, and a range has as many numbers as its quotient says."""
    ASKED[context.case.op](context)


@check(32, plan=_plan, variant="whole-range")
def whole_range(context: Context) -> None:
    """A range of integers that doubles cannot hold has each of them, and as many as there are."""
    closed = context.case.op == "range"
    for start, step, count in itertools.product(STARTS, FAR_STEPS, (1, 2, 37)):
        for sign in (1, -1):
            end = start + sign * step * (count - 1) + sign * (not closed)
            if not -(2**63) <= end < 2**63:
                continue
            wanted = np.arange(count, dtype=np.int64) * (sign * step) + start
            found = context.subject.array(context.op(start, end, sign * step, **_own(context)))
            name = f"{context.case.op}{(start, end, sign * step)}"
            context.expect(found.size == count, f"{name} has {found.size} numbers, not {count}")
            same = np.array_equal(found, wanted)
            context.expect(same, f"{name}: its integers are not exact, {found[:3]}")
