"""Recurrent layers: all steps of one direction of one layer in one call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import FLOATS, INT64, is_dense
from coredispatch_cpu_numba.entries import Loop

__all__ = ["FEW", "KERNELS", "every_step", "packed", "run_steps", "served"]

_SPLIT = 1 << 16
_BLOCK = 8  # as in the loops
_WIDTH = 128 // 4  # the widest panel
_pack = Loop("nn.recurrent", "pack", 1 << 62)
_pack_turned = Loop("nn.recurrent", "pack_turned", 1 << 62)
FEW = 4  # sequences for which packing costs more than it saves
_lstm, _lstm_few = (Loop("nn.recurrent", name, _SPLIT) for name in ("lstm", "lstm_few"))
_back, _back_few = (Loop("nn.recurrent", n, _SPLIT) for n in ("lstm_backward", "lstm_backward_few"))


def packed(matrix: np.ndarray, depth: int, columns: int, turned: bool) -> np.ndarray:
    """``matrix`` (depth, columns), or its transposed where ``turned``, as panels."""
    out = np.empty(depth * (columns + _WIDTH), matrix.dtype)
    pack = _pack_turned if turned else _pack
    pack(matrix.dtype, 1, 1, matrix, depth, columns, out)
    return out


def every_step(sizes: Any, rows: int) -> Any:
    """How many sequences have each step; one size alone holds for all steps of ``rows`` rows."""
    return tuple(sizes) * max(1, rows // sizes[0]) if len(sizes) == 1 and sizes[0] else sizes


def served(sizes: Any, batch: int, n: int, arrays: list[Any], weight: Any, gates: int = 4) -> bool:
    """Whether the loops take these arrays: dense, of one dtype, as large as ``sizes`` says.

    ``arrays`` are pairs of an array, or None, and of how many ``n`` numbers its rows are, of which
    there are ``sum(sizes)``; states are marked by 0 and are ``(batch, n)``. The
    loops check no index, so what does not fit goes to the decomposition, which says so.
    """
    own, rows = weight.dtype, sum(sizes)
    return (
        own in FLOATS
        and len(sizes) > 0
        and sizes[0] == batch
        and sizes[-1] >= 0
        and all(first >= then for first, then in pairwise(sizes))
        and is_dense(weight, 1)
        and weight.shape == (gates * n, n)
        and all(
            x is None
            or is_dense(x, 1)
            and x.dtype == own
            and x.shape == ((rows, width * n) if width else (batch, n))
            for x, width in arrays
        )
    )


def run_steps(
    loop: Loop, sizes: Any, reverse: bool, n: int, own: Any, first: Any, last: Any
) -> None:
    """The loop for arrays, what all loops need to know of the steps, and arrays."""
    batch, counts = sizes[0], np.array(sizes, INT64)
    starts = np.array([0, *accumulate(sizes)][:-1], INT64)
    edge = np.empty(batch * _WIDTH, own)
    blocks = (batch + _BLOCK - 1) // _BLOCK
    # As many parts as threads, or each would run through the weights for itself.
    parts = max(1, min(thread_count.wanted, blocks))
    steps = (counts, starts, len(sizes), int(reverse), batch, n, edge)
    work = sum(sizes) * n * n
    loop(own, work, blocks, *first, *steps, *last, grain=(blocks + parts - 1) // parts)


def lstm_sequence(
    gates: np.ndarray, h0: np.ndarray, c0: np.ndarray, weight_hh: np.ndarray, weight_hr: Any,
    sizes: Any, reverse: bool,
) -> Any:  # fmt: skip
    """Outputs, cells and activations of every step."""
    if h0.ndim != 2:
        return NotImplemented
    batch, n = h0.shape
    sizes = every_step(sizes, len(gates))
    arrays = [(gates, 4), (h0, 0), (c0, 0)]
    if weight_hr is not None or not served(sizes, batch, n, arrays, weight_hh):
        return NotImplemented
    own, shape = gates.dtype, (len(gates), n)
    few = batch < FEW
    weight = weight_hh if few else packed(weight_hh, n, 4 * n, True)
    out, cells, kept = np.empty(shape, own), np.empty(shape, own), np.empty_like(gates)
    given, made = (gates, h0.copy(), c0.copy(), weight), (out, cells, kept)
    run_steps(_lstm_few if few else _lstm, sizes, reverse, n, own, given, made)
    return out, cells, kept


def lstm_sequence_backward(
    of_output: Any, of_cells: Any, of_activations: Any, cells: np.ndarray, activations: np.ndarray,
    c0: np.ndarray, weight_hh: np.ndarray, weight_hr: Any, sizes: Any, reverse: bool,
) -> Any:  # fmt: skip
    """Gradients of the gates, of both first states, and no rows for a projection."""
    if c0.ndim != 2:
        return NotImplemented
    batch, n = c0.shape
    sizes = every_step(sizes, len(cells))
    arrays = [(cells, 1), (activations, 4), (c0, 0), (of_output, 1), (of_cells, 1)]
    skipped = weight_hr is not None or of_activations is not None
    if skipped or not served(sizes, batch, n, arrays, weight_hh):
        return NotImplemented
    own = cells.dtype
    few = batch < FEW
    weight = weight_hh if few else packed(weight_hh, 4 * n, n, False)
    z = np.empty_like(activations)
    dh, dc = np.zeros((batch, n), own), np.zeros((batch, n), own)
    outputs, known = of_output is not None, of_cells is not None
    given = (
        of_output if outputs else cells, int(outputs), of_cells if known else cells, int(known),
        cells, activations, c0, weight,
    )  # fmt: skip
    run_steps(_back_few if few else _back, sizes, reverse, n, own, given, (z, dh, dc))
    return z, dh, dc, np.empty((0, n), own)


KERNELS: dict[str, Callable[..., Any]] = {
    "lstm_sequence": lstm_sequence,
    "lstm_sequence_backward": lstm_sequence_backward,
}
