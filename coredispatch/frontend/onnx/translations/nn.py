"""Layers: products, convolutions, poolings, normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.onnx.builder import Builder, Length, numpy_of

__all__ = ["TRANSLATIONS"]


def _matmul(b: Builder, x: Any, y: Any) -> Any:
    dtype = b.result.dtype
    return b.op("MatMul", b.cast(x, dtype), b.cast(y, dtype))


def _linear(b: Builder, x: Any, weight: Any, bias: Any = None) -> Any:
    if x.rank == 2 and weight.rank == 2 and x.dtype.is_floating_point:
        return b.op("Gemm", x, weight, bias, transB=1)
    made = b.op("MatMul", x, b.op("Transpose", weight, perm=list(range(weight.rank))[::-1]))
    return made if bias is None else b.op("Add", made, bias)


def _addmm(b: Builder, x: Any, one: Any, other: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    computed = any(isinstance(n, Length) for n in (alpha, beta))
    if b.result.dtype.is_floating_point and not computed:
        return b.op("Gemm", one, other, x, alpha=float(alpha), beta=float(beta))
    product, added = b.op("MatMul", one, other), x.name
    if alpha != 1:
        product = b.op("Mul", product, b.cast(alpha, b.result.dtype))
    if beta != 1:
        added = b.op("Mul", added, b.cast(beta, b.result.dtype))
    return b.op("Add", product, added)


def _per_dim(value: Any, n: int) -> list[int]:
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    return [int(v) for v in (values * n if len(values) == 1 else values)]


def _over_samples(b: Builder, n: int, kind: str, x: Any, *others: Any, **attributes: Any) -> Any:
    """A node that knows samples only, for ``x`` with ``n`` dimensions, samples or one of them."""
    batched = x.rank == n + 2
    given = x if batched else b.op("Unsqueeze", x, np.array([0]))
    made = b.op(kind, given, *others, **attributes)
    return made if batched else b.op("Squeeze", made, np.array([0]))


def _convolution(n: int) -> Any:
    def translate(
        b: Builder,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        spread = _per_dim(dilation, n)
        kernel = list(weight.shape[2:])
        if padding == "valid":
            pads = [0] * (2 * n)
        elif padding == "same":
            total = [d * (k - 1) for d, k in zip(spread, kernel)]
            pads = [t // 2 for t in total] + [t - t // 2 for t in total]
        else:
            pads = _per_dim(padding, n) * 2
        return _over_samples(
            b, n, "Conv", x, weight, bias, strides=_per_dim(stride, n), pads=pads,
            dilations=spread, group=groups, kernel_shape=kernel,
        )  # fmt: skip

    return translate


def _transposed(n: int) -> Any:
    def translate(
        b: Builder,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        return _over_samples(
            b, n, "ConvTranspose", x, weight, bias, strides=_per_dim(stride, n),
            pads=_per_dim(padding, n) * 2, output_padding=_per_dim(output_padding, n),
            dilations=_per_dim(dilation, n), group=groups, kernel_shape=list(weight.shape[2:]),
        )  # fmt: skip

    return translate


def _max_pool(n: int) -> Any:
    def translate(
        b: Builder,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        steps = kernel_size if stride is None or stride == () else stride
        return _over_samples(
            b, n, "MaxPool", x, kernel_shape=_per_dim(kernel_size, n), strides=_per_dim(steps, n),
            pads=_per_dim(padding, n) * 2, dilations=_per_dim(dilation, n),
            ceil_mode=int(ceil_mode),
        )  # fmt: skip

    return translate


def _avg_pool(n: int) -> Any:
    def translate(
        b: Builder,
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Any:
        if divisor_override is not None:
            return b.refuse("avg_pool(divisor_override=...)")
        steps = kernel_size if stride is None or stride == () else stride
        return _over_samples(
            b, n, "AveragePool", x, kernel_shape=_per_dim(kernel_size, n),
            strides=_per_dim(steps, n), pads=_per_dim(padding, n) * 2, ceil_mode=int(ceil_mode),
            count_include_pad=int(count_include_pad),
        )  # fmt: skip

    return translate


def _adaptive(n: int, globally: str, windows: str) -> Any:
    """Windows of one size where the output divides the input."""

    def translate(b: Builder, x: Any, output_size: Any) -> Any:
        sizes = list(x.shape[-n:])
        given = output_size if isinstance(output_size, (tuple, list)) else [output_size] * n
        wanted = [s if w is None else w for s, w in zip(sizes, given)]
        if all(w == 1 for w in wanted):
            return _over_samples(b, n, globally, x)
        ints = all(type(n) is int for n in (*sizes, *wanted))
        fixed = ints and all(s % w == 0 for s, w in zip(sizes, wanted))
        if not fixed:
            return b.refuse(
                f"adaptive pooling of {tuple(sizes)} to {tuple(wanted)}: ONNX has windows of one "
                "size; use an output that divides the input"
            )
        kernel = [s // w for s, w in zip(sizes, wanted)]
        return _over_samples(b, n, windows, x, kernel_shape=kernel, strides=kernel)

    return translate


def _ones(b: Builder, like: Any, value: float) -> str:
    channels = like.shape[1]
    if not isinstance(channels, int):
        b.refuse("a normalization over an open number of channels")
    return b.constant(np.full(channels, value, dtype=numpy_of(like.dtype)))


def _batch_norm(
    b: Builder,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if training or mean is None:
        return b.refuse("batch_norm with the statistics of the batch; call model.eval() first")
    scale = _ones(b, x, 1) if weight is None else weight
    shift = _ones(b, x, 0) if bias is None else bias
    return b.op("BatchNormalization", x, scale, shift, mean, var, epsilon=float(eps))


def _layer_norm(
    b: Builder, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    if weight is None:
        if any(isinstance(n, Length) for n in sizes):
            return b.refuse("layer_norm over an open size")
        weight = b.constant(np.ones(sizes, dtype=numpy_of(x.dtype)))
    return b.op("LayerNormalization", x, weight, bias, axis=-len(sizes), epsilon=float(eps))


def _dropout(b: Builder, x: Any, p: float = 0.5, training: bool = True, *rest: Any) -> Any:
    if training and p:
        return b.refuse("dropout in training; call model.eval() first")
    return b.op("Identity", x)


def _loss(kind: str) -> Any:
    """``cross_entropy`` and ``nll_loss`` of class indices."""

    def translate(
        b: Builder,
        x: Any,
        target: Any,
        weight: Any = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Any:
        if label_smoothing or target.dtype.is_floating_point or x.rank < 2:
            return b.refuse("class probabilities, label smoothing or an unbatched input")
        return b.op(kind, x, target, weight, ignore_index=ignore_index, reduction=reduction)

    return translate


def _binary_loss(b: Builder, x: Any, target: Any, weight: Any = None, how: str = "mean") -> Any:
    """``binary_cross_entropy``, whose logarithms stop at -100."""
    dtype = b.result.dtype
    one, least = b.cast(1.0, dtype), b.cast(-100.0, dtype)
    found, wanted = b.cast(x, dtype), b.cast(target, dtype)
    other, rest = b.op("Sub", one, found), b.op("Sub", one, wanted)
    hit, miss = (b.op("Max", b.op("Log", value), least) for value in (found, other))
    loss = b.op("Neg", b.op("Add", b.op("Mul", wanted, hit), b.op("Mul", rest, miss)))
    if weight is not None:
        loss = b.op("Mul", loss, b.cast(weight, dtype))
    kinds = {"mean": "ReduceMean", "sum": "ReduceSum"}
    return b.op(kinds[how], loss, keepdims=0) if how in kinds else loss


TRANSLATIONS: dict[str, Any] = {
    "cross_entropy": _loss("SoftmaxCrossEntropyLoss"),
    "nll_loss": _loss("NegativeLogLikelihoodLoss"),
    "binary_cross_entropy": _binary_loss,
    "matmul": _matmul,
    "bmm": _matmul,
    "mm": _matmul,
    "linear": _linear,
    "addmm": _addmm,
    **{f"conv{n}d": _convolution(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _transposed(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{
        f"adaptive_avg_pool{n}d": _adaptive(n, "GlobalAveragePool", "AveragePool")
        for n in (1, 2, 3)
    },
    **{f"adaptive_max_pool{n}d": _adaptive(n, "GlobalMaxPool", "MaxPool") for n in (1, 2, 3)},
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "dropout": _dropout,
}
