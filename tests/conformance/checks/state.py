"""Check 31: what a kernel does over time - a thousand calls, eight threads, and what it leaves.

A kernel computes its result and nothing else. It keeps nothing of a call, and changes nothing of
the process. How it compares in speed with the backend's other kernels is reported and not judged.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import statistics
import sys
import threading
import time
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
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
    snapshot,
    tensors_in,
)
from ..growth import Filling, Growth, counted, growths
from ..interleaving import interleaved, kernel_folders
from ..process_state import Outputs, lasting, passing, unusual
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import named
from . import check
from .values import choose_dtypes, decomposes, in_domain

#: calls in a row, of which every result is kept
CALLS = 1100
#: threads that start together, and the calls of each
THREADS, TURNS = 8, 12
#: the first of these, for each of which the threads wait for one another
TOGETHER = 6
#: and the calls of each that is interrupted inside of the kernel
SWITCHED_TURNS = 3
#: and those of large calls, between whose parts NumPy lets other threads run
LARGE_THREADS, LARGE_TURNS = 4, 8
#: seconds after which a case makes no further calls than it must
PATIENCE = 0.2
LEAST_CALLS = 330
#: calls whose operands live no longer than they do
SHORT_LIVED = 40
#: elements of calls whose results are kept, and which dimensions of such a call are long
LARGE, WAYS = 20_000, 3
#: how often each of three large calls is made, whose results are kept
LARGE_KEPT = 3
#: seconds that a backend's own threads may need to end what they began
SETTLES = 0.5
#: elements of what is timed, of a loop over elements, and the factor that is suspicious
TIMED, LEAST_TIMED, COUNTED, FACTOR = 20_000, 4_000, (64, 576), 50.0

#: samples, their tensors, and the arrays of their results
Work = list[tuple[Any, Any, list[Any]]]


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
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


def _samples(context: Context, count: int, **changes: Any) -> list[Any]:
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


def _by_options(context: Context, count: int) -> list[Any]:
    """A few samples with elements, the first of each combination of options."""
    found: dict[str, Any] = {}
    for sample in context.samples():
        options = repr([(n, v) for n, v in named(context.op, sample) if not _is_data(v)])
        if 0 < elements(sample) < 4000:
            found.setdefault(options, sample)
    return [context.placed(s) for s in [*found.values()][:count]]


def _is_data(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (
        isinstance(value, (list, tuple)) and any(map(_is_data, value))
    )


def _own(context: Context, tensors: Any, result: Any) -> list[Any]:
    """The tensors of a result that are none of the inputs."""
    inputs = {id(t) for t in sample_tensors(tensors)}
    return [t for t in tensors_in(result) if id(t) not in inputs]


def _arrays(context: Context, result: Any) -> list[Any]:
    return [context.subject.array(t) for t in tensors_in(result)]


# ---- a thousand calls -------------------------------------------------------------------------


@check(31, plan=_plan, variant="calls")
def calls(context: Context) -> None:
    """Every call of a thousand, by turns with others, gives what the first one gave.

    The results are kept, and compared at the end: memory that is handed out twice shows. Between
    them the same operator is called with other sizes and with other values of the same sizes.
    """
    samples = _samples(context, 3)
    other = _samples(context, 3, seed=(context.case.seed + 77) % 2**32)
    samples += [s for s, t in zip(other, samples, strict=False) if elements(s) == elements(t)]
    if in_domain(context.op, "special", "contiguous") and not context.op.values:
        turned = context.placed(samples[0].map(_turned))
        with contextlib.suppress(CoreDispatchError):  # elements may depend on each other
            context.call(context.subject.tensors(turned))
            samples.append(turned)
    samples += _other_way_round(context)
    tensors = [context.subject.tensors(s) for s in samples]
    inputs = [[*map(context.subject.array, sample_tensors(ts))] for ts in tensors]
    first = []
    for sample, given in zip(samples, tensors, strict=True):
        context.sample = sample
        result = context.call(given)
        context.close(result, sample)
        first.append(_arrays(context, result))
    kept: list[tuple[int, Any]] = []
    start = time.process_time()
    neighbour = cd.ones(7, device=context.subject.device)
    order = np.random.default_rng(context.case.seed).integers(0, len(samples), CALLS)
    for number in range(CALLS):
        which = int(order[number])
        kept.append((which, context.op(*tensors[which].args, **tensors[which].kwargs)))
        if number % 64 == 0:
            neighbour = neighbour.mul(1.0).add(0.0)
            if number >= LEAST_CALLS and time.process_time() - start > PATIENCE:
                break
    for which, given in enumerate(tensors):
        context.sample = samples[which]
        now = [context.subject.array(t) for t in sample_tensors(given)]
        same = all(_equal(a, b) for a, b in zip(now, inputs[which], strict=True))
        context.expect(same, "an input was written to, in one of many calls")
    for number, (which, result) in enumerate(kept):
        context.sample = samples[which]
        _as_first(context, _arrays(context, result), first[which], f"call {number + 2}", result)
    context.found["calls"] = len(kept)
    del kept
    _short_lived(context, other)
    _large_calls(context)


def _short_lived(context: Context, samples: list[Any]) -> None:
    """Operands die before the next ones are made, which take their places in memory.

    Each object is where another one was, and often has its identity. What is remembered by either
    belongs to an operand that is no more.
    """
    sample = samples[0]
    several = [sample, sample.map(_turned), sample.map(_inner_turned)]
    if context.op.values or not in_domain(context.op, "uniform", "contiguous"):
        several = [sample, *samples[1:]]  # elements may depend on each other
    first: list[Any] = []
    for turn in range(SHORT_LIVED):
        chosen = several[turn % len(several)]
        context.sample = chosen
        tensors = context.subject.tensors(chosen)
        try:
            result = context.op(*tensors.args, **tensors.kwargs)
        except CoreDispatchError:
            return
        now = _arrays(context, result)
        if turn < len(several):
            context.close(result, chosen)
            first.append([np.array(a) for a in now])
        else:
            _as_first(context, now, first[turn % len(several)], "operands in old places", result)
        del tensors, result, now


def _other_way_round(context: Context) -> list[Any]:
    """A list of tensors of several sizes, and the same list from its end: as long, cut otherwise.

    What is worked out for the first, from how many there are and how long they are, is wrong for
    the second.
    """
    for sample in context.samples() if context.op.lists else ():
        turned = type(sample)(*map(_from_the_end, sample.args), **sample.kwargs)
        if elements(sample) >= 4000 or repr(turned) == repr(sample):
            continue
        with contextlib.suppress(CoreDispatchError):  # some lists have an order
            for given in (sample, turned):
                context.call(context.subject.tensors(context.placed(given)))
            return [sample, turned]
    return []


def _from_the_end(value: Any) -> Any:
    arrays = isinstance(value, list) and all(isinstance(item, np.ndarray) for item in value)
    return value[::-1] if arrays else value


def _large_samples(context: Context, seeds: tuple[int, ...]) -> list[list[Any]]:
    """Large calls of the operator: one list for each way to grow, one sample for each seed.

    Calls with most arrays first, and each array large in one of them: a kernel may do other work
    where a weight is given, and keep a packed one. The results are large in one of them.
    """
    dtype = numpy_dtype(context.case.dtype)
    if decomposes(context.op):
        return []
    chosen: list[Growth] = []
    long: set[tuple[int, int]] = set()
    by_arrays = sorted(growths(context, dtype), key=lambda g: -len(g.template.arrays))
    for growth in by_arrays:
        arrays = {(len(growth.template.arrays), i) for i, _ in growth.axes}
        if len(chosen) < WAYS and not arrays <= long:
            chosen.append(growth)
            long |= arrays
    giving = max(by_arrays, key=lambda g: g.gives, default=None)
    if giving is not None and all(g.gives < min(giving.gives, 0.2) for g in chosen):
        chosen.append(giving)
    several = []
    for growth in chosen:
        size = growth.longest(LARGE)
        samples = [
            growth.sample(context, size, Filling(context, dtype=dtype, seed=seed)) for seed in seeds
        ]
        if all(sample is not None for sample in samples):
            several.append(samples)
    return several


def _large_calls(context: Context) -> None:
    """Large results that are kept stay what they were while others of their shape are made.

    Memory worth keeping is kept for large results first; so are operands that were packed once,
    and it is large operands that are worth working on in place.
    """
    for samples in _large_samples(context, (1, 2, 3)):
        kept = []
        given = [context.subject.tensors(context.placed(sample)) for sample in samples]
        for turn, (sample, tensors) in itertools.product(range(LARGE_KEPT), zip(samples, given)):
            context.sample = sample
            before = snapshot(context, tensors) if turn == 0 else None
            result = context.call(tensors)
            if before is not None:
                context.unchanged(before, tensors)
            kept.append((result, [np.array(a) for a in _arrays(context, result)]))
        for number, (result, first) in enumerate(kept):
            same = all(_equal(a, b) for a, b in zip(_arrays(context, result), first, strict=True))
            context.expect(same, f"the result of large call {number + 1} changed with a later one")
        kept.clear()
        del result  # without strided views, what has a live view cannot be written
        _rewritten(context, tensors, samples[-1])


def _rewritten(context: Context, tensors: Any, sample: Any) -> None:
    """The same large operands with other elements between the first and the last of each."""
    if context.op.values or not in_domain(context.op, "uniform", "contiguous"):
        return  # elements may depend on each other
    other = context.placed(sample.map(_inner_turned))
    fresh = context.subject.tensors(other)
    try:
        wanted = context.call(fresh)
    except CoreDispatchError:
        return
    for old, new in zip(sample_tensors(tensors), sample_tensors(fresh), strict=True):
        if old.numel():
            context.rewrite(old, new)
    result = context.call(tensors)
    _as_first(context, _arrays(context, result), _arrays(context, wanted), "rewritten", result)


def _inner_turned(array: Any) -> Any:
    """The same first and last element, and those between them the other way round."""
    if array.dtype.kind not in "fV" or array.size < 4:
        return array
    flat = array.reshape(-1).copy()
    flat[1:-1] = flat[1:-1][::-1].copy()
    return flat.reshape(array.shape)


def _turned(array: Any) -> Any:
    """The same first element, and the others the other way round."""
    if array.dtype.kind not in "fV" or array.size < 3:
        return array
    flat = array.reshape(-1).copy()
    flat[1:] = flat[1:][::-1].copy()
    return flat.reshape(array.shape)


def _equal(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def _as_first(context: Context, now: list[Any], first: list[Any], what: str, result: Any) -> None:
    """Assert that a result is the first one's; where an op sums, that it is as right."""
    if len(now) == len(first) and all(_equal(a, b) for a, b in zip(now, first, strict=True)):
        context.asserted += 1
        return
    tensors = [context.subject.tensor(a) for a in first]
    context.same(result, tensors, what, of=context.sample)


