"""The same elements lying another way in memory: windows of larger arrays, and repeated elements.

The layouts of the covering array lie in a buffer one way each. A window is cut out of a window: it
starts inside its memory, and what lies in its gaps are values like the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["BEHIND", "KEEPING", "REPEATING", "window"]

#: ways that keep the elements: gaps in every dimension; the dimensions in the opposite order in
#: memory; the last, the first and all dimensions from the end; the rows of a wider array; the
#: second dimension innermost, as in channels-last images; the last two dimensions exchanged;
#: the first two exchanged; beside each other, but behind others
KEEPING = (
    "gaps",
    "turned",
    "backwards",
    "upwards",
    "reversed",
    "cut",
    "channels",
    "swapped",
    "fronts",
    "offset",
)
#: ways of lying beside each other, and behind how many others: any number, and one of pairs
BEHIND = {"offset": 3, "behind pairs": 4}
#: ways in which one element stands for several: in the last dimension, in the first, in all of
#: them, and in windows that overlap
REPEATING = ("expanded", "alike", "one", "overlapping")


def window(array: Any, way: str = "gaps") -> Any:
    """An array of this shape in another way; of ways that keep them, with the same elements."""
    if way in REPEATING:
        return _repeated(array, way)
    if way in BEHIND:
        others = BEHIND[way]
        held = np.resize(_fill(array), array.size + others).astype(array.dtype)
        return _filled(held[others:].reshape(array.shape), array)
    if array.ndim == 0:
        held = np.resize(array.reshape(-1), 5).copy()
        held[3] = array
        return held[1:][2:3].reshape(())
    if way == "cut":
        *rows, columns = array.shape
        wider = np.resize(_fill(array), (*rows, columns + 3)).astype(array.dtype)
        return _filled(wider[..., 1 : columns + 1], array)
    if way in ("channels", "swapped", "fronts"):
        order = _order(array.ndim, way)
        packed = np.empty([array.shape[i] for i in order], array.dtype)
        return _filled(packed.transpose(np.argsort(order)), array)
    turned = way == "turned"
    shape = array.shape[::-1] if turned else array.shape
    held = np.resize(_fill(array), tuple(2 * n + 3 for n in shape)).copy()
    inner = held[tuple(slice(1, None) for _ in shape)]
    found = inner[tuple(slice(1, 2 * n + 1, 2) for n in shape)]
    found = found.transpose() if turned else found
    if way == "backwards":
        found = found[..., ::-1]
    elif way == "upwards":
        found = found[::-1]
    elif way == "reversed":
        found = found[tuple(slice(None, None, -1) for _ in shape)]
    return _filled(found, array)


def _fill(array: Any) -> Any:
    return array.reshape(-1)[::-1] if array.size else np.zeros(1, array.dtype)


def _filled(target: Any, array: Any) -> Any:
    target[...] = array
    return target


def _order(ndim: int, way: str) -> list[int]:
    """The dimensions from the outermost in memory to the innermost."""
    order = [*range(ndim)]
    if way == "channels" and ndim > 2:
        order.append(order.pop(1))
    elif way == "fronts":
        order[:2] = order[:2][::-1]
    else:
        order[-2:] = order[-2:][::-1]
    return order


def _repeated(array: Any, way: str) -> Any:
    if not array.ndim or not array.size:
        return array
    if way == "overlapping":
        length = sum(n - 1 for n in array.shape) + 1
        held = np.resize(np.array(array).reshape(-1), length)
        return np.ndarray(array.shape, array.dtype, held, 0, (array.itemsize,) * array.ndim)
    part = {"expanded": array[..., :1], "alike": array[:1], "one": array.reshape(-1)[:1]}[way]
    return np.broadcast_to(np.array(part), array.shape)
