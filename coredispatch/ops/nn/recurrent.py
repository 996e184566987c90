"""Recurrent layers and their cells, each one operator: what a trace keeps and a loop is made of.

Every layer and direction is a matrix product over all steps and one call of a sequence operator
(:mod:`.recurrent_sequences`), which has the derivative.
"""

from __future__ import annotations

from typing import Any

from coredispatch.ops.nn import recurrent_reference as reference
from coredispatch.ops.nn.recurrent_sequences import (
    gru_sequence,
    last_states,
    lstm_sequence,
    rnn_sequence,
)
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import recurrence, same
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, ShapeError

__all__ = [
    "gru",
    "gru_cell",
    "gru_packed",
    "lstm",
    "lstm_cell",
    "lstm_packed",
    "rnn_relu",
    "rnn_relu_cell",
    "rnn_relu_packed",
    "rnn_tanh",
    "rnn_tanh_cell",
    "rnn_tanh_packed",
]

_GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


# ---- one direction, and all of them -----------------------------------------------------------


def _direction(
    mode: str, x: Tensor, states: list[Tensor], weights: list[Any], sizes: IntList, reverse: bool
) -> tuple[Tensor, list[Tensor]]:
    """Outputs of one layer in one direction, and what each sequence's states are at its end.

    ``weights`` are those of the input and of the state, their biases, and the projection's.
    """
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    if mode == "gru":
        gates = lazy.linear(x, w_ih, b_ih)
        out = gru_sequence(gates, states[0], w_hh, b_hh, sizes, reverse)[0]
        return out, [last_states(out, sizes, reverse)]
    gates = lazy.linear(x, w_ih, _plus(b_ih, b_hh))
    if mode == "lstm":
        out, cells, _ = lstm_sequence(gates, states[0], states[1], w_hh, w_hr, sizes, reverse)
        return out, [last_states(part, sizes, reverse) for part in (out, cells)]
    out = rnn_sequence(gates, states[0], w_hh, mode, sizes, reverse)
    return out, [last_states(out, sizes, reverse)]


def _grouped(
    mode: str, params: list[Tensor], has_biases: bool, directions: int, hx: list[Tensor]
) -> list[list[Any]]:
    """The parameters by layer and direction, as :func:`_direction` takes them."""
    projected = mode == "lstm" and hx[0].shape[2] != hx[1].shape[2]
    each = 2 + 2 * has_biases + projected
    if len(params) != each * directions:
        raise ArgumentError(
            f"{len(params)} parameters for {directions} layers and directions of {each} each",
            fix="give weight_ih, weight_hh, then bias_ih and bias_hh if has_biases, for each layer "
            "and direction",
        )
    groups = []
    for k in range(directions):
        group = list(params[k * each : (k + 1) * each])
        biases = group[2:4] if has_biases else [None, None]
        groups.append([*group[:2], *biases, group[-1] if projected else None])
    return groups


def _check(mode: str, x: Any, hx: list[Any], params: Any, lead: int, batch: int) -> None:
    names = ("h0", "c0")
    wanted = 2 if mode == "lstm" else 1
    if len(hx) != wanted:
        raise ArgumentError(f"an LSTM expects two hidden states, got {len(hx)}", fix="give (h, c)")
    for name, state in zip(names, hx):
        if state.ndim != 3 or tuple(state.shape[:2]) != (lead, batch):
            raise ShapeError(
                f"{name} has shape {tuple(state.shape)}, expected ({lead}, {batch}, size)",
                fix="its first dimension counts layers and directions, its second the batch",
            )
    if params:
        _check_features("an input", x, params[0])


def _check_features(what: str, x: Any, weight: Any) -> None:
    if x.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"{what} with {x.shape[-1]} features for a weight of shape {tuple(weight.shape)}",
            fix=f"give {weight.shape[-1]} features",
        )


