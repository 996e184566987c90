"""Check 31: what a kernel leaves behind - in the process, and in memory.

A kernel computes its result and nothing else. It keeps nothing of a call, and changes nothing of
the process. What many calls give is asked in ``many_calls``, how fast they are in ``speed``.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
import tracemalloc
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import (
    Context,
    NotRun,
    elements,
    has_values,
    sample_tensors,
    tensors_in,
)
from ..growth import takes
from ..process_state import Outputs, lasting, passing, unusual
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import named
from ..variations import with_argument
from . import check
from .left_behind import SETTLES
from .values import choose_dtypes, in_domain

#: further calls with operands of their own, of which one may be kept
RARELY = 60
#: looks at what memory there is, of which one without growth is enough
LOOKS = 8


def plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if (
        metadata is None
        or not metadata.native
        or metadata.op.samples is None
        or metadata.op.mutates
    ):
        return
    if not has_values(metadata.op) or metadata.op.factory:
        return
    for dtype in choose_dtypes(metadata, ("float32",), 1):
        if dtype not in subject.dtypes:
            continue
        mandatory = dtype in MANDATORY_DTYPES
        yield Case(31, metadata.name, dtype, variant="process", mandatory=mandatory)
        yield Case(31, metadata.name, dtype, variant="calls", mandatory=mandatory)
        yield Case(31, metadata.name, dtype, variant="memory", mandatory=mandatory)
        if "threads" not in subject.expectations.absent:
            yield Case(31, metadata.name, dtype, variant="threads", mandatory=mandatory)
        if not metadata.op.view:
            yield Case(31, metadata.name, dtype, variant="speed", mandatory=False)
    for dtype in choose_dtypes(metadata, ("float16", "bfloat16"), 1):
        # What is widened goes through memory that full precision has no need of.
        half = dtype in ("float16", "bfloat16") and dtype in subject.dtypes
        if half and not metadata.op.view and "threads" not in subject.expectations.absent:
            yield Case(31, metadata.name, dtype, variant="threads", mandatory=False)


def few_samples(context: Context, count: int, **changes: Any) -> list[Any]:
    """A few samples with elements, of different sizes where there are such."""
    found: dict[Any, Any] = {}
    for sample in context.samples(**changes):
        shapes: list[Any] = []
        sample.map(lambda a, shapes=shapes: shapes.append(a.shape) or a)
        if elements(sample) and all(math.prod(s) < 4000 for s in shapes):
            found.setdefault(tuple(shapes), sample)
    if not found:
        raise NotRun("no sample with elements")
    ordered = sorted(found.values(), key=elements)
    step = max(1, len(ordered) // count)
    return [context.placed(s) for s in ordered[::-1][::step][:count]]


@check(31, plan=plan, variant="process")
def process(context: Context) -> None:
    """Nothing is printed, and nothing of the process is another afterwards.

    Asked of plain calls, of those with special values, and of refused ones; with the settings that
    a process starts with, and with unusual ones.
    """
    samples = few_samples(context, 2)
    usual = [*samples]
    others = [context.subject.tensors(s) for s in _of_other_dtypes(context)]
    if in_domain(context.op, "special", "contiguous") and not context.op.values:
        # What overflows, or is invalid, is where a library's state is touched.
        for distribution in ("special", "extremes"):
            samples += few_samples(context, 1, distribution=distribution)
    tensors = [context.subject.tensors(s) for s in samples]
    refused = _refused(context)
    context.sample = samples[0]
    found, filters = lasting(), [*warnings.filters]
    with Outputs() as outputs:
        for _ in range(2):  # what is compiled, imported or opened meanwhile is so once
            changed = _changes(context, tensors, len(usual), refused, others)
            (context.subject.state if changed else found).restore()
            warnings.filters[:] = filters  # type: ignore[index]
            if not changed:
                break
            time.sleep(SETTLES)
    said = outputs.text()
    context.expect(not said, f"it prints: {said[:80]!r}")
    context.expect(not changed, f"it changes {'; '.join(changed)}")


def _of_other_dtypes(context: Context) -> list[Any]:
    """A sample in each further dtype: a branch for one of them may have settings of its own."""
    assert context.metadata is not None
    found = []
    for dtype in context.metadata.dtypes:
        if dtype != context.case.dtype and dtype in context.subject.dtypes:
            with contextlib.suppress(NotRun):
                found += few_samples(context, 1, dtype=numpy_dtype(dtype))
    return found


def _changes(
    context: Context, tensors: list[Any], usual: int, refused: list[Any], others: list[Any]
) -> list[str]:
    """What of the process is another after many calls; the first of them are the usual ones.

    ``others`` are called a few times, ``refused`` once.
    """
    expected, filters = context.subject.state, [*warnings.filters]
    expected.restore()  # an earlier call may have left a change that the next repeats
    for given in tensors[:usual]:  # what is imported, opened or started once is no change
        context.op(*given.args, **given.kwargs)
    before = passing()
    _call_all(context, tensors, refused, 50)
    _call_all(context, others, [], 2)
    changed = before.differences(passing()) + expected.differences(lasting())
    if not changed:
        with unusual():
            for kept, look in [(look(), look) for look in (passing, lasting)]:
                _call_all(context, tensors, refused, 3)
                _call_all(context, others, [], 1)
                changed += kept.differences(look())
    if [*warnings.filters] != filters:
        changed.append("the filters of warnings")
    before.restore()
    return changed


def _refused(context: Context) -> list[Any]:
    """The tensors of calls that the operator definition says are refused."""
    found = []
    for sample, *_ in context.op.errors(context.make()) if context.op.errors else ():
        with contextlib.suppress(CoreDispatchError):  # what no tensor can be made of
            found.append(context.subject.tensors(context.placed(sample)))
    return found[:8]


def _call_all(context: Context, tensors: list[Any], refused: list[Any], turns: int) -> None:
    for _ in range(turns):
        for given in tensors:
            context.op(*given.args, **given.kwargs)
    for given in refused:
        with contextlib.suppress(Exception):  # what is raised is the business of check 14
            context.op(*given.args, **given.kwargs)
            context.subject.synchronize()  # a device that computes later raises then
    context.subject.synchronize()


@check(31, plan=plan, variant="memory")
def memory(context: Context) -> None:
    """Inputs and results die with their last reference, and memory does not grow."""
    subject = context.subject
    sample = few_samples(context, 1)[0]
    # Each option may lead to a branch that keeps.
    several = [sample, *_by_options(context, 5), *_by_switches(context, sample)]
    watched = [pair for _ in range(6) for s in several for pair in dead(context, s)]
    watched += [pair for _ in range(RARELY) for pair in dead(context, sample)]
    all_dead(context, watched)
    tensors = subject.tensors(sample)
    growth = [_grown(context, tensors) for _ in range(2)]
    while min(growth) > 100 and len(growth) < LOOKS:
        # Bytes for each call: a table that grew once is no leak, nor is what is compiled beside it.
        time.sleep(SETTLES)
        growth.append(_grown(context, tensors))
    context.expect(min(growth) <= 100, f"memory grows by {min(growth):.0f} bytes with every call")
    context.found["bytes_per_call"] = round(max(0.0, min(growth)), 1)


def all_dead(context: Context, watched: list[tuple[str, Any]]) -> None:
    """Assert that nobody holds any of what the weak references refer to."""
    context.subject.synchronize()
    if any(reference() is not None for _, reference in watched):
        gc.collect()
    alive = [what for what, reference in watched if reference() is not None]
    context.expect(
        not alive, f"{len(alive)} of {len(watched)} arrays are alive after the calls: {alive[:1]}"
    )


def _by_options(context: Context, count: int) -> list[Any]:
    """A few samples with elements: first those that bring most kinds of options, then values."""
    defaults = {param.name: param.default for param in context.op.schema.params}
    left: list[tuple[Any, set[str], set[str]]] = []
    for sample in context.samples():
        if 0 < elements(sample) < 4000:
            given = defaults | dict(named(context.op, sample))
            given = {n: v for n, v in given.items() if not _is_data(v)}
            kinds = {f"{n}: {type(v).__name__}" for n, v in given.items()}
            left.append((sample, kinds, {f"{n}={v!r}" for n, v in given.items()}))
    chosen, seen = [], set[str]()
    while left and len(chosen) < count:
        best = max(left, key=lambda entry: (len(entry[1] - seen), len(entry[2] - seen)))
        sample, kinds, values = best
        if chosen and kinds | values <= seen:
            break
        chosen.append(context.placed(sample))
        seen |= kinds | values
        left = [entry for entry in left if entry[0] is not sample]
    return chosen


def _by_switches(context: Context, sample: Any) -> list[Any]:
    """The sample with one switch turned, for each that the operator takes so."""
    given, found = dict(named(context.op, sample)), []
    for param in context.op.schema.params:
        if isinstance(param.default, bool):
            value = not given.get(param.name, param.default)
            found.append(with_argument(context.op, sample, param.name, value))
    return [context.placed(s) for s in found if takes(context, s)]


def _is_data(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (
        isinstance(value, (list, tuple)) and any(map(_is_data, value))
    )


def _own(context: Context, tensors: Any, result: Any) -> list[Any]:
    """The tensors of a result that are none of the inputs."""
    inputs = {id(t) for t in sample_tensors(tensors)}
    return [t for t in tensors_in(result) if id(t) not in inputs]


def dead(context: Context, sample: Any) -> list[tuple[str, Any]]:
    """Weak references to what a call was given and gave, which nobody else holds any more."""
    tensors = context.subject.tensors(sample)
    result = context.op(*tensors.args, **tensors.kwargs)
    found = []
    given = [("an input", t) for t in sample_tensors(tensors)]
    for what, tensor in [*given, *(("a result", t) for t in _own(context, tensors, result))]:
        for held in (tensor, getattr(tensor, "_raw", None) or cd.plugin.to_raw(tensor)):
            try:
                found.append((what, weakref.ref(held)))
            except TypeError:
                continue
    return found


def _grown(context: Context, tensors: Any, count: int = 64) -> float:
    """Bytes that each of some calls leaves behind, as Python's and NumPy's allocators know.

    What a device has yet to do, and remembers until then, is no leak. The count is a multiple of
    eight, so that what every eighth call leaves is there as often in each of the looks.
    """
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        for _ in range(3):
            context.op(*tensors.args, **tensors.kwargs)
        context.subject.synchronize()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            context.op(*tensors.args, **tensors.kwargs)
        context.subject.synchronize()
        if tracemalloc.get_traced_memory()[0] - before > 100 * count:
            gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        if started:
            tracemalloc.stop()
