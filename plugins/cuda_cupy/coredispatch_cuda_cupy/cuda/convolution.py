"""Convolutions of one, two and three dimensions and their gradients by cuDNN.

They read arrays that are contiguous or have channels last where they lie, and give the same
layout. Without cuDNN, and where it does not support a convolution, it is windows and a product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from coredispatch_cuda_cupy import cudnn
from coredispatch_cuda_cupy.cuda.layout import dense, has_channels_last
from coredispatch_cuda_cupy.cudnn import Builder, Graphs, Spec, spec_of

__all__ = ["kernels"]

_CONVOLVED = ("float32", "float64", "float16", "bfloat16")

Ints = Sequence[int]


class _Options(NamedTuple):
    """Strides, paddings and dilations of the spatial dimensions."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def named(self) -> dict[str, list[int]]:
        """As the frontend's calls name them."""
        return {
            "padding": list(self.padding),
            "stride": list(self.stride),
            "dilation": list(self.dilation),
        }


class _Describe(NamedTuple):
    """Describes one convolution: a call of the frontend over two arrays that makes a third."""

    call: str
    names: tuple[str, str]
    first: Spec
    second: Spec
    result: Spec
    options: _Options

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that are multiplied."""
        return (self.first.dtype,)

    def __call__(self, builder: Builder) -> None:
        first, second = builder.input(self.first), builder.input(self.second)
        given = dict(zip(self.names, (first, second), strict=True))
        made = getattr(builder.graph, self.call)(
            **given,
            **self.options.named(),
            compute_data_type=builder.data_type(
                "float64" if self.first.dtype == "float64" else "float32"
            ),
        )
        builder.output(made, self.result)


def kernels(cupy: Any) -> dict[str, Callable[..., Any]]:
    """The kernels of this family, by operator; none without cuDNN."""
    found = cudnn.frontend(cupy)
    if found is None:
        return {}
    convolver = _Convolver(cupy, Graphs(cupy, found))

    def convolution(
        input: Any,
        weight: Any,
        bias: Any,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        transposed: bool,
        output_padding: Ints,
        groups: int,
    ) -> Any:
        options = _options(input, weight, stride, padding, dilation)
        if options is None or not _bias_fits(bias, weight, transposed, groups):
            return NotImplemented
        if min(output_padding, default=0) < 0:
            return NotImplemented
        if transposed:
            extra = _each(output_padding, input.ndim - 2)
            spatial = tuple(
                (n - 1) * s - 2 * p + d * (k - 1) + 1 + more
                for n, s, p, d, k, more in zip(
                    input.shape[2:], *options, weight.shape[2:], extra, strict=True
                )
            )
            shape = (input.shape[0], weight.shape[1] * groups, *spatial)
            out = convolver.input_grad(input, weight, shape, options, groups)
        else:
            out = convolver.forward(input, weight, options, groups)
        if out is not NotImplemented and bias is not None:
            cupy.add(out, bias.reshape(-1, *(1,) * (input.ndim - 2)), out=out)
        return out

    def conv_input_grad(
        grad_output: Any,
        weight: Any,
        input_shape: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        groups: int,
    ) -> Any:
        options = _options(grad_output, weight, stride, padding, dilation)
        if options is None:
            return NotImplemented
        return convolver.input_grad(grad_output, weight, tuple(input_shape), options, groups)

    def conv_weight_grad(
        grad_output: Any,
        input: Any,
        weight_shape: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        groups: int,
    ) -> Any:
        options = _options(grad_output, input, stride, padding, dilation)
        if options is None:
            return NotImplemented
        return convolver.weight_grad(grad_output, input, tuple(weight_shape), options, groups)

    return {
        "convolution": convolution,
        "conv_input_grad": conv_input_grad,
        "conv_weight_grad": conv_weight_grad,
    }


class _Convolver:
    """Lays arrays out for cuDNN, and runs its graphs over them."""

    def __init__(self, cupy: Any, graphs: Graphs) -> None:
        self.cupy, self.graphs = cupy, graphs

    def forward(self, x: Any, weight: Any, options: _Options, groups: int) -> Any:
        """The convolution of ``(N, C, *)`` with ``(O, C / groups, *)``."""
        spatial = _result(x.shape[2:], weight.shape[2:], options)
        shape = (x.shape[0], weight.shape[0], *spatial)
        if not _fit(shape, x.shape, weight.shape, groups):
            return NotImplemented
        names = ("image", "weight")
        return self._run("conv_fprop", names, (x, weight), shape, options, has_channels_last(x))

    def input_grad(
        self, grad: Any, weight: Any, shape: tuple[int, ...], options: _Options, groups: int
    ) -> Any:
        """The gradient of the image, of a shape."""
        if len(shape) != grad.ndim or not _fit(grad.shape, shape, weight.shape, groups):
            return NotImplemented
        if _result(shape[2:], weight.shape[2:], options) != grad.shape[2:]:
            return NotImplemented
        names = ("loss", "filter")
        return self._run(
            "conv_dgrad", names, (grad, weight), shape, options, has_channels_last(grad)
        )

    def weight_grad(
        self, grad: Any, x: Any, shape: tuple[int, ...], options: _Options, groups: int
    ) -> Any:
        """The gradient of the weight, of a shape; contiguous, as weights are."""
        if len(shape) != grad.ndim or not _fit(grad.shape, x.shape, shape, groups):
            return NotImplemented
        if _result(x.shape[2:], shape[2:], options) != grad.shape[2:]:
            return NotImplemented
        names = ("image", "loss")
        last = has_channels_last(grad) and has_channels_last(x)
        made = self._run("conv_wgrad", names, (x, grad), shape, options, last)
        return made if made is NotImplemented else dense(self.cupy, made)

    def _run(
        self,
        call: str,
        names: tuple[str, str],
        given: tuple[Any, Any],
        shape: tuple[int, ...],
        options: _Options,
        last: bool,
    ) -> Any:
        """One call; arrays and result have channels last if ``last``, else they are contiguous."""
        first, second = (self._laid_out(x, last) for x in given)
        out = self._empty(shape, first.dtype, last)
        of_first, of_second, of_out = (_widened(spec_of(x)) for x in (first, second, out))
        describe = _Describe(call, names, of_first, of_second, of_out, _padded(options))
        taken = self.graphs.run(describe, (first, second, out))
        return out if taken else NotImplemented

    def _laid_out(self, x: Any, last: bool) -> Any:
        if not last:
            return dense(self.cupy, x)
        if has_channels_last(x):
            return x
        out = self._empty(x.shape, x.dtype, True)
        out[...] = x
        return out

    def _empty(self, shape: tuple[int, ...], dtype: Any, last: bool) -> Any:
        if not last:
            return self.cupy.empty(shape, dtype)
        made = self.cupy.empty((shape[0], *shape[2:], shape[1]), dtype)
        return self.cupy.moveaxis(made, -1, 1)


def _each(amounts: Ints, n: int) -> tuple[int, ...]:
    """One number for each of ``n`` dimensions."""
    return tuple(amounts) * (n if len(amounts) == 1 else 1)


def _options(a: Any, b: Any, stride: Ints, padding: Ints, dilation: Ints) -> _Options | None:
    """The options, where cuDNN may take the arrays; None otherwise."""
    n = a.ndim - 2
    if not 1 <= n <= 3 or b.ndim != a.ndim or a.dtype != b.dtype or not a.size or not b.size:
        return None
    if a.dtype.name not in _CONVOLVED:
        return None
    options = _Options(_each(stride, n), _each(padding, n), _each(dilation, n))
    if any(len(amounts) != n for amounts in options):
        return None
    return (
        options
        if min(options.padding) >= 0 and min(*options.stride, *options.dilation) > 0
        else None
    )


def _bias_fits(bias: Any, weight: Any, transposed: bool, groups: int) -> bool:
    if bias is None:
        return True
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return bool(bias.dtype == weight.dtype and bias.shape == (channels,))


def _result(spatial: Ints, kernel: Ints, options: _Options) -> tuple[int, ...]:
    """The spatial dimensions of what a convolution makes."""
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(spatial, kernel, *options, strict=True)
    )


def _fit(result: Ints, image: Ints, weight: Ints, groups: int) -> bool:
    """Whether channels, groups and batch of a convolution go together, and it has elements."""
    if groups < 1 or image[1] % groups or weight[0] % groups or min(*result, *image, *weight) < 1:
        return False
    return bool(result[0] == image[0] and result[1] == weight[0] and weight[1] * groups == image[1])


def _widened(spec: Spec) -> Spec:
    """A spec with two spatial dimensions at least, as cuDNN wants: one of size 1 is put first."""
    if len(spec.shape) > 3:
        return spec
    shape = (*spec.shape[:2], 1, spec.shape[2])
    strides = (*spec.strides[:2], spec.shape[2] * spec.strides[2], spec.strides[2])
    return Spec(shape, strides, spec.dtype)


def _padded(options: _Options) -> _Options:
    """Options for the spatial dimension that :func:`_widened` adds."""
    if len(options.stride) > 1:
        return options
    return _Options((1, *options.stride), (0, *options.padding), (1, *options.dilation))
