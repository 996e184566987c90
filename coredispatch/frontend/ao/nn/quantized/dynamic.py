"""``nn.quantized.dynamic``: 8-bit weights; activations are float, quantized as they come."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import nn
from coredispatch.frontend.ao.nn.quantized.weights import Weighted, observed_weight
from coredispatch.frontend.ao.schemes import of_plugin, scheme_of
from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn.modules.rnn import RNNBase, RNNCellBase

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "Linear", "RNNCell"]


def _observer(**options: Any) -> Any:
    # The observers' package imports this one.
    from coredispatch.frontend.ao.quantization.observer import MinMaxObserver

    return MinMaxObserver(**options)


def _is_half(qconfig: Any) -> bool:
    weight: Any = qconfig.weight()
    return bool(weight.dtype.name == "float16")


class Linear(Weighted):
    """:class:`nn.Linear` with an 8-bit weight; each input is rounded to 7 bits of its own range.

    PyTorch's kernel for x86 leaves one bit free in the same way.
    """

    def __init__(
        self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = "qint8"
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self._half = in_features, out_features, False
        plain = nn.Linear(in_features, out_features, bias_)
        weight = observed_weight(plain.weight, _observer(dtype="qint8"))
        self.set_weight_bias(weight, plain.bias)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def forward(self, x: Any) -> Any:
        """``(..., in_features)`` in float32."""
        if self._half:
            return F.linear(x, self._qweight.float(), self._bias)
        observer = _observer(dtype="quint8", quant_min=0, quant_max=127)
        observer(x)
        scale, zero_point = observer.calculate_qparams()
        back = of_plugin("dequantize")
        if x.numel():
            rounded = of_plugin("quantize_per_tensor")(
                x.detach(), float(scale), int(zero_point), observer.dtype
            )
            x = back(rounded)
        return F.linear(x, back(self._qweight), self._bias)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """From a layer with a ``qconfig``."""
        made = cls(mod.in_features, mod.out_features, mod.bias is not None)
        made._half = _is_half(mod.qconfig)
        if made._half:
            made.set_weight_bias(mod.weight.detach().half(), mod.bias)
        else:
            made.set_weight_bias(observed_weight(mod.weight, mod.qconfig.weight()), mod.bias)
        return made

    def extra_repr(self) -> str:
        """Sizes and the weight's type."""
        text = f"in_features={self.in_features}, out_features={self.out_features}"
        text += f", dtype={self._qweight.dtype}"
        return text if self._half else f"{text}, qscheme={scheme_of(self._qweight)}"


class _Rounded:
    """A recurrent layer whose matrices are kept in 8 bits (or half precision).

    They are dequantized when it is called; activations stay in float.
    """

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """From a layer with a ``qconfig``."""
        made: Any = cls.__new__(cls)
        nn.Module.__init__(made)
        names = list(mod._parameters)
        for name, value in mod.__dict__.items():  # sizes and options; parameters stand there, too
            if name not in names and name != "qconfig":
                made.__dict__.setdefault(name, value)
        made.__dict__["_kept"] = names
        for name in names:
            value = mod._parameters[name]
            if value is not None and name.startswith("weight"):
                value = value.detach()
                if _is_half(mod.qconfig):
                    value = value.half()
                else:
                    value = observed_weight(value, mod.qconfig.weight())
            made.register_buffer("q_" + name, None if value is None else value.detach())
        made.eval()
        return made

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_kept", ()):
            value = self.__dict__["q_" + name]  # buffers stand there
            if value is None or not name.startswith("weight"):
                return value
            return value.dequantize() if value.is_quantized else value.float()
        return nn.Module.__getattr__(self, name)  # type: ignore[arg-type]

    @property
    def all_weights(self) -> list[list[Any]]:
        """The matrices and biases by layer and direction, in float."""
        layer: Any = self
        return [
            [getattr(layer, n) for n in layer._kept if n.partition("_l")[2] == suffix[2:]]
            for number in range(layer.num_layers)
            for suffix in layer._suffixes(number)
        ]

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"


def _layer(base: Any) -> Any:
    doc = f":class:`nn.{base.__name__}` whose matrices have 8 bits."
    kind = type(base.__name__, (_Rounded, base), {"__doc__": doc, "__module__": __name__})
    assert issubclass(base, (RNNBase, RNNCellBase))
    return kind


LSTM, GRU = _layer(nn.LSTM), _layer(nn.GRU)
LSTMCell, GRUCell, RNNCell = _layer(nn.LSTMCell), _layer(nn.GRUCell), _layer(nn.RNNCell)
