"""Normalization by statistics of a batch: batch norm and, with its running form, instance norm.

Training and inference are operators of their own, each one autograd node with a backward; the
public functions choose between them and keep the running statistics.
"""

from __future__ import annotations

from math import prod
from typing import Any

from coredispatch.ops.norm import layer_norms
from coredispatch.ops.norm.backward_reference import (
    batch_backward_samples,
    batch_norm_backward_reference,
)
from coredispatch.ops.norm.layer_norms import channelwise, group_norm
from coredispatch.ops.norm.reference import (
    batch_norm_pair_shapes,
    batch_norm_reference,
    batch_norm_train_reference,
    check_channels,
    inference_reference,
    inference_samples,
    instance_norm_reference,
    instance_samples,
    statistics_dtypes,
    train_samples,
    trained_samples,
)
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.precision import narrow, wide
from coredispatch.ops.support.rules import same
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, ShapeError

# Unlike its relatives, batch norm under autocast takes half precision with float32 statistics.
METADATA = {**layer_norms.METADATA, "cast": None}
INNER = {**layer_norms.INNER, "cast": None}


def _update(running: Tensor | None, batch: Tensor, momentum: float) -> None:
    """``running = (1 - momentum) * running + momentum * batch``, in place, unrecorded."""
    if running is not None:
        running.lerp_(narrow(batch.detach(), running), momentum)


