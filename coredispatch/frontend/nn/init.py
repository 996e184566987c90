"""Initialization of parameters, in place and unrecorded.

Gains and bounds: Glorot and Bengio, 2010 (Xavier); He et al., 2015 (Kaiming); Saxe et al., 2013
(orthogonal).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import ArgumentError, ShapeError

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The recommended gain of a nonlinearity; ``param`` is the slope of ``leaky_relu``.

    Raises :class:`ArgumentError` for an unknown one.
    """
    linear = ("linear", "sigmoid", "conv1d", "conv2d", "conv3d")
    transposed = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
    if nonlinearity in linear or nonlinearity in transposed:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else float(param)
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ArgumentError(
        f"Unsupported nonlinearity {nonlinearity}",
        fix="use linear, sigmoid, tanh, relu, leaky_relu or selu",
    )


def _fans(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ShapeError(
            "fan in and fan out can not be computed for a tensor with fewer than 2 dimensions",
            fix="initialize vectors with zeros_, ones_ or uniform_",
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    fan_in, fan_out = _fans(tensor)
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode={mode!r}", fix="use 'fan_in' or 'fan_out'")
    return fan_in if mode == "fan_in" else fan_out


_calculate_fan_in_and_fan_out, _calculate_correct_fan = _fans, _fan


def _warn_of_nothing() -> None:
    warn("Initializing zero-element tensors is a no-op")


def _unrecorded(tensor: Tensor, name: str, *args: Any, generator: Any = None) -> Tensor:
    with no_grad():
        options = {} if generator is None else {"generator": generator}
        getattr(tensor, name)(*args, **options)
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform values from ``[a, b)``."""
    return _unrecorded(tensor, "uniform_", a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal values."""
    return _unrecorded(tensor, "normal_", mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Normal values drawn from within ``[a, b]``, by the inverse of the distribution function."""

    def below(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    if mean < a - 2 * std or mean > b + 2 * std:
        warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect."
        )
    low, high = below((a - mean) / std), below((b - mean) / std)
    with no_grad():
        options = {} if generator is None else {"generator": generator}
        tensor.uniform_(2 * low - 1, 2 * high - 1, **options)
        tensor.copy_((tensor.erfinv() * (std * math.sqrt(2.0)) + mean).clamp(a, b))
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """``val`` everywhere."""
    return _unrecorded(tensor, "fill_", val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros everywhere."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix. Raises :class:`ShapeError` unless the tensor is 2-d."""
    if tensor.ndim != 2:
        raise ShapeError("eye_ needs a 2-d tensor", fix="use dirac_ for convolutions")
    eye = TABLE.operator("eye")
    with no_grad():
        tensor.copy_(eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The convolution kernel that passes channels on unchanged, 3-d to 5-d."""
    if tensor.ndim not in (3, 4, 5) or tensor.shape[0] % groups:
        raise ShapeError(
            f"dirac_ with shape {tuple(tensor.shape)} and {groups} groups",
            fix="use a 3-d to 5-d tensor whose first size groups divides",
        )
    per_group = tensor.shape[0] // groups
    middle = tuple(size // 2 for size in tensor.shape[2:])
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for i in range(min(per_group, tensor.shape[1])):
                tensor[(group * per_group + i, i, *middle)] = 1
    return tensor


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform values with variance ``2 * gain^2 / (fan_in + fan_out)``."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal values with variance ``2 * gain^2 / (fan_in + fan_out)``."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform values with variance ``gain^2 / fan``; ``a`` is the slope of ``leaky_relu``."""
    if 0 in tensor.shape:
        _warn_of_nothing()
        return tensor
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal values with variance ``gain^2 / fan``; ``a`` is the slope of ``leaky_relu``."""
    if 0 in tensor.shape:
        _warn_of_nothing()
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A (semi-)orthogonal matrix of the first by all other dimensions, times ``gain``."""
    if tensor.ndim < 2:
        raise ShapeError("orthogonal_ needs at least 2 dimensions", fix="use normal_ for vectors")
    if 0 in tensor.shape:
        return tensor
    rows = tensor.shape[0]
    columns = math.prod(tensor.shape[1:])
    with no_grad():
        flat = tensor.new_empty((rows, columns))
        normal_(flat, generator=generator)
        if rows < columns:
            flat = flat.t()
        q, r = TABLE.operator("linalg_qr")(flat)
        q = q * r.diagonal().sign()  # uniform, by Mezzadri 2007
        if rows < columns:
            q = q.t()
        tensor.copy_(q.reshape(tuple(tensor.shape)) * gain)
    return tensor


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal values with the share ``sparsity`` of each column set to 0. Martens, 2010."""
    if tensor.ndim != 2:
        raise ShapeError("sparse_ needs a 2-d tensor", fix="initialize a matrix")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    permutation = TABLE.operator("randperm")
    normal_(tensor, 0, std, generator)
    with no_grad():
        for column in range(columns):
            chosen = permutation(rows, device=tensor.device)[:zeros]
            tensor[chosen, column] = 0
    return tensor


# The functions under the names that programs import from PyTorch's module.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_


def _older(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function under its name from before it had its underscore, with PyTorch's warning."""
    new = function.__name__

    @functools.wraps(function)
    def deprecated(*args: Any, **kwargs: Any) -> Tensor:
        warn(f"`nn.init.{new[:-1]}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning)
        return function(*args, **kwargs)

    deprecated.__name__ = new[:-1]
    return deprecated


uniform, normal, constant = _older(uniform_), _older(normal_), _older(constant_)
eye, dirac, sparse = _older(eye_), _older(dirac_), _older(sparse_)
xavier_uniform, xavier_normal = _older(xavier_uniform_), _older(xavier_normal_)
kaiming_uniform, kaiming_normal = _older(kaiming_uniform_), _older(kaiming_normal_)
orthogonal = _older(orthogonal_)
