"""Recurrences in NumPy: one matrix product for each step, the rest in place.

The state of all sequences is one array, of which a step replaces the first rows: those of the
sequences that have such a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np

from coredispatch.backends.numpy.silence import silent
from coredispatch.backends.numpy.windows import Array, Ints, widen

__all__ = ["KERNELS"]


def _steps(sizes: Ints, reverse: bool) -> Iterator[tuple[int, slice]]:
    """How many sequences have each step, and their rows, in the order of computation."""
    steps = [(n, slice(at, at + n)) for at, n in zip(accumulate(sizes, initial=0), sizes)]
    return reversed(steps) if reverse else iter(steps)


def _sized(sizes: Ints, rows: int, *states: Array) -> Ints:
    """How many sequences have each step; one size alone holds for all steps."""
    if len(sizes) == 1 and sizes[0]:
        sizes = tuple(sizes) * max(1, rows // sizes[0])
    if sum(sizes) != rows or any(len(state) != sizes[0] for state in states):
        raise ValueError("batch sizes")  # the operator's decomposition says what is wrong
    return sizes


def _before(states: Array, first: Array, sizes: Ints, reverse: bool) -> Array:
    """The state that each row began with."""
    result = np.empty_like(states)
    state = first.copy()
    for n, rows in _steps(sizes, reverse):
        result[rows] = state[:n]
        state[:n] = states[rows]
    return result


def _sigmoid(x: Array) -> None:
    np.negative(x, x)
    np.exp(x, x)
    x += 1
    np.reciprocal(x, x)


def _narrow(like: Array, *results: Array) -> tuple[Array, ...]:
    return tuple([x if x.dtype is like.dtype else x.astype(like.dtype) for x in results])


# ---- LSTM -------------------------------------------------------------------------------------


def lstm_sequence(
    gates: Array, h0: Array, c0: Array, weight_hh: Array, weight_hr: Array | None, sizes: Ints,
    reverse: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """Kernel of ``lstm_sequence``."""
    sizes = _sized(sizes, len(gates), h0, c0)
    z, h, c, w = widen(gates), widen(h0).copy(), widen(c0).copy(), widen(weight_hh).T
    projection = None if weight_hr is None else widen(weight_hr).T
    width = c.shape[1]
    kept = np.empty(z.shape, z.dtype)
    out = np.empty((len(z), h.shape[1]), z.dtype)
    cells = np.empty((len(z), width), z.dtype)
    for n, rows in _steps(sizes, reverse):
        a, cell = kept[rows], cells[rows]
        np.matmul(h[:n], w, a)
        a += z[rows]
        i, f, g, o = a[:, :width], a[:, width : 2 * width], a[:, 2 * width : -width], a[:, -width:]
        _sigmoid(a[:, : 2 * width])
        np.tanh(g, g)
        _sigmoid(o)
        np.multiply(f, c[:n], cell)
        cell += i * g
        result = np.tanh(cell)
        result *= o
        if projection is not None:
            result = result.dot(projection)
        out[rows] = h[:n] = result
        c[:n] = cell
    return _narrow(gates, out, cells, kept)


def lstm_sequence_backward(
    of_output: Array | None, of_cells: Array | None, of_activations: Array | None, cells: Array,
    activations: Array, c0: Array, weight_hh: Array, weight_hr: Array | None, sizes: Ints,
    reverse: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """Kernel of ``lstm_sequence_backward``."""
    sizes = _sized(sizes, len(cells), c0)
    kept, ends, w = widen(activations), widen(cells), widen(weight_hh)
    projection = None if weight_hr is None else widen(weight_hr)
    of_output = None if of_output is None else widen(of_output)
    of_cells = None if of_cells is None else widen(of_cells)
    begins = _before(ends, widen(c0), sizes, reverse)
    width = ends.shape[1]
    dh, dc = np.zeros((len(c0), w.shape[1]), kept.dtype), np.zeros(c0.shape, kept.dtype)
    gates = np.empty(kept.shape, kept.dtype)
    totals = np.empty((0 if projection is None else len(ends), w.shape[1]), kept.dtype)
    # What needs no state, for all steps at once.
    slopes = kept * kept
    np.subtract(kept, slopes, slopes)
    new = slice(2 * width, 3 * width)
    np.subtract(1, kept[:, new] * kept[:, new], slopes[:, new])
    bent = np.tanh(ends)
    through = (1 - bent * bent) * kept[:, -width:]
    for n, rows in _steps(sizes, not reverse):
        a, z = kept[rows], gates[rows]
        total = dh[:n] if of_output is None else dh[:n] + of_output[rows]
        if projection is not None:
            totals[rows] = total
            total = total.dot(projection)
        cell = dc[:n]
        if of_cells is not None:
            cell += of_cells[rows]
        cell += total * through[rows]
        np.multiply(cell, a[:, new], z[:, :width])
        np.multiply(cell, begins[rows], z[:, width : 2 * width])
        np.multiply(cell, a[:, :width], z[:, new])
        np.multiply(total, bent[rows], z[:, -width:])
        if of_activations is not None:
            z += of_activations[rows]
        z *= slopes[rows]
        cell *= a[:, width : 2 * width]
        np.matmul(z, w, dh[:n])
    return _narrow(cells, gates, dh, dc, totals)


# ---- GRU --------------------------------------------------------------------------------------


def gru_sequence(
    gates: Array, h0: Array, weight_hh: Array, bias_hh: Array | None, sizes: Ints, reverse: bool
) -> tuple[Array, ...]:
    """Kernel of ``gru_sequence``."""
    sizes = _sized(sizes, len(gates), h0)
    z, h, w = widen(gates), widen(h0).copy(), widen(weight_hh).T
    bias = None if bias_hh is None else widen(bias_hh)
    width = h.shape[1]
    kept = np.empty((len(z), 4 * width), z.dtype)
    out = np.empty((len(z), width), z.dtype)
    for n, rows in _steps(sizes, reverse):
        a, x, state = kept[rows], z[rows], h[:n]
        hidden = state.dot(w) if state.size > 1 else np.matmul(state, w)
        if bias is not None:
            hidden += bias
        both, new, own = a[:, : 2 * width], a[:, 2 * width : -width], a[:, -width:]
        np.add(x[:, : 2 * width], hidden[:, : 2 * width], both)
        _sigmoid(both)
        own[:] = hidden[:, 2 * width :]
        np.multiply(both[:, :width], own, new)
        new += x[:, 2 * width :]
        np.tanh(new, new)
        state -= new
        state *= both[:, width:]
        state += new
        out[rows] = state
    return _narrow(gates, out, kept)


def gru_sequence_backward(
    of_output: Array | None, of_activations: Array | None, before: Array, activations: Array,
    weight_hh: Array, sizes: Ints, reverse: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """Kernel of ``gru_sequence_backward``."""
    sizes = _sized(sizes, len(before))
    kept, states, w = widen(activations), widen(before), widen(weight_hh)
    of_output = None if of_output is None else widen(of_output)
    width = states.shape[1]
    dh = np.zeros((sizes[0], width), kept.dtype)
    inputs = np.empty((len(kept), 3 * width), kept.dtype)
    hidden = np.empty_like(inputs)
    reset, update, new, own = (kept[:, k * width : (k + 1) * width] for k in range(4))
    slopes = kept[:, : 2 * width] * (1 - kept[:, : 2 * width])
    new_slope, apart = 1 - new * new, states - new
    keeps = 1 - update
    for n, rows in _steps(sizes, not reverse):
        x, total = inputs[rows], dh[:n]
        if of_output is not None:
            total = total + of_output[rows]
        d_new = total * keeps[rows]
        extra = None if of_activations is None else of_activations[rows]
        if extra is not None:
            d_new += extra[:, 2 * width : -width]
        d_new *= new_slope[rows]
        np.multiply(d_new, own[rows], x[:, :width])
        np.multiply(total, apart[rows], x[:, width : 2 * width])
        state = hidden[rows]
        np.multiply(d_new, reset[rows], state[:, 2 * width :])
        if extra is not None:
            x[:, : 2 * width] += extra[:, : 2 * width]
            state[:, 2 * width :] += extra[:, -width:]
        x[:, : 2 * width] *= slopes[rows]
        x[:, 2 * width :] = d_new
        state[:, : 2 * width] = x[:, : 2 * width]
        total = total * update[rows]
        np.matmul(state, w, dh[:n])
        dh[:n] += total
    return _narrow(before, inputs, hidden, dh)


# ---- plain ------------------------------------------------------------------------------------


def rnn_sequence(
    gates: Array, h0: Array, weight_hh: Array, nonlinearity: str, sizes: Ints, reverse: bool
) -> Array:
    """Kernel of ``rnn_sequence``."""
    sizes = _sized(sizes, len(gates), h0)
    z, h, w = widen(gates), widen(h0).copy(), widen(weight_hh).T
    out = np.empty(z.shape, z.dtype)
    for n, rows in _steps(sizes, reverse):
        a = out[rows]
        np.matmul(h[:n], w, a)
        a += z[rows]
        if nonlinearity == "tanh":
            np.tanh(a, a)
        else:
            np.maximum(a, 0, out=a)
        h[:n] = a
    return _narrow(gates, out)[0]


def rnn_sequence_backward(
    grad_output: Array, output: Array, weight_hh: Array, nonlinearity: str, sizes: Ints,
    reverse: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """Kernel of ``rnn_sequence_backward``."""
    sizes = _sized(sizes, len(output))
    grad, out, w = widen(grad_output), widen(output), widen(weight_hh)
    slopes = 1 - out * out if nonlinearity == "tanh" else out > 0
    dh = np.zeros((sizes[0], out.shape[1]), out.dtype)
    gates = np.empty(out.shape, out.dtype)
    for n, rows in _steps(sizes, not reverse):
        z = gates[rows]
        np.add(grad[rows], dh[:n], z)
        z *= slopes[rows]
        np.matmul(z, w, dh[:n])
    return _narrow(output, gates, dh)


KERNELS: dict[str, Callable[..., Any]] = {
    "gru_sequence": silent(gru_sequence),
    "gru_sequence_backward": silent(gru_sequence_backward),
    "lstm_sequence": silent(lstm_sequence),
    "lstm_sequence_backward": silent(lstm_sequence_backward),
    "rnn_sequence": silent(rnn_sequence),
    "rnn_sequence_backward": silent(rnn_sequence_backward),
}
