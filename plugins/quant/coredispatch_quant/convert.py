"""Static post-training quantization of a trained network.

Three steps (Jacob et al., 2018; Krishnamoorthi, *Quantizing deep convolutional networks for
efficient inference*, 2018): fold each batch normalization into the layer before it, run
calibration batches through the float network and observe the range of every activation, then
quantize weights per output channel and give each layer the scale and zero point of its output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError, OpError, Tensor, from_raw, nn, no_grad
from coredispatch_quant.modules import DeQuantize, Quantize, QuantizedConv2d, QuantizedLinear
from coredispatch_quant.observers import MinMaxObserver, PerChannelMinMaxObserver
from coredispatch_quant.ops import quantize_per_channel, quantize_per_tensor
from coredispatch_quant.windows import pair

__all__ = ["fold_batch_norm", "quantize_model"]

#: modules that work on quantized tensors as they are: they keep scale and zero point
PASSED = (nn.MaxPool2d, nn.Flatten, nn.ReLU)
#: modules that do nothing at inference
DROPPED = (nn.Identity, nn.Dropout, nn.Dropout2d)
NORMALIZED = (nn.BatchNorm1d, nn.BatchNorm2d)


@dataclass
class Stage:
    """A layer with weights and what is fused into it, or one module that passes integers on."""

    modules: list[Any]
    relu: bool = False
    observer: MinMaxObserver | None = None

    @property
    def weighted(self) -> bool:
        """Whether this is a convolution or a linear layer."""
        return isinstance(self.modules[0], nn.Conv2d | nn.Linear)

    def run(self, x: Tensor) -> Tensor:
        """The float modules, one after the other."""
        for module in self.modules:
            x = module(x)
        return x


def quantize_model(
    model: Any,
    batches: Iterable[Any],
    *,
    observer: Callable[[], MinMaxObserver] = MinMaxObserver,
    per_channel: bool = True,
) -> Any:
    """The quantized form of a float ``nn.Sequential``, for inference.

    Args:
        model: a Sequential (which may hold others) of Conv2d, Linear, BatchNorm, ReLU,
            MaxPool2d, Flatten, Dropout and Identity. It is not changed.
        batches: calibration inputs, as the model takes them; a few hundred samples of the real
            distribution do. A (input, target) pair counts as its input.
        observer: makes the observer of one activation;
            :class:`~coredispatch_quant.MovingAverageMinMaxObserver` tolerates outliers.
        per_channel: one weight scale per output channel instead of one per layer.

    Returns:
        A Sequential that takes and returns float tensors and computes in 8-bit integers between:
        Quantize, the layers, DeQuantize.

    Raises:
        ArgumentError: the model has a part without quantized form (named), or there are no
            batches.
    """
    stages = stages_of(model)
    entry = observer()
    for stage in stages:
        if stage.weighted:
            stage.observer = observer()
    training = [m for m in model.modules() if m.training]
    model.eval()
    try:
        with no_grad():
            calibrate(stages, entry, batches)
    finally:
        for module in training:
            module.training = True
    return assemble(stages, entry, per_channel)


def calibrate(stages: list[Stage], entry: MinMaxObserver, batches: Iterable[Any]) -> None:
    """Run the batches through the float stages and show the observers what comes out."""
    seen = False
    for batch in batches:
        x = batch[0] if isinstance(batch, list | tuple) else batch
        entry.observe(x.numpy())
        for stage in stages:
            x = stage.run(x)
            if stage.observer is not None:
                stage.observer.observe(x.numpy())
        seen = True
    if not seen:
        raise ArgumentError("there are no calibration batches", fix="give at least one")


def stages_of(model: Any) -> list[Stage]:
    """The model as a list of stages, batch normalization and ReLU joined to their layer."""
    stages: list[Stage] = []
    for name, module in leaves(model, ""):
        last = stages[-1] if stages else None
        if isinstance(module, DROPPED):
            continue
        if isinstance(module, nn.Conv2d | nn.Linear):
            check_padding(name, module)
            stages.append(Stage([module]))
        elif isinstance(module, NORMALIZED):
            if last is None or not last.weighted or last.relu:
                raise ArgumentError(
                    f"{name} ({type(module).__name__}) does not follow a layer it can be folded "
                    "into",
                    fix="put it right behind a Conv2d or Linear",
                )
            last.modules.append(module)
        elif isinstance(module, nn.ReLU) and last is not None and last.weighted:
            last.modules.append(module)
            last.relu = True
        elif isinstance(module, PASSED):
            stages.append(Stage([module]))
        else:
            raise ArgumentError(
                f"{name} ({type(module).__name__}) has no quantized form",
                fix="leave it outside: quantize the Sequential before it, and run it on the "
                "dequantized result",
            )
    return stages


def leaves(module: Any, prefix: str) -> list[tuple[str, Any]]:
    """The modules of nested Sequentials in order, with their dotted names."""
    if not isinstance(module, nn.Sequential):
        return [(prefix or "model", module)]
    found: list[tuple[str, Any]] = []
    for name, child in module.named_children():
        found += leaves(child, f"{prefix}.{name}" if prefix else name)
    return found


def check_padding(name: str, module: Any) -> None:
    """Convolutions are padded with zeros, by numbers."""
    if not isinstance(module, nn.Conv2d):
        return
    if getattr(module, "padding_mode", "zeros") != "zeros" or isinstance(module.padding, str):
        raise ArgumentError(
            f"{name} pads with mode {module.padding_mode!r} and padding {module.padding!r}",
            fix="use padding_mode='zeros' and padding as numbers",
        )


def fold_batch_norm(layer: Any, norms: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias (float64) of ``layer`` followed by the ``norms`` in inference mode.

    ``y = (x - mean) / sqrt(var + eps) * gamma + beta`` is affine per channel, so a layer that
    ends in it is a layer.
    """
    weight = array(layer.weight)
    bias = np.zeros(len(weight)) if layer.bias is None else array(layer.bias)
    for norm in norms:
        if norm.running_mean is None or norm.running_var is None:
            raise ArgumentError(
                "a batch normalization without running statistics cannot be folded",
                fix="train it with track_running_stats=True",
            )
        factor = 1 / np.sqrt(array(norm.running_var) + norm.eps)
        shift = -array(norm.running_mean) * factor
        if norm.weight is not None:
            factor, shift = factor * array(norm.weight), shift * array(norm.weight)
        if norm.bias is not None:
            shift = shift + array(norm.bias)
        weight = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
        bias = bias * factor + shift
    return weight, bias


