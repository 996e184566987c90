"""Check 11: random operators - seeds, generator state, and the first moments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd

from ..case import BACKEND, Case
from ..context import Context, NotRun, tensors_in
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from . import check
from .values import choose_dtypes

COUNT = 20_000
#: name -> (call with the device, mean, variance)
MOMENTS: dict[str, tuple[Any, float, float]] = {
    "rand": (lambda d: cd.rand(COUNT, device=d), 0.5, 1 / 12),
    "randn": (lambda d: cd.randn(COUNT, device=d), 0.0, 1.0),
    "randint": (lambda d: cd.randint(0, 10, (COUNT,), device=d), 4.5, 8.25),
    "normal_": (lambda d: cd.empty(COUNT, device=d).normal_(2.0, 3.0), 2.0, 9.0),
    "uniform_": (lambda d: cd.empty(COUNT, device=d).uniform_(-1.0, 3.0), 1.0, 16 / 12),
    "bernoulli": (lambda d: cd.bernoulli(cd.full((COUNT,), 0.3, device=d)), 0.3, 0.21),
    "exponential_": (lambda d: cd.empty(COUNT, device=d).exponential_(2.0), 0.5, 0.25),
    "dropout": (
        lambda d: cd.nn.functional.dropout(cd.ones(COUNT, device=d), 0.25, True),
        1.0,
        1 / 3,
    ),
}


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        for name in MOMENTS:
            yield Case(11, BACKEND, "float32", variant=f"moments+{name}")
        if "rng-state" not in subject.expectations.absent:
            yield Case(11, BACKEND, "float32", variant="state")
        return
    if not metadata.op.random or metadata.op.samples is None:
        return
    for dtype in choose_dtypes(metadata, ("float32", "int64"), 2):
        if dtype in subject.dtypes:
            yield Case(11, metadata.op.name, dtype, mandatory=dtype in MANDATORY_DTYPES)


@check(11, plan=_plan)
def seeded(context: Context) -> None:
    """The same seed gives the same numbers, another seed others; shapes and dtypes by the rules."""
    differs = 0
    drawn = 0
    for sample in context.samples():
        results = []
        for seed in (1, 1, 2):
            tensors = context.subject.tensors(sample)
            cd.manual_seed(seed)
            results.append(context.call(tensors))
        context.close(results[0], sample)
        context.same(results[0], results[1], "the same seed")
        arrays = [[context.subject.array(t) for t in tensors_in(r)] for r in results]
        drawn = max(drawn, sum(a.size for a in arrays[0]))
        differs += any(
            a.tobytes() != b.tobytes() for a, b in zip(arrays[0], arrays[2], strict=True)
        )
    # Ops with a training switch that is off draw nothing.
    switch = any(p.name == "training" and p.default is False for p in context.op.schema.params)
    context.expect(differs > 0 or drawn < 4 or switch, "another seed gives the same numbers")


@check(11, plan=_plan, variant="moments")
def moments(context: Context) -> None:
    """Mean and variance of 20,000 draws within five standard errors (variance: 10 %)."""
    name = context.case.variant.partition("+")[2]
    draw, mean, variance = MOMENTS[name]
    cd.manual_seed(context.case.seed % 2**32 + context.fresh)
    try:
        values = context.subject.array(draw(context.subject.device)).astype(np.float64)
    except AttributeError as error:
        raise NotRun(str(error)) from None
    context.expect(values.size == COUNT, f"{values.size} values, not {COUNT}")
    error = abs(values.mean() - mean) / np.sqrt(variance / COUNT)
    context.expect(error < 5, f"the mean is {values.mean():.4g}, expected {mean:.4g}")
    context.expect(
        abs(values.var() / variance - 1) < 0.1,
        f"the variance is {values.var():.4g}, expected {variance:.4g}",
    )
    lag = np.corrcoef(values[:-1], values[1:])[0, 1]
    context.expect(abs(lag) < 0.05, f"neighbours correlate: {lag:.3g}")


@check(11, plan=_plan, variant="state")
def state(context: Context) -> None:
    """A generator's state can be saved and restored, also in the middle of a stream."""
    device = context.subject.device
    generator = cd.Generator(device).manual_seed(11)
    cd.rand(7, device=device, generator=generator)
    saved = generator.get_state()
    first = cd.rand(9, device=device, generator=generator)
    second = cd.rand(9, device=device, generator=generator)
    generator.set_state(saved)
    context.same(cd.rand(9, device=device, generator=generator), first, "after set_state")
    context.expect(
        context.subject.array(first).tobytes() != context.subject.array(second).tobytes(),
        "two draws in a row are equal",
    )
