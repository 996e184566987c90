"""Sequences that quantization treats as one layer."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import nn

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearReLU",
]


class _FusedModule(nn.Sequential):
    """The base of all of them: a sequence of given kinds."""

    kinds: tuple[type, ...] = ()

    def __init__(self, *modules: Any) -> None:
        wanted = self.kinds
        if len(modules) != len(wanted) or not all(map(isinstance, modules, wanted)):
            given = ", ".join(type(m).__name__ for m in modules)
            raise AssertionError(
                f"{type(self).__name__} takes {', '.join(k.__name__ for k in wanted)}, got {given}"
            )
        super().__init__(*modules)


def _fused(name: str, *kinds: type) -> Any:
    shown = ", ".join(kind.__name__ for kind in kinds)
    details = {
        "kinds": kinds,
        "__doc__": f"{shown}: one after the other, quantized as one layer.",
        "__module__": __name__,
    }
    return type(name, (_FusedModule,), details)


ConvReLU1d = _fused("ConvReLU1d", nn.Conv1d, nn.ReLU)
ConvReLU2d = _fused("ConvReLU2d", nn.Conv2d, nn.ReLU)
ConvReLU3d = _fused("ConvReLU3d", nn.Conv3d, nn.ReLU)
LinearReLU = _fused("LinearReLU", nn.Linear, nn.ReLU)
ConvBn1d = _fused("ConvBn1d", nn.Conv1d, nn.BatchNorm1d)
ConvBn2d = _fused("ConvBn2d", nn.Conv2d, nn.BatchNorm2d)
ConvBn3d = _fused("ConvBn3d", nn.Conv3d, nn.BatchNorm3d)
ConvBnReLU1d = _fused("ConvBnReLU1d", nn.Conv1d, nn.BatchNorm1d, nn.ReLU)
ConvBnReLU2d = _fused("ConvBnReLU2d", nn.Conv2d, nn.BatchNorm2d, nn.ReLU)
ConvBnReLU3d = _fused("ConvBnReLU3d", nn.Conv3d, nn.BatchNorm3d, nn.ReLU)
LinearBn1d = _fused("LinearBn1d", nn.Linear, nn.BatchNorm1d)
BNReLU2d = _fused("BNReLU2d", nn.BatchNorm2d, nn.ReLU)
BNReLU3d = _fused("BNReLU3d", nn.BatchNorm3d, nn.ReLU)
