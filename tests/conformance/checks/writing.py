"""Check 7: in-place forms and ``out=``.

Identity, strided targets, bytes outside the target, overlap with an input, and refusal of wrong
shapes and dtypes with nothing changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import CoreDispatchError, can_cast

from ..case import Case
from ..context import Context, NotRun, has_values, sample_tensors, snapshot, tensors_in
from ..reference import Reference, positional
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..tensor_layouts import layout_of
from . import check
from .values import choose_dtypes

FEW = ("float32", "int64", "bool", "complex64")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.op.samples is None:
        return
    op = metadata.op
    for dtype in choose_dtypes(metadata, FEW, 3):
        if dtype not in subject.dtypes:
            continue
        mandatory = dtype in MANDATORY_DTYPES
        if op.inplace_op is not None:
            yield Case(7, op.name, dtype, variant="in-place", mandatory=mandatory)
        if op.mutates:
            yield Case(7, op.name, dtype, variant="mutates", mandatory=mandatory)
        writable = not (op.view or op.mutates or op.random or op.factory or op.schema.multi_output)
        public = op.namespaces and has_values(op)
        if writable and public and "out" not in subject.expectations.absent:
            yield Case(7, op.name, dtype, variant="out", mandatory=mandatory)


def _fits(first: Any, result: Any) -> bool:
    """Whether the functional result can be written into the first argument."""
    return tuple(result.shape) == tuple(first.shape) and can_cast(result.dtype, first.dtype)


@check(7, plan=_plan, variant="in-place")
def in_place(context: Context) -> None:
    """``x.op_()`` is ``x.op()`` written into x, whatever x's strides; or is refused whole."""
    op, subject = context.op, context.subject
    context.require_writes()
    for layout in ("contiguous", "transposed", "step2"):
        for sample in context.samples(layout=layout):
            tensors = subject.tensors(sample)
            target = tensors_in(tensors.args[0])
            if not target:
                continue
            first = target[0]
            if op.random:
                context.expect(context.call(tensors, op.inplace_op) is first, "not self returned")
                continue
            wanted = context.call(tensors)
            version, before = first._version, snapshot(context, tensors)
            if not _fits(first, wanted):
                _refused(context, lambda t=tensors: context.call(t, op.inplace_op), tensors, before)
                continue
            others = [t for t in sample_tensors(tensors) if t is not first]
            held = [subject.array(t).tobytes() for t in others]
            address = first.data_ptr()
            result = context.call(tensors, op.inplace_op)
            context.expect(result is first, "the in-place form does not return self")
            if subject.backend.views:
                context.expect(first.data_ptr() == address, "self moved in memory")
            context.expect(first._version > version, "the version counter was not bumped")
            if first.dtype is wanted.dtype and op.reference is not None and has_values(op):
                context.values([first], Reference(op, sample), 1.0)
            else:
                kept = wanted.to(first.dtype)
                context.same(first, kept, "in-place and functional form", of=sample, strides=True)
            context.expect(
                held == [subject.array(t).tobytes() for t in others], "another input was written to"
            )


def _refused(context: Context, call: Any, tensors: Any, before: list[bytes]) -> None:
    try:
        call()
    except CoreDispatchError as error:
        context.expect(context.case.op in str(error), f"the error does not name the op: {error}")
        context.expect(snapshot(context, tensors) == before, "refused, yet something changed")
        return
    context.expect(False, "a result that does not fit was written")


@check(7, plan=_plan, variant="mutates")
def mutates(context: Context) -> None:
    """What an op declares to write is true, call by call: these tensors, counted, and no others.

    Where it declares that it does not write, frozen tensors are taken; its functional form gives
    what it writes, and writes nothing.
    """
    changed: dict[str, bool] = {}
    context.require_writes()
    for sample in context.samples():
        tensors = context.subject.tensors(sample)
        before = [(t, t._version, context.subject.array(t).tobytes()) for t in _of(tensors)]
        said = _said(context, tensors)
        if context.op.random:
            cd.manual_seed(context.case.seed)
        context.call(tensors)
        for tensor, version, content in before:
            now = context.subject.array(tensor).tobytes()
            name = said.get(id(tensor))
            if name is None:
                context.expect(now == content, "a tensor is written to that is not declared")
                context.expect(tensor._version == version, "a version counts a write not declared")
                continue
            context.expect(tensor._version > version, f"{name}: the version counter was not bumped")
            if tensor.numel():
                changed[name] = changed.get(name, False) or now != content
        _frozen(context, sample)
        _functional(context, sample)
    for name, ever in changed.items():
        context.expect(ever, f"{name} is declared to be written, and never is")


def _of(tensors: Any) -> list[Any]:
    """The tensors of a call, each once."""
    return list({id(t): t for t in sample_tensors(tensors)}.values())


def _said(context: Context, tensors: Any) -> dict[int, str]:
    """The ids of the tensors that the schema says this call writes to, with their parameters."""
    full = positional(context.op, list(tensors.args), tensors.kwargs)
    written = {id(t) for t in context.op.schema.written(tuple(full))}
    names = [p.name for p in context.op.schema.params]
    return {
        id(t): name
        for name, value in zip(names, full, strict=True)
        for t in tensors_in(value)
        if id(t) in written
    }


