"""The stored elements of packed data are found in every common way to store indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coredispatch.conformance.stored_elements import different, read, read_again

SHAPE = (12, 20)
Parts = dict[str, Any]


def coordinates(array: Any) -> Parts:
    found = np.nonzero(array)
    return {"indices": np.array(found), "values": array[found], "size": list(array.shape)}


def interleaved(array: Any) -> Parts:
    found = np.nonzero(array)
    return {"indices": np.array(found).T.copy(), "values": array[found]}


def two_arrays(array: Any) -> Parts:
    """Beside rows and columns something of the author's own, for each element."""
    rows, columns = np.nonzero(array)
    mine = np.full(rows.shape, "x")
    return {"i": rows.astype(np.int32), "j": columns, "x": array[rows, columns], "mine": mine}


def rows(array: Any) -> Parts:
    found, columns = np.nonzero(array)
    starts = np.searchsorted(found, np.arange(array.shape[0] + 1))
    return {"crow": starts, "col": columns, "values": array[found, columns]}


def columns(array: Any) -> Parts:
    parts = rows(array.T)
    return {"ccol": parts["crow"], "row": parts["col"], "values": parts["values"]}


def numbers(array: Any) -> Parts:
    at = np.flatnonzero(array)
    return {"keys": at, "values": array.reshape(-1)[at]}


def numbers_by_column(array: Any) -> Parts:
    at = np.flatnonzero(array.T)
    return {"keys": at, "values": array.T.reshape(-1)[at]}


