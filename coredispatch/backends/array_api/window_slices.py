"""Windows over an array-API namespace: slices that meet every window at one position, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coredispatch.backends.array_api.namespace import is_half

__all__ = ["offset_index", "pad", "widened"]

Ints = Sequence[int]


def widened(xp: Any, x: Any) -> Any:
    """Half precision as float32, in which it accumulates; everything else as it is."""
    if is_half(x.dtype):
        return xp.astype(x, xp.float32)
    return x


def offset_index(offset: Ints, stride: Ints, dilation: Ints, output: Ints) -> tuple[Any, ...]:
    """Index of the elements that stand at kernel position ``offset`` of every window."""
    return (
        ...,
        *(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, s, n in zip(offset, dilation, stride, output)
        ),
    )


def pad(xp: Any, x: Any, before: Ints, after: Ints, value: Any = 0) -> Any:
    """The last ``len(before)`` dimensions padded, or cut where an amount is negative.

    By concatenation: the standard has no pad.
    """
    first = x.ndim - len(before)
    for i, (b, a) in enumerate(zip(before, after), first):
        if b < 0 or a < 0:
            cut = slice(max(-b, 0), x.shape[i] - max(-a, 0))
            x = x[(*(slice(None),) * i, cut, ...)]
        parts = [x]
        for amount, where in ((b, 0), (a, 1)):
            if amount > 0:
                shape = (*x.shape[:i], amount, *x.shape[i + 1 :])
                parts.insert(where * len(parts), xp.full(shape, value, dtype=x.dtype))
        if len(parts) > 1:
            x = xp.concat(parts, axis=i)
    return x