# ---- eight threads ----------------------------------------------------------------------------


@check(31, plan=_plan, variant="threads")
def threads(context: Context) -> None:
    """Eight threads that start together, each with values of its own, get what they would alone.

    They switch where Python lets them, then wherever the kernel's own code may be left.
    """
    seeds = [(context.case.seed + 31 * number) % 2**32 for number in range(THREADS)]
    # Every other thread has subnormal numbers: whether they count is a setting of each thread.
    wide = in_domain(context.op, "extremes", "contiguous") and not context.op.values
    extreme: dict[str, Any] = {"distribution": "extremes"} if wide else {}
    work = _alone(
        context,
        [
            _samples(context, 1, seed=seed, **(extreme if number % 2 else {}))[0]
            for number, seed in enumerate(seeds)
        ],
    )
    _together(context, work, TURNS)
    folders = kernel_folders(context.subject, context.op.name)
    _together(context, work, SWITCHED_TURNS, lambda n: interleaved(folders, seeds[n]))
    for samples in _large_samples(context, tuple(seeds[:LARGE_THREADS]))[:1]:
        _together(context, _alone(context, samples), LARGE_TURNS)


def _alone(context: Context, samples: list[Any]) -> Work:
    """Each sample with its tensors, and with what one thread computes of them."""
    work = []
    for sample in samples:
        tensors = context.subject.tensors(context.placed(sample))
        work.append((sample, tensors, _arrays(context, context.call(tensors))))
    return work