def _frozen(context: Context, sample: Any) -> None:
    """Tensors of inference mode, which nothing may write to, where the call writes to none."""
    with cd.inference_mode():
        tensors = context.subject.tensors(sample)
        tensors = type(tensors)(
            *[a.clone() if isinstance(a, cd.Tensor) else a for a in tensors.args], **tensors.kwargs
        )
    if _said(context, tensors):
        return
    with cd.no_grad():
        context.op(*tensors.args, **tensors.kwargs)
    context.expect(True, "")


def _functional(context: Context, sample: Any) -> None:
    """The functional form gives the results and what is written, and writes nothing itself."""
    form = context.op.functional
    if form is None:
        return
    tensors, plain = context.subject.tensors(sample), context.subject.tensors(sample)
    if context.op.random:
        cd.manual_seed(context.case.seed)
    before = snapshot(context, plain)
    given = tensors_in(form(*plain.args, **plain.kwargs))
    context.unchanged(before, plain)
    if context.op.random:
        cd.manual_seed(context.case.seed)
    full = positional(context.op, list(tensors.args), tensors.kwargs)
    written = list(context.op.schema.written(tuple(full)))
    results = tensors_in(context.op(*tensors.args, **tensors.kwargs))
    results = [t for t in results if all(t is not w for w in written)]
    for new, tensor in zip(given[len(results) :], written, strict=False):
        context.same(new, tensor, "the functional form and what is written")


@check(7, plan=_plan, variant="out")
def into(context: Context) -> None:
    """``out=`` returns the target, fills it whatever its strides, and touches nothing beside."""
    subject = context.subject
    context.require_writes()
    for sample in context.samples(limit=6):
        tensors = subject.tensors(sample)
        wanted = context.call(tensors)
        if not isinstance(wanted, cd.Tensor) or any(wanted is t for t in sample_tensors(tensors)):
            continue
        if layout_of(wanted) is not None:
            continue
        _exact_target(context, sample, tensors, wanted)
        if wanted.numel() and subject.backend.views:
            _strided_target(context, sample, tensors, wanted)
        _overlapping_target(context, sample, wanted)
        _wrong_targets(context, tensors, wanted)
    if not context.asserted:
        raise NotRun("no sample gives a single tensor other than an input")


def _target(context: Context, wanted: Any, shape: tuple[int, ...]) -> Any:
    """A tensor full of values that no result has by chance."""
    dtype = numpy_dtype(wanted.dtype.name)
    fill = np.nan if dtype.kind in "fcV" else 1 if dtype.kind == "b" else 113
    return context.subject.tensor(np.full(shape, fill).astype(dtype))


def _into(context: Context, tensors: Any, out: Any) -> Any:
    return context.op(*tensors.args, **tensors.kwargs, out=out)


def _exact_target(context: Context, sample: Any, tensors: Any, wanted: Any) -> None:
    out = _target(context, wanted, tuple(wanted.shape))
    version, before = out._version, snapshot(context, tensors)
    result = _into(context, tensors, out)
    context.expect(result is out, "out= returned another tensor")
    context.same(out, wanted, "out= and the plain call", of=sample, strides=True)
    context.expect(out._version > version, "the version of out was not bumped")
    context.unchanged(before, tensors)


def _strided_target(context: Context, sample: Any, tensors: Any, wanted: Any) -> None:
    shape = tuple(wanted.shape)
    buffer = _target(context, wanted, (*shape, 2))
    kept = context.subject.array(buffer)[..., 1].tobytes()
    result = _into(context, tensors, cd.select(buffer, -1, 0))
    context.same(result, wanted, "out= with strides", of=sample, strides=True)
    now = context.subject.array(buffer)
    context.expect(
        context.subject.array(cd.select(buffer, -1, 0)).tobytes()
        == context.subject.array(result).tobytes(),
        "the strides of out were ignored",
    )
    context.expect(now[..., 1].tobytes() == kept, "bytes beside out were written to")


def _overlapping_target(context: Context, sample: Any, wanted: Any) -> None:
    tensors = context.subject.tensors(sample)
    for target in sample_tensors(tensors):
        if tuple(target.shape) == tuple(wanted.shape) and target.dtype is wanted.dtype:
            result = _into(context, tensors, target)
            context.same(result, wanted, "out= that is an input", of=sample, strides=True)
            return


def _wrong_targets(context: Context, tensors: Any, wanted: Any) -> None:
    shape = tuple(wanted.shape)
    wrong = [_target(context, wanted, (*shape, 3)) if wanted.numel() else None]
    lower = "int64" if wanted.dtype.category > 1 else "bool"
    if wanted.dtype.category > 0 and lower in context.subject.dtypes:
        wrong.append(context.subject.tensor(np.ones(shape, lower)))
    for out in wrong:
        if out is None:
            continue
        held = context.subject.array(out).tobytes()
        try:
            _into(context, tensors, out)
        except CoreDispatchError:
            context.expect(
                context.subject.array(out).tobytes() == held, "out was refused, yet written to"
            )
        else:
            context.expect(False, f"out= of {out.dtype}{list(out.shape)} was accepted")
