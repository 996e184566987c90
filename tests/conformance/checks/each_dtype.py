"""Check 30, ``dtypes``: large work in the dtypes that the other sizes leave out.

Each dtype has vectors of another width, and often kernels of its own: a tail that is lost in half
precision or among complex numbers is found neither in single precision nor in 257 elements.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from ..case import Case
from ..context import Context, NotRun
from ..growth import Filling, Growth, cost, growths, lengths, takes
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from . import check
from .sizes import applies, dtypes_of_sizes, judge
from .values import decomposes

#: elements of all arrays of a call, calls of a case, and the seconds of the processor after which
#: no further one is begun
MOST, CALLS, PATIENCE = 6_000, 3, 0.05


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if not applies(metadata) or not metadata.native or decomposes(metadata.op):
        return
    op = metadata.op
    asked = dtypes_of_sizes(metadata)
    for dtype in metadata.dtypes:
        if dtype in subject.dtypes and dtype not in asked:
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(30, op.name, dtype, variant="dtypes", mandatory=mandatory)


@check(30, plan=_plan, variant="dtypes")
def dtypes(context: Context) -> None:
    """One dimension is long in this dtype: of arrays with few dimensions, and with more."""
    dtype = numpy_dtype(context.case.dtype)
    seed = (context.case.seed + context.fresh) % 2**32
    make = Filling(context, dtype=dtype, seed=seed)
    most = 1 if context.subject.expectations.policies.compiles else CALLS
    start, done = time.process_time(), 0
    for growth in _ranks(context):
        sizes = lengths(seed, growth.longest(MOST))
        sample = growth.sample(context, sizes[0], make) if sizes else None
        if sample is None or cost(context, sample) > 4 * MOST or not takes(context, sample):
            continue
        judge(context, sample)
        done += 1
        if done >= most or time.process_time() - start > PATIENCE:
            break
    context.found["calls"] = done
    if not done:
        raise NotRun("no dimension of the operator's samples may be long in this dtype")


def _ranks(context: Context) -> Iterator[Growth]:
    """Ways to grow: one whose results are large, and of each number of dimensions the first.

    They are those of the first dtype whose sizes are asked: the search takes longer than the calls.
    """
    assert context.metadata is not None
    first = dtypes_of_sizes(context.metadata)[0]
    seen = set[Any]()
    found = growths(context, numpy_dtype(first))
    giving = max(found, key=lambda growth: growth.gives, default=None)
    for growth in found if giving is None else [giving, *found]:
        kind = tuple(map(len, growth.template.shapes)), growth.reduced
        if kind not in seen:
            seen.add(kind)
            yield growth
