"""Attention, a block of queries at a time: no matrix of all queries and keys is ever there.

Counts parts of heads, ``parts`` of them for each: a part is some blocks of ``ROWS`` queries of one
head. Keys are packed for the product with queries, values for that with weights, in slices of
``ROWS`` keys, so that a causal block takes the slices up to its own.

The largest score of a row is subtracted before the exponentials, and the row is divided by their
sum after the product: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.loops.activation.softmax import store_exp_of
from coredispatch_cpu_numba.loops.reduction.sums import extreme_of
from coredispatch_cpu_numba.spans import fill, part, row_of
from coredispatch_cpu_numba.tiles import multiplier, packer, panel_width

__all__ = ["LOOPS", "ROWS"]

#: queries of a block, and keys of a slice
ROWS = 32


def _attention(char: str) -> Callable[..., None]:
    T, dtype = elementary[char].T, np.dtype(char).type
    zero, lowest = T(0.0), T(-np.inf)
    extreme, store_exp = extreme_of(char, "amax"), store_exp_of(char)
    pack, pack_turned = packer(char, False), packer(char, True)
    product, add_product = multiplier(char, False), multiplier(char, True)
    width = panel_width(char)

    @inlined
    def choose(row, chosen):
        """Hide keys that are not chosen; whether none is."""
        some = False
        for j in range(row.size):
            row[j] = row[j] if chosen[j] else lowest
            some |= chosen[j]
        return not some

    @inlined
    def add(row, added):
        """Add to the scores; whether that hides all keys."""
        some = False
        for j in range(row.size):
            row[j] += added[j]
            some |= added[j] != lowest
        return not some

    def loop(
        q, k, v, chosen, added, masked, masks, queries, keys, depth, columns, groups, parts, causal,
        scale, out, lo, hi,
    ):  # fmt: skip
        full_vectors()
        padded = (columns + width - 1) // width * width
        left = np.empty(depth * ((keys + width - 1) // width * width), dtype)
        right = np.empty(keys * padded, dtype)
        block, scores = np.empty(ROWS * depth, dtype), np.empty(ROWS * keys, dtype)
        total, edge = np.empty(ROWS * columns, dtype), np.empty(ROWS * width, dtype)
        shares = np.empty(ROWS, dtype)
        blocks = (queries + ROWS - 1) // ROWS
        packed = -1
        for unit in range(lo, hi):
            head, piece = unit // parts, unit % parts
            own = head // groups
            if own != packed:
                pack_turned(k, own * keys * depth, depth, depth, keys, left, 0)
                for s in range(0, keys, ROWS):
                    at = (own * keys + s) * columns
                    pack(v, at, columns, min(ROWS, keys - s), columns, right, s * padded)
                packed = own
            for b in range(blocks * piece // parts, blocks * (piece + 1) // parts):
                first = b * ROWS
                count = min(ROWS, queries - first)
                seen = min(keys, first + ROWS) if causal else keys
                source = part(
                    q, (head * queries + first) * depth, (head * queries + first + count) * depth
                )
                for i in range(source.size):
                    block[i] = source[i] * scale
                product(
                    block, 0, depth, 1, count, depth, left, 0, seen, scores, 0, seen, scores, 0,
                    edge, 0,
                )  # fmt: skip
                for r in range(count):
                    row = row_of(scores, r, seen)
                    alone = False
                    if causal:
                        visible = min(seen, first + r + 1)
                        fill(part(row, visible, seen), zero)
                        row = part(row, 0, visible)
                    elif masked:
                        line = ((head % masks) * queries + first + r) * keys
                        if masked == 2:
                            alone = choose(row, part(chosen, line, line + keys))
                        else:
                            alone = add(row, part(added, line, line + keys))
                    if alone:
                        fill(row, zero)
                        shares[r] = zero
                    else:
                        shares[r] = T(1.0 / store_exp(row, extreme(row), row))
                for s in range(0, seen, ROWS):
                    deep = min(ROWS, keys - s)
                    if s:
                        add_product(
                            scores, s, seen, 1, count, deep, right, s * padded, columns, total, 0,
                            columns, total, 0, edge, 0,
                        )  # fmt: skip
                    else:
                        product(
                            scores, 0, seen, 1, count, deep, right, 0, columns, total, 0, columns,
                            total, 0, edge, 0,
                        )  # fmt: skip
                for r in range(count):
                    result, found = (
                        row_of(out, head * queries + first + r, columns),
                        row_of(total, r, columns),
                    )
                    for j in range(columns):
                        result[j] = found[j] * shares[r]

    return loop


LOOPS: dict[str, Loop] = {"attention": Loop("aaabannnnnnnnnsa", _attention)}
