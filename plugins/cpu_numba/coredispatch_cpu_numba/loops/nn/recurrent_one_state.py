"""Recurrences of one state, GRU and plain: all steps of a sequence in one call.

Shared among threads as in ``recurrent.py``: ``lo`` and ``hi`` count blocks of ``BLOCK`` sequences.
"""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.building import compiled
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.elementary.derived import elementary
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.loops.nn.recurrent import BLOCK, by_columns, by_rows
from coredispatch_cpu_numba.spans import copy, part, row_of
from coredispatch_cpu_numba.tiles import multiplier, panel_width

__all__ = ["LOOPS"]


def _renewed(char: str) -> Callable[..., None]:
    """A compiled function that activates the gates of one row, and goes on to its next state."""
    sigmoid, tanh = elementary[char].sigmoid, elementary[char].tanh

    @compiled(fastmath={"contract"})
    def state_of(x, hidden, kept, h, n):
        full_vectors()
        both, given, own = part(kept, 0, 2 * n), part(x, 0, 2 * n), part(hidden, 0, 2 * n)
        for j in range(2 * n):
            both[j] = sigmoid(given[j] + own[j])
        reset, update = part(kept, 0, n), part(kept, n, 2 * n)
        new, last = part(kept, 2 * n, 3 * n), part(kept, 3 * n, 4 * n)
        given, own = part(x, 2 * n, 3 * n), part(hidden, 2 * n, 3 * n)
        copy(last, own)
        for j in range(n):
            new[j] = tanh(given[j] + reset[j] * own[j])
        for j in range(n):
            h[j] = new[j] + update[j] * (h[j] - new[j])

    return state_of


def _slopes(char: str) -> Callable[..., None]:
    """A compiled function for the gradients of one row's gates, and of the state besides them."""
    one = elementary[char].T(1.0)

    @compiled(fastmath={"contract"})
    def gates_of(inputs, hidden, kept, before, dh, n):
        full_vectors()
        reset, update = part(kept, 0, n), part(kept, n, 2 * n)
        new, last = part(kept, 2 * n, 3 * n), part(kept, 3 * n, 4 * n)
        of_reset, of_update = part(inputs, 0, n), part(inputs, n, 2 * n)
        of_new, of_last = part(inputs, 2 * n, 3 * n), part(hidden, 2 * n, 3 * n)
        for j in range(n):
            of_new[j] = dh[j] * (one - update[j]) * (one - new[j] * new[j])
        for j in range(n):
            of_last[j] = of_new[j] * reset[j]
        for j in range(n):
            of_reset[j] = of_new[j] * last[j] * (reset[j] * (one - reset[j]))
        for j in range(n):
            of_update[j] = dh[j] * (before[j] - new[j]) * (update[j] * (one - update[j]))
        copy(part(hidden, 0, 2 * n), part(inputs, 0, 2 * n))
        for j in range(n):
            dh[j] *= update[j]

    return gates_of


@compiled()
def _add(total, share):
    full_vectors()
    for j in range(total.size):
        total[j] += share[j]


def _gru(char: str, packed: bool) -> Callable[..., None]:
    state_of, width = _renewed(char), panel_width(char)
    multiply = multiplier(char, True) if packed else by_rows(char)

    def loop(
        gates, h, weight, bias, sizes, starts, steps, reverse, batch, n, edge, hidden, out, kept,
        lo, hi,
    ):  # fmt: skip
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        for i in range(steps):
            t = steps - 1 - i if reverse else i
            rows = min(sizes[t], last) - first
            if rows <= 0:
                continue
            at = starts[t] + first
            multiply(
                h, first * n, n, 1, rows, n, weight, 0, 3 * n, bias, 0, 0, hidden, first * 3 * n,
                edge, first * width,
            )  # fmt: skip
            for r in range(rows):
                state, own = row_of(h, first + r, n), row_of(hidden, first + r, 3 * n)
                state_of(row_of(gates, at + r, 3 * n), own, row_of(kept, at + r, 4 * n), state, n)
                copy(row_of(out, at + r, n), state)

    return loop


