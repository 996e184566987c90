"""Check 11, streams and distributions: what numbers are drawn, and in what order.

A distribution is held against its own by counts in cells of equal probability (chi-square), at the
ends, in the lowest bits and at a distance; a stream by what a second call, a second generator, a
second seed and a restored state give. Statistics fail beyond five standard deviations, by chance
once in three million.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import CoreDispatchError

from ..case import BACKEND, Case
from ..context import Context, NotRun, tensors_in
from ..subject import OpFacts, Subject
from . import check

__all__ = ["beyond"]

COUNT = 100_000
CELLS = 64
#: standard deviations that a statistic may lie off
SIGMAS = 5.0
#: how far apart elements are compared: neighbours, vector widths, blocks
DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


def _normal_cdf(x: Any) -> Any:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2.0)) for v in np.asarray(x).reshape(-1)])


def _empty(dtype: str = "float32", count: int = COUNT) -> Callable[[str], Any]:
    return lambda device: cd.empty(count, dtype=getattr(cd, dtype), device=device)


#: continuous distributions: name -> (draw for a device, distribution function)
CONTINUOUS: dict[str, tuple[Callable[[str], Any], Callable[[Any], Any]]] = {
    "rand": (lambda d: cd.rand(COUNT, device=d), lambda x: x),
    "rand-float64": (lambda d: cd.rand(COUNT, device=d, dtype=cd.float64), lambda x: x),
    "rand_like": (lambda d: cd.rand_like(_empty()(d)), lambda x: x),
    "uniform_": (lambda d: _empty()(d).uniform_(-1.0, 3.0), lambda x: (x + 1) / 4),
    "uniform_-float64": (lambda d: _empty("float64")(d).uniform_(-1.0, 3.0), lambda x: (x + 1) / 4),
    "randn": (lambda d: cd.randn(COUNT, device=d), _normal_cdf),
    "randn-float64": (lambda d: cd.randn(COUNT, device=d, dtype=cd.float64), _normal_cdf),
    "randn_like": (lambda d: cd.randn_like(_empty()(d)), _normal_cdf),
    "normal_": (lambda d: _empty()(d).normal_(2.0, 3.0), lambda x: _normal_cdf((x - 2) / 3)),
    "exponential_": (lambda d: _empty()(d).exponential_(2.0), lambda x: 1 - np.exp(-2 * x)),
    "log_normal_": (lambda d: _empty()(d).log_normal_(0.5, 0.7), lambda x: _log_normal(x)),
    "cauchy_": (
        lambda d: _empty()(d).cauchy_(1.0, 2.0),
        lambda x: 0.5 + np.arctan((x - 1) / 2) / math.pi,
    ),
}


def _log_normal(x: Any) -> Any:
    return _normal_cdf((np.log(x) - 0.5) / 0.7)


def _share(p: float, dtype: str) -> Callable[[str], Any]:
    return lambda d: cd.bernoulli(cd.full((COUNT,), p, device=d, dtype=getattr(cd, dtype)))


def _binomial(n: int, p: float) -> dict[int, float]:
    return {k: math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)}


#: discrete distributions: name -> (draw for a device, probability of each value)
DISCRETE: dict[str, tuple[Callable[[str], Any], dict[int, float]]] = {
    "randint": (
        lambda d: cd.randint(-3, 8, (COUNT,), device=d),
        dict.fromkeys(range(-3, 8), 1 / 11),
    ),
    "randint-int8": (
        lambda d: cd.randint(-128, 128, (COUNT,), device=d, dtype=cd.int8),
        dict.fromkeys(range(-128, 128), 1 / 256),
    ),
    "random_": (
        lambda d: _empty("int64")(d).random_(2, 13),
        dict.fromkeys(range(2, 13), 1 / 11),
    ),
    "randint_like": (
        lambda d: cd.randint_like(_empty("int64")(d), 10),
        dict.fromkeys(range(10), 1 / 10),
    ),
    "bernoulli": (_share(0.3, "float32"), {0: 0.7, 1: 0.3}),
    "bernoulli-float16": (_share(0.296875, "float16"), {0: 0.703125, 1: 0.296875}),
    "bernoulli-bfloat16": (_share(0.0703125, "bfloat16"), {0: 0.9296875, 1: 0.0703125}),
    "bernoulli_": (lambda d: _empty()(d).bernoulli_(0.2), {0: 0.8, 1: 0.2}),
    "dropout": (
        lambda d: (cd.nn.functional.dropout(cd.ones(COUNT, device=d), 0.3, True) != 0).float(),
        {0: 0.3, 1: 0.7},
    ),
    "dropout-float16": (
        lambda d: (
            cd.nn.functional.dropout(cd.ones(COUNT, device=d, dtype=cd.float16), 0.3, True) != 0
        ).float(),
        {0: 0.3, 1: 0.7},
    ),
    "multinomial": (
        lambda d: cd.multinomial(cd.tensor([1.0, 2.0, 0.0, 5.0], device=d), COUNT, True),
        {0: 0.125, 1: 0.25, 3: 0.625},
    ),
    "binomial": (
        lambda d: cd.binomial(cd.full((COUNT,), 6.0, device=d), cd.full((COUNT,), 0.3, device=d)),
        _binomial(6, 0.3),
    ),
    "poisson": (
        lambda d: cd.poisson(cd.full((COUNT,), 2.5, device=d)).clamp(max=9.0),
        {
            **{k: math.exp(-2.5) * 2.5**k / math.factorial(k) for k in range(9)},
            9: 1 - sum(math.exp(-2.5) * 2.5**k / math.factorial(k) for k in range(9)),
        },
    ),
    "geometric_": (
        lambda d: _empty()(d).geometric_(0.3).clamp(max=12.0),
        {**{k: 0.3 * 0.7 ** (k - 1) for k in range(1, 12)}, 12: 0.7**11},
    ),
}
WIDE = {"wide": (0, 3 << 61), "33-bits": (0, 1 << 33), "signed": (-(1 << 40) - 5, 1 << 41)}
GENERATORS = ("seeds", "independent", "order")


def _plan(subject: Subject, facts: OpFacts | None) -> Iterator[Case]:
    if facts is not None:
        op = facts.op
        drawing = op.random and op.samples is not None
        if drawing and "rng-state" not in subject.expectations.absent:
            dtype = "float32" if "float32" in facts.dtypes else facts.dtypes[0]
            if dtype in subject.dtypes:
                yield Case(11, op.name, dtype, variant="stream")
        return
    for name in (*CONTINUOUS, *DISCRETE):
        yield Case(11, BACKEND, variant=f"distribution+{name}")
    for name in WIDE:
        yield Case(11, BACKEND, variant=f"range+{name}")
    for name in ("float16", "bfloat16", "float32", "float64"):
        if name in subject.dtypes:
            yield Case(11, BACKEND, name, variant="uniform-steps")
    for name in ("4", "100"):
        yield Case(11, BACKEND, variant=f"permutations+{name}")
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
    """Assert that elements at a distance are not correlated."""
    centred = values - values.mean()
    power = float((centred * centred).mean())
    context.expect(power > 0, f"{what}: all numbers are the same")
    for distance in DISTANCES:
        first, second = centred[:-distance], centred[distance:]
        lag = float((first * second).mean()) / power * math.sqrt(first.size)
        context.expect(
            abs(lag) < SIGMAS, f"{what}: elements {distance} apart correlate, {lag:.1f} sigmas"
        )


def _drawn(context: Context, draw: Callable[[str], Any]) -> Any:
    cd.manual_seed(context.case.seed % 2**32 + context.fresh)
    try:
        return context.subject.array(draw(context.subject.device)).astype(np.float64)
    except AttributeError as error:
        raise NotRun(str(error)) from None


@check(11, plan=_plan, variant="distribution")
def distribution(context: Context) -> None:
    """Counts in cells of equal probability, the tails, and elements at a distance."""
    name = context.case.variant.partition("+")[2]
    if name in DISCRETE:
        draw, shares = DISCRETE[name]
        values = _drawn(context, draw)
        strange = set(np.unique(values).tolist()) - set(shares)
        context.expect(not strange, f"{name} drew {sorted(strange)[:3]}, which is impossible")
        _counts(context, [(values == v).sum() for v in shares], list(shares.values()), name)
        _apart(context, values, name)
        return
    draw, cdf = CONTINUOUS[name]
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


@check(11, plan=_plan, variant="range")
def wide_range(context: Context) -> None:
    """Integers of a range beyond 32 bits: the highest and the lowest bits."""
    low, high = WIDE[context.case.variant.partition("+")[2]]
    cd.manual_seed(context.case.seed % 2**32 + context.fresh)
    drawn = cd.randint(low, high, (COUNT,), device=context.subject.device)
    filled = cd.empty(COUNT, dtype=cd.int64, device=context.subject.device).random_(low, high)
    for what, tensor in (("randint", drawn), ("random_", filled)):
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
    wide = cd.empty(COUNT, dtype=dtype, device=device).uniform_(-1.0, 3.0)
    found = context.subject.array(wide).astype(np.float64)
    context.expect(
        found.min() >= -1 and found.max() < 3,
        f"uniform_(-1, 3) drew {found.min()} to {found.max()}",
    )


@check(11, plan=_plan, variant="permutations")
def permutations(context: Context) -> None:
    """Every permutation is as likely as any, and no element prefers a place."""
    size = int(context.case.variant.partition("+")[2])
    device = context.subject.device
    cd.manual_seed(context.case.seed % 2**32 + context.fresh)
    if size > 8:
        found = np.array(
            [context.subject.array(cd.randperm(size, device=device)) for _ in range(640)]
        )
        context.expect(bool((np.sort(found, 1) == np.arange(size)).all()), "no permutations")
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

        def draw(sample: Any = sample, generator: Any = generator) -> Any:
            tensors = context.subject.tensors(sample)
            if own:
                tensors = type(tensors)(*tensors.args, **{**tensors.kwargs, "generator": generator})
            found = tensors_in(context.call(tensors))
            return b"".join(context.subject.array(t).tobytes() for t in found)

        source = generator if own else cd.default_generator(context.subject.device)
        try:
            if not own:
                cd.manual_seed(21)
            first, second = draw(), draw()
            saved = source.get_state()
            third = draw()
        except CoreDispatchError as error:
            raise NotRun(f"no generator can be passed: {error}") from None
        source.set_state(saved)
        context.expect(draw() == third, "after set_state the call gives other numbers")
        # Whether anything is drawn at all, the restored state and another seed tell.
        source.manual_seed(22)
        if len(first) >= 32 and draw() != first:
            context.expect(first != second, "the second call repeats the first")
    if not context.asserted:
        raise NotRun("the operator has no sample")
