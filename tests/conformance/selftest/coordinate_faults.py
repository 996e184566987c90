"""Curated faults of layouts that store indices: what sparse kernels assume of order and of repeats.

Each is right for elements in order of which no place comes twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import coordinate_layout
from .coordinate_layout import NAME, Coordinates, kept_axes, places, rising, settled
from .framework import replaced
from .mutants import Mutant

__all__ = ["coordinate_controls", "coordinate_faults"]

UNSORTED = r"\+unsorted"
DUPLICATES = r"\+duplicates"


# ---- faults of kernels ------------------------------------------------------------------------


def last_of_duplicates(correct: Any, raws: Any) -> Any:
    """Dense by assignment: the last of several elements at a place stays."""
    (self,) = raws
    out = np.zeros(self.shape, self.dtype)
    out[tuple(self.indices)] = self.values
    return out


def runs_of_two(correct: Any, raws: Any) -> Any:
    """Dense by adding up neighbours of one place: in order, repeats are neighbours."""
    (self,) = raws
    at, out = places(self), np.zeros(self.shape, self.dtype)
    if at.size:
        starts = np.flatnonzero(np.r_[True, np.diff(at) != 0])
        out.reshape(-1)[at[starts]] = np.add.reduceat(self.values, starts)
    return out


def _row_starts(self: Coordinates) -> Any:
    return np.searchsorted(self.indices[0], np.arange(self.shape[0] + 1))


def rows_by_search(correct: Any, raws: Any) -> Any:
    """The product finds the elements of a row by binary search in the row indices."""
    self, other = raws
    if not isinstance(self, Coordinates) or self.ndim != 2 or not hasattr(other, "ndim"):
        return correct(*raws)
    if other.ndim not in (1, 2) or other.shape[0] != self.shape[1]:
        return correct(*raws)
    starts = _row_starts(self)
    out = np.zeros((self.shape[0], *other.shape[1:]), np.result_type(self.dtype, other.dtype))
    for row, (first, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        out[row] = self.values[first:end] @ other[self.indices[1, first:end]]
    return out


def product_overwrites(correct: Any, raws: Any) -> Any:
    """The product keeps one element of each place: those before it are overwritten."""
    self, *rest = raws
    if not isinstance(self, Coordinates):
        return correct(*raws)
    return correct(_last(self), *rest)


def _last(self: Coordinates) -> Coordinates:
    _, at = np.unique(places(self)[::-1], return_index=True)
    at = self.values.size - 1 - at
    return Coordinates(self.indices[:, at], self.values[at], self.shape, True)


def sum_of_runs(correct: Any, raws: Any) -> Any:
    """A sum over columns adds up runs of one row and writes each sum to its row."""
    self, dim, *rest = (*raws, None)[:2] if len(raws) < 2 else raws
    if self.ndim != 2 or not self.values.size or kept_axes(self, dim) != (0,) or any(rest):
        return correct(*raws)
    rows, out = self.indices[0], np.zeros(self.shape[0], self.dtype)
    starts = np.flatnonzero(np.r_[True, np.diff(rows) != 0])
    out[rows[starts]] = np.add.reduceat(self.values, starts)
    return out


def absolute_as_stored(correct: Any, raws: Any) -> Any:
    """The magnitudes of what is stored, whether or not a place comes twice."""
    return raws[0].with_values(np.abs(raws[0].values))


def largest_as_stored(correct: Any, raws: Any) -> Any:
    """The largest of what is stored, whether or not a place comes twice."""
    self, *rest = raws
    claimed = Coordinates(self.indices, self.values, self.shape, True)
    return correct(claimed, *rest)


def product_by_search(correct: Any, raws: Any) -> Any:
    """The places of one factor are looked up in the other by binary search."""
    self, other = raws
    if not (isinstance(self, Coordinates) and isinstance(other, Coordinates)):
        return correct(*raws)
    if self.shape != other.shape or not other.values.size:
        return correct(*raws)
    wanted, known = places(self), places(other)
    at = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    values = np.where(known[at] == wanted, self.values * other.values[at], 0)
    return self.with_values(values.astype(self.dtype))


def sum_of_like_patterns(correct: Any, raws: Any) -> Any:
    """Tensors that store the same places are added value by value, in whatever order they are."""
    self, other = raws
    if not (isinstance(self, Coordinates) and isinstance(other, Coordinates)):
        return correct(*raws)
    if self.shape == other.shape and np.array_equal(np.sort(places(self)), np.sort(places(other))):
        return self.with_values(self.values + other.values)
    return correct(*raws)


def transpose_claims(correct: Any, raws: Any) -> Any:
    """The transpose is sorted, and called coalesced: repeats are still in it."""
    result = correct(*raws)
    order = np.argsort(places(result), kind="stable") if result.values.size else []
    return Coordinates(result.indices[:, order], result.values[order], result.shape, True)


def clone_keeps_the_claim(correct: Any, raws: Any) -> Any:
    """A copy is called coalesced, whatever it is a copy of."""
    result = correct(*raws)
    return Coordinates(result.indices, result.values, result.shape, True)


def negated_first(correct: Any, raws: Any) -> Any:
    """Of several elements at a place the first is negated only."""
    (self,) = raws
    values = self.values.copy()
    _, first = np.unique(places(self), return_index=True)
    values[first] = -values[first]
    return self.with_values(values)


#: name -> (operator, fault, pattern of the cases that notice)
KERNEL_FAULTS: dict[str, tuple[str, Callable[[Any, Any], Any], str]] = {
    "dense is the last of duplicates": ("coordinates_to_dense", last_of_duplicates, DUPLICATES),
    "dense adds up neighbours": ("coordinates_to_dense", runs_of_two, DUPLICATES),
    "product finds rows by binary search": ("matmul", rows_by_search, UNSORTED),
    "product overwrites duplicates": ("matmul", product_overwrites, DUPLICATES),
    "sum over a dimension adds up runs": ("sum", sum_of_runs, UNSORTED),
    "abs without coalescing": ("abs", absolute_as_stored, DUPLICATES),
    "maximum without coalescing": ("amax", largest_as_stored, DUPLICATES),
    "product of two finds places by binary search": ("mul", product_by_search, UNSORTED),
    "sum of like patterns, value by value": ("add", sum_of_like_patterns, UNSORTED),
    "transpose with repeats is called coalesced": ("permute", transpose_claims, DUPLICATES),
    "copy is called coalesced": ("clone", clone_keeps_the_claim, DUPLICATES),
    "first of duplicates is negated": ("neg", negated_first, DUPLICATES),
}


# ---- faults of the layout ---------------------------------------------------------------------


def _checked_by(check: Callable[[Coordinates], None]) -> Any:
    return lambda: replaced((coordinate_layout, "check", check))


def _no_check(raw: Coordinates) -> None:
    """What is said to be coalesced is believed."""


def _too_strict(raw: Coordinates) -> None:
    """Elements out of order are refused, though the layout declares that it takes them."""
    if not rising(raw):
        from coredispatch.plugin import ArgumentError

        raise ArgumentError(f"the elements at {raw.indices.T.tolist()} are out of order")


def _says_nothing(raw: Coordinates) -> None:
    """Elements out of order are refused without a word about them."""
    if raw.coalesced and not rising(raw):
        from coredispatch.plugin import ArgumentError

        raise ArgumentError("invalid data")


def _breaks(raw: Coordinates) -> None:
    """Elements out of order end in an error of NumPy's."""
    if raw.coalesced and not rising(raw):
        raise IndexError("index out of range")


