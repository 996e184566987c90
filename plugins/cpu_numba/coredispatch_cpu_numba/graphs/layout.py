"""How a loop nest goes through arrays: which dimensions are one, and by which strides."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Nest", "Unfit", "nest"]


class Unfit(Exception):
    """No loop is made of a group: its nodes run one by one."""


class Nest(NamedTuple):
    """The dimensions of a nest, after those were joined that every array goes through as one.

    Attributes:
        outer: the sizes of the dimensions around the innermost loop.
        inner: the size of the innermost one.
        strides: by operand, the strides in bytes of ``(*outer, inner)``; of an operand with one
            element per row the last one is 0.
    """

    outer: tuple[int, ...]
    inner: int
    strides: dict[Any, tuple[int, ...]]

    @property
    def rows(self) -> int:
        """How often the innermost loop runs."""
        return prod(self.outer)


def nest(
    shape: tuple[int, ...], inner: int, full: dict[Any, np.ndarray], rows: dict[Any, Any]
) -> Nest:
    """The nest for a group.

    Args:
        shape: what is gone through.
        inner: how many of the last dimensions must become the innermost loop; 0: as many as can.
        full: operands with an element for each element of ``shape``, to which they broadcast.
        rows: operands with an element for each row, as arrays that broadcast to the outer
            dimensions.

    Raises :class:`Unfit` where the inner dimensions of an operand cannot be one loop.
    """
    outer = shape[: len(shape) - inner] if inner else shape
    strides: dict[Any, list[int]] = {}
    for key, array in full.items():
        strides[key] = list(np.broadcast_to(array, shape).strides)
    for key, array in rows.items():
        own = np.broadcast_to(array, outer).strides
        strides[key] = [*own, *[0] * (len(shape) - len(outer))]
    sizes = list(shape)
    last = len(outer)  # the first inner dimension
    keep = [k for k in range(len(sizes)) if sizes[k] != 1]
    last = sum(1 for k in keep if k < last)
    sizes = [sizes[k] for k in keep]
    strides = {key: [own[k] for k in keep] for key, own in strides.items()}
    k = len(sizes) - 2
    while k >= 0:
        joined = all(own[k] == own[k + 1] * sizes[k + 1] for own in strides.values())
        if joined and (not inner or k + 1 != last):
            sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
            for own in strides.values():
                del own[k]
            last -= k + 1 <= last - 1
        k -= 1
    if not inner:
        last = max(len(sizes) - 1, 0)
    if len(sizes) - last > 1:
        raise Unfit("the dimensions of a row lie apart")
    if len(sizes) == last:  # rows of one element
        sizes.append(1)
        for own in strides.values():
            own.append(0)
    return Nest(tuple(sizes[:last]), sizes[last], {key: tuple(own) for key, own in strides.items()})
