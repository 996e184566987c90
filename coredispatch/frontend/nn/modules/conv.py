"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any

from coredispatch.frontend.nn import init
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.lazy import LazyModuleMixin, uninitialized
from coredispatch.frontend.nn.modules.utils import _ntuple
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]

_empty = TABLE.operator("empty")
_pad = TABLE.operator("pad")
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolution layers share: sizes, parameters, ``repr``.

    The arguments are in PyTorch's order, by which programs call it from layers of their own;
    sizes are tuples there, numbers only where the class knows its dimensions.
    """

    _n = 0
    _op: Any = None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        n = self._n or len(kernel_size)
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups or out_channels % groups:
            raise ValueError("in_channels and out_channels must be divisible by groups")
        if padding_mode not in _PADDING_MODES:
            raise ValueError(f"padding_mode must be one of {_PADDING_MODES}, not {padding_mode!r}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be 'same' or 'valid'")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.transposed = transposed
        several = _ntuple(n)
        self.kernel_size, self.stride = several(kernel_size), several(stride)
        self.padding = padding if isinstance(padding, str) else several(padding)
        self.dilation, self.output_padding = several(dilation), several(output_padding)
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
        self.padding_mode = padding_mode
        first, second = out_channels, in_channels
        if transposed:
            first, second = second, first
        where = {"device": device, "dtype": dtype}
        self.weight = Parameter(_empty((first, second // groups, *self.kernel_size), **where))
        if bias:
            self.bias = Parameter(_empty((out_channels,), **where))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, uniform in ``+-1 / sqrt(fan_in)``."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in = math.prod(self.weight.shape[1:])
        if self.bias is not None and fan_in:
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    @property
    def _reversed_padding_repeated_twice(self) -> list[int] | tuple[int, ...]:
        """Amounts for ``pad``, which counts from the last dimension."""
        n = len(self.kernel_size)
        if self.padding == "valid":
            return [0] * (2 * n)
        amounts: list[int] = []
        for i in reversed(range(n)):
            if isinstance(self.padding, str):  # "same"
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                amounts += [total // 2, total - total // 2]
            else:
                amounts += [self.padding[i]] * 2
        return amounts if isinstance(self.padding, str) else tuple(amounts)

    def forward(self, input: Any) -> Any:
        """The convolution."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        """The convolution with any weight: for subclasses that transform theirs."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            amounts = self._reversed_padding_repeated_twice
            input, padding = _pad(input, amounts, self.padding_mode), 0
        return self._op(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        """Channels and sizes, and what differs from the defaults."""
        n = len(self.kernel_size)
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * n:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * n:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _PlainConv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            False,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )


class Conv1d(_PlainConv):
    """Convolution of ``(N, C, L)``; options as in ``nn.functional.conv1d``."""

    _n, _op = 1, staticmethod(TABLE.operator("conv1d"))


class Conv2d(_PlainConv):
    """Convolution of ``(N, C, H, W)``; options as in ``nn.functional.conv2d``."""

    _n, _op = 2, staticmethod(TABLE.operator("conv2d"))


class Conv3d(_PlainConv):
    """Convolution of ``(N, C, D, H, W)``; options as in ``nn.functional.conv3d``."""

    _n, _op = 3, staticmethod(TABLE.operator("conv3d"))


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            True,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Any, output_size: Any = None) -> Any:
        """The transposed convolution; ``output_size`` settles which of the possible sizes."""
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, self._n, self.dilation
        )
        return self._op(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )

    def _output_padding(
        self,
        input: Any,
        output_size: Any,
        stride: tuple[int, ...],
        padding: Any,
        kernel_size: tuple[int, ...],
        num_spatial_dims: int,
        dilation: tuple[int, ...] | None = None,
    ) -> tuple[int, ...]:
        """What is added at one end for ``output_size``; the layer's own amounts where it is None.

        Subclasses that convolve by themselves call it with PyTorch's arguments.
        """
        if output_size is None:
            return self.output_padding
        n, extra = num_spatial_dims, []
        for i, wanted in enumerate(tuple(output_size)[-n:]):
            spread = 1 if dilation is None else dilation[i]
            least = (
                (input.shape[i - n] - 1) * stride[i]
                - 2 * padding[i]
                + spread * (kernel_size[i] - 1)
                + 1
            )
            if not least <= wanted <= least + stride[i] - 1:
                raise ValueError(
                    f"requested an output size of {tuple(output_size)[-n:]}, but valid sizes of "
                    f"dimension {i} range from {least} to {least + stride[i] - 1}"
                )
            extra.append(wanted - least)
        return tuple(extra)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of ``(N, C, L)``; see ``nn.functional.conv_transpose1d``."""

    _n, _op = 1, staticmethod(TABLE.operator("conv_transpose1d"))


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of ``(N, C, H, W)``; see ``nn.functional.conv_transpose2d``."""

    _n, _op = 2, staticmethod(TABLE.operator("conv_transpose2d"))


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of ``(N, C, D, H, W)``; see ``nn.functional.conv_transpose3d``."""

    _n, _op = 3, staticmethod(TABLE.operator("conv_transpose3d"))


class _LazyConvXdMixin(LazyModuleMixin):
    """A convolution whose ``in_channels`` is the number of channels of its first input."""

    _n: int
    transposed: bool
    in_channels: int
    weight: Any
    bias: Any

    def __init__(self, out_channels: int, kernel_size: Any, *args: Any, **kwargs: Any) -> None:
        names = self._argument_names
        options = {**dict(zip(names, args)), **kwargs}
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} takes at most {len(names) + 2} arguments")
        bias = options.pop("bias", True)
        # With no channels and no bias nothing is made; the sizes come with the first input.
        super().__init__(0, 0, kernel_size, bias=False, **options)
        where = options.get("device"), options.get("dtype")
        self.weight = uninitialized(*where)
        self.out_channels = out_channels
        if bias:
            self.bias = uninitialized(*where)

    _argument_names: tuple[str, ...] = (
        "stride",
        "padding",
        "dilation",
        "groups",
        "bias",
        "padding_mode",
        "device",
        "dtype",
    )

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, once they have a shape."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def _get_in_channels(self, input: Any) -> int:
        n = self._n
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        channels: int = input.shape[-n - 1]
        return channels

    def initialize_parameters(self, input: Any, *args: Any, **kwargs: Any) -> None:
        """Take ``in_channels`` from ``input``."""
        if not self.has_uninitialized_params():
            if self.in_channels == 0:
                self.in_channels = self._get_in_channels(input)
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyTransposed(_LazyConvXdMixin):
    _argument_names = (
        "stride",
        "padding",
        "output_padding",
        "groups",
        "bias",
        "dilation",
        "padding_mode",
        "device",
        "dtype",
    )


class LazyConv1d(_LazyConvXdMixin, Conv1d):
    """:class:`Conv1d` that takes ``in_channels`` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvXdMixin, Conv2d):
    """:class:`Conv2d` that takes ``in_channels`` from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvXdMixin, Conv3d):
    """:class:`Conv3d` that takes ``in_channels`` from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """:class:`ConvTranspose1d` that takes ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """:class:`ConvTranspose2d` that takes ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """:class:`ConvTranspose3d` that takes ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose3d
