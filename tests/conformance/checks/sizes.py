"""Check 30: large work - long dimensions, block borders, many dimensions, a million elements."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np

from coredispatch.registry import TABLE

from ..case import Case
from ..context import Context, Failure, NotRun, has_values, snapshot, tensors_in
from ..counts import counted
from ..growth import (
    PROBE,
    Filling,
    Growth,
    bearable,
    composed,
    cost,
    growths,
    lengths,
    long_lists,
    needles,
    switched,
    takes,
)
from ..many_dims import with_dims
from ..reference import NoReference, Reference
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import templates
from . import check
from .drawn import BY_MEMORY
from .values import choose_dtypes, decomposes, in_domain

#: elements of all arrays of a call together, by what its bound costs; of a composite that is
#: served by the kernels of others, and of one whose reference factorizes
CHEAP, DEAR, SERVED, FACTORED = 150_000, 60_000, 6_000, 3_000
#: calls of an operator at the level training and at full
CALLS, MORE = 16, 60
#: calls with large numbers among the options
COUNTS = 6
#: calls with one long dimension that are made before the next dimension's turn
FIRST = 12
#: in double precision, which has few faults of its own
DOUBLE = ("float64", "complex128")
DOUBLE_CALLS = 6
#: and of a backend that compiles for each shape
COMPILED = 3
#: seconds of the processor that the calls of a case take before no further one is begun
PATIENCE = 0.4
#: the largest number of single precision
LARGEST = float(np.finfo(np.float32).max)
#: elements beyond which an elementwise result is judged where blocks and shares begin and end
MILLION = 1 << 20


def applies(metadata: OpMetadata | None) -> TypeGuard[OpMetadata]:
    """Whether an operator is asked for large work."""
    if metadata is None or metadata.op.samples is None or metadata.layouts or metadata.op.factory:
        return False
    return has_values(metadata.op) and metadata.op.name not in BY_MEMORY and not metadata.op.mutates


def dtypes_of_sizes(metadata: OpMetadata) -> list[str]:
    """The dtypes in which an operator is asked for large work of every kind."""
    wanted: tuple[str, ...] = ("float32",)
    if metadata.native:  # what many elements make is seen in double precision as well
        wanted = ("float32", "int64", "bool", *(() if metadata.elementwise else ("float64",)))
        if not any(d in metadata.dtypes for d in wanted):
            wanted = ("complex64", "complex128")
    return choose_dtypes(metadata, wanted)


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if not applies(metadata):
        return
    op = metadata.op
    for number, dtype in enumerate(dtypes_of_sizes(metadata)):
        if dtype not in subject.dtypes:
            continue
        mandatory = dtype in MANDATORY_DTYPES
        yield Case(30, op.name, dtype, mandatory=mandatory)
        if number == 0:
            yield Case(30, op.name, dtype, variant="full", mandatory=mandatory)
            if in_domain(op, "special", "contiguous"):  # not where a dimension has a meaning
                yield Case(30, op.name, dtype, variant="dims", mandatory=mandatory)
            if metadata.native and metadata.elementwise and not op.view:
                yield Case(30, op.name, dtype, variant="million", mandatory=mandatory)


def _budget(context: Context) -> int:
    metadata = context.metadata
    assert metadata is not None
    if decomposes(metadata.op):
        return FACTORED
    if not metadata.native:
        return SERVED
    whole = numpy_dtype(context.case.dtype).kind in "biu"
    return CHEAP if metadata.elementwise or whole else DEAR


def _thresholds(context: Context) -> tuple[int, ...]:
    """Sizes from which another kernel serves, or that the backend declares."""
    rows = TABLE.snapshot.registrations.get((context.op.name, context.subject.name, None), ())
    least = {kernel.least for kernel in rows if kernel.least > 1}
    return tuple(sorted(least | set(context.subject.expectations.sizes)))


def _odd_fits(context: Context, growth: Growth) -> bool:
    """Whether the growing array may hold any value."""
    array = growth.template.arrays[growth.axes[0][0]]
    request = growth.template.requests.get(id(array))
    if request is None or request.method not in ("__call__", "mask"):
        return False
    if context.op.values or request.low is not None or request.high is not None:
        return False
    return len(growth.axes) == 1 and in_domain(context.op, "offset_mean", "contiguous")


def judge(context: Context, sample: Any) -> None:
    context.placed(sample)
    tensors = context.subject.tensors(sample)
    before = snapshot(context, tensors)
    result = context.call(tensors)
    context.unchanged(before, tensors)
    try:
        context.close(result, sample)
    except Failure:
        if not _runs_away(context, sample):
            raise


def _runs_away(context: Context, sample: Any) -> bool:
    """Whether what grows from step to step leaves single precision, in the reference as well."""
    if context.metadata is None or context.metadata.elementwise:
        return False
    try:
        single, exact = Reference(context.op, sample).single(0)
    except Exception:
        return False
    pairs = [*zip(_several(single), _several(exact), strict=True)]
    if any(np.isfinite(e).all() and np.abs(e).max(initial=0) > LARGEST for _, e in pairs):
        return True
    return any(np.isfinite(e).all() and not np.isfinite(s).all() for s, e in pairs)


def _calls(context: Context, most: int) -> Iterator[Any]:
    """The large calls of a case, in a fixed order: each dimension long, then block borders."""
    dtype = numpy_dtype(context.case.dtype)
    assert context.metadata is not None
    found = growths(context, dtype, 1000 if context.metadata.native else 2)
    budget = _budget(context) * (6 if most == MORE else 1)
    seed = (context.case.seed + context.fresh) % 2**32
    many = "biased" if dtype.kind == "b" else "uniform"  # more than 65,536 of them are true
    plain = Filling(context, dtype=dtype, seed=seed, distribution=many)
    layout = "transposed" if in_domain(context.op, "uniform", "transposed") else "contiguous"
    other = Filling(context, dtype=dtype, seed=seed + 1, layout=layout)
    cut = Filling(context, dtype=dtype, seed=seed + 2, layout="rows")
    # Far from zero, where a spread that is got from squares cancels.
    cancels = dtype.kind in "fV" and _sums(context) and not context.op.values
    cancels = cancels and in_domain(context.op, "offset_mean", "contiguous")
    far = Filling(context, dtype=dtype, seed=seed, distribution="offset_mean") if cancels else None
    double = context.case.dtype in DOUBLE
    transforms = context.op.tolerance is not None and context.op.tolerance.mixed
    thresholds = _thresholds(context)
    reduced: list[tuple[Growth, list[int]]] = []
    later: list[tuple[Growth, int, Any]] = []
    if context.op.lists:
        yield from itertools.islice(long_lists(context, context.samples()), 6)
    for i, growth in enumerate(found):
        sizes = lengths(seed + i, growth.longest(budget))
        if sizes and not context.metadata.elementwise:
            least = bearable(context, growth, sizes[0], plain)
            sizes = lengths(seed + i, least) if least < sizes[0] else sizes
        if not sizes:
            continue
        yield growth.sample(context, sizes[0], plain)
        if transforms and i < 2:
            yield from (growth.sample(context, n, plain) for n in composed(sizes[0]))
        if i == 0 and context.metadata.native:
            yield from switched(context, growth, sizes[0], plain)
            if far is not None:
                yield growth.sample(context, sizes[0], far)
            if not double:
                yield from itertools.islice(_counts(context, dtype), COUNTS)
        if growth.reduced or max(map(len, growth.template.shapes)) == 1:
            if len(reduced) < 2:  # of one dimension and of two: what a reduction is asked first
                yield from hidden(context, growth, sizes, plain)
            reduced.append((growth, sizes))
        later += [(growth, n, (other, cut)[(i + j) % 2]) for j, n in enumerate(sizes[1:])]
        if i == 0:
            exact = [round(t / growth.share) for t in thresholds]
            around = lengths(0, growth.longest(budget), tuple(exact))[2:]
            later = [*((growth, n, plain) for n in around), *later]
    for growth, sizes in reduced[2:]:
        yield from hidden(context, growth, sizes, plain)
    for growth, n, make in later:
        yield growth.sample(context, n, make)


def _counts(context: Context, dtype: Any) -> Iterator[Any]:
    """Calls in which an option that counts something is large."""
    budget = _budget(context)

    def bearable_one(sample: Any) -> bool:
        return cost(context, sample) < budget and takes(context, sample)

    found = templates(context.op, lambda kind: context.make(kind=kind, dtype=dtype))
    return counted(context.op, found, bearable_one)


def hidden(context: Context, growth: Growth, sizes: list[int], make: Filling) -> Iterator[Any]:
    """Calls in which one element of each row, behind a border, decides."""
    if not _odd_fits(context, growth) or not _sums(context):
        return
    shape = growth.template.shapes[growth.axes[0][0]]
    rows = math.prod(shape) // growth.old
    kinds = range(0, 4, min(rows, 4))
    tried = [(0, sizes[0]), (1, sizes[0]), *((kind, sizes[-1]) for kind in kinds)]
    for kind, size in tried:
        sample = growth.sample(context, size, make)
        if sample is not None:
            yield needles(sample, growth, size, kind, context.case.seed)


def _sums(context: Context) -> bool:
    """Whether elements of the result depend on many of the inputs'."""
    assert context.metadata is not None
    tolerance = context.op.tolerance
    return tolerance is None or tolerance.kind != "ulp"


