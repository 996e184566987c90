"""LSTM, GRU and simple recurrent layers, one node of ONNX for each layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Builder
from coredispatch.frontend.onnx.translations.indexing import _ints

__all__ = ["TRANSLATIONS"]

#: the order in which ONNX has the gates, in the places of PyTorch's
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _ordered(b: Builder, kind: str, weight: Any) -> str:
    """The rows of the gates as ONNX orders them, with a dimension for the direction."""
    order = _GATES[kind]
    name = weight.name
    if len(order) > 1:
        parts = b.op("Split", weight, outputs=len(order), axis=0, num_outputs=len(order))
        name = b.op("Concat", *[parts[i] for i in order], axis=0)
    return str(b.op("Unsqueeze", name, _ints([0])))


def _layers(
    b: Builder,
    kind: str,
    x: Any,
    states: list[Any],
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    **attributes: Any,
) -> list[str]:
    if train and dropout and num_layers > 1:
        b.refuse("dropout between recurrent layers in training; call model.eval() first")
    if x.rank != 3:
        b.refuse("a recurrent layer without a batch; add a dimension")
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(params) != num_layers * directions * each:
        b.refuse("a recurrent layer with projections (proj_size)")
    hidden = int(params[1].shape[-1])
    value = b.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x.name
    last: list[list[str]] = [[] for _ in states]
    for layer in range(num_layers):
        weights: list[list[str]] = [[], [], []]
        for direction in range(directions):
            own = params[(layer * directions + direction) * each :][:each]
            weights[0].append(_ordered(b, kind, own[0]))
            weights[1].append(_ordered(b, kind, own[1]))
            if has_biases:
                both = [_ordered(b, kind, bias) for bias in own[2:]]
                weights[2].append(b.op("Concat", *both, axis=1))
        joined = [
            None if not parts else parts[0] if len(parts) == 1 else b.op("Concat", *parts, axis=0)
            for parts in weights
        ]
        rows = (_ints([layer * directions]), _ints([(layer + 1) * directions]), _ints([0]))
        start = [b.op("Slice", state, *rows) for state in states]
        outputs = b.op(
            kind, value, *joined, None, *start, outputs=1 + len(states), hidden_size=hidden,
            direction="bidirectional" if bidirectional else "forward", **attributes,
        )  # fmt: skip
        # (T, directions, N, H) -> (T, N, directions * H)
        turned = b.op("Transpose", outputs[0], perm=[0, 2, 1, 3])
        value = b.op("Reshape", turned, np.array([0, 0, directions * hidden]))
        for kept, state in zip(last, outputs[1:]):
            kept.append(state)
    if batch_first:
        value = b.op("Transpose", value, perm=[1, 0, 2])
    ends = [kept[0] if len(kept) == 1 else b.op("Concat", *kept, axis=0) for kept in last]
    return [value, *ends]


def _lstm(b: Builder, x: Any, hx: Any, params: Any, *rest: Any) -> Any:
    return _layers(b, "LSTM", x, list(hx), params, *rest)


def _gru(b: Builder, x: Any, hx: Any, params: Any, *rest: Any) -> Any:
    return _layers(b, "GRU", x, [hx], params, *rest, linear_before_reset=1)


def _rnn(activation: str) -> Any:
    def translate(b: Builder, x: Any, hx: Any, params: Any, *rest: Any) -> Any:
        count = 2 if rest[4] else 1
        return _layers(b, "RNN", x, [hx], params, *rest, activations=[activation] * count)

    return translate


TRANSLATIONS: dict[str, Any] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _rnn("Tanh"),
    "rnn_relu": _rnn("Relu"),
}
