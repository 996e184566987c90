"""Check 30: lengths that blocks divide, dimensions beyond 16 bits, long lists, half precision.

``sizes`` makes dimensions long and odd. What is lost where nothing is left over - the last of
several whole blocks - shows at exact multiples alone; a number kept in 16 bits where a dimension
is longer than those count, whatever the elements there.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..case import Case
from ..context import Context, NotRun, tensors_in
from ..growth import (
    PROBE,
    Filling,
    Growth,
    bearable,
    cost,
    growths,
    long_lists,
    measured,
    switched,
    takes,
)
from ..reference import NoReference, Reference
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import DIMS, SIZES, Template, changed, fits, named, renamed, repeated
from ..variations import with_argument
from . import check
from .sizes import applies, hidden, judge
from .values import choose_dtypes, decomposes

#: the length that every common block divides, and elements of the arrays of such a call
WHOLE, MOST = 8192, 80_000
#: calls of one case, and the seconds of the processor after which no further one is begun
CALLS, PATIENCE = 12, 0.15
#: elements of the arrays of a call with one long row beside others
ROW = 15_000
#: elements of an index that names few places
OFTEN = 131
#: tensors of a list beyond what one launch takes
LISTED = 131
#: lengths that signed 16 bits do not count, and unsigned ones
SIGNED, UNSIGNED = 40_001, 65_601
#: elements of the arrays of a call with such a dimension, and ways to grow that are tried
THIN, WAYS = 500_000, 6
#: places that are named at once in a long dimension, and how long that is
MANY, TABLE = 3001, 5003
#: elements that are added up in half precision
ADDED = 4099
#: times that such a call is made, each with other numbers: a sum may be right by chance
FILLED = 4


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if not applies(metadata) or not metadata.native:
        return
    op = metadata.op
    for dtype in choose_dtypes(metadata, ("float32", "int64"), 1):
        if dtype in subject.dtypes:
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(30, op.name, dtype, variant="blocks", mandatory=mandatory)
            if not _pointwise(op):  # of which there are a million elements
                yield Case(30, op.name, dtype, variant="beyond-16-bits", mandatory=mandatory)
    for dtype in ("float16", "bfloat16"):
        if metadata.elementwise or decomposes(op) or op.view:
            return
        if dtype in metadata.dtypes and dtype in subject.dtypes:
            yield Case(30, op.name, dtype, variant="whole-numbers")


def _pointwise(op: Any) -> bool:
    """Whether an element of the result follows from the elements at its place alone."""
    return getattr(op.out_rule, "__name__", "") == "broadcast"


def _within(context: Context, calls: Iterator[Any], most: int = CALLS) -> None:
    """Judge calls until there are enough, or the processor's time is up."""
    spent, done = 0.0, 0
    for sample in calls:
        if sample is None:
            continue
        start = time.process_time()
        judge(context, sample)
        spent += time.process_time() - start
        done += 1
        if done >= most or spent > PATIENCE:
            break
    context.found["calls"] = done
    if not done:
        raise NotRun("no dimension of the operator's samples may be long")


# ---- lengths that blocks divide ------------------------------------------------------------------


@check(30, plan=_plan, variant="blocks")
def blocks(context: Context) -> None:
    """A length that blocks divide, one more and one less; and lists that one launch cannot take."""
    _within(context, _whole(context))


def _whole(context: Context) -> Iterator[Any]:
    dtype = numpy_dtype(context.case.dtype)
    make = Filling(context, dtype=dtype, seed=(context.case.seed + context.fresh) % 2**32)
    if context.op.lists:
        yield from itertools.islice(long_lists(context, context.samples(), LISTED), 2)
    found = growths(context, dtype)
    yield from itertools.islice(_across(context, found, make), 2)
    yield from itertools.islice(_named_often(context, found, make), 8)
    lengths = []
    for growth in found:
        longest = growth.longest(MOST)
        length = WHOLE if longest > WHOLE else 1 << max(longest - 1, 1).bit_length() - 1
        if length >= 64 and context.metadata and not context.metadata.elementwise:
            length = min(length, 1 << bearable(context, growth, length, make).bit_length() - 1)
        lengths.append(length)
    reduced = 0
    for number, (growth, length) in enumerate(zip(found, lengths, strict=True)):
        if length < 64:
            continue
        yield growth.sample(context, length, make)
        if growth.reduced or max(map(len, growth.template.shapes)) == 1:
            yield from itertools.islice(hidden(context, growth, [length], make), 2)
            reduced += 1
        if number == 0 or growth.reduced and reduced <= 2:
            yield from (growth.sample(context, length + step, make) for step in (-1, 1))


