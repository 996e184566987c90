"""Recurrent layers in bfloat16, where the processor has instructions for their products."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from coredispatch_cpu_numba import thread_count
from coredispatch_cpu_numba.arrays import INT64
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.linalg.products_bfloat16 import (
    BFLOAT16,
    PRIORITY,
    has_pairs,
    has_panels,
    tiles_packed,
)
from coredispatch_cpu_numba.kernels.nn.recurrent import every_step

__all__ = ["KERNELS", "PRIORITY", "WHEN"]

_SPLIT = 1 << 16
_BLOCK, _WIDTH = 8, 32  # as in the loops
_FEW = 4  # sequences for which packing costs more than it saves
_pack, _pack_turned = (
    Loop("nn.recurrent_bfloat16", name, 1 << 62) for name in ("pack", "pack_turned")
)
_lstm = Loop("nn.recurrent_bfloat16", "lstm", _SPLIT)
_back = Loop("nn.recurrent_bfloat16", "lstm_backward", _SPLIT)


def _packed(matrix: np.ndarray, depth: int, columns: int, turned: bool) -> np.ndarray:
    """``matrix`` (depth, columns), or its transposed where ``turned``, as the loops take it."""
    if has_panels():
        return tiles_packed(matrix, depth, columns, turned)
    out = np.empty(depth * (columns + _WIDTH), BFLOAT16)
    pack = _pack_turned if turned else _pack
    pack(BFLOAT16, 1, 1, matrix, depth, columns, out)
    return out


def _served(sizes: Any, batch: int, n: int, arrays: list[Any], weight: Any) -> bool:
    """Whether the loops take these arrays: dense, of bfloat16, as large as ``sizes`` says.

    As in ``kernels/nn/recurrent.py``; rows are read in pairs, so that ``n`` must be even.
    """
    rows = sum(sizes)
    return (
        batch >= _FEW
        and n % 2 == 0
        and n > 0
        and len(sizes) > 0
        and sizes[0] == batch
        and sizes[-1] >= 0
        and all(first >= then for first, then in pairwise(sizes))
        and weight.shape == (4 * n, n)
        and all(
            x is None
            or type(x) is np.ndarray
            and x.dtype == BFLOAT16
            and bool(x.flags.c_contiguous)
            and x.shape == shape
            for x, shape in [
                (weight, (4 * n, n)),
                *((x, (rows, width * n) if width else (batch, n)) for x, width in arrays),
            ]
        )
        and has_pairs()
    )


def _run(loop: Loop, sizes: Any, reverse: bool, n: int, first: Any, last: Any) -> None:
    """The loop for arrays, what all loops need to know of the steps, and arrays."""
    batch, counts = sizes[0], np.array(sizes, INT64)
    starts = np.array([0, *accumulate(sizes)][:-1], INT64)
    blocks = (batch + _BLOCK - 1) // _BLOCK
    parts = max(1, min(thread_count.wanted, blocks))
    steps = (counts, starts, len(sizes), int(reverse), batch, n)
    work = sum(sizes) * n * n
    loop(BFLOAT16, work, blocks, *first, *steps, *last, grain=(blocks + parts - 1) // parts)


def lstm_sequence(
    gates: np.ndarray, h0: np.ndarray, c0: np.ndarray, weight_hh: np.ndarray, weight_hr: Any,
    sizes: Any, reverse: bool,
) -> Any:  # fmt: skip
    """Outputs, cells and activations of every step."""
    if h0.ndim != 2 or weight_hr is not None:
        return NotImplemented
    batch, n = h0.shape
    sizes = every_step(sizes, len(gates))
    if not _served(sizes, batch, n, [(gates, 4), (h0, 0), (c0, 0)], weight_hh):
        return NotImplemented
    weight = _packed(weight_hh, n, 4 * n, True)
    out, cells = (np.empty((len(gates), n), BFLOAT16) for _ in range(2))
    kept = np.empty(gates.shape, BFLOAT16)
    given = (gates, h0.copy(), c0.astype(np.float32), weight)
    _run(_lstm, sizes, reverse, n, given, (out, cells, kept))
    return out, cells, kept


def lstm_sequence_backward(
    of_output: Any, of_cells: Any, of_activations: Any, cells: np.ndarray, activations: np.ndarray,
    c0: np.ndarray, weight_hh: np.ndarray, weight_hr: Any, sizes: Any, reverse: bool,
) -> Any:  # fmt: skip
    """Gradients of the gates, of both first states, and no rows for a projection."""
    if c0.ndim != 2 or weight_hr is not None or of_activations is not None:
        return NotImplemented
    batch, n = c0.shape
    sizes = every_step(sizes, len(cells))
    arrays = [(cells, 1), (activations, 4), (c0, 0), (of_output, 1), (of_cells, 1)]
    if not _served(sizes, batch, n, arrays, weight_hh):
        return NotImplemented
    weight = _packed(weight_hh, 4 * n, n, False)
    z = np.empty(activations.shape, BFLOAT16)
    dh, dc = np.zeros((batch, n), np.float32), np.zeros((batch, n), np.float32)
    outputs, known = of_output is not None, of_cells is not None
    given = (
        of_output if outputs else cells, int(outputs), of_cells if known else cells, int(known),
        cells, activations, c0, weight,
    )  # fmt: skip
    _run(_back, sizes, reverse, n, given, (z, dh, dc))
    return z, dh.astype(BFLOAT16), dc.astype(BFLOAT16), np.empty((0, n), BFLOAT16)


def _accepts(*args: Any) -> bool:
    """Whether the first array is of bfloat16."""
    for x in args:
        if x is not None:
            return type(x) is np.ndarray and x.dtype == BFLOAT16
    return False


KERNELS: dict[str, Callable[..., Any]] = {
    "lstm_sequence": lstm_sequence,
    "lstm_sequence_backward": lstm_sequence_backward,
}
WHEN: dict[str, Callable[..., bool]] = dict.fromkeys(KERNELS, _accepts)
