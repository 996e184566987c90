"""Long short-term memory, all steps of a sequence in one call.

Sequences do not touch each other, so threads share them, not the steps: ``lo`` and ``hi`` count
blocks of ``BLOCK`` sequences, and nobody waits for anybody. ``sizes[t]`` sequences have step ``t``,
whose rows begin at ``starts[t]``; a step takes those of its rows that belong to these sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.loops.activation.softmax import dot_of
from coredispatch_cpu_numba.spans import copy, fill, part, row_of
from coredispatch_cpu_numba.tiles import multiplier, packer, panel_width

__all__ = ["BLOCK", "LOOPS", "activated", "by_columns", "by_rows", "slopes"]

#: sequences that a tile takes at once
BLOCK = 8


def _pack(turned: bool) -> Callable[[str], Callable[..., None]]:
    def build(char: str) -> Callable[..., None]:
        pack = packer(char, turned)

        def loop(matrix, depth, columns, packed, lo, hi):
            full_vectors()
            pack(matrix, 0, depth if turned else columns, depth, columns, packed, 0)

        return loop

    return build


def by_rows(char: str) -> Callable[..., None]:
    """The product of few rows with a matrix that lies there as its transposed, not packed."""
    dot = dot_of(char)

    @compiled()
    def multiply(
        a, a_at, a_row, a_step, rows, depth, matrix, matrix_at, columns, c_in, in_at, in_row, c_out,
        out_at, edge, edge_at,
    ):  # fmt: skip
        full_vectors()
        for r in range(rows):
            row = part(a, a_at + r * depth, a_at + (r + 1) * depth)
            for j in range(columns):
                at = r * columns + j
                share = dot(row, row_of(matrix, j, depth))
                c_out[out_at + at] = c_in[in_at + r * in_row + j] + share

    return multiply


def by_columns(char: str, start: bool) -> Callable[..., None]:
    """The product of few rows with a matrix, not packed: its rows are added up.

    Without ``c_in`` where ``start`` is False, which may be ``c_out``.
    """
    zero = elementary[char].T(0.0)

    @compiled(fastmath={"contract"})
    def multiply(
        a, a_at, a_row, a_step, rows, depth, matrix, matrix_at, columns, c_in, in_at, in_row, c_out,
        out_at, edge, edge_at,
    ):  # fmt: skip
        full_vectors()
        for r in range(rows):
            out = part(c_out, out_at + r * columns, out_at + (r + 1) * columns)
            if start:
                copy(out, part(c_in, in_at + r * in_row, in_at + r * in_row + columns))
            else:
                fill(out, zero)
            at, fours = a_at + r * depth, depth // 4 * 4
            for k in range(0, fours, 4):
                x0, x1, x2, x3 = a[at + k], a[at + k + 1], a[at + k + 2], a[at + k + 3]
                r0, r1 = row_of(matrix, k, columns), row_of(matrix, k + 1, columns)
                r2, r3 = row_of(matrix, k + 2, columns), row_of(matrix, k + 3, columns)
                for j in range(columns):
                    out[j] += (x0 * r0[j] + x1 * r1[j]) + (x2 * r2[j] + x3 * r3[j])
            for k in range(fours, depth):
                x0, r0 = a[at + k], row_of(matrix, k, columns)
                for j in range(columns):
                    out[j] += x0 * r0[j]

    return multiply


def activated(char: str) -> Callable[..., None]:
    """A compiled function that activates the gates of one row, and goes on to its next state."""
    sigmoid, tanh = elementary[char].sigmoid, elementary[char].tanh

    @compiled(fastmath={"contract"})
    def cell_of(a, c, h, n):
        """Activate the gates of one row, and go on to the next cell and output."""
        full_vectors()
        both, new, own = part(a, 0, 2 * n), part(a, 2 * n, 3 * n), part(a, 3 * n, 4 * n)
        for j in range(2 * n):
            both[j] = sigmoid(both[j])
        for j in range(n):
            new[j] = tanh(new[j])
        for j in range(n):
            own[j] = sigmoid(own[j])
        first, forget = part(a, 0, n), part(a, n, 2 * n)
        for j in range(n):
            c[j] = forget[j] * c[j] + first[j] * new[j]
        for j in range(n):
            h[j] = own[j] * tanh(c[j])

    return cell_of


@memoized
def slopes(char: str) -> Callable[..., None]:
    """A compiled function for the gradients of one row's gates, and of the cell before."""
    tanh, one = elementary[char].tanh, elementary[char].T(1.0)

    @compiled(fastmath={"contract"})
    def gates_of(z, a, end, begin, dh, dc, n):
        """The gradient of one row's gates, and that of the cell before; few arrays in each loop."""
        full_vectors()
        zi, zf = part(z, 0, n), part(z, n, 2 * n)
        zg, zo = part(z, 2 * n, 3 * n), part(z, 3 * n, 4 * n)
        i, f = part(a, 0, n), part(a, n, 2 * n)
        g, o = part(a, 2 * n, 3 * n), part(a, 3 * n, 4 * n)
        for j in range(n):
            zo[j] = tanh(end[j])
        for j in range(n):
            dc[j] += dh[j] * o[j] * (one - zo[j] * zo[j])
        for j in range(n):
            zo[j] = dh[j] * zo[j] * (o[j] * (one - o[j]))
        for j in range(n):
            zi[j] = dc[j] * g[j] * (i[j] * (one - i[j]))
        for j in range(n):
            zf[j] = dc[j] * begin[j] * (f[j] * (one - f[j]))
        for j in range(n):
            zg[j] = dc[j] * i[j] * (one - g[j] * g[j])
        for j in range(n):
            dc[j] *= f[j]

    return gates_of


