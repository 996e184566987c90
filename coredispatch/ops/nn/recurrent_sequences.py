"""Recurrences over the steps of a sequence, one direction of one layer: what is slow in an RNN.

The part of the input is given for all steps at once (``gates``), the rest is a loop. Steps lie one
after the other as in a packed sequence: ``batch_sizes[t]`` sequences have step ``t``, never more
than had the step before. One size alone holds for all steps, however many there are: so a program
that is captured for open sizes takes any number of them. ``reverse`` begins at the last step. Each
is one autograd node with a backward operator; what the backward operator reads is among the
results.

LSTM: Hochreiter and Schmidhuber, 1997; its projection: Sak et al., 2014; GRU: Cho et al., 2014.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from coredispatch.ops.nn import recurrent_reference as reference
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import recurrence, same
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ShapeError

__all__ = [
    "gru_sequence",
    "gru_sequence_backward",
    "last_states",
    "lstm_sequence",
    "lstm_sequence_backward",
    "rnn_sequence",
    "rnn_sequence_backward",
]

_METADATA: dict[str, Any] = {
    "dtype": same,
    "dtypes": "float",
    "values": (-2.0, 2.0),  # sums of huge numbers of both signs would mean nothing as a gate
    "tolerance": recurrence,
    "unbroadcast": False,
    "namespace": (),
    "method": False,
}


def _every_step(x: Any, batch_sizes: IntList) -> IntList:
    """``batch_sizes`` with one for each step, where one holds for all."""
    return reference.every_step(batch_sizes, x.shape[0])


def _fitting(x: Any, batch_sizes: IntList, *states: Any) -> int:
    """How many rows ``x`` has; raises :class:`ShapeError` where the steps have not as many.

    A state has a row for each sequence, as the first step has.
    """
    rows, steps = x.shape[0], sum(batch_sizes)
    known = type(rows) is int and type(steps) is int
    if known and len(batch_sizes) == 1 and steps:
        steps = max(rows - rows % steps, steps)
    if known and rows != steps:
        raise ShapeError(
            f"batch_sizes {tuple(batch_sizes)} are {steps} rows, got {rows}",
            fix="pass one row for each sequence of each step",
        )
    for state in states:
        count = state.shape[0]
        if type(count) is int and type(batch_sizes[0]) is int and count != batch_sizes[0]:
            raise ShapeError(
                f"a state of {count} rows for {batch_sizes[0]} sequences",
                fix="pass one row for each sequence",
            )
    return rows


def _expect(name: str, x: Any, *shape: Any) -> None:
    """Raise :class:`ShapeError` where ``x`` has another shape; None and open sizes fit any."""
    found = tuple(x.shape)
    known = [(a, b) for a, b in zip(found, shape) if type(a) is int and type(b) is int]
    if len(found) != len(shape) or any(a != b for a, b in known):
        wanted = ", ".join("rows" if n is None else str(n) for n in shape)
        raise ShapeError(
            f"{name} has shape {found}, expected ({wanted})",
            fix="give the gates, the states and the weights of one hidden size",
        )


def _square(gates: Any, h0: Any, weight_hh: Any, count: int) -> None:
    """Raise where the gates or the weights of ``count`` gates do not fit the state."""
    size = h0.shape[1]
    _expect("gates", gates, None, count * size)
    _expect("weight_hh", weight_hh, count * size, size)


def _steps(x: Any, batch_sizes: IntList, reverse: bool) -> Iterator[tuple[int, int]]:
    """First row in ``x`` and number of rows of each step, in the order of computation."""
    _fitting(x, batch_sizes)
    batch_sizes = _every_step(x, batch_sizes)
    steps = list(zip(accumulate(batch_sizes, initial=0), batch_sizes))
    return reversed(steps) if reverse else iter(steps)


def _rows(x: Tensor, start: int, count: int) -> Tensor:
    return lazy.narrow(x, 0, start, count)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else lazy.cat(parts, 0)


def _replaced(state: Tensor, rows: Tensor) -> Tensor:
    """``state`` with its first rows replaced: sequences that have no such step keep theirs."""
    count, all_rows = rows.shape[0], state.shape[0]
    if count == all_rows:
        return rows
    return lazy.cat([rows, _rows(state, count, all_rows - count)], 0)


def _stacked(steps: list[Tensor], reverse: bool) -> Tensor:
    return _joined(steps[::-1] if reverse else steps)


def _before(states: Tensor, first: Tensor, batch_sizes: IntList, reverse: bool) -> Tensor:
    """The state that each row began with, from the states ``(rows, H)`` that they ended with."""
    if len(batch_sizes) == 1:
        (count,) = batch_sizes
        others = states.shape[0] - count
        kept = _rows(states, count if reverse else 0, others)
        return lazy.cat([kept, first] if reverse else [first, kept], 0)
    starts = list(accumulate(batch_sizes, initial=0))
    parts = []
    for t, count in enumerate(batch_sizes):
        other = t + 1 if reverse else t - 1
        known = min(batch_sizes[other], count) if 0 <= other < len(batch_sizes) else 0
        if known:
            parts.append(_rows(states, starts[other], known))
        if known < count:
            parts.append(_rows(first, known, count - known))
    return _joined(parts) if parts else states


def last_states(states: Tensor, batch_sizes: IntList, reverse: bool) -> Tensor:
    """The state that each sequence ended with, ``(N, H)``."""
    if reverse:
        return _rows(states, 0, batch_sizes[0])
    if len(batch_sizes) == 1:
        return _rows(states, states.shape[0] - batch_sizes[0], batch_sizes[0])
    parts = []
    for (start, count), following in zip(_steps(states, batch_sizes, False), (*batch_sizes[1:], 0)):
        if count > following:
            parts.append(_rows(states, start + following, count - following))
    return _joined(parts[::-1]) if parts else _rows(states, 0, 0)


def _weight_grad(grad: Tensor, input: Tensor) -> Tensor:
    return lazy.linear_weight_grad(grad, input)


def _plus(total: Tensor, part: Tensor | None, start: int, count: int) -> Tensor:
    return total if part is None else total + _rows(part, start, count)


def _known(grads: Any) -> list[Any]:
    """Gradients in at least single precision; None where there is none."""
    return [None if grad is None else wide(grad) for grad in grads]


# ---- LSTM -------------------------------------------------------------------------------------


def _lstm_shapes(
    gates: Any, h0: Any, c0: Any, weight_hh: Any, weight_hr: Any, batch_sizes: Any, *_: Any
) -> list[tuple[int, ...]]:
    rows = _fitting(gates, batch_sizes, h0, c0)
    size, width = c0.shape[1], h0.shape[1]
    _expect("gates", gates, None, 4 * size)
    _expect("weight_hh", weight_hh, 4 * size, width)
    if weight_hr is None:
        _expect("h0", h0, None, size)
    else:
        _expect("weight_hr", weight_hr, width, size)
    return [(rows, h0.shape[1]), (rows, c0.shape[1]), (rows, gates.shape[1])]


@composite(
    out=_lstm_shapes,
    reference=reference.lstm_sequence,
    samples=reference.lstm_samples,
    **_METADATA,
)
def lstm_sequence(
    gates: Tensor,
    h0: Tensor,
    c0: Tensor,
    weight_hh: Tensor,
    weight_hr: Tensor | None,
    batch_sizes: IntList,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The steps of an LSTM: outputs ``(rows, P)``, cells ``(rows, H)``, activations ``(rows, 4H)``.

    ``gates`` is the input's part of the four gates with all biases, ``(rows, 4H)``; the states
    begin with ``h0`` ``(N, P)`` and ``c0`` ``(N, H)``. ``weight_hr`` ``(P, H)`` projects outputs;
    without it P is H.
    """
    z, h, c = wide(gates), wide(h0), wide(c0)
    w = wide(weight_hh).t()
    projection = None if weight_hr is None else wide(weight_hr).t()
    outputs, cells, activations = list[Tensor](), list[Tensor](), list[Tensor]()
    for start, count in _steps(z, batch_sizes, reverse):
        total = _rows(z, start, count) + _rows(h, 0, count).matmul(w)
        i, f, g, o = total.chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        cell = f * _rows(c, 0, count) + i * g
        out = o * cell.tanh()
        if projection is not None:
            out = out.matmul(projection)
        outputs.append(out)
        cells.append(cell)
        activations.append(lazy.cat([i, f, g, o], -1))
        h, c = _replaced(h, out), _replaced(c, cell)
    found = outputs, cells, activations
    a, b, d = [narrow(_stacked(steps, reverse), gates) for steps in found]
    return a, b, d