def _network(
    mode: str, x: Tensor, hx: list[Tensor], params: list[Tensor], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, sizes: IntList,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """All layers on packed rows: outputs ``(rows, directions * P)``, last states stacked."""
    directions = 1 + bidirectional
    count = num_layers * directions
    _check(mode, x, hx, params, count, sizes[0])
    groups = _grouped(mode, params, has_biases, count, hx)
    first = [state.unbind(0) for state in hx]
    ends: list[list[Tensor]] = [[] for _ in hx]
    for layer in range(num_layers):
        if layer and dropout and train:
            x = lazy.dropout(x, dropout, True)
        outputs = []
        for d in range(directions):
            k = layer * directions + d
            out, last = _direction(mode, x, [s[k] for s in first], groups[k], sizes, bool(d))
            outputs.append(out)
            for into, end in zip(ends, last):
                into.append(end)
        x = outputs[0] if directions == 1 else lazy.cat(outputs, -1)
    return x, [lazy.stack(end) for end in ends]  # copies: no state is a view of the outputs


def _padded(
    mode: str, input: Tensor, hx: list[Tensor], params: list[Tensor], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    if input.ndim != 3:
        raise ShapeError(
            f"the input has shape {tuple(input.shape)}",
            fix="give (steps, batch, features), or (batch, steps, features) with batch_first",
        )
    x = input.transpose(0, 1) if batch_first else input
    steps, batch, features = x.shape
    if not steps:
        raise ShapeError("Expected sequence length to be larger than 0 in RNN", fix="give steps")
    rows, ends = _network(
        mode, x.reshape(steps * batch, features), hx, params, has_biases, num_layers, dropout,
        train, bidirectional, (batch,),
    )  # fmt: skip
    out = rows.reshape(steps, batch, rows.shape[1])
    return (out.transpose(0, 1) if batch_first else out, *ends)


def _packed(
    mode: str, data: Tensor, batch_sizes: Tensor, hx: list[Tensor], params: list[Tensor],
    has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    sizes = tuple(batch_sizes.tolist())
    if not sizes or sum(sizes) != data.shape[0] or sorted(sizes, reverse=True) != list(sizes):
        raise ShapeError(
            f"batch sizes {sizes} for {data.shape[0]} rows of data",
            fix="pack with pack_padded_sequence: sizes fall, and add up to the rows",
        )
    rows, ends = _network(
        mode, data, hx, params, has_biases, num_layers, dropout, train, bidirectional, sizes
    )
    return (rows, *ends)


# ---- shapes -------------------------------------------------------------------------------------


def _states(mode: str, hx: Any) -> list[tuple[int, ...]]:
    return [tuple(s.shape) for s in (hx if mode == "lstm" else [hx])]


def _padded_shapes(mode: str) -> Any:
    def shapes(input: Any, hx: Any, params: Any, *options: Any) -> list[tuple[int, ...]]:
        states = _states(mode, hx)
        width = states[0][2] * (1 + options[4])
        return [(*input.shape[:2], width), *states]

    return shapes


def _packed_shapes(mode: str) -> Any:
    def shapes(data: Any, sizes: Any, hx: Any, params: Any, *options: Any) -> list[tuple[int, ...]]:
        states = _states(mode, hx)
        return [(data.shape[0], states[0][2] * (1 + options[4])), *states]

    return shapes


def _draws(
    input: Any, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any, train: Any,
    *_: Any,
) -> bool:  # fmt: skip
    """Whether a call drops something between its layers."""
    return num_layers != 1 and dropout != 0 and train is not False


def _draws_packed(data: Any, batch_sizes: Any, *rest: Any) -> bool:
    return _draws(data, *rest)


def _metadata(mode: str, packed: bool = False) -> dict[str, Any]:
    return {
        "out": (_packed_shapes if packed else _padded_shapes)(mode),
        "dtype": same,
        "cast": "lower",
        "reference": reference.layers(mode, packed),
        "samples": reference.layer_samples(mode, packed),
        "takes": "float",
        "values": (-2.0, 2.0),  # sums of huge numbers of both signs would mean nothing as a gate
        "tolerance": recurrence,
        "smooth": mode != "relu",
        "random": _draws_packed if packed else _draws,
        "host": ("batch_sizes",) if packed else (),
        "namespace": () if packed else "",
        "method": False,
    }


# ---- layers -------------------------------------------------------------------------------------


@composite(**_metadata("lstm"))
def lstm(
    input: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Long short-term memory over ``(T, N, I)``: outputs, last ``h`` and last ``c``.

    ``hx`` is ``(h, c)``, each ``(layers * directions, N, H)``; where ``h`` is narrower, outputs are
    projected. ``params`` has for each layer and direction ``weight_ih``, ``weight_hh``,
    ``bias_ih``, ``bias_hh`` (``has_biases``) and ``weight_hr`` (projected). In packed form the call
    is ``lstm(data, batch_sizes, hx, params, ...)`` without ``batch_first``. While ``train``,
    ``dropout`` is applied between layers. See :class:`coredispatch.nn.LSTM`.
    """
    out, h, c = _padded(
        "lstm", input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
        batch_first,
    )  # fmt: skip
    return out, h, c


@composite(**_metadata("lstm", packed=True))
def lstm_packed(
    data: Tensor,
    batch_sizes: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`lstm` of a packed sequence: ``data`` is ``(rows, I)``, ``batch_sizes`` on the CPU."""
    out, h, c = _packed(
        "lstm", data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional
    )
    return out, h, c


@lstm.overload
def _(
    data: Tensor,
    batch_sizes: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return lstm_packed(
        data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional
    )


_LAYER = """{} over ``(T, N, I)``: outputs, and the last state of each layer and direction.

    ``hx`` is ``(layers * directions, N, H)``; ``params`` has for each layer and direction
    ``weight_ih``, ``weight_hh``, and ``bias_ih``, ``bias_hh`` if ``has_biases``. In packed form the
    call is ``{}(data, batch_sizes, hx, params, ...)`` without ``batch_first``. While ``train``,
    ``dropout`` is applied between layers. See :class:`coredispatch.nn.{}`.
    """


def _layer(name: str, mode: str, title: str, module: str) -> tuple[Any, Any]:
    """The operators of a layer with one state: padded, and packed."""

    @composite(name=name, **_metadata(mode))
    def layer(
        input: Tensor,
        hx: Tensor,
        params: list[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, Tensor]:
        out, h = _padded(
            mode, input, [hx], params, has_biases, num_layers, dropout, train, bidirectional,
            batch_first,
        )  # fmt: skip
        return out, h

    @composite(name=name + "_packed", **_metadata(mode, packed=True))
    def packed(
        data: Tensor,
        batch_sizes: Tensor,
        hx: Tensor,
        params: list[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[Tensor, Tensor]:
        out, h = _packed(
            mode, data, batch_sizes, [hx], params, has_biases, num_layers, dropout, train,
            bidirectional,
        )  # fmt: skip
        return out, h

    @layer.overload
    def _(
        data: Tensor,
        batch_sizes: Tensor,
        hx: Tensor,
        params: list[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[Tensor, Tensor]:
        return packed(
            data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional
        )

    layer.__doc__ = _LAYER.format(title, name, module)
    packed.__doc__ = f":func:`{name}` of a packed sequence: ``data`` is ``(rows, I)``."
    return layer, packed


gru, gru_packed = _layer("gru", "gru", "Gated recurrent unit", "GRU")
rnn_tanh, rnn_tanh_packed = _layer("rnn_tanh", "tanh", "A recurrence with tanh", "RNN")
rnn_relu, rnn_relu_packed = _layer("rnn_relu", "relu", "A recurrence with relu", "RNN")


# ---- cells --------------------------------------------------------------------------------------


def _step(
    mode: str, input: Tensor, hx: list[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any
) -> list[Tensor]:
    """The next states: a sequence of one step. A vector is a batch of one."""
    states = [wanted.unsqueeze(0) if wanted.ndim == 1 else wanted for wanted in hx]
    x = input.unsqueeze(0) if input.ndim == 1 else input
    if x.ndim != 2 or any(s.ndim != 2 or s.shape[0] != x.shape[0] for s in states):
        raise ShapeError(
            f"an input of shape {tuple(input.shape)} for states of shape {tuple(hx[0].shape)}",
            fix="use (batch, features) for both, or vectors",
        )
    rows = _GATES[mode] * states[-1].shape[1]
    if w_ih.ndim != 2 or w_hh.ndim != 2:
        raise ShapeError(
            f"weights of shapes {tuple(w_ih.shape)} and {tuple(w_hh.shape)} are no matrices",
            fix="use (gates * hidden, features) and (gates * hidden, hidden)",
        )
    if w_ih.shape[0] != rows or w_hh.shape[0] != rows:
        raise ShapeError(
            f"weights of {w_ih.shape[0]} and {w_hh.shape[0]} rows for a state of size "
            f"{states[-1].shape[1]}",
            fix=f"use {rows} rows",
        )
    _check_features("an input", x, w_ih)
    _check_features("a state", states[0], w_hh)
    for bias in (b_ih, b_hh):
        if bias is not None and tuple(bias.shape) != (rows,):
            raise ShapeError(
                f"a bias of shape {tuple(bias.shape)} does not fit a weight of {rows} rows",
                fix=f"use a bias of shape ({rows},)",
            )
    if mode in ("tanh", "relu"):  # two products: less than a sequence of one step
        total = lazy.linear(x, w_ih, b_ih) + lazy.linear(states[0], w_hh, b_hh)
        ends = [total.tanh() if mode == "tanh" else total.relu()]
    else:
        weights = [w_ih, w_hh, b_ih, b_hh, None]
        _, ends = _direction(mode, x, states, weights, (x.shape[0],), True)
    return [end.squeeze(0) if old.ndim == 1 else end for end, old in zip(ends, hx)]


def _cell_metadata(mode: str) -> dict[str, Any]:
    def shapes(input: Any, hx: Any, *_: Any) -> Any:
        found = [tuple(s.shape) for s in (hx if mode == "lstm" else [hx])]
        return found if mode == "lstm" else found[0]

    return {
        "out": shapes,
        "dtype": same,
        "cast": "lower",
        "reference": reference.cell(mode),
        "samples": reference.cell_samples(mode),
        "takes": "float",
        "values": (-2.0, 2.0),  # sums of huge numbers of both signs would mean nothing as a gate
        "tolerance": recurrence,
        "smooth": mode != "relu",
        "unbroadcast": False,
        "method": False,
    }


@composite(**_cell_metadata("lstm"))
def lstm_cell(
    input: Tensor,
    hx: list[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM from ``hx = (h, c)``; see :class:`coredispatch.nn.LSTMCell`."""
    if len(hx) != 2:
        raise ArgumentError(f"an LSTM expects two hidden states, got {len(hx)}", fix="give (h, c)")
    h, c = _step("lstm", input, hx, w_ih, w_hh, b_ih, b_hh)
    return h, c


def _cell(name: str, mode: str, text: str) -> Any:
    @composite(name=name, **_cell_metadata(mode))
    def cell(
        input: Tensor,
        hx: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor:
        return _step(mode, input, [hx], w_ih, w_hh, b_ih, b_hh)[0]

    cell.__doc__ = text
    return cell


gru_cell = _cell("gru_cell", "gru", "One step of a GRU; see :class:`coredispatch.nn.GRUCell`.")
rnn_tanh_cell = _cell("rnn_tanh_cell", "tanh", "``tanh(w_ih input + b_ih + w_hh hx + b_hh)``.")
rnn_relu_cell = _cell("rnn_relu_cell", "relu", "``relu(w_ih input + b_ih + w_hh hx + b_hh)``.")