def _gru_backward(char: str, packed: bool) -> Callable[..., None]:
    gates_of, width = _slopes(char), panel_width(char)
    multiply = multiplier(char, True) if packed else by_columns(char, True)

    def loop(
        of_output, outputs, before, kept, weight, sizes, starts, steps, reverse, batch, n, edge,
        inputs, hidden, dh, lo, hi,
    ):  # fmt: skip
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        for i in range(steps):
            t = i if reverse else steps - 1 - i
            rows = min(sizes[t], last) - first
            if rows <= 0:
                continue
            at = starts[t] + first
            for r in range(rows):
                above = row_of(dh, first + r, n)
                if outputs:
                    _add(above, row_of(of_output, at + r, n))
                gates_of(
                    row_of(inputs, at + r, 3 * n), row_of(hidden, at + r, 3 * n),
                    row_of(kept, at + r, 4 * n), row_of(before, at + r, n), above, n,
                )  # fmt: skip
            multiply(
                hidden, at * 3 * n, 3 * n, 1, rows, 3 * n, weight, 0, n, dh, first * n, n, dh,
                first * n, edge, first * width,
            )  # fmt: skip

    return loop


def _rnn(char: str, packed: bool) -> Callable[..., None]:
    tanh, zero, width = elementary[char].tanh, elementary[char].T(0.0), panel_width(char)
    multiply = multiplier(char, True) if packed else by_rows(char)

    @compiled()
    def activate(row, bent):
        full_vectors()
        if bent:
            for j in range(row.size):
                row[j] = tanh(row[j])
        else:
            for j in range(row.size):
                row[j] = zero if row[j] <= zero else row[j]  # what is no number stays

    def loop(
        gates, h, weight, sizes, starts, steps, reverse, batch, n, edge, out, bent, lo, hi
    ):  # fmt: skip
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        for i in range(steps):
            t = steps - 1 - i if reverse else i
            rows = min(sizes[t], last) - first
            if rows <= 0:
                continue
            at = starts[t] + first
            multiply(
                h, first * n, n, 1, rows, n, weight, 0, n, gates, at * n, n, out, at * n, edge,
                first * width,
            )  # fmt: skip
            found = part(out, at * n, (at + rows) * n)
            activate(found, bent)
            copy(part(h, first * n, (first + rows) * n), found)

    return loop


def _rnn_backward(char: str, packed: bool) -> Callable[..., None]:
    T, width = elementary[char].T, panel_width(char)
    multiply = multiplier(char, False) if packed else by_columns(char, False)
    zero, one = T(0.0), T(1.0)

    @compiled(fastmath={"contract"})
    def slope(z, grad, above, out, bent):
        full_vectors()
        if bent:
            for j in range(z.size):
                z[j] = (grad[j] + above[j]) * (one - out[j] * out[j])
        else:
            for j in range(z.size):
                z[j] = (grad[j] + above[j]) * (one if out[j] > zero else zero)

    def loop(
        of_output, output, weight, sizes, starts, steps, reverse, batch, n, edge, z, dh, bent,
        lo, hi,
    ):  # fmt: skip
        full_vectors()
        first, last = lo * BLOCK, min(hi * BLOCK, batch)
        for i in range(steps):
            t = i if reverse else steps - 1 - i
            rows = min(sizes[t], last) - first
            if rows <= 0:
                continue
            at = starts[t] + first
            begin, end = at * n, (at + rows) * n
            above = part(dh, first * n, (first + rows) * n)
            slope(part(z, begin, end), part(of_output, begin, end), above,
                  part(output, begin, end), bent)  # fmt: skip
            multiply(
                z, begin, n, 1, rows, n, weight, 0, n, dh, first * n, n, dh, first * n, edge,
                first * width,
            )  # fmt: skip

    return loop


LOOPS: dict[str, Loop] = {}
for _name, _arguments, _make in (
    ("gru", "aaaaiinnnnaaaa", _gru),
    ("gru_backward", "anaaaiinnnnaaaa", _gru_backward),
    ("rnn", "aaaiinnnnaan", _rnn),
    ("rnn_backward", "aaaiinnnnaaan", _rnn_backward),
):
    for _packed in (True, False):
        LOOPS[_name if _packed else f"{_name}_few"] = Loop(
            _arguments, lambda char, make=_make, packed=_packed: make(char, packed)
        )
