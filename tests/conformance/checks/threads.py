"""Checks 16 and 17: concurrent calls, leaks and reference cycles."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from ..case import Case
from ..context import Context, NotRun, elements, has_values, sample_tensors, tensors_in
from ..subject import OpMetadata, Subject
from . import check
from .values import choose_dtypes

WORKERS = 4


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.op.samples is None or not has_values(metadata.op):
        return
    for dtype in choose_dtypes(metadata, ("float32",), 1):
        if dtype not in subject.dtypes or metadata.op.mutates:
            continue
        if "threads" not in subject.expectations.absent:
            yield Case(16, metadata.op.name, dtype)
        yield Case(17, metadata.op.name, dtype)


@check(16, plan=_plan)
def concurrent(context: Context) -> None:
    """Several threads that start together compute what one thread computes."""
    work = []
    for sample in context.samples():
        tensors = context.subject.tensors(sample)
        work.append((sample, tensors, context.call(tensors)))
        if len(work) == WORKERS:
            break
    found: list[Any] = [None] * WORKERS
    start = threading.Barrier(WORKERS)

    def run(number: int) -> None:
        start.wait()
        results = []
        for step in range(len(work)):
            _, tensors, _ = work[(step + number) % len(work)]
            results.append(context.call(tensors))
        found[number] = results

    threads = [threading.Thread(target=run, args=(i,)) for i in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, results in enumerate(found):
        context.expect(results is not None, "a call raised in a thread")
        for step, result in enumerate(results):
            sample, _, wanted = work[(step + number) % len(work)]
            context.sample = sample
            context.same(result, wanted, f"thread {number}", of=sample)


@check(17, plan=_plan)
def leaks(context: Context) -> None:
    """A result dies with its last reference, also under autograd: no cycle, no cache holds it."""
    for sample in context.samples(limit=8):
        if elements(sample) == 0 and not context.op.factory:
            continue
        tensors = context.subject.tensors(sample)
        for tensor in sample_tensors(tensors):
            if tensor.dtype.is_floating_point and context.op.differentiable:
                tensor.requires_grad_(True)
        context.call(tensors)  # memos and lazy imports are no leak
        inputs = {id(t) for t in sample_tensors(tensors)}
        enabled = gc.isenabled()
        gc.disable()
        try:
            result = context.call(tensors)
            outputs = [t for t in tensors_in(result) if id(t) not in inputs]
            watched = [weakref.ref(t) for t in outputs]
            nodes = [weakref.ref(t.grad_fn) for t in outputs if _weak(t.grad_fn)]
            del result, outputs
            context.expect(
                all(w() is None for w in watched), "a result outlives its last reference"
            )
            context.expect(
                all(n() is None for n in nodes), "a graph node outlives its last reference"
            )
        finally:
            if enabled:
                gc.enable()
        return
    raise NotRun("no sample with elements")


def _weak(node: Any) -> bool:
    try:
        weakref.ref(node)
    except TypeError:
        return False
    return node is not None