def _across(context: Context, found: list[Growth], make: Filling) -> Iterator[Any]:
    """Long rows where the operator's samples name the rows' dimension, and another is named here.

    What is moved row by row is moved in units that do not divide the row.
    """
    for own in found:
        growth = replace(own, renames=False)  # an index stays within the other dimension
        sample = growth.sample(context, PROBE, make)
        if sample is None or not growth.reduced:
            continue
        shape = growth.template.shapes[growth.axes[0][0]]
        for name, value in named(context.op, sample):
            other = _other_dim(value)
            if name not in DIMS or other is None or len(shape) < 2:
                continue
            if not takes(context, with_argument(context.op, sample, name, other)):
                continue
            longer = growth.sample(context, growth.longest(ROW) | 1, make)
            if longer is not None:
                longer = with_argument(context.op, longer, name, other)
                if takes(context, longer):  # an index of another dimension may be out of bounds
                    yield longer


def _other_dim(value: Any) -> Any:
    """The first dimension in the place of another that is named, and the last in its place."""
    if type(value) in (tuple, list) and len(value) == 1:
        other = _other_dim(value[0])
        return None if other is None else type(value)([other])
    return (0 if value else -1) if type(value) is int else None


def _named_often(context: Context, found: list[Growth], make: Filling) -> Iterator[Any]:
    """Few places that are named many times, in rows of an index and across them.

    With each switch turned, and every other time from the other end: a place has two names.
    """
    seen: set[tuple[int, ...]] = set()
    for growth in sorted(found, key=lambda g: -max(len(g.template.shapes[i]) for i, _ in g.axes)):
        requests = [growth.template.requests.get(id(a)) for a in growth.template.arrays]
        drawn = [i for i, r in enumerate(requests) if r is not None and r.method == "index"]
        ranks = tuple(map(len, growth.template.shapes))
        if ranks in seen or not {i for i, _ in growth.axes} & {*drawn}:
            continue
        seen.add(ranks)
        sample = growth.sample(context, OFTEN, make)
        if sample is None:
            continue
        sizes = {i: int(r.high or 0) for i, r in enumerate(requests) if r is not None and r.high}

        def change(number: int, array: Any, sizes: dict[int, int] = sizes) -> Any:
            if number not in sizes or array.dtype != np.int64 or not array.size:
                return array
            other = np.array(array)
            other.reshape(-1)[::2] -= sizes[number]
            return other

        two = _numbered(sample, change)
        if _counts_from_the_end(context) and takes(context, two):
            yield two
        yield from switched(context, growth, OFTEN, make)


def _counts_from_the_end(context: Context) -> bool:
    """Whether a place among the operator's samples is counted from the end.

    NumPy takes such a place wherever it indexes, so that a reference says nothing about it.
    """
    places: list[Any] = []
    for sample in context.op.samples(Filling(context, dtype=np.dtype(np.float64))):
        sample.map(lambda a: places.append(a) or a)
    return any(a.dtype == np.int64 and (a < 0).any() for a in places)


# ---- dimensions beyond 16 bits -------------------------------------------------------------------


@check(30, plan=_plan, variant="beyond-16-bits")
def beyond_16_bits(context: Context) -> None:
    """A dimension longer than 16 bits count, all others of one element; the last places are named.

    With indices of 32 bits as well, where the operator takes them.
    """
    _within(context, _thin_calls(context), 2 * WAYS)


def _thin_calls(context: Context) -> Iterator[Any]:
    dtype = numpy_dtype(context.case.dtype)
    make = Filling(context, dtype=dtype, seed=(context.case.seed + context.fresh) % 2**32)
    for growth in itertools.islice(_thin(context, dtype, make), WAYS):
        if bearable(context, growth, UNSIGNED, make) < UNSIGNED:
            continue
        sample = growth.sample(context, UNSIGNED, make)
        if sample is None or cost(context, sample) > THIN:
            continue
        points = _pointing(growth)
        yield _to_the_end(sample, points, UNSIGNED)
        if points:
            yield from itertools.islice(_many_places(context, growth, points, make), 1)
        chooses = context.op.schema.multi_output or context.op.name.startswith("arg")
        if growth.reduced and not points and chooses:  # products of such numbers run away
            yield _rising(growth, sample, dtype)
        if points:
            short = growth.sample(context, SIGNED, make)
            small = growth.sample(context, 64, make)
            if short is not None and takes(context, _narrow(small, points)):
                yield _narrow(_to_the_end(short, points, SIGNED), points)


