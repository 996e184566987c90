"""NumPy references and samples of the recurrent operators: one step of one sequence at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support.samples import Sample

#: rectangular batches and packed ones, of one step and more
_BATCHES = ((2, 2, 2), (3, 2, 2, 1), (1,))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def every_step(batch_sizes: Any, rows: int) -> tuple[int, ...]:
    """How many sequences have each step; one size alone holds for all steps of ``rows`` rows."""
    alone = len(batch_sizes) == 1 and batch_sizes[0] not in (0, rows)
    return tuple(batch_sizes) * (rows // batch_sizes[0]) if alone else tuple(batch_sizes)


def _places(batch_sizes: Any, reverse: bool, rows: int) -> Iterator[list[int]]:
    """For each sequence the rows of its steps in the order of computation."""
    batch_sizes = every_step(batch_sizes, rows)
    starts = np.cumsum([0, *batch_sizes])
    for j in range(batch_sizes[0]):
        steps = [int(start) + j for start, n in zip(starts, batch_sizes) if n > j]
        yield steps[::-1] if reverse else steps


def _lstm_step(z: Any, h: Any, c: Any, w: Any, projection: Any) -> tuple[Any, Any, Any]:
    i, f, g, o = np.split(z + w @ h, 4)
    i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
    c = f * c + i * g
    h = o * np.tanh(c)
    return h if projection is None else projection @ h, c, np.concatenate([i, f, g, o])


def lstm_sequence(
    gates: Any, h0: Any, c0: Any, weight_hh: Any, weight_hr: Any, batch_sizes: Any, reverse: bool
) -> Any:
    """Outputs, cells and activations of every row."""
    rows = len(gates)
    out, cells = np.zeros((rows, h0.shape[1])), np.zeros((rows, c0.shape[1]))
    kept = np.zeros(gates.shape)
    for j, places in enumerate(_places(batch_sizes, reverse, rows)):
        h, c = h0[j], c0[j]
        for p in places:
            h, c, kept[p] = _lstm_step(gates[p], h, c, weight_hh, weight_hr)
            out[p], cells[p] = h, c
    return out, cells, kept


def lstm_sequence_backward(
    of_output: Any, of_cells: Any, of_activations: Any, cells: Any, activations: Any, c0: Any,
    weight_hh: Any, weight_hr: Any, batch_sizes: Any, reverse: bool,
) -> Any:  # fmt: skip
    """Each sequence from its end to its beginning."""
    rows, width = len(cells), weight_hh.shape[1]
    gates, totals = np.zeros(activations.shape), np.zeros((rows, width))
    h_grad, c_grad = np.zeros((len(c0), width)), np.zeros(c0.shape)
    for j, places in enumerate(_places(batch_sizes, reverse, rows)):
        dh, dc = np.zeros(width), np.zeros(c0.shape[1])
        for k in reversed(range(len(places))):
            p = places[k]
            begin = cells[places[k - 1]] if k else c0[j]
            i, f, g, o = np.split(activations[p], 4)
            totals[p] = dh + (0 if of_output is None else of_output[p])
            inner = totals[p] if weight_hr is None else weight_hr.T @ totals[p]
            dc = dc + (0 if of_cells is None else of_cells[p])
            dc = dc + inner * o / np.cosh(cells[p]) ** 2
            d = np.concatenate([dc * g, dc * begin, dc * i, inner * np.tanh(cells[p])])
            d = d + (0 if of_activations is None else of_activations[p])
            gates[p] = d * np.concatenate([i * (1 - i), f * (1 - f), 1 - g**2, o * (1 - o)])
            dh, dc = weight_hh.T @ gates[p], dc * f
        h_grad[j], c_grad[j] = dh, dc
    return gates, h_grad, c_grad, totals if weight_hr is not None else totals[:0]


def gru_sequence(
    gates: Any, h0: Any, weight_hh: Any, bias_hh: Any, batch_sizes: Any, reverse: bool
) -> Any:
    """Outputs and what the derivative reads of every row."""
    rows, width = len(gates), h0.shape[1]
    out, kept = np.zeros((rows, width)), np.zeros((rows, 4 * width))
    for j, places in enumerate(_places(batch_sizes, reverse, rows)):
        h = h0[j]
        for p in places:
            hr, hz, hn = np.split(weight_hh @ h + (0 if bias_hh is None else bias_hh), 3)
            xr, xz, xn = np.split(gates[p], 3)
            r, z = _sigmoid(xr + hr), _sigmoid(xz + hz)
            n = np.tanh(xn + r * hn)
            out[p] = h = (1 - z) * n + z * h
            kept[p] = np.concatenate([r, z, n, hn])
    return out, kept


def gru_sequence_backward(
    of_output: Any, of_activations: Any, before: Any, activations: Any, weight_hh: Any,
    batch_sizes: Any, reverse: bool,
) -> Any:  # fmt: skip
    """Each sequence from its end to its beginning."""
    rows, width = before.shape
    inputs, hidden = np.zeros((rows, 3 * width)), np.zeros((rows, 3 * width))
    h_grad = np.zeros((batch_sizes[0], width))
    for j, places in enumerate(_places(batch_sizes, reverse, rows)):
        dh = np.zeros(width)
        for p in reversed(places):
            r, z, n, hn = np.split(activations[p], 4)
            er, ez, en, ehn = np.split(
                np.zeros(4 * width) if of_activations is None else of_activations[p], 4
            )
            total = dh + (0 if of_output is None else of_output[p])
            dn = (total * (1 - z) + en) * (1 - n**2)
            dr = (dn * hn + er) * r * (1 - r)
            dz = (total * (before[p] - n) + ez) * z * (1 - z)
            inputs[p] = np.concatenate([dr, dz, dn])
            hidden[p] = np.concatenate([dr, dz, dn * r + ehn])
            dh = total * z + weight_hh.T @ hidden[p]
        h_grad[j] = dh
    return inputs, hidden, h_grad


def rnn_sequence(
    gates: Any, h0: Any, weight_hh: Any, nonlinearity: str, batch_sizes: Any, reverse: bool
) -> Any:
    """Outputs of every row."""
    out = np.zeros(gates.shape)
    for j, places in enumerate(_places(batch_sizes, reverse, len(gates))):
        h = h0[j]
        for p in places:
            z = gates[p] + weight_hh @ h
            out[p] = h = np.tanh(z) if nonlinearity == "tanh" else np.maximum(z, 0)
    return out


def rnn_sequence_backward(
    grad_output: Any, output: Any, weight_hh: Any, nonlinearity: str, batch_sizes: Any,
    reverse: bool,
) -> Any:  # fmt: skip
    """Each sequence from its end to its beginning."""
    gates, h_grad = np.zeros(output.shape), np.zeros((batch_sizes[0], output.shape[1]))
    slope = 1 - output**2 if nonlinearity == "tanh" else (output > 0).astype(output.dtype)
    for j, places in enumerate(_places(batch_sizes, reverse, len(output))):
        dh = np.zeros(output.shape[1])
        for p in reversed(places):
            gates[p] = (grad_output[p] + dh) * slope[p]
            dh = weight_hh.T @ gates[p]
        h_grad[j] = dh
    return gates, h_grad


# ---- samples ------------------------------------------------------------------------------------


def _forms() -> Iterator[tuple[tuple[int, ...], bool]]:
    for sizes in _BATCHES:
        yield sizes, False
        yield sizes, True


def _count(sizes: tuple[int, ...]) -> int:
    """How many rows a sample has; one size is that of three steps."""
    return 3 * sizes[0] if len(sizes) == 1 else sum(sizes)


def lstm_samples(make: Any) -> Iterator[Sample]:
    """Both directions, packed or not, with a projection and without."""
    for k, (sizes, reverse) in enumerate(_forms()):
        rows, n, width, out = _count(sizes), sizes[0], 3, 2 if k % 2 else 3
        projection = make((out, width)) if k % 2 else None
        states = make((n, out)), make((n, width))
        yield Sample(make((rows, 12)), *states, make((12, out)), projection, sizes, reverse)


def lstm_backward_samples(make: Any) -> Iterator[Sample]:
    """As the forward samples; gradients that did not come are None."""
    for k, (sizes, reverse) in enumerate(_forms()):
        rows, n, width, out = _count(sizes), sizes[0], 3, 2 if k % 2 else 3
        projection = make((out, width)) if k % 2 else None
        of_cells = make((rows, width)) if k % 3 else None
        of_activations = make((rows, 12)) if k == 1 else None
        yield Sample(
            make((rows, out)), of_cells, of_activations, make((rows, width)), make((rows, 12)),
            make((n, width)), make((12, out)), projection, sizes, reverse,
        )  # fmt: skip


def gru_samples(make: Any) -> Iterator[Sample]:
    """Both directions, packed or not, with a bias and without."""
    for k, (sizes, reverse) in enumerate(_forms()):
        bias = make((9,)) if k % 2 else None
        gates, state = make((_count(sizes), 9)), make((sizes[0], 3))
        yield Sample(gates, state, make((9, 3)), bias, sizes, reverse)


def gru_backward_samples(make: Any) -> Iterator[Sample]:
    """As the forward samples; gradients that did not come are None."""
    for k, (sizes, reverse) in enumerate(_forms()):
        rows = _count(sizes)
        of_activations = make((rows, 12)) if k == 1 else None
        yield Sample(
            make((rows, 3)), of_activations, make((rows, 3)), make((rows, 12)), make((9, 3)),
            sizes, reverse,
        )  # fmt: skip


def rnn_samples(make: Any) -> Iterator[Sample]:
    """Both functions and directions, packed or not."""
    for sizes, reverse in _forms():
        for name in ("tanh", "relu"):
            yield Sample(
                make((_count(sizes), 3)), make((sizes[0], 3)), make((3, 3)), name, sizes, reverse
            )


def rnn_backward_samples(make: Any) -> Iterator[Sample]:
    """Both functions and directions, packed or not."""
    for sizes, reverse in _forms():
        for name in ("tanh", "relu"):
            rows = _count(sizes)
            yield Sample(make((rows, 3)), make((rows, 3)), make((3, 3)), name, sizes, reverse)


# ---- layers -------------------------------------------------------------------------------------


def _layers(
    mode: str, x: Any, states: tuple[Any, ...], params: Any, has_biases: bool, num_layers: int,
    bidirectional: bool, batch_sizes: Any,
) -> Any:  # fmt: skip
    """``x`` in packed form through all layers: outputs, and the last states of each direction."""
    directions = 1 + bidirectional
    each = len(params) // (num_layers * directions)
    ends: list[Any] = [[] for _ in states]
    for layer in range(num_layers):
        outputs = []
        for d in range(directions):
            k = layer * directions + d
            w_ih, w_hh, *rest = params[k * each : (k + 1) * each]
            b_ih, b_hh = rest[:2] if has_biases else (0, np.zeros(len(w_hh)))
            gates = x @ w_ih.T + b_ih
            if mode == "lstm":
                hr = rest[-1] if len(rest) % 2 else None
                found = lstm_sequence(
                    gates + b_hh, states[0][k], states[1][k], w_hh, hr, batch_sizes, bool(d)
                )[:2]
            elif mode == "gru":
                found = gru_sequence(gates, states[0][k], w_hh, b_hh, batch_sizes, bool(d))[:1]
            else:
                found = (
                    rnn_sequence(gates + b_hh, states[0][k], w_hh, mode, batch_sizes, bool(d)),
                )
            last = [places[-1] for places in _places(batch_sizes, bool(d), len(gates))]
            for into, values in zip(ends, found):
                into.append(values[last])
            outputs.append(found[0])
        x = np.concatenate(outputs, 1)
    return (x, *[np.stack(end) for end in ends])


def layers(mode: str, packed: bool) -> Callable[..., Any]:
    """The reference of a whole network of recurrent layers, without dropout."""

    def of_packed(
        data: Any, batch_sizes: Any, hx: Any, params: Any, has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool,
    ) -> Any:  # fmt: skip
        states = tuple(hx) if mode == "lstm" else (hx,)
        sizes = tuple(int(n) for n in batch_sizes)
        return _layers(mode, data, states, params, has_biases, num_layers, bidirectional, sizes)

    def of_padded(
        input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        x = np.swapaxes(input, 0, 1) if batch_first else input
        t, n = x.shape[:2]
        states = tuple(hx) if mode == "lstm" else (hx,)
        rows = x.reshape(t * n, -1)
        out, *ends = _layers(
            mode, rows, states, params, has_biases, num_layers, bidirectional, (n,) * t
        )
        out = out.reshape(t, n, -1)
        return (np.swapaxes(out, 0, 1) if batch_first else out, *ends)

    return of_packed if packed else of_padded


_GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


def layer_samples(mode: str, packed: bool) -> Callable[[Any], Iterator[Sample]]:
    """One layer and two, one direction and both, with biases and without, projected.

    The sizes of a packed batch are equal: the suite permutes the contents of its arrays.
    """

    def samples(make: Any) -> Iterator[Sample]:
        for layers, both, biases, projected in (
            (1, False, True, False), (2, True, True, False), (1, False, False, True),
        ):  # fmt: skip
            yield _sample(make, mode, packed, layers, both, biases, projected and mode == "lstm")

    return samples


def _sample(
    make: Any, mode: str, packed: bool, layers: int, both: bool, biases: bool, projected: bool
) -> Sample:
    gates, hidden, width = _GATES[mode], 3, 2
    out = 2 if projected else hidden
    directions = 1 + both
    params = []
    for layer in range(layers):
        inner = width if layer == 0 else out * directions
        for _ in range(directions):
            params += [make((gates * hidden, inner)), make((gates * hidden, out))]
            if biases:
                params += [make((gates * hidden,)), make((gates * hidden,))]
            if projected:
                params.append(make((out, hidden)))
    n, lead = 2, layers * directions
    h = make((lead, n, out))
    hx = [h, make((lead, n, hidden))] if mode == "lstm" else h
    if packed:
        data, sizes = make((6, width)), np.array([2, 2, 2])
        return Sample(data, sizes, hx, params, biases, layers, 0.0, True, both)
    batch_first = bool(layers - 1)
    x = make((n, 3, width) if batch_first else (3, n, width))
    return Sample(x, hx, params, biases, layers, 0.0, True, both, batch_first)


def cell(mode: str) -> Callable[..., Any]:
    """The reference of one step."""

    def step(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        states = [np.atleast_2d(s)[None] for s in (hx if mode == "lstm" else [hx])]
        x, zeros = np.atleast_2d(input), np.zeros(len(w_ih))
        params = [w_ih, w_hh, zeros if b_ih is None else b_ih, zeros if b_hh is None else b_hh]
        _, *ends = _layers(mode, x, tuple(states), params, True, 1, False, (len(x),))
        found = [end[0].reshape(s.shape) for end, s in zip(ends, hx if mode == "lstm" else [hx])]
        return tuple(found) if mode == "lstm" else found[0]

    return step


def cell_samples(mode: str) -> Callable[[Any], Iterator[Sample]]:
    """Batches and single vectors, with biases and without."""

    def samples(make: Any) -> Iterator[Sample]:
        rows = _GATES[mode] * 3
        for lead, biases in (((2,), True), ((), True), ((2,), False)):
            h = make((*lead, 3))
            state = [h, make((*lead, 3))] if mode == "lstm" else h
            more = [make((rows,)), make((rows,))] if biases else []
            yield Sample(make((*lead, 2)), state, make((rows, 2)), make((rows, 3)), *more)

    return samples
