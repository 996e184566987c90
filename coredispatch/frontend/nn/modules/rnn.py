"""Recurrent layers: plain, LSTM (Hochreiter and Schmidhuber, 1997) and GRU (Cho et al., 2014)."""

from __future__ import annotations

import math
import warnings
from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn import init
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pad_packed_sequence,
)
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_linear = TABLE.operator("linear")
_empty = TABLE.operator("empty")
_sigmoid, _tanh, _relu = (TABLE.operator(n) for n in ("sigmoid", "tanh", "relu"))
_cat, _stack, _where = (TABLE.operator(n) for n in ("cat", "stack", "where"))

State = Any  # one tensor (N, H), or the pair (h, c) of an LSTM


def _plain_step(activation: Any) -> Any:
    def step(gates: Any, state: State, w: Any, b: Any) -> State:
        return activation(gates + _linear(state, w, b))

    return step


def _lstm_step(gates: Any, state: State, w: Any, b: Any) -> State:
    h, c = state
    i, f, g, o = (gates + _linear(h, w, b)).chunk(4, -1)
    c = _sigmoid(f) * c + _sigmoid(i) * _tanh(g)
    return _sigmoid(o) * _tanh(c), c


def _gru_step(gates: Any, state: State, w: Any, b: Any) -> State:
    r, z, n = gates.chunk(3, -1)
    hr, hz, hn = _linear(state, w, b).chunk(3, -1)
    n = _tanh(n + _sigmoid(r + hr) * hn)
    return n + _sigmoid(z + hz) * (state - n)


_STEPS = {
    "RNN_TANH": (_plain_step(_tanh), 1),
    "RNN_RELU": (_plain_step(_relu), 1),
    "LSTM": (_lstm_step, 4),
    "GRU": (_gru_step, 3),
}


def _projecting(step: Any, weight: Any) -> Any:
    """An LSTM's step whose output is multiplied by ``weight``. Sak et al., 2014."""

    def projected(gates: Any, state: State, w: Any, b: Any) -> State:
        h, c = step(gates, state, w, b)
        return _linear(h, weight, None), c

    return projected


def _output(state: State) -> Any:
    return state[0] if isinstance(state, tuple) else state


def _kept(member: Any, new: State, old: State) -> State:
    """The new state for sequences that have this step, the old one for those that ended."""
    if member is None:
        return new
    if isinstance(new, tuple):
        return tuple(_where(member, a, b) for a, b in zip(new, old))
    return _where(member, new, old)