def _thin(context: Context, dtype: Any, make: Filling) -> Iterator[Growth]:
    """The growths of the operator with all other dimensions of one element, where it takes that."""
    for growth in growths(context, dtype):
        if not growth.template.whole:
            continue
        template = _bare(context.op, growth, make)
        trial = None
        if template is not None:
            trial = measured(context, replace(growth, template=template), make)
        if trial is not None and _cancels(context, trial, make):
            trial = None
        for tried in (trial, growth):
            if tried is not None and tried.longest(THIN) > UNSIGNED and tried.share < 8:
                yield tried
                break


def _cancels(context: Context, growth: Growth, make: Filling) -> bool:
    """Whether a result is 0 throughout, as one number without its mean is.

    A kernel leaves the rounding of what it subtracts there, and no bound says how much that is.
    """
    sample = growth.sample(context, PROBE, make)
    if sample is None:
        return False
    try:
        found = Reference(context.op, sample)()
    except (NoReference, ArithmeticError, ValueError):
        return False
    results = [np.asarray(r) for r in (found if isinstance(found, (tuple, list)) else [found])]
    return any(r.dtype.kind == "f" and r.size and not r.any() for r in results)


def _bare(op: Any, growth: Growth, make: Filling) -> Template | None:
    """The growth's template with one element in the place of each other size."""
    own = growth.template
    others = {n: 1 for shape in own.shapes for n in shape if n not in (0, growth.old)}
    made: dict[int, Any] = {}
    requests = {}
    for i, array in enumerate(own.arrays):
        request = own.requests[id(array)]
        shape = tuple(n if (i, j) in growth.axes else min(n, 1) for j, n in enumerate(array.shape))
        high = int(request.high or 0) if request.points else 0
        # As long as the dimension that grows, by chance: places name another, which shrinks.
        named = high == growth.old and not growth.renames
        high = 1 if named else others.get(high, high)
        if not fits(request, shape, high):
            return None
        smaller = made[id(array)] = repeated(request, shape, make, high)
        high = high if request.points else request.high  # type: ignore[assignment]
        requests[id(smaller)] = replace(request, shape=shape, high=high)

    def follow(name: str, value: Any) -> Any:
        if name in SIZES and isinstance(value, (tuple, list)):
            return type(value)(renamed(value, others))
        return value

    sample = changed(op, own.sample.map(lambda a: made[id(a)]), follow)
    return Template(own.number, sample, requests, True, tuple(made.values()))


def _pointing(growth: Growth) -> list[int]:
    """The numbers of the arrays whose elements name places of the long dimension."""
    template = growth.template
    return [
        i
        for i, array in enumerate(template.arrays)
        if growth.renames
        and template.requests[id(array)].points
        and template.requests[id(array)].high == growth.old
    ]


def _many_places(
    context: Context, growth: Growth, points: list[int], make: Filling
) -> Iterator[Any]:
    """Many places of a long dimension: what is sorted, or shared out, by place has far ones."""
    for other in growths(context, make.own.dtype):
        if other.template.number != growth.template.number or len(other.axes) > len(points) + 1:
            continue
        long = {i for i, _ in other.axes} & {*points}
        sample = other.sample(context, MANY, make) if long and other.axes != growth.axes else None
        table = growth.sample(context, TABLE, make)
        if sample is None or table is None:
            continue
        grown = {i for i, _ in growth.axes}
        wide = {i: a for i, a in enumerate(_arrays(table)) if i in grown}

        def change(number: int, array: Any, wide: dict[int, Any] = wide) -> Any:
            if number in points:
                return context.rng.integers(0, TABLE, array.shape).astype(array.dtype)
            return wide.get(number, array)

        both = _numbered(sample, change)
        if takes(context, both):
            yield both


def _arrays(sample: Any) -> list[Any]:
    found: dict[int, Any] = {}
    sample.map(lambda a: found.setdefault(id(a), a))
    return [*found.values()]


