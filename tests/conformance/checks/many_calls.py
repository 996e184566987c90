"""Check 31: what many calls give - a thousand in a row, and those of eight threads at once.

Every call gives what the first one gave, whatever was called before it or is called beside it.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import CoreDispatchError

from ..context import Context, elements, sample_tensors, snapshot, tensors_in
from ..growth import Filling, Growth, growths
from ..interleaving import interleaved, kernel_folders
from ..subject import numpy_dtype
from . import check
from .left_behind import leaves_nothing, leaves_nothing_twice, silent
from .state import all_dead, dead, few_samples, plan
from .values import decomposes, in_domain

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
#: elements along the last dimension of a part of a result that is kept
PART = 5
#: samples, their tensors, and the arrays of their results
Work = list[tuple[Any, Any, list[Any]]]


def _arrays(context: Context, result: Any) -> list[Any]:
    return [context.subject.array(t) for t in tensors_in(result)]


# ---- a thousand calls -------------------------------------------------------------------------


@check(31, plan=plan, variant="calls")
def calls(context: Context) -> None:
    """Every call of a thousand, by turns with others, gives what the first one gave.

    The results are kept, and compared at the end: memory that is handed out twice shows. Between
    them the same operator is called with other sizes and with other values of the same sizes.
    """
    samples = few_samples(context, 3)
    other = few_samples(context, 3, seed=(context.case.seed + 77) % 2**32)
    samples += [s for s, t in zip(other, samples, strict=False) if elements(s) == elements(t)]
    if in_domain(context.op, "special", "contiguous") and not context.op.values:
        alike = few_samples(context, 1, seed=(context.case.seed + 78) % 2**32)[0]
        samples += _taken(context, _mingled(samples[0], alike))
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
    leaves_nothing_twice(context, partial(_thousand, context, tensors, kept), "many calls")
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
    with leaves_nothing(context, "the calls whose operands die at once"):
        _short_lived(context, other)
    _large_calls(context)


def _thousand(context: Context, tensors: list[Any], kept: list[tuple[int, Any]]) -> None:
    """A thousand calls by turns, or as many as patience lasts; results go into ``kept``."""
    start = time.process_time()
    neighbour = cd.ones(7, device=context.subject.device)
    order = np.random.default_rng(context.case.seed).integers(0, len(tensors), CALLS)
    for number in range(CALLS):
        which = int(order[number])
        kept.append((which, context.op(*tensors[which].args, **tensors[which].kwargs)))
        if number % 64 == 0:
            neighbour = neighbour.mul(1.0).add(0.0)
            if number >= LEAST_CALLS and time.process_time() - start > PATIENCE:
                break
    context.subject.synchronize()  # a device that computes later leaves behind then


def _short_lived(context: Context, samples: list[Any]) -> None:
    """Operands die before the next ones are made, which take their places in memory.

    Each object is where another one was, and often has its identity. What is remembered by either
    belongs to an operand that is no more.
    """
    sample = samples[0]
    alike = few_samples(context, 1, seed=(context.case.seed + 79) % 2**32)[0]
    several = [sample]
    several += _taken(context, [*_mingled(sample, alike), *_mingled(sample, alike, 1)])
    if context.op.values or not in_domain(context.op, "uniform", "contiguous"):
        several = [sample, *samples[1:]]  # elements may depend on each other
    first: list[Any] = []
    # Drawn: memory that goes round in as many places would always be taken by the same operand.
    rng = np.random.default_rng(context.case.seed)
    order = [*range(len(several)), *rng.integers(0, len(several), SHORT_LIVED).tolist()]
    for turn, which in enumerate(order):
        chosen = several[which]
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
            _as_first(context, now, first[which], "operands in old places", result)
        del tensors, result, now


def _taken(context: Context, samples: list[Any]) -> list[Any]:
    """Those of the samples that the operator takes, in memory.

    Elements may depend on each other, as those of a sequence and what sorts it: then the operator
    or its reference refuses a mixture.
    """
    found = []
    for sample in map(context.placed, samples):
        with contextlib.suppress(CoreDispatchError, ValueError):
            context.close(context.call(context.subject.tensors(sample)), sample)
            found.append(sample)
    return found


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
        turns = itertools.product(range(LARGE_KEPT), zip(samples, given, strict=True))
        with silent(context, "the large calls"):
            for turn, (sample, tensors) in turns:
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
        with leaves_nothing(context, "the large calls"):
            _parts_kept(context, samples, given)
        _rewritten(context, tensors, samples[-1], samples[0])
    for samples in _large_samples(context, (1,)):  # what is worth keeping is kept first
        sample = context.placed(samples[0])
        all_dead(context, [pair for _ in range(LARGE_KEPT) for pair in dead(context, sample)])


def _parts_kept(context: Context, samples: list[Any], given: list[Any]) -> None:
    """A part of a large result stays what it was when the result itself is gone.

    Memory that goes back to where it came from with the array that was handed out is still read
    through its views.
    """
    parts = []
    rounds = LARGE_KEPT + 2  # more than gave memory back before, which may be taken first
    calls = [*zip(samples, given, strict=True)] * rounds
    for turn, (sample, tensors) in enumerate(calls):
        context.sample = sample
        for tensor in _own_results(context, tensors):
            if tensor.device.type == "cpu":
                part = tensor.detach().numpy()[..., :PART]
            else:
                part = tensor[..., :PART] if tensor.ndim else tensor
            parts.append((turn, part, np.array(_held(context, part))))
            del part, tensor
    for turn, part, first in parts:
        same = _equal(np.array(_held(context, part)), first)
        context.expect(same, f"a part of the result of call {turn + 1} changed with a later call")


def _own_results(context: Context, tensors: Any) -> list[Any]:
    inputs = {id(t) for t in sample_tensors(tensors)}
    found = tensors_in(context.op(*tensors.args, **tensors.kwargs))
    own = [t for t in found if id(t) not in inputs and t.layout == "strided"]
    return [t for t in own if t.ndim and t.numel()]


def _held(context: Context, part: Any) -> Any:
    return part if isinstance(part, np.ndarray) else context.subject.array(part)


def _rewritten(context: Context, tensors: Any, sample: Any, alike: Any) -> None:
    """The same large operands with other elements in the later half of each but its last."""
    if context.op.values or not in_domain(context.op, "uniform", "contiguous"):
        return  # elements may depend on each other
    for other in map(context.placed, _mingled(sample, alike, 1)):
        fresh = context.subject.tensors(other)
        try:
            wanted = context.call(fresh)
        except CoreDispatchError:
            return
        break
    else:
        return
    for old, new in zip(sample_tensors(tensors), sample_tensors(fresh), strict=True):
        if old.numel():
            context.rewrite(old, new)
    result = context.call(tensors)
    _as_first(context, _arrays(context, result), _arrays(context, wanted), "rewritten", result)


def _mingled(sample: Any, alike: Any, kept: int = 0) -> list[Any]:
    """The sample with elements of another in the later half of each array but ``kept`` last ones.

    What is remembered by the beginning of an operand, or by its ends, belongs to another one.
    Nothing where the arrays of the two have other shapes.
    """
    arrays: dict[bool, list[Any]] = {True: [], False: []}
    for own, source in ((True, sample), (False, alike)):
        source.map(lambda a, found=arrays[own]: found.append(a) or a)
    if [(a.shape, a.dtype) for a in arrays[True]] != [(a.shape, a.dtype) for a in arrays[False]]:
        return []
    other = iter(arrays[False])

    def mingled(array: Any) -> Any:
        flat, later = array.reshape(-1).copy(), next(other).reshape(-1)
        part = slice(max(1, array.size // 2), array.size - kept)
        flat[part] = later[part]
        return flat.reshape(array.shape)

    return [sample.map(mingled)]


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


@check(31, plan=plan, variant="threads")
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
            few_samples(context, 1, seed=seed, **(extreme if number % 2 else {}))[0]
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
    raised: dict[int, BaseException] = {}
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
        except threading.BrokenBarrierError:
            return  # another one raised
        except BaseException as error:
            raised[number] = error
            start.abort()  # the others wait for nobody
            return
        found[number] = results

    workers = [threading.Thread(target=run, args=(i,)) for i in range(len(work))]
    interval = sys.getswitchinterval()
    with leaves_nothing(context, "the calls of several threads"):
        sys.setswitchinterval(1e-5)
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        finally:
            sys.setswitchinterval(interval)
    for number, error in raised.items():
        context.sample = work[number][0]
        context.expect(False, f"thread {number} raised {type(error).__name__}: {error}")
    for number, results in enumerate(found):
        sample, _, wanted = work[number]
        context.sample = sample
        context.expect(results is not None, f"thread {number} did not end")
        for result in results:
            said = f"thread {number} of {len(work)}"
            _as_first(context, _arrays(context, result), wanted, said, result)