def _lstm(char: str, packed: bool) -> Callable[..., None]:
    cell_of = activated(char)
    multiply = multiplier(char, True) if packed else by_rows(char)
    width = panel_width(char)

    def loop(
        gates, h, c, weight, sizes, starts, steps, reverse, batch, n, edge, out, cells, kept, lo, hi
    ):
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        for i in range(steps):
            t = steps - 1 - i if reverse else i
            rows = min(sizes[t], last) - first
            if rows <= 0:
                continue
            at = starts[t] + first
            multiply(
                h, first * n, n, 1, rows, n, weight, 0, 4 * n, gates, at * 4 * n, 4 * n, kept,
                at * 4 * n, edge, first * width,
            )  # fmt: skip
            for r in range(rows):
                cell, output = row_of(c, first + r, n), row_of(h, first + r, n)
                cell_of(row_of(kept, at + r, 4 * n), cell, output, n)
                copy(row_of(cells, at + r, n), cell)
                copy(row_of(out, at + r, n), output)

    return loop


def _lstm_backward(char: str, packed: bool) -> Callable[..., None]:
    gates_of = slopes(char)
    multiply = multiplier(char, False) if packed else by_columns(char, False)
    width = panel_width(char)

    @compiled()
    def add(total, share):
        full_vectors()
        for j in range(total.size):
            total[j] += share[j]

    def loop(
        of_output, outputs, of_cells, known, cells, kept, c0, weight, sizes, starts, steps, reverse,
        batch, n, edge, z, dh, dc, lo, hi,
    ):  # fmt: skip
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        for i in range(steps):
            t = i if reverse else steps - 1 - i
            rows = min(sizes[t], last) - first
            if rows <= 0:
                continue
            at = starts[t] + first
            before = t + 1 if reverse else t - 1
            there = sizes[before] if 0 <= before < steps else 0
            for r in range(rows):
                above, along = row_of(dh, first + r, n), row_of(dc, first + r, n)
                if outputs:
                    add(above, row_of(of_output, at + r, n))
                if known:
                    add(along, row_of(of_cells, at + r, n))
                begin = row_of(c0, first + r, n)
                if first + r < there:
                    begin = row_of(cells, starts[before] + first + r, n)
                a, end = row_of(kept, at + r, 4 * n), row_of(cells, at + r, n)
                gates_of(row_of(z, at + r, 4 * n), a, end, begin, above, along, n)
            multiply(
                z, at * 4 * n, 4 * n, 1, rows, 4 * n, weight, 0, n, dh, first * n, n, dh, first * n,
                edge, first * width,
            )  # fmt: skip

    return loop


_FORWARD, _BACKWARD = "aaaaiinnnnaaaa", "ananaaaaiinnnnaaaa"
LOOPS: dict[str, Loop] = {
    "pack": Loop("anna", _pack(False)),
    "pack_turned": Loop("anna", _pack(True)),
    "lstm": Loop(_FORWARD, lambda char: _lstm(char, True)),
    "lstm_few": Loop(_FORWARD, lambda char: _lstm(char, False)),
    "lstm_backward": Loop(_BACKWARD, lambda char: _lstm_backward(char, True)),
    "lstm_backward_few": Loop(_BACKWARD, lambda char: _lstm_backward(char, False)),
}