class RNNBase(Module):
    """What the recurrent layers share; ``mode`` is one of RNN_TANH, RNN_RELU, LSTM and GRU.

    Parameters are named as PyTorch's (``weight_ih_l0``, ``bias_hh_l1_reverse``, ...) and start
    uniform in ``+-1 / sqrt(hidden_size)``.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                "element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={num_layers}",
                stacklevel=3,
            )
        if proj_size < 0:
            raise ValueError(
                "proj_size should be a positive integer or zero to disable projections"
            )
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        self.proj_size = proj_size
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional = float(dropout), bidirectional
        _, gates = _STEPS[mode]
        where = {"device": device, "dtype": dtype}
        for layer in range(num_layers):
            width = input_size if layer == 0 else self._real_hidden_size * (1 + bidirectional)
            for suffix in self._suffixes(layer):
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (gates * hidden_size, width),
                    "weight_hh": (gates * hidden_size, self._real_hidden_size),
                }
                if bias:
                    shapes["bias_ih"] = shapes["bias_hh"] = (gates * hidden_size,)
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name + suffix, Parameter(_empty(shape, **where)))
        self.reset_parameters()

    @property
    def _real_hidden_size(self) -> int:
        """The size of an output: that of the projection where there is one."""
        return self.proj_size or self.hidden_size

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters by layer and direction."""
        names = list(self.__dict__["_parameter_names"])
        return [
            [getattr(self, n) for n in names if n.partition("_l")[2] == suffix[2:]]
            for layer in range(self.num_layers)
            for suffix in self._suffixes(layer)
        ]

    @property
    def _flat_weights(self) -> list[Any]:
        return [weight for weights in self.all_weights for weight in weights]

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: 1 + self.bidirectional]

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: the parameters are used where they lie."""

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """All outputs of the last layer, and the last state of every layer and direction.

        ``input`` is ``(T, N, I)``, ``(N, T, I)`` with ``batch_first``, ``(T, I)`` or packed; the
        output has the same form with ``H`` (or ``2 * H``) in place of ``I``. States are
        ``(layers * directions, N, H)``, zeros unless given.
        """
        packed = isinstance(input, PackedSequence)
        member = None
        if packed:
            x, lengths = pad_packed_sequence(input)
            steps = TABLE.operator("arange")(x.shape[0], device=x.device)
            member = (steps.unsqueeze(1) < lengths.to(x.device).unsqueeze(0)).unsqueeze(2)
        else:
            x = input
        unbatched = x.ndim == 2
        if x.ndim not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {x.ndim}D")
        if unbatched:
            x = x.unsqueeze(1)
        elif self.batch_first and not packed:
            x = x.transpose(0, 1)
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, "
                f"got {x.shape[-1]}"
            )
        x, last = self._run(x, self._initial(hx, x, unbatched), member)
        if packed:
            sorted_ = input.sorted_indices is None
            return pack_padded_sequence(x, lengths, False, sorted_), last
        if unbatched:
            x = x.squeeze(1)
            last = tuple(s.squeeze(1) for s in last) if isinstance(last, tuple) else last.squeeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        return x, last

    def _initial(self, hx: Any, x: Any, unbatched: bool) -> State:
        """The first state as tensors ``(layers * directions, N, H)``."""
        lead = self.num_layers * (1 + self.bidirectional), x.shape[1]
        shapes = [(*lead, self._real_hidden_size), (*lead, self.hidden_size)]
        if hx is None:
            zeros = x.new_zeros(shapes[0])
            if self.mode != "LSTM":
                return zeros
            return zeros, x.new_zeros(shapes[1]) if self.proj_size else zeros
        states = hx if self.mode == "LSTM" else (hx,)
        for state in states:
            if state.ndim != (2 if unbatched else 3):
                kind = "unbatched 2-D" if unbatched else "batched 3-D"
                raise RuntimeError(
                    f"For {kind} input, hx should also be {2 if unbatched else 3}-D but got "
                    f"{state.ndim}-D tensor"
                )
        states = tuple(s.unsqueeze(1) if unbatched else s for s in states)
        labels = ("hidden[0]", "hidden[1]") if self.mode == "LSTM" else ("hidden",)
        for label, state, shape in zip(labels, states, shapes):
            if tuple(state.shape) != shape:
                raise RuntimeError(f"Expected {label} size {shape}, got {list(state.shape)}")
        return states if self.mode == "LSTM" else states[0]

    def _run(self, x: Any, state: State, member: Any) -> tuple[Any, State]:
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = F.dropout(x, self.dropout, True)
            directions = []
            for suffix in self._suffixes(layer):
                place = len(last)
                first = tuple(s[place] for s in state) if isinstance(state, tuple) else state[place]
                outputs, end = self._direction(x, first, suffix, member)
                directions.append(outputs)
                last.append(end)
            x = directions[0] if len(directions) == 1 else _cat(directions, -1)
        if isinstance(state, tuple):
            return x, tuple(_stack(list(part)) for part in zip(*last))
        return x, _stack(last)

    def _direction(self, x: Any, state: State, suffix: str, member: Any) -> tuple[Any, State]:
        """One layer in one direction. The input's part of all steps is one matrix product."""
        step, _ = _STEPS[self.mode]
        # Attributes, not entries: a parametrized weight is a property.
        if self.proj_size:
            step = _projecting(step, getattr(self, "weight_hr" + suffix))
        bias = None
        if self.bias:
            bias = getattr(self, "bias_ih" + suffix), getattr(self, "bias_hh" + suffix)
        gates = _linear(x, getattr(self, "weight_ih" + suffix), bias and bias[0])
        weight, bias = getattr(self, "weight_hh" + suffix), bias and bias[1]
        times = range(x.shape[0])
        outputs: list[Any] = [None] * x.shape[0]
        for t in reversed(times) if suffix.endswith("reverse") else times:
            here = None if member is None else member[t]
            state = _kept(here, step(gates[t], state, weight, bias), state)
            out = _output(state)
            outputs[t] = out if here is None else out.masked_fill(~here, 0)
        return _stack(outputs), state

    def extra_repr(self) -> str:
        """Sizes, and what differs from the defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if not self.bias:
            text += ", bias=False"
        if self.batch_first:
            text += ", batch_first=True"
        if self.dropout:
            text += f", dropout={self.dropout}"
        return text + (", bidirectional=True" if self.bidirectional else "")


class RNN(RNNBase):
    """``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or with ``nonlinearity="relu"``."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'")
        options = (num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype)
        super().__init__("RNN_" + nonlinearity.upper(), input_size, hidden_size, *options)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory; its state is the pair ``(h, c)``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent unit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)


class RNNCellBase(Module):
    """What the cells share."""

    _mode = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        _, gates = _STEPS[self._mode]
        where = {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(_empty((gates * hidden_size, input_size), **where))
        self.weight_hh = Parameter(_empty((gates * hidden_size, hidden_size), **where))
        for name in ("bias_ih", "bias_hh"):
            value = Parameter(_empty((gates * hidden_size,), **where)) if bias else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, uniform in ``+-1 / sqrt(hidden_size)``."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input: Any, hx: Any = None) -> State:
        """The next state of ``(N, I)`` or ``(I,)``."""
        if input.ndim not in (1, 2):
            raise ValueError(
                f"{type(self).__name__}: Expected input to be 1D or 2D, got {input.ndim}D instead"
            )
        for state in hx if isinstance(hx, (tuple, list)) else [hx]:
            if state is not None and state.ndim not in (1, 2):
                raise ValueError(
                    f"{type(self).__name__}: Expected hidden to be 1D or 2D, got {state.ndim}D "
                    "instead"
                )
        if hx is None:
            zeros = input.new_zeros((*input.shape[:-1], self.hidden_size))
            hx = (zeros, zeros) if self._mode == "LSTM" else zeros
        elif self._mode == "LSTM":
            hx = tuple(hx)
        gates = _linear(input, self.weight_ih, self.bias_ih)
        return _STEPS[self._mode][0](gates, hx, self.weight_hh, self.bias_hh)

    def extra_repr(self) -> str:
        """Sizes."""
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += ", bias=False"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else text + f", nonlinearity={nonlinearity}"


class RNNCell(RNNCellBase):
    """One step of :class:`RNN`."""

    _mode = "RNN_TANH"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        self.__dict__["_mode"] = "RNN_" + nonlinearity.upper()
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity


class LSTMCell(RNNCellBase):
    """One step of :class:`LSTM`."""

    _mode = "LSTM"


class GRUCell(RNNCellBase):
    """One step of :class:`GRU`."""

    _mode = "GRU"
