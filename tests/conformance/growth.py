"""Samples made large: which dimensions of an operator's samples may grow, and how far.

Kernels change their code with size: vectors and their tails, blocks, packed matrices, threads.
A sample of the operator definition is kept as it is but for one dimension, which becomes long.
Which dimensions may grow, and which of other arrays must grow with them, is found by trying on
meta tensors, where nothing is computed. So is what the larger call would cost.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coredispatch.registry import CoreDispatchError

from .context import Context, tensors_in
from .options import PER_DIMENSION
from .reference import NoReference, Reference
from .templates import (
    DIMS,
    SIZES,
    Renamed,
    Template,
    changed,
    fits,
    named,
    renamed,
    repeated,
    templates,
)
from .variations import with_argument

__all__ = [
    "PROBE",
    "Filling",
    "Growth",
    "bearable",
    "candidates",
    "composed",
    "cost",
    "growths",
    "lengths",
    "long_lists",
    "measured",
    "needles",
    "switched",
    "takes",
]

#: the length that a dimension is tried with: no sample has it
PROBE = 37
#: elements of a call with many dimensions
LARGEST = 100_000
#: that the reference of one large call may take
SECONDS = 0.1
#: lines and calls of Python in a large call, where there are some for every unit
STEPS = 60_000
#: combinations of dimensions that are tried for one template
TRIED = 40
#: options that say how many elements of a long dimension are asked for
COUNTED = frozenset(("k",))
#: tensors of a long list
LISTED = 21
#: places in a long dimension behind which blocks begin
BORDERS = (4096, 1024, 512, 65536, 256, 2048, 16384, 128, 32768, 8192)

Axes = tuple[tuple[int, int], ...]
Make = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Growth:
    """One dimension of a template that may be long.

    Attributes:
        template: the sample and the requests behind its arrays.
        axes: ``(array, axis)`` of the dimensions that grow together.
        old: their size in the template.
        share: elements of all arrays together for each unit of the dimension.
        gives: which part of them the results have.
        steps: lines and calls of Python for each unit, in the operator and in its reference.
        alone: whether the sampler makes the sample's arrays after those of the samples before it,
            which then need not be large.
        renames: whether arguments and indices that hold the size change with it.
        names: the names of the arguments, in their order.
    """

    template: Template
    axes: Axes
    old: int
    share: float
    renames: bool
    names: tuple[str, ...]
    steps: float = 0.0
    gives: float = 0.0
    alone: bool = False

    @property
    def role(self) -> tuple[Any, ...]:
        """What distinguishes growths of several templates: which dimensions, and what is named."""
        shapes = self.template.shapes
        placed = tuple((i, j - len(shapes[i])) for i, j in self.axes)
        every = len(shapes) == 1 and not self.reduced  # batches of one array, images
        ranks = tuple(min(len(s), 9 if every or self.pooled else 2) for s in shapes)
        return placed, ranks, self.reduced, self.pooled

    @property
    def pooled(self) -> tuple[int, int] | None:
        """How many numbers the options have of which each dimension has its own, and the rank.

        None where no option is given per dimension. A kernel for one such dimension is another one
        than that for three, so each is asked for long dimensions.
        """
        if not PER_DIMENSION.keys() & {*self.names}:
            return None
        given = dict(zip(self.names, self.template.sample.args, strict=False))
        values = [v for name, v in given.items() if name in PER_DIMENSION]
        many = max((len(v) for v in values if isinstance(v, (tuple, list))), default=0)
        return many, len(self.template.shapes[0])

    @property
    def reduced(self) -> bool:
        """Whether an argument names the growing dimension of the first array."""
        first, axis = self.axes[0]
        ndim = len(self.template.shapes[first])
        sample = self.template.sample
        given = dict(zip(self.names, sample.args, strict=False)) | sample.kwargs
        for value in (value for name, value in given.items() if name in DIMS):
            for n in value if isinstance(value, (tuple, list)) else (value,):
                if type(n) is int and -ndim <= n < ndim and n % ndim == axis:
                    return True
        return False

    def longest(self, elements: int) -> int:
        """How long the dimension may be for so many elements."""
        longest = int(elements / max(self.share, 1.0))
        return longest if self.steps < 0.5 else min(longest, max(70, int(STEPS / self.steps)))

    def sample(self, context: Context, size: int, make: Make) -> Any:
        """The call with the dimension ``size`` long; ``make`` fills the arrays.

        None where the sampler cannot make it, or there are not so many places to name.
        """
        sizes = {self.old: size} if self.renames else {}
        if not self.template.whole:
            large = {self.old: size}
            return _by_sampler(context.op, self.template, {} if self.alone else large, large, make)
        made = {}
        grows: dict[int, list[int]] = {}
        for i, j in self.axes:
            grows.setdefault(i, []).append(j)
        for i, array in enumerate(self.template.arrays):
            request = self.template.requests[id(array)]
            axes = grows.get(i, [])
            if request.method == "mask" and not axes:
                made[id(array)] = array  # how many it chooses is a size of other arrays
                continue
            shape = tuple(size if j in axes else n for j, n in enumerate(array.shape))
            high = int(request.high or 0) if request.points else 0
            high = sizes.get(high, high)
            if not fits(request, shape, high):
                return None
            made[id(array)] = repeated(request, shape, make, high)

        def follow(name: str, value: Any) -> Any:
            if name in SIZES and isinstance(value, (tuple, list)):
                return type(value)(renamed(value, sizes))
            return value

        filled = self.template.sample.map(lambda a: made[id(a)])
        return changed(context.op, filled, follow) if sizes else filled


def _by_sampler(
    op: Any, template: Template, before: dict[int, int], sizes: dict[int, int], make: Make
) -> Any:
    """The sample that the operator definition makes where every size is another.

    The sampler makes the samples in front of it first, with the sizes ``before``. None where the
    size is no part of it: how many elements a random pattern has differs from call to call.
    """
    own = make.renaming(before)  # type: ignore[attr-defined]
    try:
        drawn = iter(op.samples(own))
        for _ in range(template.number):
            next(drawn)
        own.sizes, own.replaced = sizes, False
        sample = next(drawn, None)
        found: set[int] = set()
        if sample is not None:
            sample.map(lambda a: found.update(a.shape) or a)
        # An array of the samples before, which were as large, may be part of this one.
        return sample if own.replaced or found & {*sizes.values()} else None
    except Exception:  # the sampler's own arithmetic wants its own sizes
        return None


def _alone(context: Context, growth: Growth, make: Make) -> bool:
    """Whether the sampler makes the same sample where those before it keep their sizes."""
    if growth.template.whole:
        return False
    shapes: dict[bool, list[Any]] = {True: [], False: []}
    for alone, found in shapes.items():
        sample = replace(growth, alone=alone).sample(context, PROBE, make)
        if sample is None:
            return False
        sample.map(lambda a, found=found: found.append(a.shape) or a)
    return shapes[True] == shapes[False]


class Filling:
    """A ``make`` for larger arrays: the context's, of one dtype, layout and distribution."""

    def __init__(self, context: Context, **settings: Any) -> None:
        self.context, self.settings = context, settings
        self.own = context.make(**settings)

    def renaming(self, sizes: dict[int, int]) -> Any:
        """The same where every size has another in its place."""
        return self.context.make(lambda **given: Renamed(**given, sizes=sizes), **self.settings)

    def __call__(self, shape: Any, **bounds: Any) -> Any:
        return self.own(shape, **bounds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


# ---- which dimensions may grow ----------------------------------------------------------------


def growths(context: Context, dtype: Any, most: int = 1000) -> list[Growth]:
    """The dimensions of the op's samples that may be long, each role once, cheapest first.

    The search ends with ``most`` of them. What was found is kept with the subject.
    """
    known, key = context.subject.growths, (context.op.name, str(dtype))
    if key not in known or known[key][0] < most:
        known[key] = most, _search(context, dtype, most)
    return list(known[key][1][:most])


def _search(context: Context, dtype: Any, most: int) -> list[Growth]:
    found: dict[Any, Growth] = {}
    refused: Counter[Any] = Counter()
    make = Filling(context, dtype=dtype)
    params = tuple(p.name for p in context.op.schema.params)
    for template in templates(context.op, lambda kind: context.make(kind=kind, dtype=dtype)):
        if not template.arrays or any(0 in shape for shape in template.shapes):
            continue
        for axes, old in candidates(template):
            for renames in (True, False):
                trial = Growth(template, axes, old, 0.0, renames, params)
                role = trial.role
                better = found.get(role)
                if better is not None and _bare(better.template) <= _bare(template):
                    break
                if refused[role, renames] > 1:
                    continue
                tried = measured(context, trial, make)
                if tried is None:
                    refused[role, renames] += 1
                    continue
                found[role] = tried
                break
            if len(found) >= most:
                return [*found.values()]
    ordered = sorted(
        found.values(), key=lambda g: (-len({i for i, _ in g.axes}), g.share, str(g.role))
    )
    kinds: dict[Any, list[Growth]] = {}
    for growth in ordered:
        kinds.setdefault(growth.pooled, []).append(growth)
    turns = itertools.zip_longest(*kinds.values())  # a case ends before it has made every call
    return [growth for turn in turns for growth in turn if growth is not None]


def _bare(template: Template) -> int:
    return max(math.prod(shape) for shape in template.shapes)


def candidates(template: Template) -> Iterator[tuple[Axes, int]]:
    """Dimensions of one size that may belong together, the smallest sets first."""
    groups: dict[int, list[tuple[int, int]]] = {}
    for i, shape in enumerate(template.shapes):
        for j, n in enumerate(shape):
            if n > 1:
                groups.setdefault(n, []).append((i, j))
    for size, places in groups.items():
        if not template.whole:
            yield tuple(places), size
            continue
        sets: dict[Axes, None] = dict.fromkeys((place,) for place in places)
        by_array: dict[int, list[tuple[int, int]]] = {}
        for place in places:
            by_array.setdefault(place[0], []).append(place)
        for count in range(2, len(by_array) + 1):
            for arrays in itertools.combinations(by_array.values(), count):
                sets.update(dict.fromkeys(itertools.product(*arrays)))
        sets[tuple(places)] = None
        yield from ((axes, size) for axes in itertools.islice(sets, TRIED))


def _shapes_of(context: Context, sample: Any) -> list[tuple[int, ...]] | None:
    """Shapes of the results of a call, as the meta kernels say; None where the op refuses it."""
    from .checks.derived import needs_values, on_meta
    from .checks.values import VALUE_SHAPED

    tensors = context.subject.tensors(sample)
    try:
        if context.op.name in VALUE_SHAPED or context.op.mutates:
            found = context.op(*tensors.args, **tensors.kwargs)
        else:
            found = on_meta(context, tensors)
    except CoreDispatchError as error:
        if not needs_values(error):
            return None
        try:
            found = context.op(*tensors.args, **tensors.kwargs)
        except CoreDispatchError:
            return None
    except Exception:
        return None
    return [tuple(t.shape) for t in tensors_in(found)]


def cost(context: Context, sample: Any) -> float:
    """Elements of the arrays and results of a call; infinite where the op refuses it."""
    shapes = _shapes_of(context, context.placed(sample))
    if shapes is None:
        return math.inf
    return _elements(sample) + sum(map(math.prod, shapes))


def _elements(sample: Any) -> int:
    """Elements of the arrays of a call."""
    given: list[int] = []
    sample.map(lambda a: given.append(math.prod(a.shape)) or a)
    return sum(given)


def takes(context: Context, sample: Any) -> bool:
    """Whether the operator serves a call of a small size, and its reference has an opinion."""
    if sample is None:
        return False
    tensors = context.subject.tensors(context.placed(sample))
    try:
        context.op(*tensors.args, **tensors.kwargs)
        context.subject.synchronize()  # a device that computes later refuses later
    except Exception:
        return False
    try:
        Reference(context.op, sample)()
    except NoReference:
        return True
    except Exception:
        return False
    return True


def measured(context: Context, growth: Growth, make: Make) -> Growth | None:
    """The growth with what it costs; None where the op does not take a longer dimension."""
    totals, given, steps = [], [], []
    for size in (PROBE, 2 * PROBE):
        sample = growth.sample(context, size, make)
        if sample is None:
            return None
        totals.append(cost(context, sample))
        given.append(_elements(sample))
        if totals[-1] > LARGEST / 2:
            return None
    if totals[1] <= totals[0]:
        return None
    for size in (PROBE, 2 * PROBE):
        with counted() as seen:
            if not takes(context, growth.sample(context, size, make)):
                return None
        steps.append(seen.steps)
    # What grows with the square is given the share of a length that fits the budget.
    share = (totals[1] - totals[0]) / PROBE
    square = (totals[1] - 2 * totals[0]) / (2 * PROBE * PROBE)
    share = max(share, square * 256) if square > 0.5 else share
    alone = _alone(context, growth, make)
    gives = 1 - (given[1] - given[0]) / (totals[1] - totals[0])
    steps_each = (steps[1] - steps[0]) / PROBE
    return replace(growth, share=share, gives=gives, steps=steps_each, alone=alone)


class counted:
    """The lines that Python runs inside a ``with`` block, and the built-in functions it calls."""

    def __enter__(self) -> counted:
        self.steps = 0
        self.before = sys.gettrace(), sys.getprofile()
        sys.settrace(self._line)
        sys.setprofile(self._call)
        return self

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        self.steps += event == "line"
        return self._line

    def _call(self, frame: Any, event: str, argument: Any) -> None:
        self.steps += event == "c_call"

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before[0])
        sys.setprofile(self.before[1])


