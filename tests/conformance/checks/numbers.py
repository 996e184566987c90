"""Check 32, numbers among the arguments: they arrive whole, in double precision and as integers.

The samples' own numbers are short: 2, -1.5, 0.25. They pass through a narrower dtype unharmed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import Context, NotRun, elements, has_values, tensors_in
from ..growth import cost, takes
from ..reference import NoReference, Reference
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import named
from ..variations import with_argument
from . import check
from .values import decomposes

#: kinds of parameters that are numbers, and neither counts nor places
NUMERIC = ("Scalar", "float")
#: parameters whose numbers say how many elements there are
LENGTHS = frozenset(("start", "end", "step"))
#: elements of the largest array of a sample, and of the arrays and results of a call
LARGEST, BEARABLE = 700, 20_000
#: calls for each parameter
EACH = 3
#: beyond what single precision holds, and an integer beyond what double precision holds
FRACTION, WIDE = 2.0**-30, 2**53 + 1


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or not metadata.native or metadata.op.samples is None:
        return
    op = metadata.op
    if not has_values(op) or op.view or decomposes(op) or metadata.layouts:
        return
    if not any(_free(param) for param in op.schema.params):
        return
    for dtype in ("float64", "int64"):
        if dtype in metadata.dtypes and dtype in subject.dtypes:
            yield Case(32, op.name, dtype, variant="numbers", mandatory=dtype in MANDATORY_DTYPES)


def _free(param: Any) -> bool:
    """Whether a parameter takes numbers of any digits."""
    numeric = param.scalar if param.kind == "Tensor" else param.kind in NUMERIC
    return bool(numeric) and param.name != "correction"


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _near(array: Any) -> Any:
    """Integers around the long number, which are one double, or two."""
    if array.dtype != np.int64:
        return array
    steps = np.arange(array.size).reshape(array.shape) % 5 - 2
    return (WIDE + steps).astype(np.int64)


def _longer(value: Any, dtype: Any) -> Any:
    """A number near ``value`` that needs all of the dtype's digits; None where there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if dtype.kind == "f":
        return float(value) * (1 + FRACTION) if np.isfinite(value) and value else None
    return WIDE if isinstance(value, int) else None


@check(32, plan=_plan, variant="numbers")
def numbers(context: Context) -> None:
    """A number with all the digits of the dtype counts with all of them."""
    dtype = numpy_dtype(context.case.dtype)
    op, done = context.op, dict[str, int]()
    typed = op.factory and any(p.name == "dtype" for p in op.schema.params)
    own = {"dtype": dtype} if typed else {}
    for sample in context.samples():
        if elements(sample) > LARGEST:
            continue
        # A default is a number as any other; that of one number is 1, or 0.
        defaults = {p.name: p.default for p in op.schema.params if _plain(p.default)}
        given = {**defaults, **dict(named(op, sample))}
        for param in op.schema.params:
            name = param.name
            other = _longer(given.get(name), dtype) if _free(param) else None
            if other is None or done.get(name, 0) >= EACH or dtype.kind == "i" and name in LENGTHS:
                continue
            longer = with_argument(op, sample, name, other)
            longer = context.placed(type(longer)(*longer.args, **{**longer.kwargs, **own}))
            done[name] = done.get(name, 0) + _judged(context, longer)
            if dtype.kind == "i" and context.metadata and context.metadata.elementwise:
                _judged(context, context.placed(longer.map(_near)))
    if not context.asserted:
        raise NotRun("no sample has a number that may have more digits")


def _judged(context: Context, sample: Any) -> bool:
    """Whether the operator takes the call; then its result is asserted."""
    if cost(context, sample) > BEARABLE or not (context.op.mutates or takes(context, sample)):
        return False
    try:
        expected = Reference(context.op, sample)()
        result = context.call(context.subject.tensors(sample))
    except (NoReference, CoreDispatchError, ArithmeticError, ValueError, TypeError):
        return False
    context.close(result, sample)
    wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    for output, exact in zip(tensors_in(result), wanted, strict=True):
        found, exact = context.subject.array(output), np.asarray(exact)
        if found.dtype.kind in "iu" and exact.dtype.kind in "iu":
            same = np.array_equal(found, exact.astype(found.dtype))
            context.expect(same, "an integer beyond 2**53 does not arrive whole")
    return True