def array(tensor: Any) -> np.ndarray:
    """A parameter or buffer as float64."""
    return tensor.detach().numpy().astype(np.float64)


def assemble(stages: list[Stage], entry: MinMaxObserver, per_channel: bool) -> Any:
    """The quantized Sequential."""
    scale, zero = entry.parameters()
    modules: list[Any] = [Quantize(scale, zero, entry.dtype)]
    for stage in stages:
        if stage.observer is None:
            modules += stage.modules
            continue
        scale_in, (scale, zero) = scale, stage.observer.parameters()
        if stage.observer.dtype is not entry.dtype:
            raise OpError("the observers of one model differ in dtype")
        modules.append(quantized_layer(stage, scale_in, scale, zero, per_channel))
    return nn.Sequential(*modules, DeQuantize())


def quantized_layer(
    stage: Stage, scale_in: float, scale: float, zero: int, per_channel: bool
) -> Any:
    """One convolution or linear layer in integers."""
    layer, *rest = stage.modules
    folded, shift = fold_batch_norm(layer, [m for m in rest if isinstance(m, NORMALIZED)])
    weight, bias = quantize_weight(folded, shift, scale_in, per_channel)
    if isinstance(layer, nn.Linear):
        return QuantizedLinear(weight, bias, scale, zero, stage.relu)
    return QuantizedConv2d(
        weight,
        bias,
        scale,
        zero,
        stage.relu,
        stride=pair(layer.stride),
        padding=pair(layer.padding),
        dilation=pair(layer.dilation),
        groups=layer.groups,
    )


def quantize_weight(
    weight: np.ndarray, bias: np.ndarray, scale_in: float, per_channel: bool
) -> tuple[Tensor, Tensor]:
    """``qint8`` weights, symmetric, and the bias in float32.

    A channel whose weights are tiny beside its bias gets a larger scale than its weights ask
    for, so that the bias, counted in steps of ``scale_in * scale``, keeps clear of the int32
    limit (half of it is left to the products).
    """
    observer = (
        PerChannelMinMaxObserver("qint8")
        if per_channel
        else MinMaxObserver("qint8", symmetric=True)
    )
    observer.observe(weight)
    scale, zero = observer.parameters()
    least = np.abs(bias) / (scale_in * 2.0**30)
    dense = from_raw(weight, backend="cpu")
    if per_channel:
        scales = from_raw(np.maximum(scale, least), backend="cpu")
        quantized = quantize_per_channel(
            dense, scales, from_raw(zero, backend="cpu"), 0, observer.dtype
        )
    else:
        scale = max(scale, float(least.max(initial=0)))
        quantized = quantize_per_tensor(dense, scale, zero, observer.dtype)
    return quantized, from_raw(bias.astype(np.float32), backend="cpu")
