"""Check 33: arguments in combination.

Every option away from its default and different in each dimension, two options' values together in
every pair; what the reference does not read, the kernel must not read either; one tensor for two
arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import CoreDispatchError

from ..bounds import unmoved
from ..case import Case
from ..context import Context, Failure, NotRun, elements, has_values, tensors_in
from ..options import POINTS, TURNED, Row, covered, levels
from ..points import pointed
from ..reference import NoReference, Reference
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from ..templates import DIMS, Renamed
from . import check
from .decompositions import public
from .drawn import accepts, refused_by_definition
from .values import choose_dtypes, decomposes, in_domain

__all__ = ["rows_of", "small"]

#: elements of the largest array of a sample whose options are varied
LARGEST = 700
#: calls with short fractions
POINTED = 40
#: size of the dimensions of square arrays
SIDE = 3
#: operators that compare what they read with nothing: their results have no reference of values
PROBED = 8


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if (
        metadata is None
        or metadata.op.samples is None
        or not has_values(metadata.op)
        or metadata.layouts
    ):
        return
    op = metadata.op
    if op.factory:
        return
    first = next(iter(_dtypes(metadata)), "")
    if metadata.native and op.tensors and not (op.mutates or op.view):
        if first in ("float32", "float64") and first in subject.dtypes:
            mandatory = first in MANDATORY_DTYPES
            yield Case(33, op.name, first, variant="points", mandatory=mandatory)
    if not public(op) and op.kind == "composite" and not op.mutates:
        return  # its callers check the options
    for number, dtype in enumerate(_dtypes(metadata)):
        if dtype not in subject.dtypes:
            continue
        mandatory = dtype in MANDATORY_DTYPES
        yield Case(33, op.name, dtype, variant="options", mandatory=mandatory)
        if number == 0 and len(op.tensors) > 1 and not op.mutates:
            yield Case(33, op.name, dtype, variant="same-tensor", mandatory=mandatory)
    if op.mutates:
        return
    if "float64" in metadata.dtypes and "float64" in subject.dtypes and op.tensors:
        yield Case(33, op.name, "float64", variant="unread")


def _dtypes(metadata: OpMetadata) -> list[str]:
    """The dtype that options are varied in, and one of each further kind of numbers.

    A switch leads elsewhere where numbers are whole, or have two parts: an average rounds, a
    triangle is conjugated. Asked of the backend's own kernels alone.
    """
    first = choose_dtypes(metadata, ("float32", "int64"), 1)
    switches = any(p.kind in ("bool", "str") for p in metadata.op.schema.params)
    if not (metadata.native and switches) or metadata.elementwise and metadata.op.view:
        return first
    return list(dict.fromkeys([*first, *choose_dtypes(metadata, ("int64", "complex64"))]))


def small(context: Context, **changes: Any) -> list[Any]:
    """The samples of the case without those of large arrays."""
    return [s for s in context.samples(**changes) if elements(s) <= LARGEST]


def _taken(context: Context, sample: Any) -> bool:
    """Whether the operator's definition takes a call."""
    try:
        return context.declares(sample) and bool(accepts(context, context.placed(sample)))
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return False  # the rules themselves cannot read such a call


def rows_of(context: Context) -> list[Row]:
    """Calls in which every two options meet; the report says how many pairs they hold."""
    ties = in_domain(context.op, "ties", "transposed")
    turned = {"layout": "transposed", "distribution": "ties" if ties else "uniform"}
    samples = [(s, "as they come") for s in small(context)]
    samples += [(s, TURNED) for s in small(context, **turned)]
    if not levels(context.op, [s for s, _ in samples]):
        return []

    def taken(sample: Any) -> bool:
        return _taken(context, sample)

    samples += [(s, POINTS) for s in pointed(context, small, taken)]
    samples += [(s, "square") for s in _square(context)]
    if _modes(context.op) and in_domain(context.op, "offset_mean", "contiguous"):
        samples += [(s, "far out") for s in small(context, distribution="offset_mean")]
    rows, pairs, whole = covered(context.op, samples, context.rng, taken)
    context.found |= {"pairs": pairs, "pairs_in_all": whole}
    return rows


