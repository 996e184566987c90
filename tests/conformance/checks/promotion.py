"""Check 2: type promotion - every pair of dtypes, 0-d tensors and Python numbers.

Expected dtypes come from the suite's own statement of the promotion rules, not from the
framework's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import DTypeError, Promotion

from ..case import Case
from ..context import Context, NotRun, tensors_in
from ..covering_array import ConfiguredMake
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import repeated, templates
from . import check

__all__ = ["joined"]

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}


def joined(a: str, b: str) -> str | None:
    """PyTorch's promotion of two dimensioned tensors; None where there is no common type."""
    if a == b:
        return a
    x, y = numpy_dtype(a), numpy_dtype(b)
    if _RANK[x.kind] > _RANK[y.kind]:
        a, b, x, y = b, a, y, x
    if _RANK[x.kind] < _RANK[y.kind]:  # the higher category wins
        return "complex128" if b == "complex64" and a == "float64" else b
    if x.kind in "fV":
        if x.itemsize == y.itemsize:
            return "float32"  # float16 with bfloat16
        return a if x.itemsize > y.itemsize else b
    if x.kind in "ui" and {x.kind, y.kind} == {"u", "i"}:
        together = np.promote_types(x, y)
        return None if together.kind == "f" else together.name
    return np.promote_types(x, y).name


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.op.samples is None or metadata.op.random:
        return
    if not isinstance(metadata.op.dtype_rule, Promotion):
        return
    for dtype in metadata.dtypes:
        if dtype in subject.dtypes:
            mandatory = dtype in MANDATORY_DTYPES
            if _binary(metadata.op):
                yield Case(2, metadata.op.name, dtype, variant="pairs", mandatory=mandatory)
                if _broadcast(metadata.op):
                    yield Case(2, metadata.op.name, dtype, variant="scalars", mandatory=mandatory)
                continue
            if numpy_dtype(dtype).kind in "biu":
                yield Case(2, metadata.op.name, dtype, variant="alone", mandatory=mandatory)
            if len(metadata.op.tensors) + len(metadata.op.lists) > 1:
                yield Case(2, metadata.op.name, dtype, variant="beside", mandatory=mandatory)


def _binary(op: Any) -> bool:
    required = [p for p in op.schema.params if p.is_tensor and not p.optional]
    skip = op.dtype_rule.skip
    rest = [p for p in op.schema.params if not p.is_tensor and repr(p.default) == "<required>"]
    return len(required) == 2 and not rest and not any(p.name in skip for p in required)


def _result(rule: Promotion, common: str) -> str:
    if rule.result is not None:
        return rule.result.name
    if rule.to_float and numpy_dtype(common).kind in "biu":
        return cd.get_default_dtype().name
    return common


def _kept(rule: Promotion, dtypes: list[str]) -> str | None:
    """The half precision of the first tensor, where the rule keeps it beside float32."""
    first = dtypes[0]
    beside = {*dtypes} == {first, "float32"}
    return first if rule.keeps_half and beside and first in ("float16", "bfloat16") else None


def _two(context: Context, other: str, shapes: Any) -> Any:
    """A sample of the op with arrays of two dtypes and the given shapes."""
    first = context.make()
    second = ConfiguredMake(numpy_dtype(other), seed=context.case.seed, values=context.op.values)
    for sample in context.op.samples(first):
        arrays = [i for i, a in enumerate(sample.args) if isinstance(a, np.ndarray) and a.size]
        if _broadcast(context.op):
            sample.args = (first.positive(shapes[0]), second.positive(shapes[1]))
            sample.kwargs = {}
        elif len(arrays) < 2 or any(sample.args[i].ndim == 0 for i in arrays):
            continue
        else:
            args = [*sample.args]
            args[arrays[1]] = second.positive(args[arrays[1]].shape)
            sample.args = tuple(args)
        return context.placed(sample)
    raise NotRun("no sample with two dimensioned arrays")


def _broadcast(op: Any) -> bool:
    return getattr(op.out_rule, "__name__", "") == "broadcast"


