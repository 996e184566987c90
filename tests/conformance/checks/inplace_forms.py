"""Check 12, in-place forms: ``x.op_(...)`` has the gradients of ``x.op(...)``.

Every derived in-place form is called as users call it: on a tensor with a history, on a view of
one, with arguments by name, with operands that broadcast, and on a tensor that needs no gradient
itself. The out-of-place form, whose derivative is checked by differences, says what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import coredispatch as cd
from coredispatch.registry import AutogradError, CoreDispatchError, can_cast

from ..case import Case
from ..context import Context, Failure, NotRun, tensors_in
from ..subject import OpMetadata, Subject
from . import check
from .decompositions import disagreement, weighted_sum
from .values import choose_dtypes

#: samples of one operator that are tried in every form
LIMIT = 12


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.op.samples is None or metadata.op.inplace_op is None:
        return
    if not metadata.op.differentiable:
        return
    for dtype in choose_dtypes(metadata, ("float64", "complex128"), 2):
        if dtype in subject.dtypes and dtype in ("float64", "complex128"):
            mandatory = dtype == "float64"
            yield Case(12, metadata.op.name, dtype, variant="in-place-form", mandatory=mandatory)


@check(12, plan=_plan, variant="in-place-form")
def in_place_form(context: Context) -> None:
    """The gradients of the in-place form are those of the out-of-place form, however called."""
    context.require_writes()
    for sample in context.samples():
        if context.asserted >= LIMIT * len(FORMS):
            return
        for form in FORMS:
            _compare(context, sample, form)
    if not context.asserted:
        raise NotRun("no sample has a gradient and a result that fits its first argument")


def _compare(context: Context, sample: Any, form: Form) -> None:
    plain = _gradients(context, sample, form, context.op, written=False)
    if plain is None:
        return
    try:
        found = _gradients(context, sample, form, context.op.inplace_op, written=True)
    except CoreDispatchError as error:
        found, said = None, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    else:
        said = "there is no gradient"
    what = f"{context.op.name}_ {form.__doc__}"
    context.expect(found is not None, f"{what}: {said}")
    assert found is not None
    for number, (got, wanted) in enumerate(zip(found, plain, strict=True)):
        context.expect(
            (got is None) == (wanted is None),
            f"{what}: gradient {number} is {'missing' if got is None else 'unexpected'}",
        )
        if got is None or wanted is None:
            continue
        context.expect(
            got.shape == wanted.shape,
            f"{what}: gradient {number} is {got.shape}, not {wanted.shape}",
        )
        error_found = disagreement(got, wanted)
        context.expect(
            error_found <= 1,
            f"{what}: gradient {number} and that of {context.op.name} differ "
            f"{error_found:.3g} times too much",
        )


# ---- how an in-place form is called -----------------------------------------------------------
# A form gets the arguments as leaves, and a call that takes the first argument and the others.
# It gives the results whose gradient is compared.

Form = Callable[[Context, Any, Callable[..., Any]], list[Any]]


def _positions(context: Context, tensors: Any) -> tuple[list[Any], dict[str, Any]]:
    return list(tensors.args[1:]), dict(tensors.kwargs)


def with_history(context: Context, tensors: Any, call: Callable[..., Any]) -> list[Any]:
    """on a tensor with a history"""
    rest, named = _positions(context, tensors)
    return [call(tensors.args[0] * 1, *rest, **named)]


def without_gradient(context: Context, tensors: Any, call: Callable[..., Any]) -> list[Any]:
    """on a tensor that needs no gradient"""
    rest, named = _positions(context, tensors)
    return [call(tensors.args[0].detach().clone(), *rest, **named)]


def by_name(context: Context, tensors: Any, call: Callable[..., Any]) -> list[Any]:
    """with every argument by its name"""
    rest, named = _positions(context, tensors)
    params = [p.name for p in context.op.schema.params if not p.keyword_only][1:]
    if len(rest) > len(params):
        return []
    named |= dict(zip(params, rest, strict=False))
    return [call(tensors.args[0] * 1, **named)] if named else []


def on_a_view(context: Context, tensors: Any, call: Callable[..., Any]) -> list[Any]:
    """on a view, whose base is used afterwards"""
    if not context.subject.backend.views:
        return []
    rest, named = _positions(context, tensors)
    first = tensors.args[0]
    base = cd.stack([first * 2, first * 1])
    result = call(base[1], *rest, **named)
    if call.keywords["written"]:  # type: ignore[attr-defined]
        return [base]
    return [cd.stack([base[0], result.to(base.dtype)])]


FORMS: tuple[Form, ...] = (with_history, without_gradient, by_name, on_a_view)


def _gradients(
    context: Context, sample: Any, form: Form, op: Any, *, written: bool
) -> list[Any] | None:
    """The gradients of all floating arguments; None where the form says nothing about the call."""
    tensors = context.subject.tensors(sample)
    if not isinstance(tensors.args[0], cd.Tensor):
        return None
    floating = [t for t in _tensors(tensors) if t.dtype.is_floating_point or t.dtype.is_complex]
    leaves = [t.requires_grad_(True) for t in floating]
    if context.op.random:
        cd.manual_seed(context.case.seed)
    try:
        results = form(context, tensors, partial(_called, op, written=written))
        total = weighted_sum(context, results)
        if not leaves or total is None:
            return None
        found = cd.autograd.grad(total, leaves, allow_unused=True)
    except (AutogradError, _Unfit):
        if written:
            raise
        return None  # refused for the out-of-place form too: check 12 judges that
    return [None if g is None else context.subject.array(g) for g in found]


class _Unfit(CoreDispatchError):
    """The result of the out-of-place form cannot be written into its first argument."""


def _called(op: Any, first: Any, *rest: Any, written: bool, **named: Any) -> Any:
    if written:
        out = op(first, *rest, **named)
        if out is not first:
            raise Failure(f"{op.name} returned another tensor than it was called on")
        return out
    shape, dtype = tuple(first.shape), first.dtype
    result = op(first, *rest, **named)
    if tuple(result.shape) != shape or not can_cast(result.dtype, dtype):
        raise _Unfit("the result does not fit")
    return result


def _tensors(tensors: Any) -> list[Any]:
    return tensors_in([list(tensors.args), tensors.kwargs])
