"""Check 30: two dimensions that are long at once.

``sizes`` and ``blocks`` make one dimension long and leave the others as short as a sample has
them. Tiles of a transposed copy, channels that are packed in groups on both sides, and the outer
sum of two vectors begin where two dimensions are long, and end in a corner.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..case import Case
from ..context import Context, NotRun
from ..growth import Filling, Growth, candidates, cost, growths, takes
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import Template
from . import check
from .sizes import applies, judge
from .values import choose_dtypes, in_domain

#: the lengths of the first dimension and, as far as elements and time go, of the second: odd
FIRST, SECOND = 67, (35, 131)
#: elements of all arrays of a call; ways to grow that are tried, and further ones for each
MOST, WAYS, EACH = 100_000, 24, 2
#: calls of a case, and the seconds of the processor after which it begins no further one
CALLS, PATIENCE = 24, 0.4
#: seconds of a call beyond which the second dimension grows no further
SLOW = 0.02


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if not applies(metadata) or not metadata.native:
        return
    op = metadata.op
    for dtype in choose_dtypes(metadata, ("float32", "int64"), 1):
        if dtype in subject.dtypes:
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(30, op.name, dtype, variant="planes", mandatory=mandatory)


@check(30, plan=_plan, variant="planes")
def planes(context: Context) -> None:
    """Two dimensions are long and odd at once, as they come and in the opposite order in memory."""
    dtype = numpy_dtype(context.case.dtype)
    seed = (context.case.seed + context.fresh) % 2**32
    makes = [Filling(context, dtype=dtype, seed=seed)]
    if in_domain(context.op, "uniform", "transposed"):
        makes.append(Filling(context, dtype=dtype, seed=seed + 1, layout="transposed"))
    start, done = time.process_time(), 0
    for growth, size in _twice(context, makes[0]):
        for make in makes:
            sample = growth.sample(context, size, make)
            if sample is not None:
                judge(context, sample)
                done += 1
        if done >= CALLS or time.process_time() - start > PATIENCE:
            break
    context.found["calls"] = done
    if not done:
        raise NotRun("no two dimensions of the operator's samples may be long at once")


def _twice(context: Context, make: Filling) -> Iterator[tuple[Growth, int]]:
    """Growths of templates of which another dimension is long already, each with its length."""
    ranks: dict[Any, list[Growth]] = {}
    for growth in sorted(growths(context, make.own.dtype), key=lambda g: g.share):
        if growth.template.whole and max(map(len, growth.template.shapes)) > 1:
            ranks.setdefault(tuple(map(len, growth.template.shapes)), []).append(growth)
    turns = [g for turn in itertools.zip_longest(*ranks.values()) for g in turn if g is not None]
    seen = set[Any]()
    begun = time.process_time()
    for first in turns[:WAYS]:
        if time.process_time() - begun > PATIENCE:
            return
        if first.longest(MOST) < FIRST:
            continue
        grown = _grown(context, first, FIRST, make)
        found = 0
        for axes, old in candidates(grown) if grown is not None else ():
            role = frozenset((first.axes, axes)), tuple(map(len, first.template.shapes))
            if old == FIRST or found == EACH or role in seen:
                continue
            second = _accepted(context, grown, axes, old, first, make)
            if second is not None:
                seen.add(role)
                found += 1
                yield second


def _accepted(
    context: Context, grown: Any, axes: Any, old: int, first: Growth, make: Filling
) -> tuple[Growth, int] | None:
    """The second growth and the largest of the lengths that are taken, and computed in time."""
    for renames in (True, False):
        second = Growth(grown, axes, old, 0.0, renames, first.names)
        largest = 0
        for size in SECOND:
            sample = second.sample(context, size, make)
            if sample is None or cost(context, sample) > MOST:
                break
            start = time.process_time()
            if not takes(context, sample):
                break
            largest = size
            if time.process_time() - start > SLOW:
                break
        if largest:
            return second, largest
    return None


def _grown(context: Context, growth: Growth, size: int, make: Filling) -> Template | None:
    """The growth's template with its dimension ``size`` long."""
    own = growth.template
    sizes = {growth.old: size} if growth.renames else {}
    sample = growth.sample(context, size, make)
    if sample is None:
        return None
    arrays: dict[int, Any] = {}
    sample.map(lambda a: arrays.setdefault(id(a), a))
    requests = {}
    for array, before in zip(arrays.values(), own.arrays, strict=True):
        request = own.requests[id(before)]
        high = sizes.get(int(request.high or 0), request.high) if request.points else request.high
        requests[id(array)] = replace(request, shape=array.shape, high=high)
    return Template(own.number, sample, requests, True, tuple(arrays.values()))
