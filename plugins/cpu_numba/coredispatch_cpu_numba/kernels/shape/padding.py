"""Borders of a number, and of mirrored, repeated or wrapped elements around two dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from coredispatch.plugin import CoreDispatchError, operator
from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.shape.copies import accepts_border, constant_pad_nd

__all__ = ["KERNELS", "LEAST"]

_SPLIT = 32768
_rows = Loop("shape.padding", "rows", _SPLIT)
_few_rows = _rows.compiled


def _places(length: int, before: int, after: int, mode: str) -> np.ndarray:
    """Where each element along a padded dimension comes from."""
    places = np.arange(-before, length + after)
    if mode == "replicate":
        return places.clip(0, length - 1)
    if mode == "circular":
        return places % length
    last = length - 1
    return last - np.abs(last - np.abs(places))


@lru_cache(maxsize=1024)
def _plan(shape: tuple[int, ...], pad: tuple[int, ...], mode: str, value: Any) -> Any:
    """The result's shape and what the loop takes; None for what is refused, or of other sizes."""
    if len(pad) not in (2, 4) or len(pad) > 2 * len(shape):
        return None
    if not prod(shape) or (mode == "circular" and min(pad) < 0):
        return None
    try:
        given = np.broadcast_to(np.float32(0), shape)
        padded = operator("pad").out_rule(given, pad, mode, value)
    except CoreDispatchError:
        return None
    if not prod(padded):
        return None
    h, w = (shape[-2] if len(pad) == 4 else 1), shape[-1]
    rows = _places(h, *pad[2:], mode) if len(pad) == 4 else np.zeros(1, np.int64)
    columns = _places(w, *pad[:2], mode)
    left = max(pad[0], 0)
    length = w + min(pad[0], 0) + min(pad[1], 0)
    return tuple(padded), rows, columns, left, max(length, 0), h, w, prod(padded[:-1])


def pad(input: np.ndarray, pad: Sequence[int], mode: str, value: Any) -> Any:
    """``input`` with borders of a number, or of its own elements."""
    if mode == "constant":
        filler = 0 if value is None else value
        accepted = accepts_border(input, pad, filler)
        return constant_pad_nd(input, tuple(pad), filler) if accepted else NotImplemented
    if not is_dense(input, 1):
        return NotImplemented
    plan = _plan(input.shape, tuple(pad), mode, value)
    if plan is None:
        return NotImplemented
    shape, rows, columns, left, length, h, w, count = plan
    out = np.empty(shape, input.dtype)
    if out.size < _SPLIT:  # Loop.__call__ written out
        launch, task, _ = _few_rows[input.dtype]
        launch(input, rows, columns, left, length, h, w, out, count, count, task, 0)
    else:
        arguments = (input, rows, columns, left, length, h, w, out)
        _rows(input.dtype, out.size, count, *arguments, weight=len(columns))
    return out


KERNELS: dict[str, Callable[..., Any]] = {"pad": pad}
LEAST: dict[str, int] = {"pad": 64}
