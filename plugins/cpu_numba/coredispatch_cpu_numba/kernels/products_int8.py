"""Products of 8-bit integers, requantized: what the quantized layers of a network are.

Signed activations are taken as unsigned ones plus 128, and unsigned weights as signed ones minus
128, so that one kind of product does. With the zero points so shifted, over ``K`` products

    sum (x - zx)(w - zw) = sum x w - zw sum x - zx sum w + K zx zw

of which all but the first two sums are known when the weight is packed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from math import prod
from operator import is_
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import INT64
from coredispatch_cpu_numba.entries import Loop

__all__ = ["KERNELS"]

_BYTES = np.dtype(np.uint8), np.dtype(np.int8)
_LEAST = 1 << 14  # multiplications
_SPLIT = 1 << 18
_linear = Loop("products_int8", "linear", _SPLIT)


@memoized
def _layout() -> tuple[int, int, int, int, int]:
    """Rows of a block, columns of a slab and of a panel, numbers of a word, words of a step."""
    from coredispatch_cpu_numba.loops import products_int8 as loops

    return loops.ROWS, loops.SLAB * loops.PANEL, loops.PANEL, loops.PER_WORD, loops.STEP


class _Packed:
    """A weight ``(columns, depth)`` in panels, and what its zero points come to."""

    def __init__(self, weight: np.ndarray) -> None:
        _, _, panel, per_word, step = _layout()
        columns, depth = weight.shape
        self.words = -(-depth // (per_word * step)) * step
        panels = -(-columns // panel)
        signed = weight if weight.dtype == np.int8 else (weight ^ np.uint8(128)).view(np.int8)
        shape = (panels * panel, self.words * per_word)
        padded = np.zeros(shape, np.int8 if per_word == 4 else np.int16)
        padded[:columns, :depth] = signed
        cut = padded.reshape(panels, panel, self.words, per_word).transpose(0, 2, 1, 3)
        self.panels = np.ascontiguousarray(cut)
        self.sums = signed.sum(1, dtype=np.int64)
        self.offset = 0 if weight.dtype == np.int8 else 128


class _Parameters:
    """What becomes of the sums of one product, column by column."""

    def __init__(
        self, weight: _Packed, channels: tuple[np.ndarray, ...], depth: int, zero: int
    ) -> None:
        panel = _layout()[2]
        columns = len(channels[0])
        zeros, bias, multiplier, shift = channels
        zeros = zeros - weight.offset
        start = bias - zero * weight.sums + depth * zero * zeros
        self.rows = np.zeros((4, -(-columns // panel) * panel), np.int32)
        # A conversion of numbers that do not fit wraps around, as the sums do.
        for row, values in zip(self.rows, (zeros, start, multiplier, shift), strict=True):
            row[:columns] = values.astype(np.int32)
        self.wide = bool((shift < 0).any())
        self.shifted = bool(zeros.any())


def _prepared(
    weight: np.ndarray, channels: tuple[np.ndarray, ...], zero: int, kept: Any
) -> tuple[_Packed, _Parameters]:
    """The packed weight and the parameters, from ``kept`` where they are there."""
    kept = {} if kept is None else kept
    packed = kept.get("cpu_numba.packed")
    if packed is None:
        packed = kept["cpu_numba.packed"] = _Packed(weight)
    known = kept.get("cpu_numba.parameters")
    if known is None or known[1] != zero or not all(map(is_, known[0], channels)):
        parameters = _Parameters(packed, channels, weight.shape[1], zero)
        known = kept["cpu_numba.parameters"] = channels, zero, parameters
    return packed, known[2]


def _is_bytes(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype in _BYTES and bool(x.flags.c_contiguous)


def requantized_linear(
    x: np.ndarray, weight: np.ndarray, zeros: np.ndarray, bias: np.ndarray,
    multiplier: np.ndarray, shift: np.ndarray, x_zero: int, zero: int, low: int, high: int,
    kept: Any = None,
) -> Any:  # fmt: skip
    """The bytes of ``x @ weight.T``, each column brought back to 8 bits by its parameters."""
    if not (_is_bytes(x) and _is_bytes(weight) and x.ndim and weight.ndim == 2):
        return NotImplemented
    (columns, depth), rows = weight.shape, prod(x.shape[:-1])
    if x.shape[-1] != depth or rows * columns * depth < _LEAST:
        return NotImplemented
    channels = zeros, bias, multiplier, shift
    if any(v.shape != (columns,) or v.dtype != INT64 for v in channels):
        return NotImplemented
    block, slab, _, per_word, step = _layout()
    flip = 0 if x.dtype == np.uint8 else 128
    packed, parameters = _prepared(weight, channels, x_zero + flip, kept)
    blocks, slabs = -(-rows // block), -(-columns // slab)
    threads = thread_count.wanted
    portions = 1 if threads == 1 or blocks >= 4 * threads else min(slabs, -(-4 * threads // blocks))
    words = packed.words
    direct = per_word == 4 and not flip and depth == 4 * words and not parameters.shifted
    room = words
    if step > 1:
        # Tiles are read whole, and rows that lie a multiple of 2048 bytes apart would share few
        # lines of the first cache: gathered ones lie an odd number of lines apart.
        direct = direct and rows % 16 == 0 and depth % 2048 != 0
        room += 0 if words // 16 % 2 else 16
    plan = np.array(
        [
            rows, depth, words, columns, zero, low, high, parameters.wide, parameters.shifted, flip,
            direct, portions, room,
        ]
    )  # fmt: skip
    out = np.empty((*x.shape[:-1], columns), x.dtype)
    units = blocks * portions
    grain = -(-units // (4 * threads))
    given = (x, packed.panels, parameters.rows, out, plan)
    _linear(_BYTES[0], rows * columns * depth, units, *given, grain=grain)
    return out


KERNELS: dict[str, Callable[..., Any]] = {"requantized_linear": requantized_linear}