def _expect(context: Context, sample: Any, common: str | None, what: str) -> None:
    rule = context.op.dtype_rule
    tensors = context.subject.tensors(sample)
    if common is None and rule.result is not None:
        return  # a truth value needs no common type
    if common is None:
        try:
            context.call(tensors)
        except DTypeError:
            context.expect(True, "")
            return
        context.expect(False, f"{what}: no integer type holds both, a DTypeError is due")
    if common not in context.metadata.dtypes:  # type: ignore[union-attr]
        return
    result = context.call(tensors)
    wanted = _result(rule, common or "")
    context.expect(
        result.dtype.name == wanted, f"{what}: the result is {result.dtype.name}, not {wanted}"
    )
    context.close(result, sample)


@check(2, plan=_plan, variant="pairs")
def pairs(context: Context) -> None:
    """The op on its dtype and every other one, dimensioned and 0-d."""
    own = context.case.dtype
    for other in context.metadata.dtypes:  # type: ignore[union-attr]
        if other not in context.subject.dtypes:
            continue
        _expect(context, _two(context, other, ((5,), (5,))), joined(own, other), other)
        if not _broadcast(context.op):
            continue
        _expect(context, _two(context, other, ((), ())), joined(own, other), f"0-d {other}")
        common = own if _RANK[numpy_dtype(own).kind] >= _RANK[numpy_dtype(other).kind] else other
        if numpy_dtype(own).kind in "fV" and numpy_dtype(other).kind == "c":
            common = "complex128" if own == "float64" else "complex64"
        _expect(context, _two(context, other, ((5,), ())), common, f"with a 0-d {other}")


@check(2, plan=_plan, variant="scalars")
def scalars(context: Context) -> None:
    """A Python number does not widen a tensor of its own or a higher category."""
    own = context.case.dtype
    second = [p for p in context.op.schema.params if p.is_tensor][1]
    for number in (2, 1.5, True) if second.scalar else ():
        sample = _two(context, own, ((5,), (5,)))
        sample.args = (sample.args[0], number)
        kind = numpy_dtype(own).kind
        common = own
        if isinstance(number, float) and kind in "biu":
            common = cd.get_default_dtype().name
        elif type(number) is int and kind == "b":
            common = "int64"
        _expect(context, sample, common, f"with the number {number!r}")
    if not second.scalar:
        sample = _two(context, own, ((5,), (1,)))
        _expect(context, sample, own, "with a tensor of one element")


@check(2, plan=_plan, variant="beside")
def beside(context: Context) -> None:
    """One of several arrays, each in turn, in every other dtype.

    A decomposition that converts one argument at a time rounds to another dtype than the op's, or
    twice.
    """
    own, op, metadata = context.case.dtype, context.op, context.metadata
    assert metadata is not None
    for template in templates(op, lambda kind: context.make(kind)):
        plain = [a for a in template.arrays if _plain(template.requests.get(id(a)))]
        if len(plain) < 2 or not all(a.ndim and a.size for a in plain):
            continue
        for other in metadata.dtypes:
            common = joined(own, other)
            declared = other in context.subject.dtypes and common in context.subject.dtypes
            if other == own or common not in metadata.dtypes or not declared:
                continue
            make = ConfiguredMake(numpy_dtype(other), seed=context.case.seed, values=op.values)
            for chosen in plain:
                given = repeated(template.requests[id(chosen)], chosen.shape, make)
                sample = template.sample.map(
                    lambda a, chosen=chosen, given=given: given if a is chosen else a
                )
                sample = context.placed(sample)
                result = context.call(context.subject.tensors(sample))
                each = [other if a is chosen else own for a in plain]
                wanted = _kept(op.dtype_rule, each) or _result(op.dtype_rule, common)
                got = tensors_in(result)[0].dtype.name
                context.expect(got == wanted, f"{other}: the result is {got}, not {wanted}")
                context.close(result, sample)
        return
    raise NotRun("no sample with two dimensioned arrays")


def _plain(request: Any) -> bool:
    """Whether an array holds the op's own numbers: no index, mask or floating parameter."""
    return request is not None and request.method == "__call__"


@check(2, plan=_plan, variant="alone")
def alone(context: Context) -> None:
    """An integer input of an op with a promotion rule."""
    for sample in context.samples(limit=6):
        context.close(context.call(context.subject.tensors(sample)), sample)
