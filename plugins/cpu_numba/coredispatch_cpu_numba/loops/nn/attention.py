"""Attention, a block of queries at a time: no matrix of all queries and keys is ever there.

Keys are packed for the product with queries, values for that with weights. Scores of a block of
queries lie in slices of ``KEYS`` keys, one after the other: what is done with a slice finds it in
the first-level cache, and its rows are never so far apart that they displace each other there.
What is multiplied with weights is packed in slices of as many keys as a block has queries: a causal
block takes those up to its own.

The result counts parts of heads, ``parts`` of them for each: a part is some blocks of one head.
Gradients count parts of heads of the keys, each of which adds up what comes of its queries.

The largest score of a row is subtracted before the exponentials, and the row is divided by their
sum after the product: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
Gradients compute the exponentials anew: Dao et al., "FlashAttention", 2022. So they do what dropout
keeps, which is a function of a seed and of where a weight is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from typing import Any

import numpy as np

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.elementary.inlined import inlined
from coredispatch_cpu_numba.intrinsics import full_vectors, largest
from coredispatch_cpu_numba.loops.activation.softmax import dot_of, store_exp_of
from coredispatch_cpu_numba.spans import fill, part
from coredispatch_cpu_numba.tails import fold_of
from coredispatch_cpu_numba.tiles import multiplier, packer, panel_width

__all__ = ["KEYS", "LOOPS", "ROWS"]

#: queries of a block, and keys of a slice of scores; a multiple of the first
ROWS, KEYS = 64, 128


@memoized
def _scorer(char: str) -> Callable[..., Any]:
    """A compiled function that scores keys for a block of queries.

    ``scores`` gets, for ``count`` queries from ``first`` on, the scores for ``seen`` keys, in
    slices; ``peaks`` the largest of each query; ``alone`` whether no key belongs to it.
    """
    T = elementary[char].T
    lowest = T(-np.inf)
    extreme, product, width = fold_of(char, "amax"), multiplier(char, False), panel_width(char)

    @inlined
    def choose(row, chosen):
        """Hide keys that are not chosen; whether some are."""
        some = False
        for j in range(row.size):
            row[j] = row[j] if chosen[j] else lowest
            some |= chosen[j]
        return some

    @inlined
    def add(row, added):
        """Add to the scores; whether that leaves some keys."""
        some = False
        for j in range(row.size):
            row[j] += added[j]
            some |= added[j] != lowest
        return some

    @compiled()
    def score(
        block, first, count, depth, seen, left, causal, masked, chosen, added, line, keys,
        scores, edge, peaks, alone,
    ):  # fmt: skip
        full_vectors()
        for r in range(count):
            peaks[r] = lowest
            alone[r] = masked != 0
        for s in range(0, seen, KEYS):
            here = min(KEYS, seen - s)
            wide = (here + width - 1) // width * width
            product(
                block, 0, depth, 1, count, depth, left, s * depth, wide, scores, s * ROWS, wide,
                scores, s * ROWS, edge, 0,
            )  # fmt: skip
            for r in range(count):
                row = part(scores, s * ROWS + r * wide, s * ROWS + r * wide + here)
                if causal:
                    visible = min(here, max(0, first + r + 1 - s))
                    fill(part(row, visible, here), lowest)
                elif masked:
                    at = line + r * keys + s
                    if masked == 2:
                        alone[r] &= not choose(row, part(chosen, at, at + here))
                    else:
                        alone[r] &= not add(row, part(added, at, at + here))
                peaks[r] = largest(peaks[r], extreme(row))

    return score


def _weigher(char: str) -> Callable[..., Any]:
    """A compiled function that makes exponentials of a slice of scores, and adds them up."""
    zero, store_exp = elementary[char].T(0.0), store_exp_of(char)

    @compiled()
    def weigh(scores, at, count, here, wide, peaks, alone, totals):
        full_vectors()
        for r in range(count):
            row = part(scores, at + r * wide, at + r * wide + here)
            if alone[r]:
                fill(row, zero)
            else:
                totals[r] += store_exp(row, peaks[r], row)

    return weigh


@inlined
def _mixed(x, between):
    """The last steps of MurmurHash3, with ``between`` in their middle."""
    x = np.uint32(x ^ np.uint32(x >> 16))
    x = np.uint32(np.uint32(x * np.uint32(0x85EBCA6B)) ^ between)
    x = np.uint32(x ^ np.uint32(x >> 13))
    x = np.uint32(x * np.uint32(0xC2B2AE35))
    return np.uint32(x ^ np.uint32(x >> 16))


@memoized
def _dropper(char: str) -> Callable[..., Any]:
    """A compiled function that drops weights of a query, as ``attention_dropout`` defines it.

    ``row`` begins with the key ``at``; ``line`` is the number of the query among those of all
    heads. What is kept is multiplied by ``rise``.
    """
    zero, golden, none = elementary[char].T(0.0), np.uint32(0x9E3779B9), np.uint32(0)

    @compiled()
    def drop(row, at, line, limit, rise, seed, other):
        full_vectors()
        one = _mixed(np.uint32(np.uint32(line) ^ np.uint32(seed)), none)
        two = _mixed(np.uint32(np.uint32(line * golden) ^ np.uint32(other)), none)
        most = np.uint32(limit)
        for j in range(row.size):
            word = _mixed(np.uint32(np.uint32(np.uint32(at + j) * golden) + one), two)
            row[j] = row[j] * rise if word > most else zero

    return drop


def _attention(char: str) -> Callable[..., None]:
    T, dtype = elementary[char].T, np.dtype(char).type
    score, weigh, drop = _scorer(char), _weigher(char), _dropper(char)
    pack, pack_turned = packer(char, False), packer(char, True)
    product, add_product = multiplier(char, False), multiplier(char, True)
    width = panel_width(char)

    def loop(
        q, k, v, chosen, added, masked, masks, queries, keys, depth, columns, groups, parts,
        causal, scale, limit, rise, seed, other, out, lo, hi,
    ):  # fmt: skip
        full_vectors()
        across = (keys + width - 1) // width * width
        padded = (columns + width - 1) // width * width
        left, right = np.empty(depth * across, dtype), np.empty(keys * padded, dtype)
        block, scores = np.empty(ROWS * depth, dtype), np.empty(ROWS * across, dtype)
        total, edge = np.empty(ROWS * columns, dtype), np.empty(ROWS * width, dtype)
        peaks, totals = np.empty(ROWS, dtype), np.empty(ROWS, np.float64)
        alone = np.empty(ROWS, np.bool_)
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
                at = (head * queries + first) * depth
                for i in range(count * depth):
                    block[i] = q[at + i] * scale
                score(
                    block, first, count, depth, seen, left, causal, masked, chosen, added,
                    ((head % masks) * queries + first) * keys, keys, scores, edge, peaks, alone,
                )  # fmt: skip
                fill(totals, 0.0)
                for s in range(0, seen, KEYS):
                    here = min(KEYS, seen - s)
                    wide = (here + width - 1) // width * width
                    weigh(scores, s * ROWS, count, here, wide, peaks, alone, totals)
                    if limit >= 0:
                        for r in range(count):
                            at = s * ROWS + r * wide
                            line = head * queries + first + r
                            weights = part(scores, at, at + here)
                            drop(weights, s, line, limit, rise, seed, other)
                    for t in range(s, s + here, ROWS):
                        at, deep = s * ROWS + t - s, min(ROWS, keys - t)
                        if t:
                            add_product(
                                scores, at, wide, 1, count, deep, right, t * padded, columns,
                                total, 0, columns, total, 0, edge, 0,
                            )  # fmt: skip
                        else:
                            product(
                                scores, at, wide, 1, count, deep, right, 0, columns, total, 0,
                                columns, total, 0, edge, 0,
                            )  # fmt: skip
                for r in range(count):
                    share = T(0.0) if alone[r] else T(1.0 / totals[r])
                    at = (head * queries + first + r) * columns
                    result = part(out, at, at + columns)
                    found = part(total, r * columns, r * columns + columns)
                    for j in range(columns):
                        result[j] = found[j] * share

    return loop


def _backward(char: str) -> Callable[..., None]:
    T, dtype = elementary[char].T, np.dtype(char).type
    score, weigh, dot = _scorer(char), _weigher(char), dot_of(char)
    drop = _dropper(char)
    pack, pack_turned = packer(char, False), packer(char, True)
    product, add_product = multiplier(char, False), multiplier(char, True)
    width = panel_width(char)

    def loop(
        grad, q, k, v, chosen, added, masked, masks, queries, keys, depth, columns, groups, parts,
        causal, scale, limit, rise, seed, other, of_q, of_k, of_v, lo, hi,
    ):  # fmt: skip
        full_vectors()
        across = (keys + width - 1) // width * width
        padded = (depth + width - 1) // width * width
        left, values = np.empty(depth * across, dtype), np.empty(columns * across, dtype)
        right = np.empty(keys * padded, dtype)
        block, scores = np.empty(ROWS * depth, dtype), np.empty(ROWS * across, dtype)
        given, slopes = np.empty(ROWS * columns, dtype), np.empty(ROWS * across, dtype)
        total, edge = np.empty(ROWS * depth, dtype), np.empty(max(ROWS, KEYS) * width, dtype)
        packed_q = np.empty(ROWS * padded, dtype)
        packed_grad = np.empty(ROWS * ((columns + width - 1) // width * width), dtype)
        peaks, totals = np.empty(ROWS, dtype), np.empty(ROWS, np.float64)
        means, shares = np.empty(ROWS, np.float64), np.empty(ROWS, dtype)
        alone = np.empty(ROWS, np.bool_)
        blocks = (queries + ROWS - 1) // ROWS
        for unit in range(lo, hi):
            own, piece = unit // parts, unit % parts
            pack_turned(k, own * keys * depth, depth, depth, keys, left, 0)
            pack_turned(v, own * keys * columns, columns, columns, keys, values, 0)
            for s in range(0, keys, ROWS):
                at = (own * keys + s) * depth
                pack(k, at, depth, min(ROWS, keys - s), depth, right, s * padded)
            number = groups * blocks
            for b in range(number * piece // parts, number * (piece + 1) // parts):
                head, first = own * groups + b // blocks, b % blocks * ROWS
                count = min(ROWS, queries - first)
                seen = min(keys, first + ROWS) if causal else keys
                at = (head * queries + first) * depth
                for i in range(count * depth):
                    block[i] = q[at + i] * scale
                score(
                    block, first, count, depth, seen, left, causal, masked, chosen, added,
                    ((head % masks) * queries + first) * keys, keys, scores, edge, peaks, alone,
                )  # fmt: skip
                fill(totals, 0.0)
                for s in range(0, seen, KEYS):
                    here = min(KEYS, seen - s)
                    wide = (here + width - 1) // width * width
                    weigh(scores, s * ROWS, count, here, wide, peaks, alone, totals)
                for r in range(count):  # the shares go where there are fewest numbers
                    share = shares[r] = T(0.0) if alone[r] else T(1.0 / totals[r])
                    at = (head * queries + first + r) * columns
                    row = part(grad, at, at + columns)
                    target = part(given, r * columns, r * columns + columns)
                    for j in range(columns):
                        target[j] = row[j] * share
                    if alone[r]:  # whose result is 0 whatever comes in
                        fill(target, T(0.0))
                        fill(part(block, r * depth, r * depth + depth), T(0.0))
                pack(block, 0, depth, count, depth, packed_q, 0)
                pack(given, 0, columns, count, columns, packed_grad, 0)
                fill(means, 0.0)
                for s in range(0, seen, KEYS):
                    here = min(KEYS, seen - s)
                    wide = (here + width - 1) // width * width
                    product(
                        given, 0, columns, 1, count, columns, values, s * columns, wide, slopes,
                        s * ROWS, wide, slopes, s * ROWS, edge, 0,
                    )  # fmt: skip
                    for r in range(count):
                        at = s * ROWS + r * wide
                        if limit >= 0:
                            line = head * queries + first + r
                            drop(part(slopes, at, at + here), s, line, limit, rise, seed, other)
                        means[r] += dot(part(scores, at, at + here), part(slopes, at, at + here))
                for s in range(0, seen, KEYS):
                    here = min(KEYS, seen - s)
                    wide = (here + width - 1) // width * width
                    for r in range(count):
                        at, mean = s * ROWS + r * wide, T(means[r] * shares[r])
                        weights = part(scores, at, at + here)
                        slope = part(slopes, at, at + here)
                        for j in range(here):
                            slope[j] = weights[j] * (slope[j] - mean)
                        if limit >= 0:
                            line = head * queries + first + r
                            drop(weights, s, line, limit, rise, seed, other)
                    for t in range(s, s + here, ROWS):
                        at, deep = s * ROWS + t - s, min(ROWS, keys - t)
                        if t:
                            add_product(
                                slopes, at, wide, 1, count, deep, right, t * padded, depth,
                                total, 0, depth, total, 0, edge, 0,
                            )  # fmt: skip
                        else:
                            product(
                                slopes, 0, wide, 1, count, deep, right, 0, depth, total, 0, depth,
                                total, 0, edge, 0,
                            )  # fmt: skip
                    at = (unit * keys + s) * depth
                    add_product(
                        slopes, s * ROWS, 1, wide, here, count, packed_q, 0, depth, of_k, at, depth,
                        of_k, at, edge, 0,
                    )  # fmt: skip
                    at = (unit * keys + s) * columns
                    add_product(
                        scores, s * ROWS, 1, wide, here, count, packed_grad, 0, columns, of_v, at,
                        columns, of_v, at, edge, 0,
                    )  # fmt: skip
                at = (head * queries + first) * depth
                result = part(of_q, at, at + count * depth)
                for i in range(count * depth):
                    result[i] = total[i] * scale

    return loop


LOOPS: dict[str, Loop] = {
    "attention": Loop("aaabannnnnnnnnsnsnna", _attention),
    "backward": Loop("aaaabannnnnnnnnsnsnnaaa", _backward),
}
