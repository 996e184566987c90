"""Check 5, views of views: inputs at an offset, with gaps, turned, backwards, and repeated.

Each way of lying in memory meets each argument alone, all of them together, and each another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import Context, NotRun, elements, equal, has_values, snapshot, tensors_in
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from ..templates import named
from ..windows import BEHIND, KEEPING, REPEATING, window
from . import check
from .values import arrays_of, choose_dtypes, in_domain, shapes_of

#: elements of the largest array of a sample
LARGEST = 700
#: calls in which all arrays lie alike, in which one lies in each way, and in which each differs
ALIKE, ALONE, APART = 30, 52, 6
#: units in the last place in which two results may differ without a look at the reference
UNITS = 4
#: ops that look at how the memory lies, which may begin anywhere
BY_MEMORY = frozenset(("as_strided", "view", "view_as", "view_as_complex", "view_dtype"))
#: of these, the ones that make one element of two, and may refuse to begin between them
OF_PAIRS = frozenset(("view_as_complex",))

#: ops whose indices may name one place several times
REPEATABLE = frozenset(
    "gather getitem index_add index_fill index_select scatter_add take take_along_dim".split()
)

#: the way of each array of a call; None for one that lies as ever
Ways = tuple[str | None, ...]


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if (
        metadata is None
        or metadata.op.samples is None
        or metadata.layouts
        or not subject.backend.views
    ):
        return
    op = metadata.op
    if not has_values(op) or not (op.tensors or op.lists) or op.mutates:
        return
    if op.name not in BY_MEMORY and not in_domain(op, "uniform", "transposed"):
        return
    for dtype in choose_dtypes(metadata, ("float32", "int64"), 1):
        if dtype in subject.dtypes:
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(5, op.name, dtype, variant="view-of-view", mandatory=mandatory)


@check(5, plan=_plan, variant="view-of-view")
def view_of_view(context: Context) -> None:
    """Arrays that lie in other ways, alone, all alike and each another, give what contiguous ones
    give.
    """
    small = [s for s in context.samples() if elements(s) <= LARGEST and not _absolute(context, s)]
    plain: dict[int, list[Any]] = {}
    for number, ways in _rows(context, small):
        sample = small[number]
        held = _laid(context, sample, ways)
        try:
            tensors = context.subject.tensors(held)
        except CoreDispatchError:  # no strides below zero
            held = held.map(window)
            tensors = context.subject.tensors(held)
        before = snapshot(context, tensors)
        context.placed(held)
        result = context.call(tensors)
        kept = not {*REPEATING} & {*ways}
        if not kept:
            wanted = _results(context, held.map(np.array))
        else:
            wanted = plain.setdefault(number, []) or _judged(context, sample)
            plain[number] = wanted
        context.sample = held
        _as_plain(context, held, result, wanted)
        context.unchanged(before, tensors)
        context.asserted -= 1  # by itself no evidence that anything was computed
    if not context.asserted:
        raise NotRun("no sample of this size has a result with elements")


def _absolute(context: Context, sample: Any) -> bool:
    """Whether a call names a place in the memory, wherever the tensor begins in it."""
    return any(n == "storage_offset" and v is not None for n, v in named(context.op, sample))


def _results(context: Context, sample: Any) -> list[Any]:
    """What a call of contiguous arrays gives."""
    found = context.call(context.subject.tensors(context.placed(sample)))
    return [context.subject.array(t) for t in tensors_in(found)]


def _judged(context: Context, sample: Any) -> list[Any]:
    """The same, held against the reference."""
    sample = context.placed(sample.map(np.array))
    found = context.call(context.subject.tensors(sample))
    asserted = context.asserted
    context.close(found, sample)
    context.asserted = asserted  # nothing lies in another way here
    return [context.subject.array(t) for t in tensors_in(found)]


def _as_plain(context: Context, held: Any, result: Any, wanted: list[Any]) -> None:
    """Assert the results of contiguous arrays; of others that choose otherwise, the reference's."""
    found = [context.subject.array(t) for t in tensors_in(result)]
    asserted = context.asserted
    if len(found) == len(wanted) and all(map(_near, found, wanted)):
        context.asserted += 1
    else:
        context.close(result, held)
    if all(a.size == 0 for a in found):
        context.asserted = asserted


def _near(a: Any, b: Any) -> bool:
    """Whether two results are the same, or rounded otherwise by a library with other code here."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.tobytes() == b.tobytes() or equal(a, b):
        return True
    if a.dtype.kind != "f":
        return False
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(a), np.abs(b))
        return bool(np.all((np.abs(a - b) <= UNITS * np.finfo(a.dtype).eps * size) | (a == b)))


def _rows(context: Context, small: list[Any]) -> Iterator[tuple[int, Ways]]:
    """Numbers of samples, and how their arrays lie."""
    counts = [len(arrays_of(s)) for s in small]
    if not counts or not max(counts):
        return
    if context.op.name in BY_MEMORY:
        pairs = context.op.name in OF_PAIRS
        ways: tuple[str, ...] = ("behind pairs",) if pairs else tuple(BEHIND)
    elif in_domain(context.op, "uniform", "stride0"):
        ways = (*KEEPING, *REPEATING)
    else:
        ways = KEEPING
    turn = itertools.count()
    for n in range(min(len(counts) * len(ways), max(ALIKE, len(ways)))):
        # The next round of the samples meets the ways one further on.
        way = ways[(n + n // len(counts)) % len(ways)]
        yield n % len(counts), (way,) * counts[n % len(counts)]
    ranks = {max(map(len, shapes_of(s)), default=0): i for i, s in enumerate(small)}
    for number, way in itertools.product(ranks.values(), ways):
        yield number, (way,) * counts[number]  # matrices and images lie in each way
    most = min(max(counts), 4)
    if most < 2:
        return
    rounds = max(1, ALONE // (most * len(ways)))
    for _, place, way in itertools.product(range(rounds), range(most), ways):
        fitting = [i for i, count in enumerate(counts) if count > place]
        number = fitting[next(turn) % len(fitting)]
        yield number, tuple(way if i == place else None for i in range(counts[number]))
    for n in range(APART):
        number = (n * 3 + 1) % len(counts)
        yield number, tuple(ways[(n + 5 * i) % len(ways)] for i in range(counts[number]))


def _laid(context: Context, sample: Any, ways: Ways) -> Any:
    """The sample with its arrays in these ways; what is no number of the case keeps its values."""
    places = iter(ways)

    def placed(array: Any) -> Any:
        way = next(places)
        if way is None:
            return array
        if way in REPEATING and array.dtype.name != context.case.dtype:
            free = context.op.name in REPEATABLE and array.dtype == np.int64
            way = way if free else "gaps"  # places and masks depend on each other
        return window(array, way)

    return sample.map(placed)
