"""Checks 5 and 7, views of views: inputs at an offset with gaps, targets with something beside.

The layouts of the covering array lie in a buffer one way each. Here a window is cut out of a
window: it starts inside its memory, has gaps in every dimension, and may run backwards. Targets are
such windows, too, or overlap what is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import CoreDispatchError

from ..case import BACKEND, Case
from ..context import Context, NotRun, elements, has_values, sample_tensors, snapshot, tensors_in
from ..subject import MANDATORY_DTYPES, OpFacts, Subject
from ..tensor_layouts import layout_of
from . import check
from .values import choose_dtypes, in_domain

__all__ = ["window"]

#: elements of the largest array of a sample
LARGEST = 700
#: ops that look at how the memory lies
BY_MEMORY = frozenset(("as_strided", "view", "view_as", "view_as_complex", "view_dtype"))


def _plan(subject: Subject, facts: OpFacts | None) -> Iterator[Case]:
    if facts is None:
        if subject.backend.views:
            yield Case(7, BACKEND, "float32", variant="overlapping-copy")
        return
    op = facts.op
    if op.samples is None or facts.layouts or not subject.backend.views:
        return
    for dtype in choose_dtypes(facts, ("float32", "int64"), 1):
        if dtype not in subject.dtypes:
            continue
        mandatory = dtype in MANDATORY_DTYPES
        reads = has_values(op) and (op.tensors or op.lists) and not op.mutates
        if reads and op.name not in BY_MEMORY and in_domain(op, "uniform", "transposed"):
            yield Case(5, op.name, dtype, variant="view-of-view", mandatory=mandatory)
        if op.inplace_op is not None and has_values(op):
            yield Case(7, op.name, dtype, variant="in-place-window", mandatory=mandatory)
        writable = not (op.view or op.mutates or op.random or op.factory or op.schema.multi_output)
        if writable and op.namespaces and has_values(op):
            if "out" not in subject.expectations.absent:
                yield Case(7, op.name, dtype, variant="out-window", mandatory=mandatory)


def window(array: Any, *, backwards: bool = False, turned: bool = False) -> Any:
    """The same elements in a window of a window of a larger array, at an offset and with gaps.

    ``backwards``: the last dimension runs from the end; ``turned``: the dimensions lie in memory in
    the opposite order.
    """
    if array.ndim == 0:
        held = np.resize(array.reshape(-1), 5).copy()
        held[3] = array
        return held[1:][2:3].reshape(())
    shape = array.shape[::-1] if turned else array.shape
    outer = tuple(2 * n + 3 for n in shape)
    fill = array.reshape(-1)[::-1] if array.size else np.zeros(1, array.dtype)
    held = np.resize(fill, outer).copy()  # what lies in the gaps are values like the others
    inner = held[tuple(slice(1, None) for _ in shape)]
    found = inner[tuple(slice(1, 2 * n + 1, 2) for n in shape)]
    found = found.transpose() if turned else found
    if backwards:
        found = found[..., ::-1]
    found[...] = array
    return found


@check(5, plan=_plan, variant="view-of-view")
def view_of_view(context: Context) -> None:
    """Windows of windows, turned and backwards, give what contiguous arrays give."""
    ways = ({}, {"turned": True}, {"backwards": True})
    for number, sample in enumerate(s for s in context.samples() if elements(s) <= LARGEST):
        if number >= 12:
            break
        way = ways[number % 3]
        try:
            held = sample.map(lambda a, way=way: window(a, **way))
            tensors = context.subject.tensors(held)
        except CoreDispatchError:  # no strides below zero
            held = sample.map(window)
            tensors = context.subject.tensors(held)
        before = snapshot(context, tensors)
        result = context.call(tensors)
        asserted = context.asserted
        context.close(result, context.placed(held))
        if all(t.numel() == 0 for t in tensors_in(result)):
            context.asserted = asserted
        context.unchanged(before, tensors)
    if not context.asserted:
        raise NotRun("no sample of this size has a result with elements")


# ---- targets ----------------------------------------------------------------------------------


def _room(context: Context, array: Any) -> tuple[Any, Any, Any]:
    """A target inside a larger tensor, that tensor, and a mask of what lies beside the target."""
    shape = tuple(n + 3 for n in array.shape)
    fill = np.nan if array.dtype.kind in "fcV" else 1 if array.dtype.kind == "b" else 113
    whole = context.subject.tensor(np.full(shape, fill).astype(array.dtype))
    target = whole
    beside = np.ones(shape, np.bool_)
    for dim, n in enumerate(array.shape):
        target = cd.narrow(target, dim, 1, n)
    beside[tuple(slice(1, 1 + n) for n in array.shape)] = False
    return target, whole, beside


def _kept(context: Context, whole: Any, beside: Any, before: Any) -> None:
    now = context.subject.array(whole)
    context.expect(
        now[beside].tobytes() == before[beside].tobytes(), "elements beside the target are written"
    )


@check(7, plan=_plan, variant="out-window")
def out_window(context: Context) -> None:
    """``out=`` a window inside a larger tensor: filled, and nothing beside it touched."""
    judged = 0
    for sample in context.samples():
        if elements(sample) > LARGEST:
            continue
        tensors = context.subject.tensors(sample)
        wanted = context.call(tensors)
        if not isinstance(wanted, cd.Tensor) or layout_of(wanted) is not None:
            continue
        if (
            wanted.ndim < 2
            or not wanted.numel()
            or any(wanted is t for t in sample_tensors(tensors))
        ):
            continue
        target, whole, beside = _room(context, context.subject.array(wanted))
        before = context.subject.array(whole)
        result = context.op(*tensors.args, **tensors.kwargs, out=target)
        context.expect(result is target, "out= returned another tensor")
        context.same(target, wanted, "out= a window", of=sample, strides=True)
        _kept(context, whole, beside, before)
        _overlapping_out(context, sample, wanted)
        judged += 1
        if judged == 3:
            return
    if not judged:
        raise NotRun("no sample of two dimensions gives a single tensor of its own")


def _overlapping_out(context: Context, sample: Any, wanted: Any) -> None:
    """``out=`` that shares a part of its memory with an input: as if copied before, or refused."""
    tensors = context.subject.tensors(sample)
    for place, tensor in enumerate(tensors.args):
        if not isinstance(tensor, cd.Tensor) or tensor.dtype is not wanted.dtype:
            continue
        if tuple(tensor.shape) != tuple(wanted.shape):
            continue
        reads, writes = _shifted(context, context.subject.array(tensor))
        args = [*tensors.args]
        args[place] = reads
        held = context.subject.array(reads).tobytes()
        try:
            context.op(*args, **tensors.kwargs, out=writes)
        except CoreDispatchError:
            unchanged = context.subject.array(reads).tobytes() == held
            context.expect(unchanged, "refused an overlapping out=, yet something changed")
        else:
            context.same(writes, wanted, "out= that overlaps an input", of=sample, strides=True)
        return


def _shifted(context: Context, array: Any) -> tuple[Any, Any]:
    """A tensor that holds ``array``, and one of the same memory a row further."""
    rows = array.shape[0]
    whole = context.subject.tensor(np.concatenate([array, array[:1]]))
    return cd.narrow(whole, 0, 0, rows), cd.narrow(whole, 0, 1, rows)


@check(7, plan=_plan, variant="in-place-window")
def in_place_window(context: Context) -> None:
    """The in-place form on a window inside a larger tensor, and on one that overlaps an operand."""
    judged = 0
    for sample in context.samples():
        first = sample.args[0] if sample.args else None
        if not isinstance(first, np.ndarray) or first.ndim < 1 or not first.size:
            continue
        tensors = context.subject.tensors(sample)
        wanted = context.call(tensors)
        if tuple(wanted.shape) != first.shape or wanted.dtype is not tensors.args[0].dtype:
            continue
        target, whole, beside = _room(context, first)
        target.copy_(tensors.args[0])
        before = context.subject.array(whole)
        arrived = context.subject.array(target).tobytes() == np.ascontiguousarray(first).tobytes()
        context.expect(arrived, "copy_ into a window did not arrive: the check cannot go on")
        context.op.inplace_op(target, *tensors.args[1:], **tensors.kwargs)
        context.same(target, wanted, "in place on a window", of=sample, strides=True)
        _kept(context, whole, beside, before)
        _overlapping_in_place(context, sample)
        judged += 1
        if judged == 3:
            return
    if not judged:
        raise NotRun("no sample's result fits its first argument")


def _overlapping_in_place(context: Context, sample: Any) -> None:
    """An operand that is the target a row further: as if copied before, or refused."""
    arrays = [a for a in sample.args[1:2] if isinstance(a, np.ndarray)]
    first = sample.args[0]
    if not arrays or arrays[0].shape != first.shape or arrays[0].dtype != first.dtype:
        return
    reads, writes = _shifted(context, arrays[0])
    start, other = writes.clone(), reads.clone()
    rest = context.subject.tensors(sample).args[2:]
    try:
        wanted = context.op(start, other, *rest, **sample.kwargs)
    except CoreDispatchError:
        return  # other values than the sample's, which it may not take
    if wanted.dtype is not writes.dtype:
        return
    held = context.subject.array(writes).tobytes()
    try:
        context.op.inplace_op(writes, reads, *rest, **sample.kwargs)
    except CoreDispatchError:
        unchanged = context.subject.array(writes).tobytes() == held
        context.expect(unchanged, "refused overlapping operands, yet something changed")
        return
    both = type(sample)(context.subject.array(start), context.subject.array(other))
    both = type(sample)(*both.args, *sample.args[2:], **sample.kwargs)
    context.sample = both
    context.same(writes, wanted, "in place with an overlapping operand", of=both, strides=True)


@check(7, plan=_plan, variant="overlapping-copy")
def overlapping_copy(context: Context) -> None:
    """``copy_`` between views of one memory: as if the source were copied before, or refused."""
    for shape in ((9,), (5, 3), (40, 7), (3000,)):
        for step in (1, 2):
            values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            rows = shape[0] - step
            for source, target in ((0, step), (step, 0)):
                whole = context.subject.tensor(values)
                reads = cd.narrow(whole, 0, source, rows)
                writes = cd.narrow(whole, 0, target, rows)
                wanted = context.subject.array(reads)
                try:
                    writes.copy_(reads)
                except CoreDispatchError:
                    same = np.array_equal(context.subject.array(whole), values)
                    context.expect(same, "refused overlapping memory, yet something changed")
                    continue
                found = context.subject.array(writes)
                context.expect(
                    np.array_equal(found, wanted),
                    f"copy_ of {rows} rows onto those {target - source:+d} further reads what it "
                    f"wrote: {found.reshape(-1)[:6].tolist()}",
                )