def _run(context: Context, most: int) -> None:
    spent, done, largest = 0.0, 0, 0
    if context.subject.expectations.policies.compiles:
        most = min(most, COMPILED)
    for sample in _calls(context, most):
        if sample is None or cost(context, sample) > 8 * _budget(context):
            continue
        start = time.process_time()
        judge(context, sample)
        spent += time.process_time() - start
        done += 1
        sizes: list[int] = []
        sample.map(lambda a, sizes=sizes: sizes.append(a.size) or a)
        largest = max(largest, *sizes)
        if done >= most or spent > PATIENCE * (10 if most == MORE else 1):
            break
    if not done:
        raise NotRun("no dimension of the operator's samples may be long")
    context.found |= {"calls": done, "elements": largest}


@check(30, plan=_plan)
def sizes(context: Context) -> None:
    """One dimension at a time becomes long, and one element hides behind the border of a block."""
    assert context.metadata is not None
    if not context.metadata.native:
        _run(context, 1)
        return
    several = DOUBLE_CALLS if context.case.dtype in DOUBLE else CALLS
    found = growths(context, numpy_dtype(context.case.dtype))
    each = sum(growth.pooled is not None for growth in found)  # one dimension, two and three
    _run(context, max(several, FIRST + each) if each else several)


@check(30, plan=_plan, variant="full")
def more_sizes(context: Context) -> None:
    """The same with more lengths and six times the elements."""
    _run(context, MORE)


