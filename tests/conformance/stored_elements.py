"""The stored elements of packed data, found without knowing the layout.

A tensor is made of an array whose elements are all different, so each stored value tells the place
it stands for. An array of integers that gives one coordinate of these places, element by element,
is an index. What the indices leave open follows from where in its arrays an element stands - the
row, in compressed rows - so elements that agree in it may change places, and one may take another's
indices: then its place is stored twice. Coordinates, compressed rows and columns, blocks, padded
rows and numbers of places are all read this way; an array that encodes its indices is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Elements", "Reading", "different", "read", "read_again"]

Array = np.ndarray[Any, Any]
#: where an index lies: the part, the axis beside those of the elements and the number along it;
#: -1 and 0 where the part has the elements' axes only
At = tuple[str, int, int]
_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Reading:
    """How packed data of a layout are read.

    Attributes:
        values: the part that holds the values.
        axes: how many of its leading axes number the elements; the others are those of a block.
        within: for each dimension of the tensor the axis of a block that runs along it, or None.
        indices: the dimension that each index gives, and its unit, the length of a block. Beyond
            the dimensions come numbers of places: counted row by row, and column by column.
        moving: the parts with one entry for each element, beside indices.
    """

    values: str
    axes: int
    within: tuple[int | None, ...]
    indices: tuple[tuple[At, int, int], ...]
    moving: tuple[str, ...]

    def common(self, other: Reading) -> Reading | None:
        """What both say: a pointer may have as many entries as there are elements by chance."""
        if (self.values, self.axes, self.within) != (other.values, other.axes, other.within):
            return None
        indices = tuple(i for i in self.indices if i in other.indices)
        moving = tuple(m for m in self.moving if m in other.moving)
        return Reading(self.values, self.axes, self.within, indices, moving) if indices else None


def different(pattern: Array, dtype: Any) -> Array:
    """1, 2, 3 ... where ``pattern`` is not 0, and 0 elsewhere."""
    found = np.zeros(pattern.shape, dtype)
    stored = np.asarray(pattern) != 0
    found[stored] = np.arange(1, np.count_nonzero(stored) + 1)
    return found


def _places(values: Array, array: Array) -> Array | None:
    """The place of each value in ``array``, counted row by row, -1 for zeros.

    None where the values are not those of the array, each once.
    """
    flat = array.reshape(-1)
    stored = np.flatnonzero(flat)
    filled = values != 0
    if np.count_nonzero(filled) != stored.size or not stored.size:
        return None
    order = stored[np.argsort(flat[stored])]
    ranks = np.argsort(np.argsort(values[filled]))
    found = np.full(values.shape, -1, np.int64)
    found[filled] = order[ranks]
    return found if np.array_equal(flat[found[filled]], values[filled]) else None


def _constant(coordinates: Array, filled: Array, axes: int) -> Array | None:
    """The one number of each element, -1 without any; None where an element has several."""
    lead = filled.shape[:axes]
    each, kept = coordinates.reshape(*lead, -1), filled.reshape(*lead, -1)
    least = np.where(kept, each, _FAR).min(-1, initial=_FAR)
    most = np.where(kept, each, -_FAR).max(-1, initial=-_FAR)
    some = kept.any(-1)
    return np.where(some, most, -1) if np.array_equal(least[some], most[some]) else None


def _base(places: Array, shape: Any, d: int, axis: int | None, axes: int) -> Array | None:
    """Where each element begins in dimension ``d``, along which ``axis`` of a block runs."""
    filled = places >= 0
    along = np.unravel_index(np.where(filled, places, 0), shape)[d]
    if axis is not None:
        lengths = [-1 if i == axis else 1 for i in range(places.ndim)]
        along = along - np.arange(places.shape[axis]).reshape(lengths)
    return _constant(along, filled, axes)


def _bases(places: Array, shape: Any, axes: int) -> tuple[list[Array], tuple[int | None, ...]]:
    """For each dimension where an element begins, and the axis of a block that runs along it.

    Fewer than there are dimensions, where elements are no blocks.
    """
    found: list[Array] = []
    within: list[int | None] = []
    for d in range(len(shape)):
        for axis in (None, *range(axes, places.ndim)):
            base = _base(places, shape, d, axis, axes)
            if base is not None:
                found.append(base)
                within.append(axis)
                break
    return found, tuple(within)


def _rows(parts: Mapping[str, Any], lead: tuple[int, ...]) -> Iterator[tuple[At, Array]]:
    """The arrays of integers, and rows of such, that have one entry for each element."""
    n = len(lead)
    for name, part in parts.items():
        if not isinstance(part, np.ndarray) or part.dtype.kind not in "iu":
            continue
        if part.shape == lead:
            yield (name, -1, 0), part
        if part.ndim == n + 1:
            for axis in (0, n):
                if np.moveaxis(part, axis, 0).shape[1:] == lead:
                    for i, row in enumerate(np.moveaxis(part, axis, 0)):
                        yield (name, axis, i), row


def _numbers(bases: list[Array], within: tuple[int | None, ...], shape: Any) -> list[Array]:
    """The bases, and the numbers of the places that they come to, in both orders.

    Blocks have no such number, and those of one dimension are its coordinates.
    """
    if len(shape) == 1 or any(axis is not None for axis in within):
        return bases
    some = bases[0] >= 0
    each = [np.where(some, b, 0) for b in bases]
    both = (np.ravel_multi_index(each, shape, order=order) for order in ("C", "F"))
    return [*bases, *(np.where(some, number, -1) for number in both)]


def _unit(index: Array, base: Array) -> int | None:
    """What an index counts in, where it gives these numbers."""
    some = base > 0
    if not some.any() or not index[some].all():
        return None
    unit = int(base[some][0] // index[some][0])
    fits = np.array_equal(index[base >= 0] * unit, base[base >= 0])
    return unit if unit > 0 and fits else None


def read(parts: Mapping[str, Any], array: Array) -> Reading | None:
    """How the packed data of a tensor are read that stands for ``array``, of different elements.

    None where no array holds the values, or none the indices of them.
    """
    for name, values in parts.items():
        if not isinstance(values, np.ndarray) or values.dtype != array.dtype:
            continue
        places = _places(values, array)
        for axes in range(1, values.ndim + 1 if places is not None else 0):
            bases, within = _bases(places, array.shape, axes)
            if len(bases) < array.ndim:
                continue
            lead = values.shape[:axes]
            indices = tuple(
                (at, d, unit)
                for at, row in _rows(parts, lead)
                for d, base in enumerate(_numbers(bases, within, array.shape))
                if (unit := _unit(row, base)) is not None and np.unique(base).size > 1
            )
            if indices:
                others = parts.keys() - {name, *(at[0] for at, _, _ in indices)}
                moving = tuple(o for o in sorted(others) if np.shape(parts[o])[:axes] == lead)
                arrays = tuple(o for o in moving if isinstance(parts[o], np.ndarray))
                return Reading(name, axes, within, indices, arrays)
    return None


def read_again(reading: Reading, parts: Mapping[str, Any], array: Array) -> Elements | None:
    """The elements of another tensor of the layout; None where it cannot be read that way."""
    values = parts.get(reading.values)
    if not isinstance(values, np.ndarray) or values.dtype != array.dtype:
        return None
    places = _places(values, array) if values.ndim >= reading.axes else None
    if places is None or len(reading.within) != array.ndim:
        return None
    bases = []
    for d, axis in enumerate(reading.within):
        base = _base(places, array.shape, d, axis, reading.axes)
        if base is None:
            return None
        bases.append(base)
    lead = values.shape[: reading.axes]
    numbers, rows = _numbers(bases, reading.within, array.shape), dict(_rows(parts, lead))
    for at, d, unit in reading.indices:
        known = numbers[d] >= 0
        if at not in rows or not np.array_equal(rows[at][known] * unit, numbers[d][known]):
            return None
    return Elements(reading, lead, np.stack([b.reshape(-1) for b in bases], 1), places)


def _short(array: Array) -> Array:
    """The floating numbers of an array rounded to eight binary digits."""
    if array.dtype.kind == "c":
        return _short(array.view(array.real.dtype)).view(array.dtype)
    if array.dtype.kind != "f":
        return array
    significand, exponent = np.frexp(array)
    return np.ldexp(np.round(significand * 256) / 256, exponent)


@dataclass(frozen=True)
class Elements:
    """The stored elements of a tensor.

    Attributes:
        reading: how its packed data are read.
        lead: the lengths of the axes that number the elements.
        bases: ``(n, ndim)``, where each element begins; -1 for one of zeros only.
        places: the place of each value, counted row by row; -1 for zeros.
    """

    reading: Reading
    lead: tuple[int, ...]
    bases: Array
    places: Array

    def groups(self) -> list[Array]:
        """The numbers of the elements that differ in what indices give only, in stored order."""
        given = {d for _, d, _ in self.reading.indices}
        ndim = self.bases.shape[1]
        numbered = any(d >= ndim for d in given)
        open_dims = [] if numbered else [d for d in range(ndim) if d not in given]
        known = np.flatnonzero((self.bases >= 0).all(1))
        if not known.size:
            return []
        if not open_dims:
            return [known]
        _, which = np.unique(self.bases[known][:, open_dims], axis=0, return_inverse=True)
        which = which.reshape(-1)
        return [known[which == g] for g in range(which.max() + 1)]

    def _flat(self, part: Array, axis: int = -1) -> Array:
        """A copy of a part with the elements along its first axis."""
        found = np.array(part)
        if axis == 0:
            found = np.moveaxis(found, 0, -1)
        return found.reshape(int(np.prod(self.lead)), *found.shape[len(self.lead) :])

    def _unflat(self, flat: Array, part: Array, axis: int) -> Array:
        found = flat.reshape(*self.lead, *flat.shape[1:])
        return np.ascontiguousarray(np.moveaxis(found, -1, 0) if axis == 0 else found)

    def taken(self, parts: Mapping[str, Any], order: Array) -> dict[str, Any]:
        """The packed data with the elements in another order, all their entries alike."""
        found = dict(parts)
        axes = {at[0]: at[1] for at, _, _ in self.reading.indices}
        axes |= dict.fromkeys((self.reading.values, *self.reading.moving), -1)
        for name, axis in axes.items():
            found[name] = self._unflat(self._flat(parts[name], axis)[order], parts[name], axis)
        return found

    def repeated(
        self, parts: Mapping[str, Any], array: Array, runs: list[Array]
    ) -> tuple[dict[str, Any], Array]:
        """Packed data where elements have the indices of their run's first, and the dense form.

        Of an element ``v`` that is stored twice the parts are ``2 v`` and ``-v``; of one stored
        three times ``2 v``, ``-v/2`` and ``-v/2``. They add up exactly, in any order, because all
        values are shortened to a few digits. The elements that were there before are gone.
        """
        order = np.arange(int(np.prod(self.lead)))
        factors = np.ones(order.size)
        for run in runs:
            order[run] = run[0]
            factors[run] = -1.0 / (len(run) - 1)
            factors[run[0]] = 2.0
        found = self.taken(parts, order)
        values = _short(self._flat(found[self.reading.values]))
        values = values * factors.reshape(-1, *[1] * (values.ndim - 1)).astype(values.dtype)
        found[self.reading.values] = self._unflat(values, found[self.reading.values], -1)
        dense = np.ascontiguousarray(_short(np.array(array, subok=False)))
        gone = np.concatenate([run[1:] for run in runs])
        places = self._flat(self.places)[gone]
        dense.reshape(-1)[places[places >= 0]] = 0
        return found, dense
