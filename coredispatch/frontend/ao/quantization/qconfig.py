"""QConfig: which observers a module gets, for its output and for its weight."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from coredispatch.frontend.ao.quantization import fake_quantize as fake
from coredispatch.frontend.ao.quantization import observer as observers

__all__ = [
    "QConfig",
    "default_activation_only_qconfig",
    "default_dynamic_qconfig",
    "default_per_channel_qconfig",
    "default_qat_qconfig",
    "default_qconfig",
    "default_weight_only_qconfig",
    "float16_dynamic_qconfig",
    "float16_static_qconfig",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "per_channel_dynamic_qconfig",
]


class QConfig(namedtuple("QConfig", ("activation", "weight"))):
    """Two classes (or ``CLASS.with_args(...)``) of observers, never instances."""

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        from coredispatch.frontend.nn.module import Module

        if isinstance(activation, Module) or isinstance(weight, Module):
            raise ValueError(
                "QConfig received observer instance, please pass observer class instead. Use "
                "MyObserver.with_args(x=1) to override arguments to constructor if needed"
            )
        return super().__new__(cls, activation, weight)


default_qconfig = QConfig(observers.default_observer, observers.default_weight_observer)
default_per_channel_qconfig = QConfig(
    observers.default_observer, observers.default_per_channel_weight_observer
)
default_dynamic_qconfig = QConfig(
    observers.default_dynamic_quant_observer, observers.default_weight_observer
)
per_channel_dynamic_qconfig = QConfig(
    observers.default_dynamic_quant_observer, observers.default_per_channel_weight_observer
)
_half = observers.PlaceholderObserver.with_args(dtype="float16")
float16_dynamic_qconfig = QConfig(
    observers.PlaceholderObserver.with_args(dtype="float16", is_dynamic=True), _half
)
float16_static_qconfig = QConfig(_half, _half)
default_qat_qconfig = QConfig(fake.default_fake_quant, fake.default_weight_fake_quant)
_nothing = observers.NoopObserver
default_weight_only_qconfig = QConfig(_nothing, fake.default_weight_fake_quant)
default_activation_only_qconfig = QConfig(fake.default_fake_quant, _nothing)

_REDUCED = ("fbgemm", "x86")
_BACKENDS = (*_REDUCED, "qnnpack", "onednn")


def _unknown(backend: str) -> AssertionError:
    return AssertionError(
        f"backend: {backend} not supported. backend must be one of {list(_BACKENDS)}"
    )


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """The observers for static quantization that PyTorch uses for ``backend``."""
    if backend not in _BACKENDS:
        raise _unknown(backend)
    if version != 0:
        raise AssertionError(f"Version number {version} in get_default_qconfig is not supported.")
    activation = observers.HistogramObserver.with_args(reduce_range=backend in _REDUCED)
    if backend == "qnnpack":
        return QConfig(activation, observers.default_weight_observer)
    return QConfig(activation, observers.default_per_channel_weight_observer)


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """The modules for quantization-aware training that PyTorch uses for ``backend``."""
    if backend not in _BACKENDS:
        raise _unknown(backend)
    if version not in (0, 1):
        raise AssertionError(
            f"Version number {version} in get_default_qat_qconfig is not supported."
        )
    kind = fake.FusedMovingAvgObsFakeQuantize if version else fake.FakeQuantize
    activation = kind.with_args(
        observer=observers.MovingAverageMinMaxObserver,
        quant_min=0,
        quant_max=255,
        **({"reduce_range": True} if backend in _REDUCED else {}),
    )
    fused = version == 1
    if backend == "qnnpack":
        weight = fake.default_fused_wt_fake_quant if fused else fake.default_weight_fake_quant
    elif fused:
        weight = fake.default_fused_per_channel_wt_fake_quant
    else:
        weight = fake.default_per_channel_weight_fake_quant
    return QConfig(activation, weight)