@check(33, plan=_plan, variant="points")
def points(context: Context) -> None:
    """Halves, borders, ends and zeros of both signs: on which side they lie is exact."""
    for sample in pointed(context, small, lambda s: _taken(context, s))[:POINTED]:
        context.placed(sample)
        try:
            result = context.call(context.subject.tensors(sample))
            context.subject.synchronize()
        except CoreDispatchError:
            if context.op.decomposition is None or refused_by_definition(context.op, sample):
                continue  # such numbers are beyond what the operator takes
            raise
        with unmoved():
            context.close(result, sample)
    if not context.asserted:
        raise NotRun("no sample takes short fractions")


def _square(context: Context) -> list[Any]:
    """The samples with dimensions of one size, where an operator is told which of them is meant."""
    if not any(p.name in DIMS or p.name == "axis" for p in context.op.schema.params):
        return []
    try:
        return small(context, kind=Renamed, sizes=dict.fromkeys(range(2, 20), SIDE))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return []  # the sampler computes with its sizes


def _modes(op: Any) -> bool:
    """Whether an option names a way to compute, which may promise to be accurate."""
    return any(p.name.endswith("mode") for p in op.schema.params)


@check(33, plan=_plan, variant="options")
def options(context: Context) -> None:
    """Calls whose options are away from their defaults, two by two, give the reference's values."""
    for row in rows_of(context):
        sample = context.placed(row.sample)
        try:
            result = context.call(context.subject.tensors(sample))
            context.subject.synchronize()  # a device that computes later raises then
        except CoreDispatchError:
            if row.lenient or refused_by_definition(context.op, sample):
                continue  # negative indices may be refused; and values, by the definition
            raise
        try:
            with unmoved() if row.filled == POINTS else nullcontext():
                context.close(result, sample)
            _in_place(context, sample, result)
        except Failure as error:
            raise Failure(f"{row.what}: {error}") from None
    if not context.asserted:
        raise NotRun("no option of the operator has another value that it takes")


def _in_place(context: Context, sample: Any, wanted: Any) -> None:
    """The same written to the first argument, where the in-place form has a kernel of its own."""
    form = context.op.inplace_op
    if form is None or context.subject.kernel(form.name) is None:
        return
    tensors = context.subject.tensors(sample)
    first = tensors.args[0]
    if isinstance(wanted, cd.Tensor) and first.dtype is wanted.dtype:
        if tuple(first.shape) == tuple(wanted.shape):
            found = context.call(tensors, form)
            context.same(found, wanted, "in place", of=sample, strides=True)


# ---- one tensor for two arguments --------------------------------------------------------------


@check(33, plan=_plan, variant="same-tensor")
def same_tensor(context: Context) -> None:
    """One tensor in the place of two arguments gives what two equal ones would."""
    special = in_domain(context.op, "special", "contiguous") and context.op.values is None
    for distribution in ("uniform", "special") if special else ("uniform",):
        for sample in small(context, distribution=distribution)[:24]:
            places = _alike(sample)
            if places is None:
                continue
            first, second = places
            args = [*sample.args]
            args[second] = args[first]
            doubled = context.placed(type(sample)(*args, **sample.kwargs))
            try:
                if not accepts(context, doubled):
                    continue
            except (ArithmeticError, LookupError, TypeError, ValueError):
                continue
            for other in (lambda t: t, lambda t: t.view(tuple(t.shape))):
                tensors = context.subject.tensors(doubled)
                given = [*tensors.args]
                given[second] = other(given[first])
                given = type(tensors)(*given, **tensors.kwargs)
                context.sample = doubled
                context.close(context.call(given), doubled)
                if not context.subject.backend.views:
                    break
    if not context.asserted:
        raise NotRun("no sample has two tensors of one shape and dtype")


