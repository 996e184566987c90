"""Check 11, where numbers come from: of the generator that is passed, whatever the parameters.

A kernel may choose its method by the parameters, and each method must draw from the generator of
the call, and from its place in the stream: not from another one of the same seed, nor from one
that it made of a part of the seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import default_generator
from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import Context, NotRun, tensors_in
from ..subject import OpMetadata, Subject
from . import check

#: how many times as large the numbers of an array become: small, middle and large amounts have
#: methods of their own
AMOUNTS = (1, 40, 3000)
#: samples, and calls of each from one generator
SAMPLES, CALLS = 5, 4
#: seeds that agree in 32 bits, in the digits of a float64, or in all bits but the last
ALIKE = (
    (5, 5 + (1 << 32)),
    (1 << 60, (1 << 60) + 1),
    (9, 9 + (1 << 63)),
    ((1 << 64) - 3, (1 << 64) - 4),
)
#: seeds that all draw other numbers where the numbers are many enough to tell
TOLD = range(100, 116)
#: of these, where amounts are large: a sampler may count them one by one
FEW = 4


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or not metadata.op.random or metadata.op.samples is None:
        return
    if "rng-state" in subject.expectations.absent:
        return
    if not any(p.name == "generator" for p in metadata.op.schema.params):
        return
    dtype = "float32" if "float32" in metadata.dtypes else metadata.dtypes[0]
    if dtype in subject.dtypes:
        yield Case(11, metadata.op.name, dtype, variant="generator")


def _calls(context: Context) -> Iterator[tuple[Any, bool]]:
    """The samples with small amounts in their arrays, and with large ones, which is said too."""
    for sample in context.samples(limit=SAMPLES):
        arrays: list[Any] = []
        sample.map(lambda a, arrays=arrays: arrays.append(a) or a)
        for place, factor in [(0, 1), *((i, f) for i in range(len(arrays)) for f in AMOUNTS[1:])]:
            if factor == 1:
                yield sample, False
            elif arrays[place].dtype.kind in "fiu" and arrays[place].size:
                chosen = arrays[place]
                larger = np.abs(chosen) * chosen.dtype.type(factor)
                changed = sample.map(
                    lambda a, c=chosen, large=larger: large if a is c else a  # type: ignore[misc]
                )
                yield changed, True


@check(11, plan=_plan, variant="generator")
def generator(context: Context) -> None:
    """A call draws from the generator it is given: all of its seed, and nobody else's stream."""
    for sample, large in _calls(context):
        sample = context.placed(sample)
        try:
            first = _drawn(context, sample, _seeded(context, 21), 1)
        except (CoreDispatchError, ValueError):
            continue  # amounts that the operator refuses
        _own_stream(context, sample, first, TOLD[:FEW] if large else TOLD)
    if not context.asserted:
        raise NotRun("no sample draws anything")


def _seeded(context: Context, seed: int) -> Any:
    return cd.Generator(context.subject.device).manual_seed(seed)


def _drawn(context: Context, sample: Any, source: Any, calls: int = CALLS) -> bytes:
    """What several calls draw, bit by bit."""
    found = []
    for _ in range(calls):
        given = context.subject.tensors(sample)
        given = type(given)(*given.args, **{**given.kwargs, "generator": source})
        results = tensors_in(context.call(given))
        found += [context.subject.array(t).tobytes() for t in results]
    return b"".join(found)


def _own_stream(context: Context, sample: Any, first: bytes, others: Sequence[int]) -> None:
    """Assert that generators of one seed draw the same, and of others not; and only from them."""
    shared = default_generator(context.subject.device)
    before = context.subject.array(shared.get_state()).tobytes()
    one, two = _seeded(context, 21), _seeded(context, 21)
    together = [_drawn(context, sample, g, 1) for g in (one, two, one, two)]
    context.expect(
        together[0] == together[1] == first and together[2] == together[3],
        "two generators of one seed draw different numbers",
    )
    state = context.subject.array(shared.get_state()).tobytes()
    context.expect(state == before, "the default generator moves though another one is passed")
    told = {_drawn(context, sample, _seeded(context, seed)) for seed in others}
    if len(told) < len(others) or len(first) * CALLS < 32:
        return  # too few numbers to tell seeds apart
    for seeds in ALIKE:
        found = {_drawn(context, sample, _seeded(context, seed)) for seed in seeds}
        context.expect(len(found) > 1, f"the seeds {seeds[0]} and {seeds[1]} draw the same")