def blocks(array: Any, height: int = 2, width: int = 4) -> Parts:
    tiles = array.reshape(array.shape[0] // height, height, array.shape[1] // width, width)
    tiles = tiles.transpose(0, 2, 1, 3)
    found, columns = np.nonzero(tiles.any((2, 3)))
    starts = np.searchsorted(found, np.arange(len(tiles) + 1))
    return {"crow": starts, "col": columns, "values": tiles[found, columns]}


def padded_rows(array: Any) -> Parts:
    width = int((array != 0).sum(1).max())
    order = np.argsort(array == 0, axis=1, kind="stable")[:, :width]
    values = np.take_along_axis(array, order, 1)
    return {"col": np.where(values != 0, order, 0), "values": values}


def whole_rows(array: Any) -> Parts:
    found = np.flatnonzero(array.any(1))
    return {"indices": found[None], "values": array[found]}


def dense(make: Any, parts: Parts) -> Any:
    """The array that parts stand for: what is stored for one place adds up."""
    out = np.zeros(SHAPE)
    values = next(parts[name] for name in ("values", "x") if name in parts)
    if make in (coordinates, interleaved, two_arrays):
        at = parts["indices"] if "indices" in parts else np.array([parts["i"], parts["j"]])
        np.add.at(out, tuple(at if make is not interleaved else at.T), values)
    elif make in (rows, columns):
        starts, other = (parts[k] for k in (("crow", "col") if make is rows else ("ccol", "row")))
        major = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        np.add.at(out, (major, other) if make is rows else (other, major), values)
    elif make is numbers:
        np.add.at(out.reshape(-1), parts["keys"], values)
    elif make is numbers_by_column:
        turned = np.zeros(SHAPE[0] * SHAPE[1])
        np.add.at(turned, parts["keys"], values)
        out = turned.reshape(SHAPE[::-1]).T
    elif make is blocks:
        major = np.repeat(np.arange(len(parts["crow"]) - 1), np.diff(parts["crow"]))
        for i, j, block in zip(major, parts["col"], values, strict=True):
            out[2 * i : 2 * i + 2, 4 * j : 4 * j + 4] += block
    elif make is padded_rows:
        np.add.at(out, (np.arange(SHAPE[0])[:, None], parts["col"]), values)
    else:
        np.add.at(out, parts["indices"][0], values)
    return out


WAYS = (
    coordinates, interleaved, two_arrays, rows, columns, numbers, numbers_by_column, blocks,
    padded_rows, whole_rows,
)  # fmt: skip


def elements(make: Callable[[Any], Parts], seed: int) -> Any:
    """The elements of a random matrix, its parts and the matrix."""
    rng = np.random.default_rng(seed)
    keep = rng.random(SHAPE) < 0.3
    keep[[2, 7]] = False
    array = np.where(keep, rng.uniform(-2, 2, SHAPE), 0)
    readings = []
    for density in (0.5, 0.2):
        pattern = rng.random(SHAPE) < density
        pattern[[1, 5]] = False
        twin = different(pattern, np.float64)
        readings.append(read(make(twin), twin))
    reading = readings[0].common(readings[1])
    assert reading is not None
    twin = different(array, np.float64)
    found = read_again(reading, make(twin), twin)
    assert found is not None
    return found, make(array), array, rng


@pytest.mark.parametrize("make", WAYS)
def test_elements_change_places(make: Callable[[Any], Parts]) -> None:
    found, parts, array, rng = elements(make, 1)
    assert np.array_equal(dense(make, parts), array)
    groups = [g for g in found.groups() if g.size > 1]
    assert groups
    order = np.arange(len(found.bases))
    for group in groups:
        order[group] = rng.permutation(group)
    changed = found.taken(parts, order)
    assert any(not np.array_equal(changed[name], parts[name]) for name in parts)
    assert {name: np.shape(p) for name, p in changed.items()} == {
        name: np.shape(p) for name, p in parts.items()
    }
    assert np.array_equal(dense(make, changed), array)


@pytest.mark.parametrize("make", WAYS)
def test_a_place_is_stored_several_times(make: Callable[[Any], Parts]) -> None:
    found, parts, _, _ = elements(make, 2)
    for length in (2, 3):
        runs = [g[:length] for g in found.groups() if g.size >= length]
        assert runs
        changed, wanted = found.repeated(parts, dense(make, parts), runs)
        assert np.array_equal(dense(make, changed), wanted)


def test_groups_are_what_indices_leave_open() -> None:
    filled = elements(rows, 3)[2] != 0
    count = {make: len(elements(make, 3)[0].groups()) for make in WAYS}
    assert count[coordinates] == count[numbers] == count[whole_rows] == 1
    assert count[rows] == count[padded_rows] == np.count_nonzero(filled.any(1))
    assert count[columns] == np.count_nonzero(filled.any(0))
    assert count[blocks] == SHAPE[0] // 2


def diagonal(array: Any) -> Parts:
    return {"values": np.diag(array).copy()}


def steps(array: Any) -> Parts:
    """The distance of each element from the one before, which no element keeps elsewhere."""
    at = np.flatnonzero(array)
    return {"steps": np.diff(at, prepend=0), "values": array.reshape(-1)[at]}


def test_what_has_no_indices_or_hides_them_is_not_read() -> None:
    rng = np.random.default_rng(0)
    square = np.diag(np.arange(1.0, 8.0))
    assert read(diagonal(square), square) is None
    twin = different(rng.random(SHAPE) < 0.5, np.float64)
    assert read(steps(twin), twin) is None
    assert read({"data": twin.astype(np.int64), "scale": 0.5}, twin) is None
    assert read({"values": twin}, twin) is None


def test_a_pointer_is_not_taken_for_an_entry_of_each_element() -> None:
    array = np.zeros((4, 5))
    array[[0, 1, 1, 2, 3], [1, 0, 3, 2, 4]] = np.arange(1.0, 6.0)  # 5 elements, 5 row pointers
    one = read(rows(array), array)
    assert one is not None
    assert "crow" in one.moving
    twin = different(np.random.default_rng(1).random((4, 5)) < 0.9, np.float64)
    other = read(rows(twin), twin)
    assert other is not None
    both = one.common(other)
    assert both is not None
    assert both.moving == ()
