"""Normalization over the elements of one sample."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.utils import _single
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]

_op = TABLE.operator
_layer_norm, _rms_norm, _group_norm = _op("layer_norm"), _op("rms_norm"), _op("group_norm")


class _Affine(Module):
    """Weight and bias of a shape, both or neither (the bias alone may be left out)."""

    weight: Any
    bias: Any

    def _affine(self, shape: Any, weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        for name, wanted, make in (("weight", weight, "ones"), ("bias", bias, "zeros")):
            if wanted:
                value = _op(make)(shape, device=device, dtype=dtype)
                self.register_parameter(name, Parameter(value))
            else:
                self.register_parameter(name, None)

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            self.weight.data.fill_(1)
        if getattr(self, "bias", None) is not None:
            self.bias.data.zero_()


class LayerNorm(_Affine):
    """Standardize over the last dimensions; see ``nn.functional.layer_norm``."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _single(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        wanted = elementwise_affine, elementwise_affine and bias
        self._affine(self.normalized_shape, *wanted, device, dtype)

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        return _layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Shape and options."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(_Affine):
    """Divide by the root mean square over the last dimensions; see ``nn.functional.rms_norm``."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _single(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        value = _op("ones")(self.normalized_shape, device=device, dtype=dtype)
        self.register_parameter("weight", Parameter(value) if elementwise_affine else None)

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        return _rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Shape and options."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(_Affine):
    """Standardize over groups of channels; see ``nn.functional.group_norm``."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        self._affine((num_channels,), affine, affine and bias, device, dtype)

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        return _group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Sizes and options."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divide by the response of neighbouring channels; see ``nn.functional``."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Any) -> Any:
        """The normalized input."""
        return _op("local_response_norm")(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """All options."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Divide by the response of neighbouring channels, ``(k + alpha / size * sum x^2) ** beta``.

    Krizhevsky et al., 2012. The sum is over ``(size - 1) // 2`` neighbours on both sides and, as in
    PyTorch's implementation, always over the first channel as well.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Any) -> Any:
        """The normalized ``(N, C, H, W)``."""
        reach = int((self.size - 1) / 2 + 1) - 1
        squares = input * input
        padded = _op("pad")(squares, (0, 0, 0, 0, reach, reach))
        total = padded.unfold(1, 2 * reach + 1, 1).sum(-1)
        beyond = _op("arange")(input.shape[1], device=input.device) > reach
        total = total + squares[:, :1] * beyond.to(input.dtype).reshape(-1, 1, 1)
        return input * (total * (self.alpha / self.size) + self.k) ** -self.beta

    def extra_repr(self) -> str:
        """All options."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
