"""Check 10: the same call gives the same result - again, in another thread, in a new process.

Bit by bit, but for operators that sum: BLAS libraries add up in an order of their own, which may
depend on the threads and on where in memory the operands lie. Both results are then right.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..case import BACKEND, Case
from ..context import Context, has_values, tensors_in
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from . import check
from .values import choose_dtypes

#: operators whose digests a new process recomputes
SAMPLED = ("add", "matmul", "softmax", "sum", "exp", "layer_norm", "conv2d", "sort", "cumsum")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        for name in SAMPLED:
            yield Case(10, BACKEND, "float32", variant=f"new-process+{name}")
        return
    if metadata.op.samples is None or not has_values(metadata.op) or metadata.op.mutates:
        return
    for dtype in choose_dtypes(metadata, ("float32",), 1):
        if dtype in subject.dtypes:
            yield Case(10, metadata.op.name, dtype, mandatory=dtype in MANDATORY_DTYPES)


@check(10, plan=_plan)
def again(context: Context) -> None:
    """Twice in this thread, with the memory of the first result reused, and once in another."""
    for sample in context.samples(limit=5):
        tensors = context.subject.tensors(sample)
        first = context.call(tensors)
        inputs = {id(t) for t in (*tensors.args, *tensors.kwargs.values())}
        if not any(id(t) in inputs for t in tensors_in(first)):
            del first  # the allocator may hand its memory out again
            first = context.call(tensors)
        context.same(context.call(tensors), first, "the second call", of=sample)
        found: list[Any] = []
        worker = threading.Thread(target=lambda f=found, t=tensors: f.append(context.call(t)))
        worker.start()
        worker.join()
        context.expect(len(found) == 1, "the call raised in another thread")
        context.same(found[0], first, "another thread", of=sample)


def results(subject: Subject, name: str) -> Iterator[tuple[Any, list[Any]]]:
    """The samples of one operator, and what it makes of each."""
    from ..covering_array import ConfiguredMake

    metadata = subject.metadata(name)
    for sample in metadata.op.samples(ConfiguredMake("float32", seed=7, values=metadata.op.values)):
        tensors = subject.tensors(sample)
        yield sample, tensors_in(metadata.op(*tensors.args, **tensors.kwargs))


def told(subject: Subject, name: str) -> str:
    """The results as text: dtype, shape and bytes of each."""
    found = []
    for _, outputs in results(subject, name):
        arrays = [subject.array(output) for output in outputs]
        found.append([(a.dtype.name, a.shape, a.tobytes().hex()) for a in arrays])
    return json.dumps(found)


@check(10, plan=_plan, variant="new-process")
def new_process(context: Context) -> None:
    """A fresh interpreter with another hash seed computes the same."""
    name = context.case.variant.partition("+")[2]
    if not hasattr(__import__("coredispatch").ops, name):
        from ..context import NotRun

        raise NotRun(f"there is no operator {name!r}")
    subject = context.subject
    program = (
        "from coredispatch.conformance import Subject\n"
        "from coredispatch.conformance.checks.repeatability import told\n"
        f"print('results', told(Subject({subject.name!r}), {name!r}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("results ")]
    context.expect(done.returncode == 0 and lines, f"the new process failed: {done.stderr[-300:]}")
    own = Context(subject, context.case, subject.metadata(name))
    theirs = json.loads(lines[0].partition(" ")[2])
    for (sample, outputs), metadata in zip(results(subject, name), theirs, strict=True):
        arrays = [
            np.frombuffer(bytes.fromhex(data), dtype).reshape(shape)
            for dtype, shape, data in metadata
        ]
        own.sample = sample
        own.same([subject.tensor(a) for a in arrays], outputs, "a new process", of=sample)
    context.asserted += own.asserted
    context.found |= own.found
