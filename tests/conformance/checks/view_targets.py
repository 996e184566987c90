"""Check 7, targets that are views: with gaps, turned, and of the memory that is read.

A target is a part of a larger tensor. It is written as a contiguous one would be, and nothing
beside it changes. Where it shares memory with an operand, the result is as if that had been copied
before, or the call is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import CoreDispatchError

from ..case import BACKEND, Case
from ..context import Context, NotRun, elements, has_values, sample_tensors
from ..reference import positional
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from ..tensor_layouts import layout_of
from . import check
from .values import choose_dtypes, shapes_of

#: elements of the largest array of a sample, and samples that are tried
LARGEST, MOST = 700, 4
#: where a target lies in the larger tensor: a block of it, every other element of every dimension,
#: every other column, every other row, and a block whose dimensions are turned
PLACES = ("block", "gaps", "columns", "rows", "turned")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        if subject.backend.views:
            yield Case(7, BACKEND, "float32", variant="overlapping-copy")
        return
    op = metadata.op
    if op.samples is None or metadata.layouts or not subject.backend.views:
        return
    for dtype in choose_dtypes(metadata, ("float32", "int64"), 1):
        if dtype not in subject.dtypes:
            continue
        mandatory = dtype in MANDATORY_DTYPES
        if op.inplace_op is not None and has_values(op):
            yield Case(7, op.name, dtype, variant="in-place-window", mandatory=mandatory)
        if op.mutates:
            yield Case(7, op.name, dtype, variant="written-window", mandatory=mandatory)
        writable = not (op.view or op.mutates or op.random or op.factory or op.schema.multi_output)
        if writable and op.namespaces and has_values(op):
            if "out" not in subject.expectations.absent:
                yield Case(7, op.name, dtype, variant="out-window", mandatory=mandatory)


def _chosen(context: Context) -> list[Any]:
    """The smaller samples: the first of each number of dimensions - the most, one, and those
    between -, then the rest.
    """
    first: dict[int, Any] = {}
    rest = []
    for sample in context.samples():
        if not elements(sample) or elements(sample) > LARGEST:
            continue
        shapes = shapes_of(sample)
        ndim = max(map(len, shapes))
        held = first.setdefault(ndim, sample)
        if held is not sample:
            single = any(shape and max(shape) == 1 for shape in shapes_of(held))
            if single and not any(shape and max(shape) == 1 for shape in shapes):
                first[ndim], sample = sample, held  # one element has no gaps
            rest.append(sample)
    order = sorted(first, reverse=True)
    if 1 in order[1:]:  # rows without others beside them
        order.insert(1, order.pop(order.index(1)))
    return [*(first[ndim] for ndim in order), *rest]


class Room:
    """A target inside a larger tensor.

    Attributes:
        target: the part.
        whole: the larger tensor.
    """

    def __init__(self, context: Context, array: Any, place: str = "block") -> None:
        self.context, self.place = context, place
        turned = place == "turned"
        shape = array.shape[::-1] if turned else array.shape
        index = tuple(self._slice(dim, n, len(shape)) for dim, n in enumerate(shape))
        outer = tuple(2 * n + 3 if i.step else n + 3 for n, i in zip(shape, index, strict=True))
        fill = np.nan if array.dtype.kind in "fcV" else 1 if array.dtype.kind == "b" else 113
        self.whole = context.subject.tensor(np.full(outer, fill).astype(array.dtype))
        target = self.whole[index] if index else self.whole
        self.target = target.permute(*range(len(shape))[::-1]) if turned and index else target
        self.beside = np.ones(outer, np.bool_)
        self.beside[index] = False
        self.before = context.subject.array(self.whole)

    def _slice(self, dim: int, length: int, ndim: int) -> slice:
        every = {"gaps": True, "columns": dim == ndim - 1, "rows": dim == 0}.get(self.place)
        return slice(1, 2 * length + 1, 2) if every else slice(1, 1 + length)

    def holding(self, tensor: Any) -> Any:
        """The target, with the contents of a tensor."""
        self.target.copy_(tensor)
        found, wanted = map(self.context.subject.array, (self.target, tensor))
        arrived = found.tobytes() == wanted.tobytes()
        self.context.expect(arrived, "copy_ into a window did not arrive: the check cannot go on")
        self.kept("copy_ into it")
        self.before = self.context.subject.array(self.whole)
        return self.target

    def kept(self, what: str) -> None:
        """Assert that nothing beside the target changed."""
        now = self.context.subject.array(self.whole)
        same = now[self.beside].tobytes() == self.before[self.beside].tobytes()
        self.context.expect(same, f"elements beside the target ({self.place}) are written: {what}")


# ---- out= ---------------------------------------------------------------------------------------


@check(7, plan=_plan, variant="out-window")
def out_window(context: Context) -> None:
    """``out=`` a window inside a larger tensor: filled, and nothing beside it touched."""
    judged = 0
    for sample in _chosen(context):
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
        for place in PLACES:
            room = Room(context, context.subject.array(wanted), place)
            result = context.op(*tensors.args, **tensors.kwargs, out=room.target)
            context.expect(result is room.target, "out= returned another tensor")
            context.same(room.target, wanted, f"out= a window, {place}", of=sample, strides=True)
            room.kept("out=")
        _overlapping_out(context, sample, wanted)
        judged += 1
        if judged == MOST:
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


# ---- in place -----------------------------------------------------------------------------------


@check(7, plan=_plan, variant="in-place-window")
def in_place_window(context: Context) -> None:
    """The in-place form on a window inside a larger tensor, and on one that overlaps an operand."""
    judged = 0
    for sample in _chosen(context):
        first = sample.args[0] if sample.args else None
        if not isinstance(first, np.ndarray) or first.ndim < 1 or not first.size:
            continue
        tensors = context.subject.tensors(sample)
        wanted = context.call(tensors)
        if tuple(wanted.shape) != first.shape or wanted.dtype is not tensors.args[0].dtype:
            continue
        for place in PLACES:
            room = Room(context, first, place)
            target = room.holding(tensors.args[0])
            context.op.inplace_op(target, *tensors.args[1:], **tensors.kwargs)
            context.same(target, wanted, f"in place on a window, {place}", of=sample, strides=True)
            room.kept("in place")
        _overlapping_in_place(context, sample)
        judged += 1
        if judged == MOST:
            return
    if not judged:
        raise NotRun("no sample's result fits its first argument")


def _overlapping_in_place(context: Context, sample: Any) -> None:
    """Each operand that fits into the target as a part of its memory, behind its beginning."""
    first = sample.args[0]
    for place, array in enumerate(sample.args[1:], 1):
        if not isinstance(array, np.ndarray) or array.dtype != first.dtype or not array.size:
            continue
        if array.size > first.size or array.shape == ():
            continue
        if array.shape == first.shape:
            reads, writes = _shifted(context, array)
        else:
            writes = context.subject.tensor(np.ascontiguousarray(first))
            start = (first.size - array.size) // 2
            reads = cd.narrow(writes.view(first.size), 0, start, array.size).view(array.shape)
        _overlapping(context, sample, place, reads, writes)


def _overlapping(context: Context, sample: Any, place: int, reads: Any, writes: Any) -> None:
    """As if what is read had been copied before; or refused with nothing changed."""
    start, other = writes.clone(), reads.clone()
    rest = [*context.subject.tensors(sample).args[1:]]
    both = [context.subject.array(start), *sample.args[1:]]
    both[place] = context.subject.array(other)
    judged = type(sample)(*both, **sample.kwargs)
    named = context.subject.tensors(sample).kwargs
    rest[place - 1] = other
    try:
        wanted = context.op(start, *rest, **named)
    except CoreDispatchError:
        return  # other values than the sample's, which it may not take
    if wanted.dtype is not writes.dtype or tuple(wanted.shape) != tuple(writes.shape):
        return
    held = context.subject.array(writes).tobytes()
    rest[place - 1] = reads
    try:
        context.op.inplace_op(writes, *rest, **named)
    except CoreDispatchError:
        unchanged = context.subject.array(writes).tobytes() == held
        context.expect(unchanged, "refused overlapping operands, yet something changed")
        return
    context.sample = judged
    what = "in place with an operand in the target's memory"
    context.same(writes, wanted, what, of=judged, strides=True)


# ---- operators that write to their arguments ----------------------------------------------------


@check(7, plan=_plan, variant="written-window")
def written_window(context: Context) -> None:
    """What an operator writes to may be a window: written as ever, and nothing beside it."""
    judged = 0
    for sample in _chosen(context):
        plain = context.subject.tensors(sample)
        written = _written(context, plain)
        if not any(a.ndim and a.size for a in written.values()):
            continue
        if context.op.random:
            cd.manual_seed(context.case.seed)
        context.call(plain)
        for place in PLACES:
            _into_windows(context, sample, plain, written, place)
        judged += 1
        if judged == MOST:
            return
    if not judged:
        raise NotRun("no sample has a tensor with dimensions that is written to")


def _written(context: Context, tensors: Any) -> dict[tuple[int, int], Any]:
    """What the call writes to, as it was before, by the argument and the place in a list."""
    full = positional(context.op, list(tensors.args), tensors.kwargs)
    ids = {id(t) for t in context.op.schema.written(tuple(full))}
    return {
        (place, number): context.subject.array(value)
        for place, argument in enumerate(tensors.args)
        for number, value in enumerate(_items(argument))
        if isinstance(value, cd.Tensor) and id(value) in ids
    }


def _items(argument: Any) -> list[Any]:
    return list(argument) if isinstance(argument, (list, tuple)) else [argument]


def _into_windows(
    context: Context, sample: Any, plain: Any, written: dict[tuple[int, int], Any], place: str
) -> None:
    tensors = context.subject.tensors(sample)
    args, rooms = [*tensors.args], {}
    for (position, number), array in written.items():
        if not array.ndim:
            continue
        room = rooms[position, number] = Room(context, array, place)
        items = _items(args[position])
        items[number] = room.holding(items[number])
        given = tensors.args[position]
        args[position] = type(given)(items) if isinstance(given, (list, tuple)) else items[0]
    if context.op.random:
        cd.manual_seed(context.case.seed)
    context.call(type(tensors)(*args, **tensors.kwargs))
    for (position, number), room in rooms.items():
        room.kept(context.op.name)
        if not context.op.random:
            what = f"what is written to a window, {place}"
            context.same(room.target, _items(plain.args[position])[number], what, strides=True)
            continue
        # In what order the elements of a view are drawn is left open.
        shape = tuple(room.target.shape)
        if math.prod(shape) > 8:
            now = context.subject.array(room.target)
            whole = (now.reshape(-1) == np.asarray(written[position, number]).reshape(-1)).mean()
            context.expect(whole < 0.9, f"what is drawn into a window ({place}) does not arrive")


# ---- copies -------------------------------------------------------------------------------------


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