#: name -> (what checks packed data, pattern of the cases that notice, what they say)
LAYOUT_FAULTS: dict[str, tuple[Callable[[Coordinates], None], str, str]] = {
    "packed data is believed": (_no_check, DUPLICATES, "stands for"),
    "packed data in any order is refused": (_too_strict, UNSORTED, "declares that it takes"),
    "packed data is refused without a word": (_says_nothing, UNSORTED, "names neither"),
    "packed data ends in an error of NumPy": (_breaks, UNSORTED, "IndexError"),
}


def coordinate_faults() -> list[Mutant]:
    """The faults as mutants; the layout is loaded with them."""
    of_kernels = [
        Mutant(
            f"coordinates: {name}",
            op,
            fault,
            ops=("backend", op),
            profiles=(NAME,),
            needs=NAME,
            checks=(27,),
            cases=cases,
            says="stands for|output 0",
        )
        for name, (op, fault, cases) in KERNEL_FAULTS.items()
    ]
    return of_kernels + [
        Mutant(
            f"coordinates: {name}",
            "",
            patch=_checked_by(check),
            ops=("backend",),
            profiles=(NAME,),
            checks=(27,),
            cases=cases,
            says=says,
        )
        for name, (check, cases, says) in LAYOUT_FAULTS.items()
    ]


# ---- controls ---------------------------------------------------------------------------------


def _settled_first(correct: Any, raws: Any) -> Any:
    """Coalesces what it is given."""
    return correct(*(settled(r) if isinstance(r, Coordinates) else r for r in raws))


def _turned_result(correct: Any, raws: Any) -> Any:
    """Gives the elements of the result from the last to the first, and a zero beside each."""
    result = correct(*raws)
    if not isinstance(result, Coordinates):
        return result
    values = np.concatenate([result.values[::-1], np.zeros_like(result.values)])
    indices = np.concatenate([result.indices[:, ::-1], result.indices], 1)
    return Coordinates(indices, values, result.shape, False)


def _turned_operands(correct: Any, raws: Any) -> Any:
    """Adds up in another order."""

    def turned(r: Any) -> Any:
        if not isinstance(r, Coordinates):
            return r
        return Coordinates(r.indices[:, ::-1], r.values[::-1], r.shape, r.values.size < 2)

    return correct(*map(turned, raws))


def coordinate_controls() -> list[Mutant]:
    """Correct kernels: what they coalesce, and in which order, is their own business."""
    return [
        Mutant(
            f"coordinates: {name} ({op})",
            op,
            control,
            ops=("backend", op),
            profiles=(NAME,),
            needs=NAME,
            checks=(27,),
            cases=NAME,
        )
        for name, control, ops in (
            ("operands are coalesced", _settled_first, ("matmul", "sum", "neg", "permute")),
            ("results are turned", _turned_result, ("add", "mul", "abs")),
            ("operands are turned", _turned_operands, ("coordinates_to_dense", "matmul", "sum")),
        )
        for op in ops
    ]
