"""Check 11, streams and distributions: what numbers are drawn, and in what order.

A distribution is held against its own by counts in cells of equal probability (chi-square), at the
ends, in the lowest bits and at a distance; a stream by what a second call, a second generator, a
second seed and a restored state give. Statistics fail beyond five standard deviations, by chance
once in three million.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import default_generator
from coredispatch.registry import CoreDispatchError

from ..case import BACKEND, Case
from ..context import Context, NotRun, tensors_in
from ..draws import CONTINUOUS, DISCRETE, NARROW, SELDOM, Draw
from ..process_state import global_generators
from ..subject import DTYPES, OpMetadata, Subject
from . import check

__all__ = ["beyond"]

COUNT = 100_000
CELLS = 64
#: standard deviations that a statistic may lie off
SIGMAS = 5.0
#: and one of tens of thousands of them
MANY_SIGMAS = 7.0
#: a shape of several dimensions that no vector's width divides
PLACES = (3, 7, 53)


WIDE = {
    "wide": (0, 3 << 61),
    "32-bits": (0, 3 << 30),  # of which 32 random bits hold a part twice
    "33-bits": (0, 1 << 33),
    "signed": (-(1 << 40) - 5, 1 << 41),
    "all": (-(1 << 63), (1 << 63) - 1),  # wider than the type's largest number
}
#: numbers of elements whose orders are counted
PERMUTED = ("4", "16", "100", "1000", "70001")
GENERATORS = ("seeds", "independent", "order")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is not None:
        op = metadata.op
        drawing = op.random and op.samples is not None
        if drawing and "rng-state" not in subject.expectations.absent:
            dtype = "float32" if "float32" in metadata.dtypes else metadata.dtypes[0]
            if dtype in subject.dtypes:
                yield Case(11, op.name, dtype, variant="stream")
        for name in PERMUTED if op.name == "randperm" else ():
            yield Case(11, op.name, variant=f"permutations+{name}")
        return
    for name in (*CONTINUOUS, *DISCRETE, *NARROW, *SELDOM):
        dtype = name.partition("-")[2]
        if dtype in DTYPES and dtype not in subject.dtypes:
            continue
        yield Case(11, BACKEND, variant=f"distribution+{name}")
        if name not in (*NARROW, *SELDOM):  # where two numbers agree by chance
            yield Case(11, BACKEND, variant=f"places+{name}")
    for name in WIDE:
        yield Case(11, BACKEND, variant=f"range+{name}")
    for name in ("float16", "bfloat16", "float32", "float64"):
        if name in subject.dtypes:
            yield Case(11, BACKEND, name, variant="uniform-steps")
    for name in GENERATORS:
        yield Case(11, BACKEND, variant=f"generators+{name}")


def beyond(chi: float, freedom: int) -> float:
    """How many standard deviations a chi-square statistic lies off (Wilson and Hilferty, 1931)."""
    spread = 2.0 / (9.0 * freedom)
    return float(((chi / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def _counts(context: Context, counts: Any, shares: Any, what: str) -> None:
    """Assert that counts follow their probabilities: not too far from them, nor too near."""
    counts, wanted = np.asarray(counts, np.float64), np.asarray(shares) * np.sum(counts)
    chi = float(((counts - wanted) ** 2 / wanted).sum())
    off = beyond(chi, len(counts) - 1)
    if len(counts) == 2:  # one count says it all, and may be exact by chance
        off = (chi**0.5) if chi else 0.0
    context.expect(
        abs(off) < SIGMAS, f"{what}: chi-square {chi:.4g} of {len(counts)} cells, {off:.1f} sigmas"
    )


def _apart(context: Context, values: Any, what: str) -> None:
    """Assert that elements are not correlated at any distance: no period, no pairs.

    All distances at once, by the Fourier transform of the padded numbers (Wiener and Khinchin);
    those that leave less than a quarter of the pairs say little.
    """
    centred = values - values.mean()
    power = float((centred * centred).mean())
    context.expect(power > 0, f"{what}: all numbers are the same")
    size = centred.size
    spectrum = np.fft.rfft(centred, 1 << (2 * size - 1).bit_length())
    products = np.fft.irfft(np.abs(spectrum) ** 2)[1 : size * 3 // 4]
    pairs = size - np.arange(1, products.size + 1)
    lags = products / power / np.sqrt(pairs)
    worst = int(np.abs(lags).argmax())
    for at, most in ((0, SIGMAS), (worst, MANY_SIGMAS)):
        context.expect(
            abs(lags[at]) < most,
            f"{what}: elements {at + 1} apart correlate, {lags[at]:.1f} sigmas",
        )


def _drawn(context: Context, draw: Draw, shape: tuple[int, ...] = (COUNT,)) -> Any:
    cd.manual_seed(context.case.seed % 2**32 + context.fresh)
    return _numbers(context, draw, shape)


def _numbers(context: Context, draw: Draw, shape: tuple[int, ...]) -> Any:
    try:
        return context.subject.array(draw(context.subject.device, shape)).astype(np.float64)
    except AttributeError as error:
        raise NotRun(str(error)) from None


@check(11, plan=_plan, variant="places")
def places(context: Context) -> None:
    """Every place of a tensor of several dimensions is drawn, at every call, for itself.

    Two places hold the same number as often as two draws agree: neighbours along each dimension
    within a call, and the same place in two calls one after the other.
    """
    name = context.case.variant.partition("+")[2]
    draw, shares = DISCRETE[name] if name in DISCRETE else CONTINUOUS[name]
    odds = [*shares.values()] if isinstance(shares, dict) else []
    agree = sum(p * p for p in odds)
    common = sum(p**3 for p in odds) - agree**2  # covariance of two pairs that share a number
    least = max(odds, default=1e-6)
    # As many draws as make it impossible that one place always holds the same.
    count = max(12, math.ceil(math.log(1e-13) / math.log(least)))
    cd.manual_seed(context.case.seed % 2**32 + context.fresh)
    found = np.stack([_numbers(context, draw, PLACES) for _ in range(count)])
    context.expect(found.shape[1:] == PLACES, f"{name} gives shape {found.shape[1:]}")
    still = (found == found[:1]).all(0)
    context.expect(
        not still.any(),
        f"{name} draws nothing at {np.argwhere(still)[:1].tolist()} of {PLACES}",
    )
    columns = np.unique(found.reshape(count, -1), axis=1).shape[1]
    context.expect(
        columns == still.size,
        f"{name}: {still.size - columns} of {still.size} places always hold what another one does",
    )
    dims = ("in calls one after the other", *(f"along dimension {d}" for d in range(len(PLACES))))
    for axis, where in enumerate(dims):
        lines = np.moveaxis(found, axis, 0)
        first, others = lines[:1], lines[1:]
        size, own = others.size, agree * (1 - agree)
        for same, spread, what in (
            (others == lines[:-1], (own + 2 * common) / size, "neighbours"),
            (others == first, (own + common) / size + common / first.size, "the first and others"),
        ):
            most = agree + SIGMAS * (math.sqrt(spread) + 1e-4)
            context.expect(
                same.mean() < most,
                f"{name}: {what} {where} are the same in {same.mean():.2%}, not {agree:.2%}",
            )


@check(11, plan=_plan, variant="distribution")
def distribution(context: Context) -> None:
    """Counts in cells of equal probability, the tails, and elements at a distance."""
    name = context.case.variant.partition("+")[2]
    if name in DISCRETE or name in SELDOM:
        draw, shares = {**DISCRETE, **SELDOM}[name]
        values = _drawn(context, draw)
        strange = set(np.unique(values).tolist()) - set(shares)
        context.expect(not strange, f"{name} drew {sorted(strange)[:3]}, which is impossible")
        _counts(context, [(values == v).sum() for v in shares], list(shares.values()), name)
        if name not in SELDOM:  # the few that are unlike the others are no normal numbers
            _apart(context, values, name)
        return
    draw, cdf = {**CONTINUOUS, **NARROW}[name]
    values = _drawn(context, draw)
    share = np.asarray(cdf(values))
    inside = bool(np.isfinite(values).all() and (share >= 0).all() and (share <= 1).all())
    context.expect(inside, f"{name} drew numbers that are impossible")
    cells = np.bincount(np.minimum((share * CELLS).astype(int), CELLS - 1), minlength=CELLS)
    _counts(context, cells, np.full(CELLS, 1 / CELLS), name)
    tail = min(1e-3, 1 / CELLS)
    for where, outer in (("lower", share < tail), ("upper", share > 1 - tail)):
        _counts(context, [outer.sum(), (~outer).sum()], [tail, 1 - tail], f"{name}, {where} tail")
    _apart(context, share, name)
    if name.endswith("-float64"):
        single = float((values == values.astype(np.float32)).mean())
        context.expect(single < 0.1, f"{name}: {single:.0%} of the numbers have single precision")


@check(11, plan=_plan, variant="range")
def wide_range(context: Context) -> None:
    """Integers of a range of 32 bits and beyond: the highest and the lowest bits."""
    low, high = WIDE[context.case.variant.partition("+")[2]]
    cd.manual_seed(context.case.seed % 2**32 + context.fresh)
    drawn = cd.randint(low, high, (COUNT,), device=context.subject.device)
    filled = cd.empty(COUNT, dtype=cd.int64, device=context.subject.device).random_(low, high)
    own = cd.ops.random_integers((COUNT,), low, high, device=context.subject.device)
    for what, tensor in (("randint", drawn), ("random_", filled), ("random_integers", own)):
        values = context.subject.array(tensor)
        context.expect(values.min() >= low and values.max() < high, f"{what} left its range")
        offset = values.astype(np.float64) - low
        cells = np.minimum((offset / (high - low) * CELLS).astype(int), CELLS - 1)
        even = np.full(CELLS, 1 / CELLS)
        _counts(context, np.bincount(cells, minlength=CELLS), even, f"{what}, highest bits")
        _counts(context, np.bincount(values % CELLS, minlength=CELLS), even, f"{what}, lowest bits")


@check(11, plan=_plan, variant="uniform-steps")
def uniform_steps(context: Context) -> None:
    """Uniform numbers have the bits of their dtype, and stay below their upper end."""
    dtype = getattr(cd, context.case.dtype)
    device = context.subject.device
    cd.manual_seed(context.case.seed % 2**32 + context.fresh)
    ways = {
        "rand": lambda: cd.rand(COUNT, dtype=dtype, device=device),
        "rand_like": lambda: cd.rand_like(cd.empty(COUNT, dtype=dtype, device=device)),
        "uniform_": lambda: cd.empty(COUNT, dtype=dtype, device=device).uniform_(0.0, 1.0),
    }
    for what, draw in ways.items():
        values = context.subject.array(draw()).astype(np.float64)
        context.expect(values.min() >= 0 and values.max() < 1, f"{what} drew its upper end")
        # As many as the dtype's numbers in [1/2, 1): 2**10, 2**7, 2**23, 2**52.
        bits = {"float16": 10, "bfloat16": 7}.get(context.case.dtype)
        if bits is not None:
            found = len(np.unique(values))
            least = 0.6 * 2**bits
            context.expect(found >= least, f"{what} drew {found} different numbers of {2**bits}")
            continue
        # Half a bit less than the dtype's: some draw one bit fewer.
        lowest = 2.0**23 if context.case.dtype == "float32" else 2.0**51
        even = np.full(CELLS, 1 / CELLS)
        cells = (values * lowest).astype(np.int64) % CELLS
        _counts(context, np.bincount(cells, minlength=CELLS), even, f"{what}, lowest bits")
    if context.case.dtype in ("float32", "float64"):
        wide = cd.empty(COUNT, dtype=dtype, device=device).uniform_(0.0, 1000.0)
        found = len(np.unique(context.subject.array(wide)))
        context.expect(
            found > 0.9 * COUNT,
            f"uniform_(0, 1000) drew {found} different numbers of {COUNT}: bits are lost",
        )
    # Far from 0 a sum rounds up to the end.
    for low, high in ((-1.0, 3.0), (96.0, 96.5), (-3.0, -2.0)):
        wide = cd.empty(COUNT, dtype=dtype, device=device).uniform_(low, high)
        found = context.subject.array(wide).astype(np.float64)
        context.expect(
            found.min() >= low and found.max() < high,
            f"uniform_({low}, {high}) drew {found.min()} to {found.max()}",
        )


@check(11, plan=_plan, variant="permutations")
def permutations(context: Context) -> None:
    """Every permutation is as likely as any, and no element prefers a place."""
    size = int(context.case.variant.partition("+")[2])
    device = context.subject.device
    cd.manual_seed(context.case.seed % 2**32 + context.fresh)
    if size > 1000:
        order = context.subject.array(cd.randperm(size, device=device))
        whole = np.array_equal(np.sort(order), np.arange(size))
        context.expect(whole, f"randperm({size}) is no permutation")
        _apart(context, order.astype(np.float64), f"randperm({size})")
        _rises(context, order[None])
        return
    if size > 8:
        count = 8000 if size < 50 else 640  # of few elements, few have equal keys
        found = np.array(
            [context.subject.array(cd.randperm(size, device=device)) for _ in range(count)]
        )
        context.expect(bool((np.sort(found, 1) == np.arange(size)).all()), "no permutations")
        _rises(context, found)
        for what, places in (
            ("the first element's place", found.argmin(1)),
            ("the last element's place", found.argmax(1)),
            ("what comes first", found[:, 0]),
            ("what comes last", found[:, -1]),
        ):
            cells = np.bincount(places * 8 // size, minlength=8)
            edges = np.diff([math.ceil(k * size / 8) for k in range(9)]) / size
            _counts(context, cells, edges, what)
        return
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(2400):
        order = tuple(int(i) for i in context.subject.array(cd.randperm(size, device=device)))
        seen[order] = seen.get(order, 0) + 1
    every = math.factorial(size)
    context.expect(len(seen) == every, f"{len(seen)} of {every} permutations of {size} are drawn")
    _counts(context, list(seen.values()), np.full(every, 1 / every), f"permutations of {size}")


def _rises(context: Context, orders: Any) -> None:
    """Assert that an element is as often followed by a larger one as by a smaller one.

    Random keys that are sorted leave those of one key in their order: short keys show so. The
    number of rises of a permutation has the variance (n + 1) / 12.
    """
    count, size = orders.shape
    rises = int((orders[:, :-1] < orders[:, 1:]).sum())
    off = (rises - count * (size - 1) / 2) / math.sqrt(count * (size + 1) / 12)
    context.expect(
        abs(off) < SIGMAS, f"randperm({size}): {rises} elements rise, {off:.1f} sigmas off"
    )


# ---- generators and seeds -----------------------------------------------------------------------


@check(11, plan=_plan, variant="generators")
def generators(context: Context) -> None:
    """All 64 bits of a seed count, generators do not meet, and calls take the stream in order."""
    {"seeds": _seeds, "independent": _independent, "order": _order}[
        context.case.variant.partition("+")[2]
    ](context)


def _from_seed(context: Context, seed: int, count: int = 16) -> Any:
    generator = cd.Generator(context.subject.device).manual_seed(seed)
    return context.subject.array(cd.rand(count, device=context.subject.device, generator=generator))


def _seeds(context: Context) -> None:
    for base in (0, 0x9E3779B97F4A7C15, (1 << 63) - 1):
        seen = {_from_seed(context, base).tobytes(): base}
        for bit in range(64):
            seed = base ^ (1 << bit)
            numbers = _from_seed(context, seed).tobytes()
            context.expect(
                numbers not in seen,
                f"seeds {base} and {seed} differ in bit {bit}, and draw the same",
            )
            seen[numbers] = seed
    again = _from_seed(context, -1), _from_seed(context, (1 << 64) - 1)
    context.expect(np.array_equal(*again), "seed -1 is not 2**64 - 1")
    count = 4096
    for seed in (1, 2, 1 << 32):
        pair = np.stack([_from_seed(context, s, count) for s in (seed, seed + 1)])
        lag = float(np.corrcoef(pair)[0, 1]) * math.sqrt(count)
        context.expect(abs(lag) < SIGMAS, f"the streams of seeds {seed} and {seed + 1} correlate")


def _independent(context: Context) -> None:
    device = context.subject.device
    one, two = (cd.Generator(device).manual_seed(seed) for seed in (5, 6))
    alone = [_from_seed(context, seed, 24) for seed in (5, 6)]
    both: tuple[list[Any], list[Any]] = ([], [])
    cd.manual_seed(9)
    default = context.subject.array(cd.rand(8, device=device))
    default_next = context.subject.array(cd.rand(8, device=device))
    cd.manual_seed(9)
    first = context.subject.array(cd.rand(8, device=device))
    for _ in range(3):
        for generator, found in zip((one, two), both, strict=True):
            found.append(context.subject.array(cd.rand(8, device=device, generator=generator)))
    then = context.subject.array(cd.rand(8, device=device))
    context.expect(np.array_equal(default, first), "the same seed gives other numbers")
    context.expect(
        np.array_equal(default_next, then), "a generator of one's own moved the default generator"
    )
    for found, wanted in zip(both, alone, strict=True):
        context.expect(
            np.array_equal(found[0], wanted[:8]), "generators that take turns disturb each other"
        )
        distinct = len({f.tobytes() for f in found})
        context.expect(distinct == 3, "a generator repeats its numbers")


def _order(context: Context) -> None:
    device = context.subject.device
    for draw in (
        lambda g: cd.rand(3, device=device, generator=g),
        lambda g: cd.randn(3, device=device, generator=g),
        lambda g: cd.randint(0, 1000, (3,), device=device, generator=g),
        lambda g: cd.empty(3, device=device).uniform_(generator=g),
        lambda g: cd.rand(3, device=device, generator=g, dtype=cd.float64),
        lambda g: cd.randperm(40, device=device, generator=g),
    ):
        generator = cd.Generator(device).manual_seed(3)
        seen = [context.subject.array(draw(generator)).tobytes() for _ in range(64)]
        context.expect(len(set(seen)) == 64, "calls in a row repeat their numbers")
        # Restored after every odd number of draws, of every width.
        for split in (1, 2, 3, 5):
            generator.manual_seed(3)
            for _ in range(split):
                draw(generator)
            saved = generator.get_state()
            rest = [context.subject.array(draw(generator)).tobytes() for _ in range(3)]
            context.expect(rest == seen[split : split + 3], "the stream depends on get_state()")
            generator.set_state(saved)
            again = [context.subject.array(draw(generator)).tobytes() for _ in range(3)]
            context.expect(again == rest, f"after {split} draws a restored state goes on elsewhere")
            other = cd.Generator(device).manual_seed(77)
            other.set_state(saved)
            moved = [context.subject.array(draw(other)).tobytes() for _ in range(3)]
            context.expect(moved == rest, "a state does not carry over to another generator")


@check(11, plan=_plan, variant="stream")
def stream(context: Context) -> None:
    """Each call goes on where the one before stopped; a restored state repeats it."""
    names = [p.name for p in context.op.schema.params]
    own = "generator" in names
    for sample in context.samples():
        generator = cd.Generator(context.subject.device).manual_seed(21)
        untouched = global_generators()

        def draw(sample: Any = sample, generator: Any = generator) -> Any:
            tensors = context.subject.tensors(sample)
            if own:
                tensors = type(tensors)(*tensors.args, **{**tensors.kwargs, "generator": generator})
            found = tensors_in(context.call(tensors))
            return b"".join(context.subject.array(t).tobytes() for t in found)

        source = generator if own else default_generator(context.subject.device)
        try:
            if not own:
                cd.manual_seed(21)
            first, *others = [draw() for _ in range(6)]
            saved = source.get_state()
            third = draw()
        except CoreDispatchError as error:
            raise NotRun(f"no generator can be passed: {error}") from None
        source.set_state(saved)
        context.expect(draw() == third, "after set_state the call gives other numbers")
        moved = untouched.differences(global_generators())
        context.expect(not moved, f"a draw moves {', '.join(moved)}")
        # Whether anything is drawn at all, the restored state and another seed tell.
        source.manual_seed(22)
        if len(first) >= 32 and draw() != first:
            calls = [first, *others]
            repeats = sum(a == b for a, b in itertools.pairwise(calls))
            # Where few results are likely, chance repeats some, and those of other seeds as well.
            if repeats and len({*b"".join(calls)}) < 16:
                seeded = []
                for seed in range(23, 47):
                    source.manual_seed(seed)
                    seeded.append(draw())
                usual = sum(a == b for a, b in itertools.pairwise(seeded)) / (len(seeded) - 1)
                repeats = 0 if usual > 0.1 else max(0, repeats - 2)
            context.expect(not repeats, "a call repeats the one before")
    _refusals(context, own)
    if not context.asserted:
        raise NotRun("the operator has no sample")


def _refusals(context: Context, own: bool) -> None:
    """A refused call draws nothing."""
    device = context.subject.device
    for sample, *_ in context.op.errors(context.make()) if context.op.errors else ():
        generator = cd.Generator(device).manual_seed(21)
        given = context.placed(sample)
        if own:
            given.kwargs.setdefault("generator", generator)
        source = given.kwargs["generator"] if own else default_generator(device)
        if not isinstance(source, cd.Generator):
            continue
        saved = context.subject.array(source.get_state()).tobytes()
        try:
            tensors = context.subject.tensors(given)
            context.op(*tensors.args, **tensors.kwargs)
        except Exception:  # which, is the business of check 14
            now = context.subject.array(source.get_state()).tobytes()
            context.expect(now == saved, "a call that is refused draws numbers")