@composite(
    takes="float",
    reference=instance_norm_reference,
    samples=instance_samples,
    mutates=dict.fromkeys(("running_mean", "running_var"), lambda use_input_stats: use_input_stats),
    **METADATA,
)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Layer norm over each channel of each sample of ``(N, C, *spatial)``.

    Running statistics, where given, are updated with the batch's mean of the samples' statistics,
    or used in their place with ``use_input_stats=False``. Ulyanov et al., 2016.
    """
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ArgumentError(
                "use_input_stats=False needs running statistics, and there are none",
                fix="give running_mean and running_var",
            )
        return batch_norm_inference(input, running_mean, running_var, weight, bias, eps)
    if prod(input.shape[2:]) == 1:
        raise ShapeError(
            f"training needs more than one value per channel, and the input has shape "
            f"{tuple(input.shape)}",
            fix="use more spatial positions",
        )
    if running_mean is not None or running_var is not None:
        x, count = wide(input.detach()).flatten(2), prod(input.shape[2:])
        mean = x.mean(2, True)
        var = ((x - mean) * (x - mean)).sum(2) / (count - 1)
        _update(running_mean, mean.squeeze(2).mean(0), momentum)
        _update(running_var, var.mean(0), momentum)
    return group_norm(input, max(input.shape[1], 1), weight, bias, eps)


def _inference_shape(input: Any, mean: Any, var: Any, weight: Any, bias: Any, *_: Any) -> Any:
    check_channels(input, mean, var, weight, bias)
    return tuple(input.shape)


def _others(input: Tensor) -> tuple[int, ...]:
    return (0, *range(2, input.ndim))


@composite(
    out=batch_norm_pair_shapes,
    dtype=statistics_dtypes,
    reference=batch_norm_train_reference,
    samples=train_samples,
    **INNER,
)
def batch_norm_train(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm by the batch's own statistics, which are returned as well.

    For ``(N, C)`` or ``(N, C, *)`` the results are the normalized input, and the mean and biased
    variance of each channel, ``(C,)``, in float32 for half precision inputs.
    """
    batch_norm_pair_shapes(input, weight, bias, eps)
    x, dims = wide(input), _others(input)
    mean = x.mean(dims)
    centered = x - channelwise(mean, x.ndim)
    var = (centered * centered).mean(dims)
    scale = (var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    result = centered * channelwise(scale, x.ndim)
    if bias is not None:
        result = result + channelwise(bias, x.ndim)
    return narrow(result, input), mean, var


@batch_norm_train.vjp
def _(grad, out1, out2, input, weight, eps):
    of_result, of_mean, of_var = grad
    return batch_norm_train_backward(of_result, of_mean, of_var, input, weight, out1, out2, eps)


@composite(
    dtype=same,
    reference=batch_norm_backward_reference,
    samples=batch_backward_samples,
    **{**INNER, "tolerance": None},
)
def batch_norm_train_backward(
    grad_output: Tensor,
    mean_grad: Tensor,
    var_grad: Tensor,
    input: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of :func:`batch_norm_train`: of the input, the weight and the bias.

    The gradients of the two statistics only change the coefficients per channel, so that they
    cost nothing. Ioffe and Szegedy, "Batch Normalization", 2015.
    """
    grad, x, dims, n = wide(grad_output), wide(input), _others(input), input.ndim
    count = input.numel() // max(input.shape[1], 1)
    centered = x - channelwise(mean, n)
    rstd = (wide(var) + eps).rsqrt()
    bias_grad = grad.sum(dims)
    weight_grad = (grad * centered).sum(dims) * rstd
    scale = rstd if weight is None else rstd * weight
    slope = (var_grad * 2 - scale * rstd * weight_grad) / count
    level = (mean_grad - scale * bias_grad) / count
    result = grad * channelwise(scale, n) + centered * channelwise(slope, n)
    return narrow(result + channelwise(level, n), input), weight_grad, bias_grad


@composite(
    out=_inference_shape,
    dtype=same,
    reference=inference_reference,
    samples=inference_samples,
    **INNER,
)
def batch_norm_inference(
    input: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """Batch norm by given statistics: one scale and one shift per channel."""
    check_channels(input, mean, var, weight, bias)
    scale = (var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    n = input.ndim
    return narrow(wide(input) * channelwise(scale, n) + channelwise(shift, n), input)


def _rstd(var: Any, weight: Any, eps: Any) -> Any:
    rstd = (var + eps).rsqrt()
    return rstd if weight is None else rstd * weight


def _along(grad: Any, input: Any, mean: Any) -> Any:
    """Per channel, the sum of ``grad * (input - mean)``."""
    return (wide(grad) * (wide(input) - channelwise(mean, input.ndim))).sum(_others(input))


# The walker brings each gradient into the dtype of its input.
batch_norm_inference.vjp(
    input=lambda grad, var, weight, eps: (
        wide(grad) * channelwise(_rstd(var, weight, eps), grad.ndim)
    ),
    mean=lambda grad, var, weight, eps: -_rstd(var, weight, eps) * wide(grad).sum(_others(grad)),
    var=lambda grad, input, mean, var, weight, eps: (
        _along(grad, input, mean) * _rstd(var, weight, eps) * (var + eps).reciprocal() * -0.5
    ),
    weight=lambda grad, input, mean, var, eps: _along(grad, input, mean) * _rstd(var, None, eps),
    bias=lambda grad: wide(grad).sum(_others(grad)),
)


@composite(
    takes="float",
    reference=batch_norm_reference,
    samples=trained_samples,
    mutates=dict.fromkeys(("running_mean", "running_var"), lambda training: training),
    **METADATA,
)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``(input - mean) / sqrt(var + eps) * weight + bias`` per channel of ``(N, C, *)``.

    With ``training`` the statistics are the batch's, by its biased variance, and the running ones
    (where given) move towards the batch's mean and *unbiased* variance by ``momentum``; otherwise
    they are the running ones. Raises ``ShapeError`` for wrong shapes and for a batch of one value
    per channel. Ioffe and Szegedy, "Batch Normalization", 2015.
    """
    if not training:
        if running_mean is None or running_var is None:
            raise ArgumentError(
                "batch_norm without running statistics needs training=True",
                fix="give running_mean and running_var, or training=True",
            )
        return batch_norm_inference(input, running_mean, running_var, weight, bias, eps)
    check_channels(input, running_mean, running_var)
    result, mean, var = batch_norm_train(input, weight, bias, eps)
    count = input.numel() // max(input.shape[1], 1)
    _update(running_mean, mean, momentum)
    if running_var is not None:
        _update(running_var, var.detach() * (count / (count - 1)), momentum)
    return result