@lstm_sequence.vjp
def _(grads, out0, out1, out2, h0, c0, weight_hh, weight_hr, batch_sizes, reverse):
    of_output, of_cells, of_gates = grads
    gates_grad, h_grad, c_grad, totals = lstm_sequence_backward(
        of_output, of_cells, of_gates, out1, out2, c0, weight_hh, weight_hr, batch_sizes, reverse
    )
    return (
        gates_grad,
        h_grad,
        c_grad,
        lambda: _weight_grad(gates_grad, _before(out0, h0, batch_sizes, reverse)),
        None
        if weight_hr is None
        else lambda: _weight_grad(totals, out2.chunk(4, -1)[3] * out1.tanh()),
    )


def _lstm_backward_shapes(
    of_output: Any, of_cells: Any, of_gates: Any, cells: Any, activations: Any, c0: Any,
    weight_hh: Any, weight_hr: Any, batch_sizes: Any, *_: Any,
) -> list[tuple[int, ...]]:  # fmt: skip
    rows, n = _fitting(cells, batch_sizes, c0), c0.shape[0]
    size, width = c0.shape[1], weight_hh.shape[1]
    _expect("cells", cells, rows, size)
    _expect("activations", activations, rows, 4 * size)
    _expect("weight_hh", weight_hh, 4 * size, size if weight_hr is None else width)
    if weight_hr is not None:
        _expect("weight_hr", weight_hr, width, size)
    return [
        tuple(activations.shape),
        (n, width),
        tuple(c0.shape),
        (0 if weight_hr is None else rows, width),
    ]