@check(30, plan=_plan, variant="dims")
def dims(context: Context) -> None:
    """Five and eight dimensions, as they come and in another order in memory."""
    dtype = numpy_dtype(context.case.dtype)
    found = templates(context.op, lambda kind: context.make(kind=kind, dtype=dtype))
    found.sort(key=lambda t: -sum(math.prod(shape) for shape in t.shapes))
    makes = [Filling(context, dtype=dtype)]
    if in_domain(context.op, "uniform", "transposed"):
        makes.append(Filling(context, dtype=dtype, layout="transposed"))
    done = 0
    ways = [*itertools.product(makes, (5, 8), (False,)), (makes[0], 5, True)]
    for make, ndim, front in ways:
        judged = tried = 0
        for template in found:
            sample = with_dims(context, template, ndim, make, front=front)
            tried += 1
            if sample is not None:
                judge(context, sample)
                judged += 1
            if judged >= 2 or tried >= 6:
                break
        done += judged
    if not done:
        raise NotRun("the operator takes no more dimensions than its samples have")


@check(30, plan=_plan, variant="million")
def million(context: Context) -> None:
    """A million elements, judged where vectors, blocks and shares of threads begin and end."""
    dtype = numpy_dtype(context.case.dtype)
    make = Filling(context, dtype=dtype)
    size = MILLION + 2 * (context.case.seed % 31) + 1
    for growth in growths(context, dtype):
        shapes = growth.template.shapes
        if any(len(shape) != 1 for shape in shapes) or len(growth.axes) != len(shapes):
            continue
        probe = growth.sample(context, PROBE, make)
        if probe is None or not pointwise(context, probe):
            continue
        sample = growth.sample(context, size, make)
        tensors = context.subject.tensors(context.placed(sample))
        outputs = tensors_in(context.call(tensors))
        if any(tuple(t.shape) != (size,) for t in outputs):
            continue
        places = _places(size, context.case.seed)
        part = sample.map(lambda a, places=places: np.ascontiguousarray(a[places]))
        context.sample = part
        results = [context.subject.array(t)[places] for t in outputs]
        context.close([context.subject.tensor(r) for r in results], part)
        context.found["elements"] = size
        return
    raise NotRun("no sample is of one dimension alone, with results as long")


def pointwise(context: Context, sample: Any, count: int = PROBE) -> bool:
    """Whether the ``count`` elements of the result follow from those at the same place."""
    order = np.random.default_rng(1).permutation(count)
    try:
        plain = Reference(context.op, sample)()
        mixed = Reference(context.op, sample.map(lambda a: a[order]))()
    except NoReference:
        return False
    pairs = zip(_several(plain), _several(mixed), strict=True)
    return all(
        p.shape == (count,) and np.array_equal(p[order], m, equal_nan=True) for p, m in pairs
    )


def _several(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [np.asarray(result)]


def _places(size: int, seed: int) -> Any:
    """Where to look in a long vector: its ends, both sides of borders, and at random."""
    rng = np.random.default_rng(seed)
    near = np.arange(-20, 20)
    borders = [b * k for b in (1024, 4096, 65536) for k in (1, 2, 3, size // b - 1, size // b)]
    borders += [size * k // n for n in (2, 3, 4, 8, 16) for k in range(1, n)]
    places = [np.arange(300), np.arange(size - 300, size), rng.integers(0, size, 4000)]
    places += [b + near for b in borders]
    found = np.unique(np.concatenate(places))
    return found[(found >= 0) & (found < size)]
