"""A layer and the batch norm behind it as one layer, for evaluation."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]

T = TypeVar("T")


def _fused(
    weight: Any, bias: Any, mean: Any, var: Any, eps: float, scale: Any, shift: Any, shape: Any
) -> tuple[Parameter, Parameter]:
    bias_ = TABLE.operator("zeros_like")(mean) if bias is None else bias
    factor = (var + eps).rsqrt()
    if scale is not None:
        factor = factor * scale
    offset = (bias_ - mean) * factor
    if shift is not None:
        offset = offset + shift
    new = (weight * factor.reshape(shape)).detach().to(weight.dtype)
    wanted = True if bias is None else bias.requires_grad
    return (
        Parameter(new, weight.requires_grad),
        Parameter(offset.detach().to(bias_.dtype if bias is None else bias.dtype), wanted),
    )


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution with the batch norm's statistics worked in."""
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer with the batch norm's statistics worked in."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, (-1, 1))


def _check(first: Any, bn: Any) -> None:
    if first.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("the batch norm keeps no running statistics")


def fuse_conv_bn_eval(conv: T, bn: Any, transpose: bool = False) -> T:
    """A copy of ``conv`` that does what ``bn(conv(x))`` does. Both must be in evaluation mode."""
    _check(conv, bn)
    fused: Any = copy.deepcopy(conv)
    statistics = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, *statistics, transpose
    )
    result: T = fused
    return result


def fuse_linear_bn_eval(linear: T, bn: Any) -> T:
    """A copy of ``linear`` that does what ``bn(linear(x))`` does, in evaluation mode."""
    _check(linear, bn)
    fused: Any = copy.deepcopy(linear)
    if fused.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        )
    statistics = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, *statistics)
    result: T = fused
    return result