def _numbered(sample: Any, change: Any) -> Any:
    """The sample with ``change(number, array)`` in the place of each array."""
    arrays: dict[int, int] = {}
    sample.map(lambda a: arrays.setdefault(id(a), len(arrays)) and a)
    return sample.map(lambda a: change(arrays[id(a)], a))


def _to_the_end(sample: Any, points: list[int], size: int) -> Any:
    """The sample with the last place named among its indices; a distinct one stays distinct."""

    def change(number: int, array: Any) -> Any:
        if number not in points or not array.size or (array == size - 1).any():
            return array
        named = np.array(array)
        named.reshape(-1)[-1] = size - 1
        return named

    return _numbered(sample, change)


def _rising(growth: Growth, sample: Any, dtype: Any) -> Any:
    """The sample with rising numbers: what is largest lies at the end, where places are large."""

    def change(number: int, array: Any) -> Any:
        free = _free(growth, number, array, dtype) and dtype.kind in "fiu"
        return np.sort(array.reshape(-1)).reshape(array.shape) if free else array

    return _numbered(sample, change)


def _narrow(sample: Any, points: list[int]) -> Any:
    def change(number: int, array: Any) -> Any:
        return array.astype(np.int32) if number in points else array

    return _numbered(sample, change)


# ---- sums of half precision ----------------------------------------------------------------------


@check(30, plan=_plan, variant="whole-numbers")
def whole_numbers(context: Context) -> None:
    """Small whole numbers in half precision add up as they would exactly, and are rounded once.

    An accumulator of half precision stands still from 2,048 on; so does one that adds up what
    blocks gave, rounded.
    """
    dtype = numpy_dtype(context.case.dtype)
    rng, done, spent = context.rng, 0, 0.0
    make = Filling(context, dtype=dtype)
    for growth in growths(context, dtype, 3):
        size = growth.longest(MOST)
        if size < ADDED or bearable(context, growth, ADDED, make) < ADDED:
            continue
        sample = growth.sample(context, ADDED, make)
        if sample is None:
            continue
        start = time.process_time()
        for _ in range(FILLED):
            done += _added(context, _whole_numbers(growth, sample, rng, dtype), dtype)
        spent += time.process_time() - start
        if spent > PATIENCE:
            break
    if not done:
        raise NotRun("no long call of the operator gives a whole number for whole numbers")


def _whole_numbers(growth: Growth, sample: Any, rng: np.random.Generator, dtype: Any) -> Any:
    def change(number: int, array: Any) -> Any:
        if not _free(growth, number, array, dtype):
            return array
        return rng.integers(0, 4, array.shape).astype(dtype)

    return _numbered(sample, change)


def _free(growth: Growth, number: int, array: Any, dtype: Any) -> bool:
    """Whether an array of the call may hold any numbers."""
    if array.dtype != dtype or not growth.template.whole:
        return False
    request = growth.template.requests[id(growth.template.arrays[number])]
    return request.method == "__call__" and request.low is None and request.high is None


def _added(context: Context, sample: Any, dtype: Any) -> bool:
    """Whether the reference gives whole numbers, which then must be those, rounded once."""
    context.placed(sample)
    try:
        wanted = Reference(context.op, sample)()
    except (NoReference, ArithmeticError, ValueError):
        return False
    expected = [np.asarray(w) for w in (wanted if isinstance(wanted, (tuple, list)) else [wanted])]
    found = context.call(context.subject.tensors(sample))
    arrays = [context.subject.array(t) for t in tensors_in(found)]
    judged = False
    for i, (array, exact) in enumerate(zip(arrays, expected, strict=True)):
        if array.dtype != dtype or exact.dtype.kind != "f" or not exact.size:
            continue
        whole = np.isfinite(exact).all() and (exact == np.rint(exact)).all()
        if not whole or np.abs(exact).max() < 2048 or np.abs(exact).max() > 60_000:
            continue
        wrong = array != exact.astype(dtype)
        at = tuple(np.argwhere(wrong)[0]) if wrong.any() else ()
        context.expect(
            not wrong.any(),
            f"output {i}: whole numbers in {context.case.dtype} add up to {array[at]!s}, and not "
            f"to {exact[at]!s}"
            if wrong.any()
            else "",
        )
        judged = True
    return judged
