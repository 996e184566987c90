"""Checks 18, 22 and 28: streams, arrays beyond 2^31 elements, and timings.

18 and 22 depend on the hardware and are listed as ``not_run`` elsewhere; 28 is reported and not
judged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import coredispatch as cd
from coredispatch.registry import Backend

from ..case import BACKEND, Case
from ..context import Context, NotRun, elements
from ..subject import OpMetadata, Subject
from . import check
from .values import choose_dtypes

LARGE = 2**31 + 16


def _later(subject: Subject) -> bool:
    """Whether the backend declares that its kernels may return before their results are there."""
    backend = subject.backend
    waits = type(backend).synchronize is not Backend.synchronize
    return waits or hasattr(backend, "stream")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        for variant in ("synchronize", "order"):
            yield Case(18, BACKEND, variant=variant, mandatory=_later(subject))
        for name in ("sum", "index", "add"):
            yield Case(22, BACKEND, "int8", variant=name, mandatory=False)
        return
    if metadata.op.samples is None or metadata.op.mutates:
        return
    for dtype in choose_dtypes(metadata, ("float32",), 1):
        if dtype in subject.dtypes:
            yield Case(28, metadata.op.name, dtype, mandatory=False)


@check(18, plan=_plan)
def streams(context: Context) -> None:
    """Work queued on the device is complete after ``synchronize`` and read in order."""
    if not _later(context.subject):
        raise NotRun(
            f"backend {context.subject.name!r} declares that every call waits for its result. One "
            "that computes later has a method synchronize(index) of its own, see 'A device that "
            "computes later' in docs/write_a_backend.md"
        )
    device = context.subject.device
    x = cd.zeros(1 << 18, device=device)
    for _ in range(50):
        x.add_(1.0)
    if context.case.variant == "synchronize":
        context.subject.synchronize()
    context.expect(x.sum().item() == 50.0 * (1 << 18), "a read overtook queued writes")


@check(22, plan=_plan)
def large(context: Context) -> None:
    """More than 2^31 elements: indices must not wrap (opt-in: COREDISPATCH_LARGE=1)."""
    if os.environ.get("COREDISPATCH_LARGE") != "1":
        raise NotRun("opt-in: set COREDISPATCH_LARGE=1 (needs about 8 GiB)")
    x = cd.ones(LARGE, dtype=cd.int8, device=context.subject.device)
    x[-1] = 5
    if context.case.variant == "sum":
        context.expect(x.sum().item() == LARGE + 4, "the sum wraps")
    elif context.case.variant == "index":
        context.expect(x[LARGE - 1].item() == 5, "the last element is not found")
    else:
        context.expect((x + x)[LARGE - 1].item() == 10, "the tail was dropped")


@check(28, plan=_plan)
def timing(context: Context) -> None:
    """Microseconds of the fastest of a few calls; a number for the report, no judgement."""
    for sample in context.samples():
        if elements(sample) == 0 and not context.op.factory:
            continue
        tensors = context.subject.tensors(sample)
        context.call(tensors)
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            context.call(tensors)
            context.subject.synchronize()
            best = min(best, time.perf_counter() - start)
        context.found["microseconds"] = round(best * 1e6, 2)
        context.expect(True, "")
        return
    raise NotRun("no sample with elements")
