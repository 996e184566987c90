"""Stored elements in another order, and places that are stored twice (check 27).

The data is packed and changed. ``unpack`` must refuse it in words, or take it for what it is.
Which of its arrays are indices is found by :mod:`..stored_elements`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from coredispatch.plugin import Layout, from_raw, laid_out, to_raw
from coredispatch.registry import CoreDispatchError
from coredispatch.registry.model.backend import TAKEN

from ..context import Context, Failure, NotRun
from ..stored_elements import Elements, Reading, different, read, read_again
from ..subject import numpy_dtype
from ..tensor_layouts import copies, dense, representable
from .layout_kernels import JUDGED, as_dense, calls, result_of

__all__ = ["ORDERS", "kernel_in_order", "packed_in_order"]

#: the variants, named as what ``Layout.takes`` names
ORDERS = TAKEN
#: shapes that show how a layout packs: large, and of lengths that differ from one another's and
#: from the number of elements; then those of layouts that hold square or even ones only
PROBES = ((41, 13, 7, 5), (12, 12, 12, 12), (32, 16, 8, 4))
#: parts of the elements that are stored; two, so that no length fits both by chance
DENSITIES = (0.5, 0.3)


@dataclass(frozen=True)
class Changed:
    """Packed data with changed elements.

    Attributes:
        what: the change, in words.
        parts: the data.
        array: what it stands for, dense.
        told: the numbers of which a refusal must name one, empty where there are too many.
    """

    what: str
    parts: dict[str, Any]
    array: Any
    told: frozenset[int] = frozenset()


#: elements, their packed data, the array, random numbers -> the changed data; None where there are
#: too few elements for it
Change = Callable[[Elements, dict[str, Any], Any, np.random.Generator], Changed | None]


def _several(elements: Elements) -> list[np.ndarray]:
    return [group for group in elements.groups() if group.size > 1]


def _pair(elements: Elements, rng: np.random.Generator) -> np.ndarray | None:
    """Two neighbours that may change places."""
    groups = _several(elements)
    if not groups:
        return None
    group = groups[rng.integers(len(groups))]
    at = rng.integers(group.size - 1)
    return group[at : at + 2]


def _named(elements: Elements, pair: np.ndarray) -> frozenset[int]:
    """The numbers that two elements go by: their coordinates, and those in stored order."""
    return frozenset(map(int, (*elements.bases[pair].reshape(-1), *pair)))


def _swapped(elements: Elements, parts: Any, array: Any, rng: Any) -> Changed | None:
    pair = _pair(elements, rng)
    if pair is None:
        return None
    order = np.arange(len(elements.bases))
    order[pair] = pair[::-1]
    told = _named(elements, pair)
    return Changed("two elements change places", elements.taken(parts, order), array, told)


def _turned(elements: Elements, parts: Any, array: Any, rng: Any) -> Changed | None:
    return _ordered(elements, parts, array, "elements stand backwards", np.flip)


def _shuffled(elements: Elements, parts: Any, array: Any, rng: Any) -> Changed | None:
    return _ordered(elements, parts, array, "elements are shuffled", rng.permutation)


def _ordered(
    elements: Elements, parts: Any, array: Any, what: str, order: Callable[[Any], Any]
) -> Changed | None:
    groups = _several(elements)
    if not groups:
        return None
    return Changed(what, elements.taken(parts, _in_groups(elements, groups, order)), array)


def _in_groups(elements: Elements, groups: Any, order: Callable[[Any], Any]) -> np.ndarray:
    found = np.arange(len(elements.bases))
    for group in groups:
        found[group] = order(group)
    return found


def _one_twice(elements: Elements, parts: Any, array: Any, rng: Any) -> Changed | None:
    pair = _pair(elements, rng)
    if pair is None:
        return None
    found = elements.repeated(parts, array, [pair])
    return Changed("a place is stored twice", *found, _named(elements, pair))


def _each_twice(elements: Elements, parts: Any, array: Any, rng: Any) -> Changed | None:
    runs = [g[i : i + 2] for g in _several(elements) for i in range(0, g.size - 1, 2)]
    if not runs:
        return None
    return Changed("places are stored twice", *elements.repeated(parts, array, runs))


def _repeated_anywhere(elements: Elements, parts: Any, array: Any, rng: Any) -> Changed | None:
    """Three elements with one place, or two, with others between them."""
    groups = _several(elements)
    if not groups:
        return None
    runs = []
    for group in groups:
        mixed = rng.permutation(group)
        runs += [run for i in range(0, mixed.size, 3) if (run := mixed[i : i + 3]).size > 1]
    found, dense_form = elements.repeated(parts, array, runs)
    order = _in_groups(elements, groups, rng.permutation)
    found = elements.taken(found, order)
    return Changed("places are stored several times, shuffled", found, dense_form)


#: variant -> the changes, each with what a layout must take for it
CHANGES: dict[str, tuple[tuple[Change, tuple[str, ...]], ...]] = {
    "unsorted": tuple((c, ("unsorted",)) for c in (_swapped, _turned, _shuffled)),
    "duplicates": (
        (_one_twice, ("duplicates",)),
        (_each_twice, ("duplicates",)),
        (_repeated_anywhere, ORDERS),
    ),
}


class _Reader:
    """How a layout packs, found once for each form and number of dimensions."""

    def __init__(self, context: Context, layout: Layout) -> None:
        self.context, self.layout = context, layout
        self.rng = np.random.default_rng(context.case.seed + context.fresh)
        self.dtype = numpy_dtype(context.case.dtype)
        self._known: dict[tuple[str, int], Reading | None] = {}

    def _packed(self, array: Any, form: str) -> dict[str, Any] | None:
        assert self.layout.pack is not None
        try:
            tensor = self.context.subject.tensor(laid_out(array, self.layout.name, form))
        except CoreDispatchError:
            return None
        return self.layout.pack(to_raw(tensor))

    def _probed(self, shape: tuple[int, ...], form: str) -> Reading | None:
        found = None
        for density in DENSITIES:
            pattern = different(self.rng.random(shape) < density, self.dtype)
            array = different(representable(self.layout, pattern, self.rng), self.dtype)
            parts = self._packed(array, form)
            one = None if parts is None else read(parts, array)
            if one is None:
                return None
            found = one if found is None else found.common(one)
        return found

    def reading(self, form: str, ndim: int) -> Reading | None:
        """How tensors of so many dimensions are packed; None where no index is found."""
        key = form, ndim
        if key not in self._known:
            probes = (self._probed(shape[:ndim], form) for shape in PROBES)
            self._known[key] = next((r for r in probes if r is not None), None) if ndim else None
        return self._known[key]

    def elements(self, parts: dict[str, Any], array: Any, form: str) -> Elements | None:
        """The stored elements of a tensor made of ``array``: those of one with the same pattern."""
        reading = self.reading(form, array.ndim)
        twin = different(array, self.dtype)
        packed = None if reading is None else self._packed(twin, form)
        if reading is None or packed is None:
            return None
        indices = {at[0] for at, _, _ in reading.indices}
        same = all(np.array_equal(packed[name], parts[name]) for name in indices)
        return read_again(reading, packed, twin) if same else None


def _flagged(parts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The data with each answer to what it says of itself: that it is sorted, say."""
    flags = [name for name, part in parts.items() if isinstance(part, (bool, np.bool_))]
    for answers in itertools.product((True, False), repeat=len(flags)):
        yield {**parts, **dict(zip(flags, answers, strict=True))}