@composite(
    out=_lstm_backward_shapes,
    reference=reference.lstm_sequence_backward,
    samples=reference.lstm_backward_samples,
    **{**_METADATA, "dtype": lambda *args: args[3].dtype},
)
def lstm_sequence_backward(
    of_output: Tensor | None,
    of_cells: Tensor | None,
    of_activations: Tensor | None,
    cells: Tensor,
    activations: Tensor,
    c0: Tensor,
    weight_hh: Tensor,
    weight_hr: Tensor | None,
    batch_sizes: IntList,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of :func:`lstm_sequence`: of the gates, ``h0``, ``c0``, and the outputs' whole one.

    The last is what arrives at each output from all sides ``(rows, P)``, which the gradient of the
    projection is made of; without a projection it has no rows.
    """
    of_output, of_cells, of_activations = _known((of_output, of_cells, of_activations))
    w = wide(weight_hh)
    projection = None if weight_hr is None else wide(weight_hr)
    acts, ends = wide(activations), wide(cells)
    begins = _before(ends, wide(c0), batch_sizes, reverse)
    dh, dc = lazy.zeros_like(_rows(w, 0, 1)).expand(c0.shape[0], w.shape[1]), None
    dc = lazy.zeros_like(wide(c0))
    gates, totals = list[Tensor](), list[Tensor]()
    for start, count in _steps(cells, batch_sizes, not reverse):
        total = _plus(_rows(dh, 0, count), of_output, start, count)
        inner = total if projection is None else total.matmul(projection)
        i, f, g, o = _rows(acts, start, count).chunk(4, -1)
        bent = _rows(ends, start, count).tanh()
        cell = _plus(_rows(dc, 0, count), of_cells, start, count)
        cell = cell + inner * o * (1 - bent * bent)
        parts = [cell * g, cell * _rows(begins, start, count), cell * i, inner * bent]
        if of_activations is not None:
            extra = _rows(of_activations, start, count).chunk(4, -1)
            parts = [part + more for part, more in zip(parts, extra)]
        slopes = [i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)]
        z = lazy.cat([part * slope for part, slope in zip(parts, slopes)], -1)
        gates.append(z)
        totals.append(total)
        dh, dc = _replaced(dh, z.matmul(w)), _replaced(dc, cell * f)
    whole = _stacked(totals, not reverse)
    if projection is None:
        whole = _rows(whole, 0, 0)
    results = _stacked(gates, not reverse), dh, dc, whole
    a, b, c, d = [narrow(x, cells) for x in results]
    return a, b, c, d


# ---- GRU --------------------------------------------------------------------------------------


def _gru_shapes(
    gates: Any, h0: Any, weight_hh: Any, bias_hh: Any, batch_sizes: Any, *_: Any
) -> list[tuple[int, ...]]:
    rows = _fitting(gates, batch_sizes, h0)
    _square(gates, h0, weight_hh, 3)
    if bias_hh is not None:
        _expect("bias_hh", bias_hh, 3 * h0.shape[1])
    return [(rows, h0.shape[1]), (rows, 4 * h0.shape[1])]


@composite(
    out=_gru_shapes,
    reference=reference.gru_sequence,
    samples=reference.gru_samples,
    **_METADATA,
)
def gru_sequence(
    gates: Tensor,
    h0: Tensor,
    weight_hh: Tensor,
    bias_hh: Tensor | None,
    batch_sizes: IntList,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """The steps of a GRU: outputs ``(rows, H)``, and what the derivative reads, ``(rows, 4H)``.

    ``gates`` is the input's part of the reset, update and new gate ``(rows, 3H)``. The second
    result has the three gates and the state's part of the new gate, before the reset.
    """
    z, h = wide(gates), wide(h0)
    w, b = wide(weight_hh), None if bias_hh is None else wide(bias_hh)
    outputs, kept = list[Tensor](), list[Tensor]()
    for start, count in _steps(z, batch_sizes, reverse):
        state = _rows(h, 0, count)
        xr, xz, xn = _rows(z, start, count).chunk(3, -1)
        hr, hz, hn = lazy.linear(state, w, b).chunk(3, -1)
        reset, update = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        new = (xn + reset * hn).tanh()
        out = new + update * (state - new)
        outputs.append(out)
        kept.append(lazy.cat([reset, update, new, hn], -1))
        h = _replaced(h, out)
    out, activations = [narrow(_stacked(x, reverse), gates) for x in (outputs, kept)]
    return out, activations


@gru_sequence.vjp
def _(grads, out0, out1, h0, weight_hh, bias_hh, batch_sizes, reverse):
    before = _before(out0, h0, batch_sizes, reverse)
    of_output, of_gates = grads
    gates_grad, state_grad, h_grad = gru_sequence_backward(
        of_output, of_gates, before, out1, weight_hh, batch_sizes, reverse
    )
    return (
        gates_grad,
        h_grad,
        lambda: _weight_grad(state_grad, before),
        None if bias_hh is None else lambda: state_grad.sum(0),
    )


def _gru_backward_shapes(
    of_output: Any, of_kept: Any, before: Any, kept: Any, weight_hh: Any, batch_sizes: Any, *_: Any
) -> list[tuple[int, ...]]:
    rows, size = _fitting(before, batch_sizes), before.shape[1]
    _expect("activations", kept, rows, 4 * size)
    _expect("weight_hh", weight_hh, 3 * size, size)
    return [(rows, 3 * size), (rows, 3 * size), (batch_sizes[0], size)]


@composite(
    out=_gru_backward_shapes,
    reference=reference.gru_sequence_backward,
    samples=reference.gru_backward_samples,
    **{**_METADATA, "dtype": lambda *args: args[2].dtype},
)
def gru_sequence_backward(
    of_output: Tensor | None,
    of_activations: Tensor | None,
    before: Tensor,
    activations: Tensor,
    weight_hh: Tensor,
    batch_sizes: IntList,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of :func:`gru_sequence`: of the input's and the state's part of the gates, of h0.

    ``before`` is the state that each row began with.
    """
    of_output, of_activations = _known((of_output, of_activations))
    w, states, kept = wide(weight_hh), wide(before), wide(activations)
    dh = lazy.zeros_like(_rows(states, 0, batch_sizes[0]))
    inputs, hidden = list[Tensor](), list[Tensor]()
    for start, count in _steps(before, batch_sizes, not reverse):
        total = _plus(_rows(dh, 0, count), of_output, start, count)
        reset, update, new, hn = _rows(kept, start, count).chunk(4, -1)
        d_update = total * (_rows(states, start, count) - new)
        d_new, d_reset, d_hn = total * (1 - update), None, None
        more = [None] * 4
        if of_activations is not None:
            more = _rows(of_activations, start, count).chunk(4, -1)
            d_new = d_new + more[2]
        d_new = d_new * (1 - new * new)
        d_reset, d_hn = d_new * hn, d_new * reset
        if of_activations is not None:
            d_reset, d_update, d_hn = d_reset + more[0], d_update + more[1], d_hn + more[3]
        d_reset, d_update = d_reset * reset * (1 - reset), d_update * update * (1 - update)
        inputs.append(lazy.cat([d_reset, d_update, d_new], -1))
        hidden.append(lazy.cat([d_reset, d_update, d_hn], -1))
        dh = _replaced(dh, total * update + hidden[-1].matmul(w))
    results = _stacked(inputs, not reverse), _stacked(hidden, not reverse), dh
    a, b, c = [narrow(x, before) for x in results]
    return a, b, c


# ---- plain ------------------------------------------------------------------------------------


def _rnn_shape(
    gates: Any, h0: Any, weight_hh: Any, nonlinearity: Any, batch_sizes: Any, *_: Any
) -> tuple[int, ...]:
    rows = _fitting(gates, batch_sizes, h0)
    _square(gates, h0, weight_hh, 1)
    return rows, gates.shape[1]


def _rnn_backward_shapes(
    grad: Any, out: Any, weight_hh: Any, nonlinearity: Any, batch_sizes: Any, *_: Any
) -> list[tuple[int, ...]]:
    rows, size = _fitting(out, batch_sizes), out.shape[1]
    _expect("weight_hh", weight_hh, size, size)
    return [(rows, size), (batch_sizes[0], size)]


@composite(
    out=_rnn_shape,
    reference=reference.rnn_sequence,
    samples=reference.rnn_samples,
    **_METADATA,
)
def rnn_sequence(
    gates: Tensor,
    h0: Tensor,
    weight_hh: Tensor,
    nonlinearity: str,
    batch_sizes: IntList,
    reverse: bool,
) -> Tensor:
    """The steps of a plain recurrence, ``tanh`` or ``relu``: outputs ``(rows, H)``.

    ``gates`` is the input's part with all biases.
    """
    z, h, w = wide(gates), wide(h0), wide(weight_hh).t()
    activation = lazy.tanh if nonlinearity == "tanh" else lazy.relu
    outputs = []
    for start, count in _steps(z, batch_sizes, reverse):
        out = activation(_rows(z, start, count) + _rows(h, 0, count).matmul(w))
        outputs.append(out)
        h = _replaced(h, out)
    return narrow(_stacked(outputs, reverse), gates)


@rnn_sequence.vjp
def _(grad, out, h0, weight_hh, nonlinearity, batch_sizes, reverse):
    gates_grad, h_grad = rnn_sequence_backward(
        grad, out, weight_hh, nonlinearity, batch_sizes, reverse
    )
    return (
        gates_grad,
        h_grad,
        lambda: _weight_grad(gates_grad, _before(out, h0, batch_sizes, reverse)),
    )


@composite(
    out=_rnn_backward_shapes,
    reference=reference.rnn_sequence_backward,
    samples=reference.rnn_backward_samples,
    smooth=False,
    **_METADATA,
)
def rnn_sequence_backward(
    grad_output: Tensor,
    output: Tensor,
    weight_hh: Tensor,
    nonlinearity: str,
    batch_sizes: IntList,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`rnn_sequence`: of the gates and of ``h0``."""
    grad, out, w = wide(grad_output), wide(output), wide(weight_hh)
    slope = 1 - out * out if nonlinearity == "tanh" else (out > 0).to(out.dtype)
    dh = lazy.zeros_like(_rows(out, 0, batch_sizes[0]))
    gates = []
    for start, count in _steps(output, batch_sizes, not reverse):
        total = _rows(grad, start, count) + _rows(dh, 0, count)
        gates.append(total * _rows(slope, start, count))
        dh = _replaced(dh, gates[-1].matmul(w))
    a, b = [narrow(x, output) for x in (_stacked(gates, not reverse), dh)]
    return a, b