def _together(
    context: Context,
    work: Work,
    turns: int,
    within: Callable[[int], AbstractContextManager[Any]] = lambda _: contextlib.nullcontext(),
) -> None:
    """Each call in a thread of its own, ``turns`` times; the first of them start together."""
    found: list[Any] = [None] * len(work)
    start = threading.Barrier(len(work))

    def run(number: int) -> None:
        _, tensors, _ = work[number]
        until = time.monotonic() + 1.0
        results = []
        try:
            with within(number):
                for turn in range(turns):
                    if turn < TOGETHER:
                        start.wait()
                    elif time.monotonic() > until:
                        break
                    results.append(context.op(*tensors.args, **tensors.kwargs))
        except BaseException:
            start.abort()  # the others wait for nobody
            raise
        found[number] = results

    workers = [threading.Thread(target=run, args=(i,)) for i in range(len(work))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    for number, results in enumerate(found):
        sample, _, wanted = work[number]
        context.sample = sample
        context.expect(results is not None, f"thread {number} raised")
        for result in results:
            said = f"thread {number} of {len(work)}"
            _as_first(context, _arrays(context, result), wanted, said, result)


# ---- what it leaves ---------------------------------------------------------------------------


@check(31, plan=_plan, variant="process")
def process(context: Context) -> None:
    """Nothing is printed, and nothing of the process is another afterwards.

    Asked of plain calls, of those with special values, and of refused ones; with the settings that
    a process starts with, and with unusual ones.
    """
    samples = _samples(context, 2)
    usual = [*samples]
    if in_domain(context.op, "special", "contiguous") and not context.op.values:
        # What overflows, or is invalid, is where a library's state is touched.
        for distribution in ("special", "extremes"):
            samples += _samples(context, 1, distribution=distribution)
    tensors = [context.subject.tensors(s) for s in samples]
    refused = _refused(context)
    context.sample = samples[0]
    found, filters = lasting(), [*warnings.filters]
    with Outputs() as outputs:
        for _ in range(2):  # what is compiled, imported or opened meanwhile is so once
            changed = _changes(context, tensors, len(usual), refused)
            (context.subject.state if changed else found).restore()
            warnings.filters[:] = filters  # type: ignore[index]
            if not changed:
                break
            time.sleep(SETTLES)
    said = outputs.text()
    context.expect(not said, f"it prints: {said[:80]!r}")
    context.expect(not changed, f"it changes {'; '.join(changed)}")


def _changes(context: Context, tensors: list[Any], usual: int, refused: list[Any]) -> list[str]:
    """What of the process is another after many calls; the first of them are the usual ones."""
    expected, filters = context.subject.state, [*warnings.filters]
    expected.restore()  # an earlier call may have left a change that the next repeats
    for given in tensors[:usual]:  # what is imported, opened or started once is no change
        context.op(*given.args, **given.kwargs)
    before = passing()
    _call_all(context, tensors, refused, 50)
    changed = before.differences(passing()) + expected.differences(lasting())
    if not changed:
        with unusual():
            for kept, look in [(look(), look) for look in (passing, lasting)]:
                _call_all(context, tensors, refused, 3)
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


@check(31, plan=_plan, variant="memory")
def memory(context: Context) -> None:
    """Inputs and results die with their last reference, and memory does not grow."""
    subject = context.subject
    sample = _samples(context, 1)[0]
    several = [sample, *_by_options(context, 5)]  # each option may lead to a branch that keeps
    watched = [pair for _ in range(6) for s in several for pair in _dead(context, s)]
    subject.synchronize()
    if any(reference() is not None for _, reference in watched):
        gc.collect()
    alive = [what for what, reference in watched if reference() is not None]
    context.expect(
        not alive, f"{len(alive)} of {len(watched)} arrays are alive after the calls: {alive[:1]}"
    )
    tensors = subject.tensors(sample)
    growth = [_grown(context, tensors) for _ in range(2)]
    if min(growth) > 100:  # bytes for each call: a table that grew once is no leak
        growth.append(_grown(context, tensors))
    context.expect(min(growth) <= 100, f"memory grows by {min(growth):.0f} bytes with every call")
    context.found["bytes_per_call"] = round(max(0.0, min(growth)), 1)


def _dead(context: Context, sample: Any) -> list[tuple[str, Any]]:
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


def _grown(context: Context, tensors: Any, count: int = 60) -> float:
    """Bytes that each of some calls leaves behind, as Python's and NumPy's allocators know.

    What a device has yet to do, and remembers until then, is no leak.
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


# ---- speed ------------------------------------------------------------------------------------


@check(31, plan=_plan, variant="speed")
def speed(context: Context) -> None:
    """Loops over elements in Python, and kernels far slower than their neighbours, are reported."""
    lines = _lines(context)
    if lines is not None and lines > 0.5:
        context.found["suspicious"] = (
            f"Python runs {lines:.1f} lines or calls for each element: it loops over them"
        )
    own = _seconds(context.subject, context.case.op)
    known = context.subject.speeds
    for name in _neighbours(context):
        if name not in known:
            known[name] = _seconds(context.subject, name)
    others = [s for n in _neighbours(context) if (s := known[n]) is not None]
    if own is not None:
        context.found["nanoseconds_per_element"] = round(own * 1e9, 3)
        if len(others) > 1 and not decomposes(context.op):
            usual = statistics.median(others)
            ratio = own / usual
            if ratio > FACTOR and own > 2e-8:
                report = (
                    f"{ratio:.0f} times as slow as its neighbours, {own * 1e9:.0f} ns an element"
                )
                looped = context.found.get("suspicious")
                context.found["suspicious"] = f"{looped}; {report}" if looped else report
    context.expect(True, "")


def _neighbours(context: Context) -> list[str]:
    """Native operators from the same file of definitions, and three that every backend has."""
    subject, op = context.subject, context.op
    if not subject.files:
        for name in dir(cd.ops):
            other = getattr(cd.ops, name)
            if other.derived_from is None and subject.kernel(name) is not None:
                subject.files.setdefault(other.file, []).append(name)
    beside = [n for n in subject.files.get(op.file, ()) if n != op.name]
    usual = [n for n in ("add", "exp", "sum") if n != op.name and subject.kernel(n) is not None]
    return [*beside[:3], *usual]


def _long(context: Context, size: int) -> Any:
    """The op's sample of fewest dimensions with one dimension as long as ``size`` elements need.

    None where no dimension grows.
    """
    dtype = numpy_dtype(context.case.dtype)
    found = growths(context, dtype, 2)
    if not found:
        return None
    growth = found[0]
    fits = max(2, min(size, growth.longest(size)))
    # A power of two: transforms of lengths with large prime factors take ten times as long.
    return growth.sample(context, 1 << (fits.bit_length() - 1), Filling(context, dtype=dtype))


def _seconds(subject: Subject, name: str) -> float | None:
    """Seconds for each element of a large call of an operator; None where it has no such call."""
    metadata = subject.metadata(name)
    dtype = next((d for d in ("float32", *metadata.dtypes) if d in metadata.dtypes), None)
    if dtype is None or metadata.op.samples is None or metadata.op.mutates:
        return None
    context = Context(subject, Case(31, name, dtype, variant="speed"), metadata)
    tensors = _called(context, _long(context, TIMED))
    return None if tensors is None else _timed(context, tensors)


def _called(context: Context, sample: Any) -> Any:
    """The tensors of a call that was made once; None without a call, or where the op refuses it."""
    if sample is None:
        return None
    tensors = context.subject.tensors(context.placed(sample))
    try:
        context.op(*tensors.args, **tensors.kwargs)
        context.subject.synchronize()
    except cd.CoreDispatchError:  # what grew at small lengths does not at this one
        return None
    return tensors


def _timed(context: Context, tensors: Any) -> float | None:
    best = math.inf
    for _ in range(3):
        start = time.perf_counter()
        result = context.op(*tensors.args, **tensors.kwargs)
        context.subject.synchronize()
        best = min(best, time.perf_counter() - start)
    count = sum(t.numel() for t in (*sample_tensors(tensors), *tensors_in(result)))
    return best / count if count >= LEAST_TIMED else None  # of fewer it is the call's own time


def _lines(context: Context) -> float | None:
    """Lines and calls that Python runs for each further element of a call."""
    counts = []
    for size in COUNTED:
        tensors = _called(context, _long(context, size))
        if tensors is None:
            return None
        total = sum(t.numel() for t in sample_tensors(tensors))
        with counted() as seen:
            context.op(*tensors.args, **tensors.kwargs)
        counts.append((total, seen.steps))
    (small, few), (large, many) = counts
    return None if large <= small else (many - few) / (large - small)
