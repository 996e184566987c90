"""Modules that observe and then round as the quantized network will: training with quantization."""

from __future__ import annotations

from functools import partial
from typing import Any

from coredispatch.frontend.ao.quantization.observer import (
    FixedQParamsObserver,
    HistogramObserver,
    Made,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)
from coredispatch.frontend.ao.schemes import (
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_symmetric,
)
from coredispatch.frontend.creation import tensor
from coredispatch.frontend.nn.module import Module
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "FakeQuantize",
    "FakeQuantizeBase",
    "FixedQParamsFakeQuantize",
    "FusedMovingAvgObsFakeQuantize",
    "default_dynamic_fake_quant",
    "default_fake_quant",
    "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_fake_quant",
    "default_fused_act_fake_quant",
    "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant",
    "default_histogram_fake_quant",
    "default_per_channel_weight_fake_quant",
    "default_weight_fake_quant",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
]


class FakeQuantizeBase(Module):
    """Two switches: whether values are observed, and whether they are rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", tensor([1], dtype="uint8"))
        self.register_buffer("observer_enabled", tensor([1], dtype="uint8"))

    def calculate_qparams(self, *args: Any, **kwargs: Any) -> Any:
        """Scale and zero point."""
        raise NotImplementedError

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Round from now on, or not."""
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self) -> None:
        """Do not round from now on."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Observe from now on, or not."""
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self) -> None:
        """Do not observe from now on."""
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Any) -> Made:
        """Something to call for modules with these arguments."""
        return Made(partial(cls, **kwargs))


class FakeQuantize(FakeQuantizeBase):
    """Observes with an observer of the class ``observer`` and rounds to its range.

    The gradient passes where nothing saturates. Arguments beside ``quant_min`` and ``quant_max`` go
    to the observer.
    """

    scale: Any
    zero_point: Any

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__()
        if quant_min is not None and quant_max is not None:
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        if is_dynamic:
            observer_kwargs["is_dynamic"] = True
        self.is_dynamic = is_dynamic
        self.activation_post_process = observer(**observer_kwargs)
        post = self.activation_post_process
        self.quant_min, self.quant_max = post.quant_min, post.quant_max
        self.register_buffer("scale", tensor([1.0]))
        self.register_buffer("zero_point", tensor([0], dtype="int32"))
        self.dtype, self.qscheme = post.dtype, post.qscheme
        self.ch_axis = getattr(post, "ch_axis", -1)
        self.is_per_channel = self.qscheme in (per_channel_affine, per_channel_symmetric)

    def calculate_qparams(self) -> Any:
        """Those of the observer."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Any) -> Any:
        """``X``, observed and rounded as the switches say."""
        if int(self.observer_enabled[0]):
            self.activation_post_process(X.detach())
            scale, zero_point = self.calculate_qparams()
            self.scale = scale.to(self.scale.dtype)
            self.zero_point = zero_point.to(self.zero_point.dtype)
        if not int(self.fake_quant_enabled[0]):
            return X
        ends = self.quant_min, self.quant_max
        if self.is_per_channel:
            rounded = TABLE.operator("fake_quantize_per_channel_affine")
            return rounded(X, self.scale, self.zero_point, self.ch_axis, *ends)
        rounded = TABLE.operator("fake_quantize_per_tensor_affine")
        return rounded(X, float(self.scale), int(self.zero_point), *ends)

    def extra_repr(self) -> str:
        """Switches, range and parameters."""
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, "
            f"observer_enabled={self.observer_enabled}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme}, "
            f"ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """:class:`FakeQuantize` with a moving average; PyTorch computes both in one kernel."""


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds with a scale and a zero point that are known."""

    def __init__(self, observer: Any) -> None:
        super().__init__(observer)
        self.scale, self.zero_point = self.activation_post_process.calculate_qparams()


def _switch(name: str, doc: str) -> Any:
    def switch(mod: Any) -> None:
        if isinstance(mod, FakeQuantizeBase):
            getattr(mod, name)()

    switch.__name__ = switch.__qualname__ = name
    switch.__doc__ = f"{doc} ``model.apply({name})``."
    return switch


disable_fake_quant = _switch("disable_fake_quant", "Stop rounding in a module.")
enable_fake_quant = _switch("enable_fake_quant", "Round in a module.")
disable_observer = _switch("disable_observer", "Stop observing in a module.")
enable_observer = _switch("enable_observer", "Observe in a module.")

_ACTIVATION: dict[str, Any] = {
    "observer": MovingAverageMinMaxObserver,
    "quant_min": 0,
    "quant_max": 255,
    "dtype": "quint8",
}
_WEIGHT: dict[str, Any] = {
    "observer": MovingAverageMinMaxObserver,
    "quant_min": -128,
    "quant_max": 127,
    "dtype": "qint8",
    "qscheme": per_tensor_symmetric,
    "reduce_range": False,
}
_PER_CHANNEL: dict[str, Any] = {
    **_WEIGHT,
    "observer": MovingAveragePerChannelMinMaxObserver,
    "qscheme": per_channel_symmetric,
}
default_fake_quant = FakeQuantize.with_args(**_ACTIVATION, reduce_range=True)
default_weight_fake_quant = FakeQuantize.with_args(**_WEIGHT)
default_dynamic_fake_quant = FakeQuantize.with_args(
    **_ACTIVATION, is_dynamic=True, averaging_constant=1
)
default_per_channel_weight_fake_quant = FakeQuantize.with_args(**_PER_CHANNEL, ch_axis=0)
default_histogram_fake_quant = FakeQuantize.with_args(
    **{**_ACTIVATION, "observer": HistogramObserver}, reduce_range=True
)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_ACTIVATION)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    **{k: v for k, v in _WEIGHT.items() if k != "reduce_range"}
)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    **{k: v for k, v in _PER_CHANNEL.items() if k != "reduce_range"}
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=FixedQParamsObserver.with_args(scale=2.0 / 256.0, zero_point=128)
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=FixedQParamsObserver.with_args(scale=1.0 / 256.0, zero_point=0)
)