def _taken(layout: Layout, changed: Changed) -> list[tuple[Any, dict[str, Any]]]:
    """What ``unpack`` makes of changed data, however it is flagged, with that data."""
    assert layout.unpack is not None
    found = []
    for parts in _flagged(changed.parts):
        try:
            found.append((layout.unpack(parts), parts))
        except CoreDispatchError:
            continue
    return found


# ---- the layout as a whole --------------------------------------------------------------------


def packed_in_order(
    context: Context, layout: Layout, tensors: Iterator[tuple[Any, Any, str]]
) -> None:
    """Packed data out of order, or with repeats, is refused in words, or stands for its sums."""
    assert layout.pack is not None
    reader, seen = _Reader(context, layout), set()
    variant = context.case.variant.partition("+")[2]
    for array, tensor, form in tensors:
        parts = layout.pack(to_raw(tensor))
        elements = reader.elements(parts, array, form)
        if elements is None:
            continue
        for change, asks in CHANGES[variant]:
            changed = change(elements, parts, array, reader.rng)
            if changed is not None:
                seen.add(asks)
                what = f"{layout.name} {form} of {array.shape}, {changed.what}"
                _judge(context, layout, changed, asks, dense(tensor), what)
    if seen:
        return
    context.expect(
        not layout.takes,
        f"takes={layout.takes!r}, but none of the packed arrays gives the indices of elements",
    )
    raise NotRun("none of the packed arrays gives the indices of elements")


