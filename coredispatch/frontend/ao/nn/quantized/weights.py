"""What layers with a quantized weight share: rounding it, and keeping it in a state_dict."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import nn
from coredispatch.frontend.ao.schemes import of_plugin

__all__ = ["Weighted", "folded", "observed_weight"]


def observed_weight(weight: Any, observer: Any) -> Any:
    """``weight`` in the 8-bit type of the observer, which has its range, or is shown it."""
    observer(weight)
    scale, zero_point = observer.calculate_qparams()
    rounded, dtype = weight.detach().float(), observer.dtype
    if scale.numel() > 1 or getattr(observer, "ch_axis", -1) >= 0:
        axis = max(getattr(observer, "ch_axis", 0), 0)
        return of_plugin("quantize_per_channel")(rounded, scale, zero_point.long(), axis, dtype)
    return of_plugin("quantize_per_tensor")(rounded, float(scale), int(zero_point), dtype)


def folded(mod: Any) -> tuple[Any, Any, Any]:
    """Weight and bias of a layer, with its batch norm folded in; the observer of its weight."""
    layer = mod[0] if isinstance(mod, nn.Sequential) else mod
    weight, bias = layer.weight, layer.bias
    norm = getattr(layer, "bn", None)
    if norm is not None:
        fuse: Any = nn.utils.fuse_linear_bn_weights
        if weight.ndim > 2:
            fuse = nn.utils.fuse_conv_bn_weights
        weight, bias = fuse(
            weight, bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
    observer = getattr(layer, "weight_fake_quant", None)
    return weight, bias, mod.qconfig.weight() if observer is None else observer


class Weighted(nn.Module):
    """A quantized weight and a float bias, which are no parameters."""

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Compute with these from now on."""
        self.register_buffer("_qweight", w)
        self.register_buffer("_bias", None if b is None else b.detach())

    def weight(self) -> Any:
        """The quantized weight."""
        return self._qweight

    def bias(self) -> Any:
        """The bias, or None."""
        return self._bias

    def _weight_bias(self) -> tuple[Any, Any]:
        return self._qweight, self._bias