def bearable(context: Context, growth: Growth, size: int, make: Make) -> int:
    """``size``, or a smaller one where the reference of that would take too long.

    Products and factorizations grow faster than what they take and give. The length is raised
    fourfold at a time, and no further than to where the next step would be slow.
    """
    tried, seconds, slope = 64, 0.0, 1.5
    while tried < size:
        further = min(4 * tried, size)
        if seconds * (further / tried) ** slope > SECONDS:
            return tried
        tried = further
        if tried == size:
            break
        start = time.process_time()
        if not takes(context, growth.sample(context, tried, make)):
            return size  # the case will say what is wrong
        spent = max(time.process_time() - start, 1e-4)
        if seconds:
            slope = max(1.0, math.log(spent / seconds, 4))
        seconds = spent
    return size


def lengths(seed: int, longest: int, thresholds: tuple[int, ...] = ()) -> list[int]:
    """Lengths up to ``longest``: just beyond a power of two, odd, and around the thresholds.

    The largest power of two that fits comes first, with a tail, then a smaller one and one element.
    """
    rng = np.random.default_rng(seed)
    found = []
    if longest >= 66:
        most = int(math.log2(longest - 31)) if longest > 95 else 6
        for exponent in dict.fromkeys((most, max(6, most - int(rng.integers(2, 4))))):
            beyond = min(15, (longest - 2**exponent + 1) // 2)
            # The smaller one is one element past its blocks, whatever their size.
            tail = 0 if found else int(rng.integers(0, beyond))
            found.append(2**exponent + 2 * tail + 1)
    for threshold in thresholds:
        found += [n for n in (threshold - 1, threshold, threshold + 1) if 1 < n <= longest]
    return found


def composed(longest: int) -> list[int]:
    """Lengths that a transform takes apart otherwise: a power of two, a prime, small factors."""

    def is_prime(n: int) -> bool:
        return all(n % k for k in range(2, math.isqrt(n) + 1))

    power = 1 << (longest.bit_length() - 1)
    prime = next(n for n in range(power - 1, 1, -1) if is_prime(n))
    return [power, prime, power // 16 * 15]


def switched(context: Context, growth: Growth, size: int, make: Make) -> Iterator[Any]:
    """The long call with each switch turned, and more asked for where an option is a number of it.

    Only such as the operator takes for a shorter one.
    """
    op = context.op
    for param in op.schema.params:
        short, long = (growth.sample(context, n, make) for n in (3 * PROBE, size))
        if short is None or long is None:
            return
        own = dict(named(op, short)).get(param.name, param.default)
        if isinstance(own, bool):
            value: Any = not own
        elif param.name in COUNTED:
            value = 2 * PROBE
        else:
            continue
        if takes(context, with_argument(op, short, param.name, value)):
            yield with_argument(op, long, param.name, value)
            if param.name in COUNTED:  # others select where much of a row is asked for
                yield with_argument(op, long, param.name, size // 2 - 1)


def long_lists(context: Context, samples: Iterator[Any], count: int = LISTED) -> Iterator[Any]:
    """Calls with lists of ``count`` tensors, where the operator takes them; of one shape first."""

    def shapes(sample: Any) -> int:
        found: set[tuple[int, ...]] = set()
        sample.map(lambda a: found.add(a.shape) or a)
        return len(found)

    seen: set[str] = set()
    for sample in sorted(samples, key=shapes):
        options = repr([v for _, v in named(context.op, sample) if not isinstance(v, list)])
        if options in seen:
            continue
        for place, value in enumerate(sample.args):
            if not isinstance(value, list) or len(value) < 2:
                continue
            if not all(isinstance(item, np.ndarray) for item in value):
                continue
            args = [*sample.args]
            many = (value * count)[:count]  # no two within reach of each other alike
            args[place] = [np.roll(a, i + i // 16) if i >= 16 else a for i, a in enumerate(many)]
            longer = type(sample)(*args, **sample.kwargs)
            if cost(context, longer) < LARGEST and takes(context, longer):
                seen.add(options)  # the next one has another dim
                yield longer


# ---- what is hidden behind the border of a block ----------------------------------------------


def needles(sample: Any, growth: Growth, size: int, kind: int, seed: int) -> Any:
    """The sample with one odd element in each row, behind the border of a block.

    A carry that is lost, a tail that is skipped, and a block that is not merged change nothing
    in the sum of a thousand random numbers that a bound would notice. Here one element is
    unlike the others. What it is goes by turns, from ``kind`` on: large among small, low among
    high, a 2 among ones, a 1 among zeros.
    """
    arrays: list[Any] = []
    sample.map(lambda a: arrays.append(a) or a)
    number, axis = growth.axes[0]
    array = arrays[number]
    places = [size - 1, *(b for b in BORDERS if b < size), *(b - 1 for b in BORDERS if b <= size)]
    rows = np.moveaxis(array, axis, -1).reshape(-1, size)
    rows = np.array(rows)
    for r in range(rows.shape[0]):
        turn = (r + kind) % 4
        place = places[((r // 4) + seed) % len(places) if r >= 4 else 0]
        rows[r] = _odd(rows[r], place, turn)
    shape = [n for j, n in enumerate(array.shape) if j != axis]
    odd = np.ascontiguousarray(np.moveaxis(rows.reshape(*shape, size), -1, axis))
    return sample.map(lambda a: odd if a is array else a)


def _odd(row: Any, place: int, turn: int) -> Any:
    if row.dtype.kind == "b":
        row[:] = turn % 2
        row[place] = not turn % 2
        return row
    if turn > 1:
        row[:] = 3 - turn
        row[place] = 2 if turn == 2 else 1
        return row
    if row.dtype.kind in "fV":
        row[:] = np.abs(row) / 8 if turn == 0 else -np.abs(row) / 8
        row[place] = 200.0 if turn == 0 else -200.0
    else:
        row[:] = row % row.dtype.type(3) if row.dtype.kind in "iu" else row
        row[place] = 100 if turn == 0 or row.dtype.kind == "u" else -100
    return row