def _judge(
    context: Context, layout: Layout, changed: Changed, asks: Any, like: Any, what: str
) -> None:
    assert layout.unpack is not None
    taken = []
    for parts in _flagged(changed.parts):
        try:
            taken.append(layout.unpack(parts))
        except CoreDispatchError as error:
            numbers = {int(n) for n in re.findall(r"\d+", str(error))}
            told = not changed.told or numbers & changed.told
            context.expect(
                told,
                f"{what}: unpack refuses it, and names neither place nor number of the elements, "
                f"{sorted(changed.told)}: {error}",
            )
        except Exception as error:
            raise Failure(f"{what}: unpack ends in {type(error).__name__}: {error}") from error
    if layout.takes is not None:
        declared = set(asks) <= set(layout.takes)
        context.expect(
            taken or not declared, f"{what}: unpack refuses what the layout declares that it takes"
        )
        context.expect(
            not taken or declared,
            f"{what}: unpack takes it, and takes={layout.takes!r} does not declare it",
        )
    for raw in taken:
        tensor = from_raw(raw, keys_like=like, layout=layout.name)
        _stands_for(context, tensor, changed.array, what)
        for way, back in copies(tensor):
            _stands_for(context, back, changed.array, f"{what}, {way}")


def _stands_for(context: Context, tensor: Any, array: Any, what: str) -> None:
    """Assert that the elements of a tensor add up to those of an array."""
    found = context.subject.array(dense(tensor))
    alike = found.shape == array.shape and found.dtype == array.dtype
    context.expect(alike, f"{what}: it is {found.dtype} {found.shape}")
    wide, wanted = (a.astype(np.result_type(a, np.float64)) for a in (found, array))
    eps = np.finfo(array.dtype).eps if array.dtype.kind in "fc" else 2.0**-7
    context.expect(
        (np.abs(wide - wanted) <= 8 * eps * np.abs(wanted)).all(),
        f"{what}: it stands for {wanted.tolist()}, but to_dense gives {wide.tolist()}",
    )


# ---- kernels ----------------------------------------------------------------------------------


def kernel_in_order(context: Context, layout: Layout) -> None:
    """The kernel of a layout gives for changed data what the operator gives for its dense form."""
    assert layout.pack is not None
    reader, served, read_any = _Reader(context, layout), 0, False
    variant = context.case.variant.partition("+")[2]
    for sample, chosen in calls(context, layout):
        tensors = context.subject.tensors(sample)
        packed = {i: layout.pack(to_raw(tensors.args[i])) for i in chosen}
        elements = {
            i: reader.elements(packed[i], np.asarray(sample.args[i]), sample.args[i].form)
            for i in chosen
        }
        read_any = read_any or any(e is not None for e in elements.values())
        for change, _ in CHANGES[variant]:
            changes = {
                i: changed
                for i in chosen
                if (e := elements[i]) is not None
                and (changed := change(e, packed[i], np.asarray(sample.args[i]), reader.rng))
            }
            if len(changes) == 2 and reader.rng.random() < 0.5:  # one beside another as it was
                del changes[int(reader.rng.choice(chosen))]
            for given, call, data in _versions(context, layout, sample, tensors, changes):
                context.sample, context.packed = given, data
                served += _agrees(context, layout, given, call, changes)
        if served >= JUDGED:
            return
    if not served:
        raise NotRun(
            "unpack or the kernel refuses such data"
            if read_any
            else "none of the packed arrays gives the indices of elements"
        )


def _versions(
    context: Context, layout: Layout, sample: Any, tensors: Any, changes: dict[int, Changed]
) -> Iterator[tuple[Any, Any, dict[int, dict[str, Any]]]]:
    """Samples, calls with changed tensors that stand for them, and the data of these tensors."""
    taken = {i: _taken(layout, changed) for i, changed in changes.items()}
    if not taken or not all(taken.values()):
        return
    for n in range(max(map(len, taken.values()))):
        args, plain = [*tensors.args], [*sample.args]
        data = {i: found[n % len(found)] for i, found in taken.items()}
        for i, (raw, _) in data.items():
            args[i] = from_raw(raw, keys_like=dense(tensors.args[i]), layout=layout.name)
            plain[i] = laid_out(changes[i].array, layout.name, sample.args[i].form)
        given = type(sample)(*plain, **sample.kwargs)
        call = type(tensors)(*args, **tensors.kwargs)
        yield given, call, {i: parts for i, (_, parts) in data.items()}


def _agrees(
    context: Context, layout: Layout, given: Any, call: Any, changes: dict[int, Changed]
) -> bool:
    """Whether a call is served: assert that it gives what the dense one does, or is refused."""
    try:
        result = result_of(context, layout, call)
        if result is not None:
            as_dense(context, result, given)
    except Failure as failure:
        words = ", ".join(f"in argument {i} {c.what}" for i, c in changes.items())
        raise Failure(f"{words}: {failure}") from failure
    return result is not None
