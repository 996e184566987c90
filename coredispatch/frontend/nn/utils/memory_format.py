"""Weights of convolutions in another memory format."""

from __future__ import annotations

from typing import Any, TypeVar

from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

_Conv = Conv2d | Conv3d | ConvTranspose2d | ConvTranspose3d
T = TypeVar("T", bound=Module)


def _convert(module: Any, memory_format: Any, kinds: tuple[type[_Conv], ...]) -> None:
    if isinstance(module, kinds):
        weight = module.weight.detach().clone()
        module.weight.data = weight.contiguous(memory_format=memory_format)
    for child in module.children():
        _convert(child, memory_format, kinds)


def convert_conv2d_weight_memory_format(module: T, memory_format: Any) -> T:
    """Lay out the weights of all two-dimensional convolutions, in place."""
    _convert(module, memory_format, (Conv2d, ConvTranspose2d))
    return module


def convert_conv3d_weight_memory_format(module: T, memory_format: Any) -> T:
    """Lay out the weights of all three-dimensional convolutions, in place."""
    _convert(module, memory_format, (Conv3d, ConvTranspose3d))
    return module
