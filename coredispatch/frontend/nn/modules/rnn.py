"""Recurrent layers: plain, LSTM (Hochreiter and Schmidhuber, 1997) and GRU (Cho et al., 2014)."""

from __future__ import annotations

import math
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.amp.autocast import is_autocast_enabled
from coredispatch.frontend.nn import init
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.nn.utils.rnn import PackedSequence
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import ChoiceError

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_empty = TABLE.operator("empty")
#: the operators of a layer and of a cell, and how many gates it has
_OPERATORS = {
    "RNN_TANH": (TABLE.operator("rnn_tanh"), TABLE.operator("rnn_tanh_cell"), 1),
    "RNN_RELU": (TABLE.operator("rnn_relu"), TABLE.operator("rnn_relu_cell"), 1),
    "LSTM": (TABLE.operator("lstm"), TABLE.operator("lstm_cell"), 4),
    "GRU": (TABLE.operator("gru"), TABLE.operator("gru_cell"), 3),
}

State = Any  # one tensor (N, H), or the pair (h, c) of an LSTM


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
        if input_size <= 0:
            raise ValueError("input_size must be greater than zero")
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
            warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={num_layers}"
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
        gates = _OPERATORS[mode][2]
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
        # By name and not from the table: a parametrization may compute what was a parameter.
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self) -> list[Any]:
        return [weight for weights in self.all_weights for weight in weights]

    @property
    def _all_weights(self) -> list[list[str]]:
        """The names of the parameters, by layer and direction."""
        kinds = ["weight_ih", "weight_hh"]
        kinds += ["bias_ih", "bias_hh"] if self.bias else []
        kinds += ["weight_hr"] if self.proj_size else []
        return [
            [kind + suffix for kind in kinds]
            for layer in range(self.num_layers)
            for suffix in self._suffixes(layer)
        ]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

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
        x = input.data if packed else input
        unbatched = not packed and x.ndim == 2
        if x.ndim not in ((2,) if packed else (2, 3)):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {x.ndim}D")
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, "
                f"got {x.shape[-1]}"
            )
        own = self._flat_weights[0].dtype
        if x.dtype != own and not is_autocast_enabled(x.device.type):
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({own}). "
                f"Convert input: input.to({own}), or convert model: model.to({x.dtype})"
            )
        if packed:
            return self._packed(input, hx)
        if unbatched:
            x = x.unsqueeze(0 if self.batch_first else 1)
        batch = x.shape[0 if self.batch_first else 1]
        out, *last = self._run(x, self._initial(hx, x, batch, unbatched), (self.batch_first,))
        if unbatched:
            out = out.squeeze(0 if self.batch_first else 1)
            last = [state.squeeze(1) for state in last]
        return out, self._states(last)

    def _packed(self, input: PackedSequence, hx: Any) -> tuple[Any, Any]:
        """:meth:`forward` of a packed sequence; states stand in the caller's order."""
        data, sizes, order, back = input
        state = self._initial(hx, data, int(sizes[0]), False)
        if hx is not None and order is not None:
            state = [s.index_select(1, order) for s in state]
        out, *last = self._run(data, state, (), sizes)
        if back is not None:
            last = [s.index_select(1, back) for s in last]
        return input._replace(data=out), self._states(last)

    def _states(self, last: list[Any]) -> State:
        return tuple(last) if self.mode == "LSTM" else last[0]

    def _run(self, x: Any, state: list[Any], order: tuple[bool, ...], *sizes: Any) -> Any:
        given = state if self.mode == "LSTM" else state[0]
        options = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        operator = _OPERATORS[self.mode][0]
        return operator(x, *sizes, given, self._flat_weights, *options, *order)

    def _initial(self, hx: Any, x: Any, batch: Any, unbatched: bool) -> list[Any]:
        """The first states, each ``(layers * directions, N, H)``."""
        lead = self.num_layers * (1 + self.bidirectional), batch
        shapes = [(*lead, self._real_hidden_size), (*lead, self.hidden_size)]
        if hx is None:
            zeros = x.new_zeros(shapes[0])
            if self.mode != "LSTM":
                return [zeros]
            return [zeros, x.new_zeros(shapes[1]) if self.proj_size else zeros]
        states = hx if self.mode == "LSTM" else (hx,)
        for state in states:
            if state.ndim != (2 if unbatched else 3):
                kind = "unbatched 2-D" if unbatched else "batched 3-D"
                raise RuntimeError(
                    f"For {kind} input, hx should also be {2 if unbatched else 3}-D but got "
                    f"{state.ndim}-D tensor"
                )
        states = [s.unsqueeze(1) if unbatched else s for s in states]
        labels = ("hidden[0]", "hidden[1]") if self.mode == "LSTM" else ("hidden",)
        for label, state, shape in zip(labels, states, shapes):
            if tuple(state.shape) != shape:
                raise RuntimeError(f"Expected {label} size {shape}, got {list(state.shape)}")
        return states

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
        gates = _OPERATORS[self._mode][2]
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
        parameters = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        return _OPERATORS[self._mode][1](input, hx, *parameters)

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
        if nonlinearity not in ("tanh", "relu"):  # PyTorch finds it when the cell is called
            raise ChoiceError.among("nonlinearity", nonlinearity, ("tanh", "relu"))
        self.__dict__["_mode"] = "RNN_" + nonlinearity.upper()
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity


class LSTMCell(RNNCellBase):
    """One step of :class:`LSTM`."""

    _mode = "LSTM"


class GRUCell(RNNCellBase):
    """One step of :class:`GRU`."""

    _mode = "GRU"
