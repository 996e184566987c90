"""Batch normalization of images with channels last by cuDNN, in half precision.

cuDNN has it for this layout only, which the kernels of :mod:`.batch_norm` copy first. Its graph
wants running statistics, which the operator does not have: they are given and forgotten. What it
keeps is the inverse of the deviation, of which the operator's variance is computed. Gradients are
those kernels': the operator's take gradients of the statistics as well, and cuDNN's do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from coredispatch_cuda_cupy import cudnn
from coredispatch_cuda_cupy.cuda.flash import HALVES
from coredispatch_cuda_cupy.cuda.layout import dense, has_channels_last
from coredispatch_cuda_cupy.cudnn import Builder, Graphs, Spec, spec_of

__all__ = ["kernels"]

#: channels are a multiple of so many
_UNIT = 8


class _Train(NamedTuple):
    """Describes the result and the statistics of a batch."""

    x: Spec

    def __call__(self, builder: Builder) -> None:
        each = _per_channel(self.x)
        x, scale, bias, mean, var = (builder.input(s) for s in (self.x, *[each] * 4))
        epsilon, momentum = builder.number("float32"), builder.number("float32")
        made = builder.graph.batchnorm(
            input=x,
            scale=scale,
            bias=bias,
            in_running_mean=mean,
            in_running_var=var,
            epsilon=epsilon,
            momentum=momentum,
        )
        for tensor, spec in zip(made, (self.x, *[each] * 4), strict=True):
            builder.output(tensor, spec)


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator; none without cuDNN."""
    found = cudnn.frontend(cupy)
    if found is None:
        return {}
    graphs = Graphs(cupy, found)

    def numbers(given: Any, count: int, default: float) -> Any:
        """One number for each channel in float32."""
        if given is None:
            return cupy.full(count, default, np.float32)
        return dense(cupy, given.astype(np.float32, copy=False))

    def batch_norm_train(input: Any, weight: Any, bias: Any, eps: float) -> Any:
        if not _takes(input, weight, bias) or input.size // input.shape[1] < 2:
            return NotImplemented
        count, out = input.shape[1], _empty_like(cupy, input)
        running = [cupy.zeros(count, np.float32) for _ in range(2)]
        mean, inverse, *forgotten = (cupy.empty(count, np.float32) for _ in range(4))
        parts = np.full(1, eps, np.float32), np.full(1, 1.0, np.float32)
        given = (input, numbers(weight, count, 1), numbers(bias, count, 0), *running, *parts)
        taken = graphs.run(_Train(spec_of(input)), (*given, out, mean, inverse, *forgotten))
        if not taken:
            return NotImplemented
        var = cupy.maximum(1 / (inverse * inverse) - np.float32(eps), np.float32(0))
        return out, mean, var

    return {"batch_norm_train": batch_norm_train}


def _takes(x: Any, *parameters: Any) -> bool:
    """Whether cuDNN is asked: images in half precision, channels last, some of them."""
    if x.ndim != 4 or x.dtype.name not in HALVES or not x.size or x.shape[1] % _UNIT:
        return False
    own = {x.dtype, np.dtype(np.float32)}
    fits = all(p is None or (p.shape == x.shape[1:2] and p.dtype in own) for p in parameters)
    return fits and has_channels_last(x)


def _empty_like(cupy: Any, x: Any) -> Any:
    made = cupy.empty((x.shape[0], *x.shape[2:], x.shape[1]), x.dtype)
    return cupy.moveaxis(made, -1, 1)


def _per_channel(x: Spec) -> Spec:
    """One number in float32 for each channel, as cuDNN wants it described."""
    count = x.shape[1]
    return Spec((1, count, 1, 1), (count, 1, count, count), "float32")
