"""Check 6: results alias their input exactly where the schema says ``view``.

Asserted by writing, not by asking: what is written into a view must show in its base and the
version counters must be one; what is written into any other result must show nowhere else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import (
    Context,
    NotRun,
    elements,
    has_values,
    poison,
    sample_tensors,
    snapshot,
    tensors_in,
)
from ..growth import Filling
from ..many_dims import with_dims
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import named, templates
from ..tensor_layouts import layout_of
from ..variations import variations, with_argument
from . import check
from .decompositions import public
from .values import choose_dtypes, in_domain

#: calls with other options, and elements of the largest array of one
VARIED, LARGEST = 80, 2000
#: samples of expanded operands
EXPANDED = 6
FEW = ("float32", "int64", "bool", "complex64")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if (
        metadata is None
        or metadata.op.samples is None
        or metadata.op.mutates
        or metadata.op.factory
    ):
        return
    for dtype in choose_dtypes(metadata, FEW, 3):
        if dtype in subject.dtypes:
            variant = {True: "view", "maybe": "maybe", False: "fresh"}[metadata.op.view]
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(6, metadata.op.name, dtype, variant=variant, mandatory=mandatory)


def _results(context: Context) -> Iterator[tuple[Any, Any]]:
    for sample in context.samples():
        tensors = context.subject.tensors(sample)
        if sample_tensors(tensors):
            yield tensors, context.call(tensors)
    if context.case.dtype == FEW[0] and public(context.op) and has_values(context.op):
        yield from _varied(context)
    if context.case.dtype == FEW[0] and context.op.view:
        yield from _many_dims(context)


def _many_dims(context: Context) -> Iterator[tuple[Any, Any]]:
    """Calls with more dimensions than a kernel may have written loops, or strides, for."""
    make = Filling(context, dtype=numpy_dtype(context.case.dtype))
    found = templates(context.op, lambda kind: context.make(kind=kind))
    for ndim in (5, 6, 8):
        several = (with_dims(context, template, ndim, make) for template in found)
        for sample in itertools.islice((s for s in several if s is not None), 2):
            tensors = context.subject.tensors(context.placed(sample))
            yield tensors, context.call(tensors)


def _varied(context: Context) -> Iterator[tuple[Any, Any]]:
    """Calls with other options than the samples have, where the operator takes them."""
    found = (v.sample for s in context.samples(limit=8) for v in variations(context.op, s))
    idle = (i for s in context.samples(limit=8) for i in _idle(context.op, s))
    neutral = (i for s in context.samples(limit=8) for i in _neutral(s))
    for sample in itertools.chain(
        itertools.islice(idle, VARIED // 2),
        itertools.islice(neutral, VARIED),
        itertools.islice(found, VARIED),
    ):
        if elements(context.placed(sample)) > LARGEST:
            continue
        try:
            tensors = context.subject.tensors(sample)  # which not every layout can be
            if not sample_tensors(tensors):
                continue
            result = context.call(tensors)
            context.subject.synchronize()  # a device that computes later raises then
        except (CoreDispatchError, ArithmeticError, LookupError, TypeError, ValueError):
            continue  # whether it may be refused is the business of the arguments
        if sum(t.numel() for t in tensors_in(result)) <= LARGEST:
            yield tensors, result


def _idle(op: Any, sample: Any) -> Iterator[Any]:
    """Calls that may have nothing to do, where a kernel is tempted to give its input back.

    Masks that choose nothing or everything, and zeros or ones in the place of several integers:
    nothing to pad, every repetition once.
    """
    kinds: set[str] = set()
    sample.map(lambda a: kinds.update(a.dtype.kind) or a)
    for chosen in (False, True) if "b" in kinds else ():
        yield sample.map(
            lambda a, chosen=chosen: np.full_like(a, chosen) if a.dtype.kind == "b" else a
        )
    for name, value in named(op, sample):
        if type(value) in (tuple, list) and value and all(type(n) is int for n in value):
            for other in (0, 1):
                yield with_argument(op, sample, name, type(value)([other] * len(value)))


def _neutral(sample: Any) -> Iterator[Any]:
    """Calls whose result may be an operand as it stands: x + 0, x * 1, products with the identity.

    All zeros first, then each array alone; the others keep their numbers.
    """
    arrays: dict[int, Any] = {}
    sample.map(lambda a: arrays.setdefault(id(a), a))
    floating = [key for key, a in arrays.items() if a.dtype.kind == "f" and a.size]
    alone = (([k], v) for k in floating for v in (0, -0.0, 1, "identity"))
    for keys, value in [(floating, 0), (floating, -0.0), *alone]:
        made = {}
        for key in keys:
            array = arrays[key]
            if value != "identity":
                made[key] = np.full_like(array, value)
            elif array.ndim > 1 and array.shape[-1] == array.shape[-2]:
                made[key] = np.zeros_like(array) + np.eye(array.shape[-1], dtype=array.dtype)
        if made:
            yield sample.map(lambda a, made=made: made.get(id(a), a))


@check(6, plan=_plan, variant="view")
def views(context: Context) -> None:
    """A view shares memory and version with its base."""
    for tensors, result in _results(context):
        outputs = tensors_in(result)
        for base, output in zip(_bases(context, tensors, outputs), outputs, strict=True):
            if output.numel() == 0 or base.numel() == 0 or output is base:
                continue
            if not context.subject.backend.views:
                _refused(context, output)
                continue
            before = snapshot(context, tensors)
            version = base._version
            poison(output)
            context.expect(
                snapshot(context, tensors) != before, "writing to the view does not reach its base"
            )
            context.expect(base._version > version, "the base's version did not count the write")
            context.expect(base._version == output._version, "the versions of view and base differ")
            version = output._version
            poison(base)
            context.expect(
                output._version > version, "the view's version did not count a write to the base"
            )


def _bases(context: Context, tensors: Any, outputs: list[Any]) -> list[Any]:
    """What each output is a view of: the first tensor, or of a list the tensor in its place."""
    given = sample_tensors(tensors)
    if context.op.lists and len(given) == len(outputs):
        return given
    return [given[0]] * len(outputs)


def _refused(context: Context, output: Any) -> None:
    """Without strided views a write to a living view must be refused."""
    from coredispatch.registry import CoreDispatchError

    try:
        poison(output)
    except CoreDispatchError:
        context.expect(True, "")
        return
    context.expect(False, "a backend without views wrote to one of several aliases")


def _copied(context: Context, tensors: Any, output: Any) -> None:
    """Without strided views: a write is refused, or shows nowhere else."""
    from coredispatch.registry import CoreDispatchError

    before = snapshot(context, tensors)
    try:
        poison(output)
    except CoreDispatchError as error:
        context.expect("live view" in str(error), f"refused for another reason: {error}")
    context.expect(snapshot(context, tensors) == before, "the write shows in the base")


@check(6, plan=_plan, variant="maybe")
def maybe_views(context: Context) -> None:
    """Where the op may view, memory and version counter agree on whether it did."""
    for tensors, result in _results(context):
        base = sample_tensors(tensors)[0]
        for output in tensors_in(result):
            if output.numel() == 0 or output is base:
                continue
            before, version = snapshot(context, tensors), base._version
            if not context.subject.backend.views:
                _copied(context, tensors, output)
                continue
            poison(output)
            reached = snapshot(context, tensors) != before
            context.expect(
                reached == (base._version != version),
                "memory is shared but the version is not"
                if reached
                else "version shared, not memory",
            )
    if not context.asserted:
        raise NotRun("every sample gives the input itself")


@check(6, plan=_plan, variant="fresh")
def fresh(context: Context) -> None:
    """Any other result has memory of its own, each element, and two calls have two."""
    for tensors, result in _results(context):
        inputs = {id(t) for t in sample_tensors(tensors)}
        again = context.call(tensors)
        kept = [context.subject.array(t).tobytes() for t in tensors_in(again)]
        before = snapshot(context, tensors)
        versions = [t._version for t in sample_tensors(tensors)]
        for output in tensors_in(result):
            if output.numel() == 0 or id(output) in inputs:
                continue
            poison(output)
            context.expect(
                snapshot(context, tensors) == before, "the result shares memory with an input"
            )
        context.expect(
            versions == [t._version for t in sample_tensors(tensors)],
            "a write to the result counted as a write to an input",
        )
        context.expect(
            kept == [context.subject.array(t).tobytes() for t in tensors_in(again)],
            "two calls returned the same memory",
        )
    _each_element(context)


def _each_element(context: Context) -> None:
    """Of expanded operands, whose elements share memory, a result has elements of its own."""
    views = context.subject.backend.views
    if not views or not in_domain(context.op, "uniform", "stride0"):
        return
    for sample in context.samples(limit=EXPANDED, layout="stride0"):
        tensors = context.subject.tensors(sample)
        inputs = {id(t) for t in sample_tensors(tensors)}
        for output in tensors_in(context.call(tensors)):
            if output.numel() < 2 or id(output) in inputs or layout_of(output) is not None:
                continue
            before = context.subject.array(output).reshape(-1)[1:].tobytes()
            poison(output.detach()[(slice(0, 1),) * output.ndim])
            after = context.subject.array(output).reshape(-1)[1:].tobytes()
            context.expect(
                after == before, "elements of a result share memory: a write to one shows in others"
            )
