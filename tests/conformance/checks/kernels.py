"""Checks 1 and 8 for kernels that take part of the calls: each is seen to serve, and is right.

A kernel pack may reject a call by its size, its layout or what not. On the small samples of the
other cases it might never run, and a pack would pass on the work of the kernels below it. Here
samples grow until the kernel takes them; which one served is observed, not assumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from coredispatch.registry import TABLE, CoreDispatchError, plugins
from coredispatch.registry.around.observe import observe
from coredispatch.registry.model.backend import Kernel

from ..case import Case
from ..context import Context, NotRun, has_values
from ..growth import Filling, growths
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from . import check
from .precision import half
from .values import choose_dtypes, in_domain

#: elements of the largest array; beyond the last, packs split the work among threads
SIZES = (0, 600, 6_000, 80_000)
JUDGED = 8  # samples that are compared for each case

Shape = tuple[int, ...]
Growth = Callable[[Shape, list[Shape], int], Shape]


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.op.samples is None or not has_values(metadata.op):
        return
    rows = TABLE.snapshot.registrations.get((metadata.op.name, subject.name, None), ())
    # The last takes what the others leave. A plugin of no distribution is a planted fault.
    packs = dict.fromkeys(k.plugin for k in rows[:-1] if plugins[k.plugin].distribution)
    for dtype in choose_dtypes(metadata, ("float32", "float64"), 2):
        if dtype not in subject.dtypes:
            continue
        for plugin in packs:
            for number, distribution in ((1, "uniform"), (8, "special")):
                if in_domain(metadata.op, distribution, "contiguous"):
                    mandatory = dtype in MANDATORY_DTYPES
                    yield Case(
                        number,
                        metadata.op.name,
                        dtype,
                        "contiguous",
                        distribution,
                        variant=f"kernel+{plugin}",
                        mandatory=mandatory,
                    )
    low = half(subject)
    if low in metadata.dtypes:  # a pack may serve nothing else
        for plugin in packs:
            yield Case(
                1, metadata.op.name, low, "contiguous", variant=f"kernel+{plugin}", mandatory=False
            )


# ---- growing samples --------------------------------------------------------------------------
# A sample's parameters stay; which dimensions may grow with them is found by trying.


def _first(shape: Shape, shapes: list[Shape], k: int) -> Shape:
    """The leading dimension of the first array, wherever its length occurs."""
    length = shapes[0][0] if shapes[0] else 1
    return tuple(n * k + 1 if n == length > 1 else n for n in shape)


def _leading(shape: Shape, shapes: list[Shape], k: int) -> Shape:
    """The leading dimension of the arrays that have the most."""
    most = max(map(len, shapes))
    return (shape[0] * k + 1, *shape[1:]) if len(shape) == most and shape[0] > 1 else shape


def _every(shape: Shape, shapes: list[Shape], k: int) -> Shape:
    """All dimensions, together by the factor."""
    root = max(2, round(k ** (1 / max(1, max(map(len, shapes))))))
    return tuple(n * root + 1 if n > 1 else n for n in shape)


GROWTHS: tuple[Growth, ...] = (_first, _leading, _every)


def _in_order(array: Any) -> bool:
    """Whether the rows are sorted, and not by chance: a search takes no others."""
    if array.ndim == 0 or array.dtype.kind not in "fiu" or array.size < 5:
        return False
    return array.shape[-1] > 2 and np.array_equal(np.sort(array, -1), array, equal_nan=True)


def grown(sample: Any, growth: Growth, elements: int, rng: np.random.Generator) -> Any:
    """The sample with larger arrays, of about ``elements``, of values drawn from its own."""
    shapes: list[Shape] = []
    sample.map(lambda a: shapes.append(a.shape) or a)
    largest = max((math.prod(s) for s in shapes), default=0)
    if largest == 0 or elements <= largest:
        return sample if elements == 0 and largest else None
    factor = -(-elements // largest)
    if max(math.prod(growth(s, shapes, factor)) for s in shapes) > 8 * elements:
        return None  # a square of a long side

    def enlarge(array: Any) -> Any:
        shape = growth(array.shape, shapes, factor)
        if shape == array.shape:
            return array
        larger = rng.choice(array.reshape(-1), shape)
        return np.sort(larger, -1) if _in_order(array) else larger

    return sample.map(enlarge)


# ---- the check --------------------------------------------------------------------------------


def _served(context: Context, sample: Any) -> tuple[Any, list[str]]:
    """The result of a call, and the plugins whose kernels served this operator in it."""
    tensors = context.subject.tensors(sample)
    with observe() as log:
        result = context.call(tensors)
    return result, [o.plugin for o in log if o.op == context.op.name and o.kind == "kernel"]


def _fits(context: Context, sample: Any) -> bool:
    """Whether the operator takes a grown sample: its parameters may not suit the larger arrays."""
    try:
        _, shapes = context.rules(context.placed(sample))
        if any(math.prod(shape) > 8 * SIZES[-1] for shape in shapes or ()):
            return False
        context.call(context.subject.tensors(sample))
    except CoreDispatchError:
        return False
    return True


def grown_trials(context: Context, sample: Any) -> Iterator[Any]:
    """The sample, and the first growth of it to each size that the operator accepts."""
    rng = np.random.default_rng(context.case.seed)
    for size in SIZES:
        for growth in GROWTHS:
            larger = grown(sample, growth, size, rng)
            if larger is not None and _fits(context, larger):
                yield larger
                break


def short_trials(context: Context) -> Iterator[Any]:
    """The samples and their growths."""
    for sample in [*context.samples()]:
        yield from grown_trials(context, sample)


def long_trials(context: Context) -> Iterator[Any]:
    """Calls with one long dimension, whose sizes the other arguments follow."""
    dtype = numpy_dtype(context.case.dtype)
    make = Filling(context, dtype=dtype)
    for growth in growths(context, dtype):
        for size in SIZES[2:]:
            sample = growth.sample(context, growth.longest(size), make)
            if sample is not None and _fits(context, sample):
                yield sample


def turned_trials(context: Context) -> Iterator[Any]:
    """The growths with arrays that lie by columns: a kernel may take no others."""
    for sample in chain(short_trials(context), long_trials(context)):
        flat: list[bool] = []
        turned = sample.map(lambda a, flat=flat: flat.append(a.ndim < 2) or np.asfortranarray(a))
        if not all(flat):
            yield turned


#: where a call is looked for that the kernel serves, one kind after the other
TRIALS = (short_trials, long_trials, turned_trials)


@check(1, 8, plan=_plan, variant="kernel")
def every_kernel(context: Context) -> None:
    """A kernel beside the plain one serves calls of the size it takes, within the bound.

    One that packs of higher rank leave nothing to serve is no fault of either: it is not judged,
    which is said. So it is where the plain kernel serves the calls that all packs leave, small ones
    say: what counts is that this kernel takes others once it is asked first. Neither is one judged
    that serves half precision and nothing else, or all but that, in the cases of the other dtypes.
    """
    plugin, low = context.case.variant.partition("+")[2], half(context.subject)
    judged, others = 0, set()
    for trials in TRIALS:
        for trial in trials(context):
            result, seen = _served(context, trial)
            others.update(seen)
            if plugin in seen:
                context.close(result, trial)
                judged += 1
            if judged >= JUDGED:
                return
        if judged:
            return
    above = others & _above(context, plugin)
    if above and _takes_some(context, plugin):
        raise NotRun(
            f"{' and '.join(sorted(above))} took every call of {plugin} before it was asked: "
            f"COREDISPATCH_PLUGINS={plugin} certifies it"
        )
    if context.case.dtype == low:
        raise NotRun(f"{plugin} serves no calls of {low}")
    if _serves(context, plugin, low):
        raise NotRun(f"{plugin} serves {low}, and no calls of {context.case.dtype}")
    context.expect(False, f"no sample, however large, was served by {plugin}: nothing certifies it")


def _serves(context: Context, plugin: str, dtype: str | None) -> bool:
    """Whether the plugin serves calls of another dtype."""
    metadata = context.metadata
    if dtype is None or metadata is None or dtype not in metadata.dtypes:
        return False
    other = Context(context.subject, replace(context.case, dtype=dtype), metadata, context.fresh)
    trials = chain(short_trials(other), long_trials(other))
    return any(plugin in _served(other, trial)[1] for trial in trials)


def _takes_some(context: Context, plugin: str) -> bool:
    """Whether the plugin serves any call where it is asked before all others."""
    with _asked_first(context, plugin):
        calls = chain.from_iterable(trials(context) for trials in TRIALS)
        return any(plugin in _served(context, trial)[1] for trial in calls)


@contextmanager
def _asked_first(context: Context, plugin: str) -> Iterator[None]:
    """A block in which the plugin's kernels of the operator outrank all others."""
    slot = (context.op.name, context.subject.name, None)
    rows = TABLE.snapshot.registrations[slot]
    _publish(slot, tuple(sorted(rows, key=lambda kernel: kernel.plugin != plugin)))
    try:
        yield
    finally:
        _publish(slot, rows)


def _publish(slot: tuple[str, str, None], rows: tuple[Kernel, ...]) -> None:
    with TABLE.lock:
        now = TABLE.snapshot
        TABLE.publish(replace(now, registrations={**now.registrations, slot: rows}))


def _above(context: Context, plugin: str) -> set[str]:
    """The plugins that are asked before ``plugin`` for every call of the operator."""
    rows = TABLE.snapshot.registrations[context.op.name, context.subject.name, None]
    order = [k.plugin for k in rows]
    return set(order[: order.index(plugin)]) - set(order[order.index(plugin) :])