def _alike(sample: Any) -> tuple[int, int] | None:
    """Places of two arrays of one shape and dtype."""
    arrays = [(i, a) for i, a in enumerate(sample.args) if isinstance(a, np.ndarray)]
    for i, a in arrays:
        for j, b in arrays:
            if i < j and a.shape == b.shape and a.dtype == b.dtype and a.size:
                return i, j
    return None


# ---- what must not be read ---------------------------------------------------------------------


def poisoned(op: Any, array: Any, part: str) -> Any:
    """The array with a part of it spoilt; None where it has no such part."""
    spoilt = np.array(array)
    # What LAPACK reads of NaN makes it hang.
    value = 3e7 if decomposes(op) else np.nan
    if part == "all":
        spoilt[...] = value
        return spoilt
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] < 2:
        return None
    size = array.shape[-1]
    rows, columns = np.indices((size, size))
    where = {"upper": columns > rows, "lower": columns < rows, "diagonal": columns == rows}[part]
    spoilt[..., where] = value
    return spoilt


def unread(context: Context, sample: Any) -> Iterator[tuple[str, Any]]:
    """The sample with parts spoilt that its reference does not read."""
    try:
        wanted = _flat(Reference(context.op, sample)())
    except (NoReference, ValueError, TypeError, np.linalg.LinAlgError):
        return
    names = [p.name for p in context.op.schema.params]
    for place, array in enumerate(sample.args):
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or not array.size:
            continue
        for part in ("all", "upper", "lower", "diagonal"):
            if part == "all" and decomposes(context.op):
                continue
            spoilt = poisoned(context.op, array, part)
            if spoilt is None:
                continue
            args = [*sample.args]
            args[place] = spoilt
            other = type(sample)(*args, **sample.kwargs)
            try:
                found = _flat(Reference(context.op, other)())
            except (ValueError, TypeError, np.linalg.LinAlgError):
                continue
            if _equal(found, wanted):
                which = "" if part == "all" else f" the {part} triangle of"
                yield f"{which} {names[place]}", other
                break


def _flat(result: Any) -> list[Any]:
    return [np.asarray(r) for r in (result if isinstance(result, (list, tuple)) else [result])]


def _equal(found: list[Any], wanted: list[Any]) -> bool:
    return len(found) == len(wanted) and all(
        a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        for a, b in zip(found, wanted, strict=True)
    )


@check(33, plan=_plan, variant="unread")
def not_read(context: Context) -> None:
    """What the reference does not read, a kernel does not read: a triangle, an operand times 0."""
    seen: dict[str, int] = {}
    samples = [s for s in small(context) if elements(s) <= 150][:12]
    if any(p.name in ("alpha", "beta") for p in context.op.schema.params) or decomposes(context.op):
        samples += [row.sample for row in rows_of(context)]
    for sample in samples:
        for part, other in unread(context, context.placed(sample)):
            if seen.get(part, 0) >= PROBED:
                continue
            seen[part] = seen.get(part, 0) + 1
            plain = context.call(context.subject.tensors(context.placed(sample)))
            spoilt = context.call(context.subject.tensors(context.placed(other)))
            for a, b in zip(tensors_in(plain), tensors_in(spoilt), strict=True):
                p, q = context.subject.array(a), context.subject.array(b)
                scale = np.abs(np.where(np.isfinite(p), p, 0)).max(initial=1.0) if p.size else 1.0
                same = p.dtype.kind not in "fc" or np.allclose(
                    p, q, rtol=1e-7, atol=1e-9 * float(scale), equal_nan=True
                )
                exact = p.dtype.kind in "fc" or np.array_equal(p, q)
                context.expect(same and exact, f"the result depends on{part}, which is not read")
    if not context.asserted:
        raise NotRun("the operator reads all of its arguments")
