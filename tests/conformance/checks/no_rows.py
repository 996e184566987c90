"""Check 4, calls without rows: one dimension of the samples has no elements, the result has.

A sum of nothing is 0, and a product 1; the gradient of a weight that met no row is 0. Such a
result is not made by any loop over the rows: it must have been written before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import Context, Failure, NotRun, has_values, tensors_in
from ..growth import cost, takes
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import SIZES, Template, changed, fits, renamed, repeated, templates
from . import check
from .values import choose_dtypes

#: calls of an operator
MOST = 6


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or not metadata.native or metadata.op.samples is None or metadata.layouts:
        return
    op = metadata.op
    if not has_values(op) or op.mutates or op.factory or op.view or op.schema.plain:
        return
    if not (op.tensors or op.lists):
        return
    for dtype in choose_dtypes(metadata, ("float32", "int64"), 1):
        if dtype in subject.dtypes:
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(4, op.name, dtype, variant="no-rows", mandatory=mandatory)


@check(4, plan=_plan, variant="no-rows")
def no_rows(context: Context) -> None:
    """Where a dimension is empty and the result is not, each element is what its reference says."""
    dtype = numpy_dtype(context.case.dtype)
    make = context.make(dtype=dtype)
    done = 0
    for template in templates(context.op, lambda kind: context.make(kind=kind, dtype=dtype)):
        for size in template.sizes(context.op) if template.whole else ():
            sample = _without(context.op, template, size, make)
            if (
                sample is None
                or cost(context, sample) > MOST * 10_000
                or not takes(context, sample)
            ):
                continue
            context.placed(sample)
            # Memory that was just given back, full of a number, is what an element of the result
            # holds that nobody wrote.
            _fill_the_memory(context, sample)
            result = context.call(context.subject.tensors(sample))
            if not any(t.numel() for t in tensors_in(result)):
                continue
            try:
                context.close(result, sample)
            except CoreDispatchError:
                continue  # the decomposition refuses what the kernel serves: check 24
            except Failure as error:
                raise Failure(f"without rows: {error}") from None
            done += 1
            if done == MOST:
                return
    if not done:
        raise NotRun("no sample gives elements where one of its dimensions is empty")


def _without(op: Any, template: Template, size: int, make: Any) -> Any:
    """The sample with nothing in the place of each dimension of a size."""
    none, made = {size: 0}, {}
    for array in template.arrays:
        request = template.requests[id(array)]
        shape = renamed(array.shape, none)
        high = int(request.high or 0) if request.points else 0
        if shape == array.shape:
            made[id(array)] = array
            continue
        if request.points and none.get(high, high) < 1 and 0 not in shape:
            return None  # nothing to point at
        if not fits(request, shape, high):
            return None
        made[id(array)] = repeated(request, shape, make, max(high, 1))

    def follow(name: str, value: Any) -> Any:
        if name in SIZES and isinstance(value, (tuple, list)):
            return type(value)(renamed(value, none))
        return value

    return changed(op, template.sample.map(lambda a: made[id(a)]), follow)


def _fill_the_memory(context: Context, sample: Any) -> None:
    shapes: list[Any] = []
    sample.map(lambda a: shapes.append(a.shape) or a)
    dtype = numpy_dtype(context.case.dtype)
    for shape in shapes:
        if 0 not in shape:
            filled = cd.empty(shape, dtype=cd.float32, device=context.subject.device)
            filled.fill_(77)
            np.full(shape, 77).astype(dtype)
