"""Layers without integer kernels: computed on the exact numbers in float, rounded once."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import nn
from coredispatch.frontend.ao.schemes import of_plugin

__all__ = [
    "ELU",
    "BatchNorm2d",
    "BatchNorm3d",
    "Dropout",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "PReLU",
    "ReLU6",
    "Sigmoid",
    "Softmax",
    "of",
]


class Requantizing(nn.Module):
    """A float module between a dequantization and a quantization of the output.

    ``module`` is in evaluation mode; ``scale`` and ``zero_point`` are those of the output.
    """

    def __init__(self, module: Any, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__()
        self.module = module.eval()
        self.scale, self.zero_point = float(scale), int(zero_point)

    def forward(self, x: Any) -> Any:
        """``x``, quantized per tensor."""
        out = self.module(of_plugin("dequantize")(x))
        return of_plugin("quantize_per_tensor")(out, self.scale, self.zero_point, x.dtype)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """From a module that has observed its output."""
        observer = mod.activation_post_process
        scale, zero_point = observer.calculate_qparams()
        mod._modules.pop("activation_post_process", None)
        return cls(mod, float(scale), int(zero_point))

    def extra_repr(self) -> str:
        """Parameters of the output."""
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def get_extra_state(self) -> dict[str, Any]:
        """Scale and zero point of the output, for ``state_dict``."""
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`get_extra_state` gave."""
        self.scale, self.zero_point = float(state["scale"]), int(state["zero_point"])


def of(name: str) -> Any:
    """The class of that name."""
    doc = f"``{name}`` of quantized tensors, computed in float and rounded once."
    return type(name, (Requantizing,), {"__doc__": doc, "__module__": __name__})


class Dropout(nn.Dropout):
    """Passes quantized tensors on: there is no dropout in evaluation."""

    def forward(self, input: Any) -> Any:
        """``input``."""
        return input

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Dropout:
        """From a float one."""
        return cls(mod.p, mod.inplace)

    def _get_name(self) -> str:
        return "QuantizedDropout"


BatchNorm2d, BatchNorm3d = of("BatchNorm2d"), of("BatchNorm3d")
ELU, GroupNorm, Hardswish = of("ELU"), of("GroupNorm"), of("Hardswish")
InstanceNorm1d, InstanceNorm2d = of("InstanceNorm1d"), of("InstanceNorm2d")
InstanceNorm3d, LayerNorm, LeakyReLU = of("InstanceNorm3d"), of("LayerNorm"), of("LeakyReLU")
PReLU, ReLU6, Sigmoid, Softmax = of("PReLU"), of("ReLU6"), of("Sigmoid"), of("Softmax")
