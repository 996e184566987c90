"""Check 1 in runs with a fresh seed: calls that Hypothesis draws from an op's definition.

The combinations of the covering array are the same in every run. These are not: the fresh seed
decides them, a failing one is shrunk to a small example, and that is the case's last call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from coredispatch.registry import CoreDispatchError

from ..case import DRAWN, Case
from ..context import Context, NotRun, elements, has_values, snapshot, tensors_in
from ..reference import NoReference, Reference, body_on_arrays
from ..subject import OpMetadata, Subject, SuiteError
from . import check
from .derived import needs_values, on_meta
from .values import VALUE_SHAPED

__all__ = ["examine", "require_hypothesis"]

#: ops that look at how the memory lies, not only at the elements
BY_MEMORY = ("as_strided", "view", "view_as", "view_as_complex")
#: elements that a result of another structure than the operator definition's may have
LARGEST = 20_000


def require_hypothesis() -> None:
    """Raise :class:`SuiteError` where Hypothesis is not installed."""
    if find_spec("hypothesis") is None:
        raise SuiteError(
            "a fresh seed needs Hypothesis, which draws the inputs, and it is not installed",
            fix="pip install 'coredispatch[conformance]', or pip install hypothesis",
        )


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is not None:
        yield Case(1, metadata.name, variant=DRAWN)


@check(1, plan=_plan, variant=DRAWN)
def run(context: Context) -> None:
    """Drawn calls: the reference's values, from contiguous arrays as from any; inputs are kept."""
    metadata = context.metadata
    assert metadata is not None
    if context.given is not None:
        examine(context, context.placed(context.given))
        return
    if metadata.op.samples is None:
        raise NotRun("the op definition gives no samples to vary; its users' cases exercise it")
    if metadata.op.random:
        raise NotRun("random results have no reference that a drawn call could be compared with")
    if not any(d in context.subject.dtypes for d in metadata.dtypes):
        raise NotRun("the backend declares no dtype of the operator")
    from ..generation import explore

    explore(context, accepts, examine)


def accepts(context: Context, sample: Any) -> bool:
    """Whether the op's own definition takes a call: its reference, and its meta kernel.

    An op whose result's shape depends on values has no meta kernel; there the call is tried. The
    meta kernel comes first: NumPy's own functions have no opinion on every misfit.
    """
    tensors = context.subject.tensors(sample)
    try:
        if context.op.name in (*VALUE_SHAPED, *BY_MEMORY) or context.op.mutates:
            found = context.op(*tensors.args, **tensors.kwargs)
            context.subject.synchronize()  # a device that computes later raises then
        else:
            found = on_meta(context, tensors)
    except CoreDispatchError as error:
        if not needs_values(error) or _refused_by_rule(context.op, tensors):
            return False
        found = None
    if any(math.prod(tuple(t.shape)) > LARGEST for t in tensors_in(found)):
        return False
    try:
        Reference(context.op, sample)()
    except NoReference:
        pass
    except Exception:
        return False
    return not refused_by_definition(context.op, sample)


def refused_by_definition(op: Any, sample: Any) -> bool:
    """Whether an operator's own decomposition refuses a call that its shape rule takes."""
    if op.decomposition is None or op.mutates:
        return False
    try:
        body_on_arrays(op)(*sample.args, **sample.kwargs)
    except CoreDispatchError:
        return True
    except Exception:
        return False  # a fault, which the case shows
    return False


def _refused_by_rule(op: Any, tensors: Any) -> bool:
    """Whether the shape rule refuses a call that cannot be made of meta tensors."""
    if op.out_rule is None:
        return False
    given = dict(zip([p.name for p in op.schema.params], tensors.args, strict=False))
    given |= tensors.kwargs
    try:
        op.out_rule(*[given.get(p.name, p.default) for p in op.schema.params])
    except CoreDispatchError as error:
        return not needs_values(error)
    return False


def examine(context: Context, sample: Any) -> None:
    """Assert that one call gives what the reference does, whatever the layout of its arrays."""
    tensors = context.subject.tensors(sample)
    before = snapshot(context, tensors)
    asserted = context.asserted
    result = context.call(tensors)
    context.close(result, sample)
    if not context.op.mutates:
        context.unchanged(before, tensors)
    strided: list[bool] = []
    sample.map(lambda a: strided.append(not a.flags.c_contiguous) or a)
    if any(strided) and context.op.name not in BY_MEMORY:
        plain = context.placed(sample.map(lambda a: np.array(a, order="C")))
        again = context.call(context.subject.tensors(plain))
        context.close(again, plain)
        if context.expected is None and has_values(context.op):  # nothing else says what they are
            context.same(result, again, "strided and contiguous arrays")
    empty = context.empty(result)
    if empty and not (elements(sample) and context.op.name in VALUE_SHAPED):
        context.asserted = asserted  # an empty result is no evidence
