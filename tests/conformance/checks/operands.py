"""Checks 5 and 7: operands that a kernel may be tempted to work in, or to write while it reads.

LAPACK wants columns that lie one after the other, and finds them in an operand of that order: what
is overwritten there is the caller's. Elements are written in blocks: a target that lies a little
behind its operand in one memory is read again after it was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import Context, NotRun, elements, equal, has_values, snapshot, tensors_in
from ..growth import cost, takes
from ..reference import NoReference, Reference
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from . import check
from .values import choose_dtypes, in_domain
from .view_inputs import BY_MEMORY

#: elements of the largest array of a sample, and samples of each dtype
LARGEST, SAMPLES = 700, 4
#: elements of operands that overlap their target: more than a few blocks
LONG = 3001
#: elements of all arrays and of the result for each element of an operand
MOST = 25
#: how far the target lies behind or before the operand: less than any block, and one of no vector
SHIFTS = (1, -1, 7)


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.op.samples is None or metadata.layouts:
        return
    op = metadata.op
    if not subject.backend.views or not has_values(op) or op.mutates or op.factory:
        return
    if metadata.native and not op.view and (op.tensors or op.lists) and op.name not in BY_MEMORY:
        yield Case(5, op.name, variant="columns-first")
    if op.view or op.random or op.schema.multi_output:
        return
    for dtype in choose_dtypes(metadata, ("float32", "int64"), 1):
        if dtype in subject.dtypes and (op.inplace_op is not None or op.namespaces):
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(7, op.name, dtype, variant="overlap", mandatory=mandatory)


# ---- operands whose columns lie one after the other ----------------------------------------------


@check(5, plan=_plan, variant="columns-first")
def columns_first(context: Context) -> None:
    """Operands of each dtype whose first dimension is innermost stay what they were."""
    assert context.metadata is not None
    for dtype in context.metadata.dtypes:
        if dtype not in context.subject.dtypes:
            continue
        small = [
            s
            for s in context.samples(dtype=numpy_dtype(dtype))
            if 0 < elements(s) <= LARGEST and _turns(s)
        ]
        for sample in sorted(small, key=_most_dims)[:SAMPLES]:
            _turned(context, sample)
    if not context.asserted:
        raise NotRun("no sample has an array of two dimensions")


def _turns(sample: Any) -> bool:
    found: list[bool] = []
    sample.map(lambda a: found.append(not _columns(a).flags.c_contiguous) or a)
    return any(found)


def _most_dims(sample: Any) -> int:
    """Matrices first, for which libraries have an order of their own."""
    dims: list[int] = []
    sample.map(lambda a: dims.append(a.ndim) or a)
    return max(dims, default=0)


def _columns(array: Any) -> Any:
    return np.array(array, order="F")


def _turned(context: Context, sample: Any) -> None:
    plain = context.placed(sample.map(np.array))
    try:
        wanted = [context.subject.array(t) for t in tensors_in(_called(context, plain))]
    except CoreDispatchError:
        return  # values that the operator refuses
    held = context.placed(sample.map(_columns))
    tensors = context.subject.tensors(held)
    before = snapshot(context, tensors)
    result = _called(context, tensors, placed=True)
    context.unchanged(before, tensors)
    found = [context.subject.array(t) for t in tensors_in(result)]
    same = len(found) == len(wanted)
    same = same and all(a.dtype == b.dtype and a.shape == b.shape for a, b in zip(found, wanted))
    if not (same and all(map(equal, found, wanted))):
        context.close(result, held)
    context.asserted += 1


def _called(context: Context, sample: Any, *, placed: bool = False) -> Any:
    return context.call(sample if placed else context.subject.tensors(sample))


# ---- targets a little behind their operands ------------------------------------------------------


@check(7, plan=_plan, variant="overlap")
def overlap(context: Context) -> None:
    """A target that lies less than a block behind or before an operand, in one memory.

    In place and with ``out=``: as if the operand had been copied, or refused with nothing changed.
    """
    long = [x for x in (_long(context, s) for s in context.samples()) if x is not None]
    for longer in sorted(long, key=lambda s: -elements_of_all(s))[:SAMPLES]:
        context.placed(longer)
        wanted = context.call(context.subject.tensors(longer))
        if not isinstance(wanted, cd.Tensor) or tuple(wanted.shape) != (LONG,):
            continue
        for place, array in enumerate(longer.args):
            if isinstance(array, np.ndarray) and array.shape == (LONG,):
                for shift in SHIFTS:
                    _with_out(context, longer, place, shift, wanted)
                    if place:
                        _in_place(context, longer, place, shift)
        if context.asserted > 2 * len(SHIFTS):
            return
    if not context.asserted:
        raise NotRun("no sample has operands of one dimension, of whose size the result is")


def elements_of_all(sample: Any) -> int:
    """Elements of all arrays of a sample together."""
    sizes: list[int] = []
    sample.map(lambda a: sizes.append(a.size) or a)
    return sum(sizes)


def _long(context: Context, sample: Any) -> Any:
    """The sample with arrays of one long dimension in the place of all; None where it is refused.

    Those without dimensions stay.
    """
    shapes: set[Any] = set()
    sample.map(lambda a: shapes.add(a.shape) or a)
    shapes -= {()}
    if len(shapes) != 1 or 0 in next(iter(shapes)):
        return None
    if not in_domain(context.op, "uniform", "transposed") or context.op.lists:
        return None
    longer = sample.map(lambda a: np.resize(a, (LONG,)) if a.shape else a)
    short = sample.map(lambda a: np.resize(a, (5,)) if a.shape else a)
    if cost(context, short) > MOST or cost(context, longer) > 5 * LONG:
        return None  # each element meets each other one
    return context.placed(longer) if takes(context, short) and takes(context, longer) else None


def _shifted(context: Context, array: Any, shift: int) -> tuple[Any, Any]:
    """A tensor with the contents of ``array``, and one ``shift`` elements behind in its memory."""
    room = abs(shift)
    memory = context.subject.tensor(np.resize(array, LONG + room))
    read, written = (0, shift) if shift > 0 else (room, 0)
    reads = cd.narrow(memory, 0, read, LONG)
    reads.copy_(context.subject.tensor(array))
    return reads, cd.narrow(memory, 0, written, LONG)


def _with_out(context: Context, sample: Any, place: int, shift: int, wanted: Any) -> None:
    if not context.op.namespaces or "out" in context.subject.expectations.absent:
        return
    tensors = context.subject.tensors(sample)
    if tensors.args[place].dtype is not wanted.dtype:
        return
    args = [*tensors.args]
    args[place], target = _shifted(context, sample.args[place], shift)
    held = snapshot(context, type(tensors)(*args))
    try:
        context.op(*args, **tensors.kwargs, out=target)
    except CoreDispatchError:
        same = snapshot(context, type(tensors)(*args)) == held
        context.expect(same, "refused an out= that overlaps an operand, yet something changed")
        return
    context.sample = sample
    what = f"out= {shift:+d} elements from an operand in its memory"
    context.same(target, wanted, what, of=sample, strides=True)


def _in_place(context: Context, sample: Any, place: int, shift: int) -> None:
    form = context.op.inplace_op
    first = sample.args[0]
    if form is None or not isinstance(first, np.ndarray) or first.shape != (LONG,):
        return
    if sample.args[place].dtype != first.dtype:
        return
    reads, writes = _shifted(context, sample.args[place], shift)
    both = [context.subject.array(writes), *sample.args[1:]]
    judged = context.placed(type(sample)(*both, **sample.kwargs))
    try:
        Reference(context.op, judged)()
    except NoReference:
        pass
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return  # other values than the sample's
    tensors = context.subject.tensors(judged)
    try:
        wanted = context.op(*tensors.args, **tensors.kwargs)
    except CoreDispatchError:
        return
    if wanted.dtype is not writes.dtype or tuple(wanted.shape) != (LONG,):
        return
    args = [*tensors.args]
    args[0], args[place] = writes, reads
    held = snapshot(context, type(tensors)(*args))
    try:
        form(*args, **tensors.kwargs)
    except CoreDispatchError:
        same = snapshot(context, type(tensors)(*args)) == held
        context.expect(same, "refused operands that overlap, yet something changed")
        return
    what = f"in place, {shift:+d} elements from an operand in its memory"
    context.same(writes, wanted, what, of=judged, strides=True)
