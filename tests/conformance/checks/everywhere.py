"""Check 8, special numbers where chance does not put them: everywhere, in both parts, in long rows.

Among random numbers a window, a row or a matrix is never minus infinity throughout; a kernel that
starts from a number instead of from the first element finds nothing there. Of complex numbers
either part may be special, and where nothing is computed each has to arrive. And the special number
of a long row lies where another formula, another block or another algorithm is at work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import Context, NotRun, elements, has_values, tensors_in
from ..growth import Filling, growths, takes
from ..reference import NoReference, Reference
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import Template, named, templates
from ..variations import with_argument
from . import check
from .drawn import BY_MEMORY, refused_by_definition
from .numbers import _free as _free_number
from .values import decomposes

__all__: list[str] = []

#: the numbers that fill an array
NUMBERS = (-np.inf, np.inf, np.nan, -0.0)
#: dtypes that are asked, one is enough for most
ALIKE = ("float32", "float16")
#: parts of complex numbers
PARTS = (0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan)
#: operators that give such numbers, or say what they are, and compute nothing
ASKING = ("isnan", "isinf", "isfinite", "isreal", "eq", "ne", "real", "imag", "conj_physical")
#: requests of a sampler whose arrays may hold any number
FREE = ("__call__", "float")
#: elements of the largest array, and different calls of a case
LARGEST, CALLS = 300, 6
#: how long a row is
LONG = 1_301
#: operators that leave something open: which NaN is which, and what a query gets that no key
#: can be compared with
OPEN = ("unique_all", "attention", "attention_dropout")
#: operators that multiply by a number before they add up, or after it: an infinite one cancels
SCALED = ("attention", "attention_dropout")
#: operators of which an infinity makes a product with zero that the reference leaves out
LEFT_OUT = ("_backward",)


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or not metadata.native or metadata.op.samples is None or metadata.layouts:
        return
    op = metadata.op
    if not op.tensors or op.mutates or op.random or op.factory or not has_values(op):
        return
    if (
        op.name in (*BY_MEMORY, *OPEN)
        or decomposes(op)
        or any(part in op.name for part in LEFT_OUT)
    ):
        return

    def case(dtype: str, variant: str) -> Case:
        return Case(8, op.name, dtype, variant=variant, mandatory=dtype in MANDATORY_DTYPES)

    known = [d for d in metadata.dtypes if d in subject.dtypes]
    yield from (case(d, "alike") for d in [d for d in ALIKE if d in known][:1])
    numbers = op.name not in SCALED and any(_free_number(p) for p in op.schema.params)
    if "float32" in known and numbers:
        yield case("float32", "given")
    whole = op.tolerance is not None and op.tolerance.kind == "exact"
    if whole and "complex64" in known and (op.name in ASKING or op.view):
        yield case("complex64", "parts")
    if "float32" in known and not op.view and not (whole or metadata.elementwise) or _picks(op):
        if "float32" in known:
            yield case("float32", "rows")


def _picks(op: Any) -> bool:
    """Whether the operator chooses along a dimension: its results are elements, or places."""
    names = {p.name for p in op.schema.params}
    exact = op.tolerance is not None and op.tolerance.kind == "exact"
    return exact and bool(names & {"dim", "dims"}) and not op.view


# ---- one number everywhere --------------------------------------------------------------------


def _free(template: Template) -> list[Any]:
    """The arrays of a sample that may hold any number of the dtype."""
    found = []
    for array in template.arrays:
        request = template.requests.get(id(array))
        if request is None or request.method not in FREE or array.dtype.kind not in "fV":
            continue
        if request.low is None and request.high is None and array.size:
            found.append(array)
    return found


def _different(context: Context) -> Iterator[Template]:
    """Samples that differ in their options, in the ranks of their arrays, or in rows of one."""
    seen: set[str] = set()
    for template in templates(context.op, lambda kind: context.make(kind=kind)):
        if elements(template.sample) > LARGEST or not _free(template):
            continue
        options = [(n, v) for n, v in named(context.op, template.sample) if not _held(v)]
        forms = [(min(a.ndim, 2), a.shape[-1:] == (1,)) for a in _free(template)]
        key = repr((options, forms))
        if key not in seen:
            seen.add(key)
            yield template
        if len(seen) == CALLS:
            return


def _held(value: Any) -> bool:
    return isinstance(value, (np.ndarray, list, tuple)) and not (
        isinstance(value, tuple) and all(type(n) is int for n in value)
    )


@check(8, plan=_plan, variant="alike")
def alike(context: Context) -> None:
    """An array that holds one special number throughout, alone and with all of the others."""
    for template in _different(context):
        free = _free(template)
        for chosen in [[a] for a in free[:2]] + ([free] if len(free) > 1 else []):
            for number in NUMBERS:
                full = {id(a): np.full_like(a, number) for a in chosen}
                sample = template.sample.map(lambda a, full=full: full.get(id(a), a))
                _judge(context, context.placed(sample))
    if not context.asserted:
        raise NotRun("no array of a sample may hold any number")


def _judge(context: Context, sample: Any) -> None:
    try:
        Reference(context.op, sample)()
    except (CoreDispatchError, ArithmeticError, LookupError, TypeError, ValueError, NoReference):
        return  # the definition does not take such numbers
    try:
        result = context.call(context.subject.tensors(sample))
        context.subject.synchronize()
    except CoreDispatchError:
        if context.op.decomposition is None or refused_by_definition(context.op, sample):
            return
        raise
    context.close(result, sample)


# ---- numbers in the place of arguments ---------------------------------------------------------


@check(8, plan=_plan, variant="given")
def given(context: Context) -> None:
    """A number among the arguments is infinite, NaN or -0, and counts as such."""
    op, done = context.op, dict[tuple[str, str], int]()
    for sample in context.samples(distribution="uniform"):
        if elements(sample) > LARGEST or not elements(sample):
            continue
        own = dict(named(op, sample))
        for param in op.schema.params:
            value = own.get(param.name, param.default)
            if not _free_number(param) or isinstance(value, bool):
                continue
            if not isinstance(value, (int, float)):
                continue
            for number in NUMBERS:
                key = param.name, repr(number)
                if done.get(key, 0) < 2:
                    done[key] = done.get(key, 0) + 1
                    special = with_argument(op, sample, param.name, number)
                    _judge(context, context.placed(special))
    if not context.asserted:
        raise NotRun("no argument is a number that may be special")


# ---- both parts of complex numbers ------------------------------------------------------------


@check(8, plan=_plan, variant="parts")
def parts(context: Context) -> None:
    """Both parts of complex numbers arrive where nothing is computed, and are looked at."""
    rng, dtype = context.rng, numpy_dtype(context.case.dtype)
    for template in templates(context.op, lambda kind: context.make(kind=kind)):
        if elements(template.sample) > LARGEST or any(a.dtype != dtype for a in template.arrays):
            continue
        made = {}
        for array in template.arrays:
            filled = np.empty(array.shape, dtype)
            filled.real, filled.imag = (rng.choice(PARTS, array.shape) for _ in range(2))
            made[id(array)] = filled
        sample = context.placed(template.sample.map(lambda a, made=made: made[id(a)]))
        try:
            wanted = Reference(context.op, sample)()
        except NoReference:
            continue
        outputs = tensors_in(context.call(context.subject.tensors(sample)))
        several = wanted if isinstance(wanted, (tuple, list)) else [wanted]
        for output, expected in zip(outputs, several, strict=True):
            found = context.subject.array(output)
            same = np.array_equal(found.reshape(-1), np.asarray(expected).reshape(-1))
            pairs = ((found.real, expected.real), (found.imag, expected.imag))
            if found.dtype.kind in "fc":
                same = all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
                same &= all(
                    bool(np.all((np.signbit(a) == np.signbit(b)) | np.isnan(b))) for a, b in pairs
                )
            context.expect(same, "special parts of complex numbers differ")
    if not context.asserted:
        raise NotRun("no sample holds complex numbers alone")


# ---- in long rows -----------------------------------------------------------------------------


@check(8, plan=_plan, variant="rows")
def rows(context: Context) -> None:
    """A long row holds one NaN, one infinity, or zeros of both signs among its largest."""
    dtype = numpy_dtype(context.case.dtype)
    seen: set[Any] = set()
    for growth in growths(context, dtype):
        if not growth.reduced and max(map(len, growth.template.shapes)) != 1:
            continue
        number, axis = growth.axes[0]
        if not any(a is growth.template.arrays[number] for a in _free(growth.template)):
            continue
        make = Filling(context, dtype=dtype, seed=context.case.seed % 2**32)
        sample = growth.sample(context, growth.longest(8 * LONG) and LONG, make)
        if sample is None or growth.longest(8 * LONG) < LONG or growth.role in seen:
            continue
        seen.add(growth.role)
        for kind in range(4):
            marked = _marked(sample, number, axis, kind, context.rng)
            if takes(context, marked):
                _judge(context, context.placed(marked))
        if len(seen) == 2:
            break
    if not context.asserted:
        raise NotRun("no dimension along which the operator works may be long")


def _marked(sample: Any, number: int, axis: int, kind: int, rng: np.random.Generator) -> Any:
    """The sample with special numbers in the rows of an array, of another kind in each."""
    arrays: list[Any] = []
    sample.map(lambda a: arrays.append(a) or a)
    array = arrays[number]
    lines = np.array(np.moveaxis(array, axis, -1))
    flat = lines.reshape(-1, lines.shape[-1])
    for i, row in enumerate(flat):
        places = rng.permutation(len(row))[:6]
        turn = (i + kind) % 4
        if turn == 3:
            row[:] = -np.abs(row)
            row[places] = (0.0, -0.0, -0.0, 0.0, 0.0, -0.0)
        else:
            row[places[0]] = (np.nan, np.inf, -np.inf)[turn]
    odd = np.ascontiguousarray(np.moveaxis(flat.reshape(lines.shape), -1, axis))
    return sample.map(lambda a: odd if a is array else a)
