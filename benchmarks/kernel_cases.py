"""What ``benchmarks/kernels.py`` measures: one expression per case, for both libraries.

``lib`` is coredispatch or torch: the public names are the same, so each case is written once. An
input is drawn by NumPy and given to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Kernel", "kernels"]

Draw = Callable[[np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Kernel:
    """One expression and its inputs.

    Args:
        name: what it is called in the table
        call: ``call(lib, *tensors)``
        inputs: one function each, from a random generator to an array
        backward: also call ``backward`` on the result; floating inputs get gradients
    """

    name: str
    call: Callable[..., Any]
    inputs: tuple[Draw, ...]
    backward: bool = False


def normal(*shape: int) -> Draw:
    return lambda rng: rng.standard_normal(shape)


def positive(*shape: int) -> Draw:
    return lambda rng: rng.random(shape) + 0.5


def integers(high: int, *shape: int) -> Draw:
    return lambda rng: rng.integers(0, high, shape)


def _square(size: int) -> tuple[int, int]:
    columns = round(size**0.5)
    return max(1, size // columns), columns


_ONE = "abs exp neg reciprocal rsqrt sigmoid sqrt square log tanh erf sin cos relu".split()
_TWO = "add sub mul div maximum minimum eq lt".split()


def elementwise(size: int) -> Iterator[Kernel]:
    x, y = positive(size), positive(size)
    for name in _ONE:
        yield Kernel(name, lambda lib, x, f=name: getattr(lib, f)(x), (x,))
    for name in _TWO:
        yield Kernel(name, lambda lib, x, y, f=name: getattr(lib, f)(x, y), (x, y))
    functional = ("silu", "gelu", "leaky_relu")
    for name in functional:
        yield Kernel(name, lambda lib, x, f=name: getattr(lib.nn.functional, f)(x), (x,))
    yield Kernel("add self", lambda lib, x: x + x, (x,))
    yield Kernel("add number", lambda lib, x: x + 1.5, (x,))
    yield Kernel("where", lambda lib, x, y: lib.where(x > y, x, y), (x, y))
    yield Kernel("clone", lambda lib, x: x.clone(), (x,))
    signed = normal(size)
    yield Kernel("clamp", lambda lib, x: x.clamp(-1, 1), (signed,))
    yield Kernel("clamp in place", lambda lib, x: x.clamp_(-1, 1), (signed,))
    yield Kernel("relu in place", lambda lib, x: x.relu_(), (signed,))
    yield Kernel("lerp", lambda lib, x, y: lib.lerp(x, y, 0.1), (x, y))
    yield Kernel("addcmul", lambda lib, x, y: lib.addcmul(x, x, y, value=0.5), (x, y))
    edges = lambda rng: np.linspace(-2, 2, 100)  # noqa: E731
    yield Kernel("bucketize", lambda lib, x, e: lib.bucketize(x, e), (signed, edges))
    yield Kernel("histc", lambda lib, x: lib.histc(x, 20), (signed,))
    for suffix, backward in (("", False), (" fwd+bwd", True)):
        yield Kernel(
            f"fake_quantize{suffix}",
            lambda lib, x: lib.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127),
            (signed,),
            backward,
        )
    losses = {
        "mse_loss": y,
        "smooth_l1_loss": y,
        "binary_cross_entropy_with_logits": x,
        "kl_div": x,
    }
    for name, target in losses.items():
        options = {"reduction": "sum"} if name == "kl_div" else {}
        for suffix, backward in (("", False), (" fwd+bwd", True)):
            yield Kernel(
                f"{name}{suffix}",
                lambda lib, x, y, f=name, o=options: getattr(lib.nn.functional, f)(
                    x, y.detach(), **o
                ),
                (signed, target),
                backward,
            )
    for name in ("erfc", "lgamma", "digamma"):
        yield Kernel(name, lambda lib, x, f=name: getattr(lib, f)(x), (x,))
    for name in ("fmod", "remainder", "floor_divide", "logaddexp"):
        yield Kernel(name, lambda lib, x, y, f=name: getattr(lib, f)(x, y), (signed, y))
    for name in ("hardswish", "elu"):
        yield Kernel(name, lambda lib, x, f=name: getattr(lib.nn.functional, f)(x), (signed,))
    for name in ("sigmoid", "tanh", "relu"):
        yield Kernel(f"{name} fwd+bwd", lambda lib, x, f=name: getattr(lib, f)(x), (x,), True)
    for name in functional:
        yield Kernel(
            f"{name} fwd+bwd", lambda lib, x, f=name: getattr(lib.nn.functional, f)(x), (x,), True
        )


def matrices(size: int) -> Iterator[Kernel]:
    m, n = _square(size)
    x, row = normal(m, n), positive(n)
    yield Kernel("add row", lambda lib, x, w: x + w, (x, row))
    yield Kernel("transpose", lambda lib, x: x.t().contiguous(), (x,))
    yield Kernel("cat", lambda lib, x, y: lib.cat((x, y), 1), (x, x))
    yield Kernel("pad", lambda lib, x: lib.nn.functional.pad(x, (1, 2, 3, 4)), (x,))
    for name in ("sum", "mean", "amax", "argmax", "cumsum"):
        for where, dim in (("rows", 1), ("columns", 0)):
            yield Kernel(
                f"{name} {where}", lambda lib, x, f=name, d=dim: getattr(lib, f)(x, d), (x,)
            )
    for name in ("sum", "mean", "amax"):
        yield Kernel(f"{name} all", lambda lib, x, f=name: getattr(lib, f)(x), (x,))
    yield Kernel("sum transposed", lambda lib, x: x.t().sum(0), (x,))
    yield Kernel("sum slice", lambda lib, x: x[:, 1:].sum(1), (x,))
    yield Kernel("logcumsumexp", lambda lib, x: lib.logcumsumexp(x, 1), (x,))
    yield Kernel("kthvalue", lambda lib, x: lib.kthvalue(x, 1 + n // 2, 1), (x,))
    yield Kernel("median", lambda lib, x: lib.median(x, 1), (x,))
    yield Kernel("norm rows", lambda lib, x: lib.linalg.vector_norm(x, dim=1), (x,))
    yield Kernel("norm rows fwd+bwd", lambda lib, x: x.norm(dim=1), (x,), True)
    yield Kernel("glu", lambda lib, x: lib.nn.functional.glu(x, 0), (normal(2 * m, n),))
    yield Kernel("sort", lambda lib, x: lib.sort(x, 1), (x,))
    yield Kernel("topk", lambda lib, x: lib.topk(x, min(10, n), 1), (x,))
    for name in ("softmax", "log_softmax"):
        for where, dim in (("rows", 1), ("columns", 0)):
            for suffix, backward in (("", False), (" fwd+bwd", True)):
                yield Kernel(
                    f"{name} {where}{suffix}",
                    lambda lib, x, f=name, d=dim: getattr(lib, f)(x, d),
                    (x,),
                    backward,
                )
    for suffix, backward in (("", False), (" fwd+bwd", True)):
        yield Kernel(
            f"layer_norm{suffix}",
            lambda lib, x, w, b: lib.nn.functional.layer_norm(x, (n,), w, b),
            (x, row, row),
            backward,
        )
        yield Kernel(
            f"rms_norm{suffix}",
            lambda lib, x, w: lib.nn.functional.rms_norm(x, (n,), w),
            (x, row),
            backward,
        )
        yield Kernel(
            f"cross_entropy{suffix}",
            lambda lib, x, t: lib.nn.functional.cross_entropy(x, t),
            (x, integers(n, m)),
            backward,
        )
        for name, options in (("smoothed", {"label_smoothing": 0.1}), ("weighted", {})):
            yield Kernel(
                f"cross_entropy {name}{suffix}",
                lambda lib, x, t, w, k=options: lib.nn.functional.cross_entropy(
                    x, t, None if k else w.detach(), **k
                ),
                (x, integers(n, m), row),
                backward,
            )
        yield Kernel(
            f"nll_loss{suffix}",
            lambda lib, x, t: lib.nn.functional.nll_loss(x, t),
            (x, integers(n, m)),
            backward,
        )
        yield Kernel(
            f"embedding{suffix}",
            lambda lib, w, i: lib.nn.functional.embedding(i, w),
            (x, integers(m, m)),
            backward,
        )
    yield Kernel("index_select", lambda lib, x, i: x.index_select(0, i), (x, integers(m, m)))
    yield Kernel("gather", lambda lib, x, i: x.gather(1, i), (x, integers(n, m, n)))
    yield Kernel(
        "scatter_add",
        lambda lib, x, i: lib.zeros_like(x).scatter_add(1, i, x),
        (x, integers(n, m, n)),
    )
    yield Kernel(
        "scatter_reduce",
        lambda lib, x, i: x.scatter_reduce(1, i, x, "amax"),
        (x, integers(n, m, n)),
    )
    yield Kernel("index_add", lambda lib, x, i: x.index_add(0, i, x), (x, integers(m, m)))
    yield Kernel(
        "index_select of columns", lambda lib, x, i: x.index_select(1, i), (x, integers(n, n))
    )
    yield Kernel("igamma", lambda lib, x, y: lib.special.gammainc(x, y), (positive(m, n),) * 2)


# name, input, weight, keywords
_CONVOLUTIONS: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ("3x3 64 channels", (8, 64, 32, 32), (64, 64, 3, 3), {"padding": 1}),
    ("3x3 3 channels", (8, 3, 64, 64), (32, 3, 3, 3), {"padding": 1}),
    ("3x3 stride 2", (8, 64, 32, 32), (128, 64, 3, 3), {"padding": 1, "stride": 2}),
    ("5x5", (16, 6, 14, 14), (16, 6, 5, 5), {}),
    ("7x7", (2, 3, 112, 112), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ("1x1", (8, 64, 32, 32), (128, 64, 1, 1), {}),
    ("depthwise", (8, 64, 32, 32), (64, 1, 3, 3), {"padding": 1, "groups": 64}),
    ("depthwise 3x3 56", (8, 64, 56, 56), (64, 1, 3, 3), {"padding": 1, "groups": 64}),
    (
        "depthwise 3x3 28 stride 2",
        (8, 128, 28, 28),
        (128, 1, 3, 3),
        {"padding": 1, "stride": 2, "groups": 128},
    ),
    ("depthwise 3x3 7", (8, 512, 7, 7), (512, 1, 3, 3), {"padding": 1, "groups": 512}),
    ("depthwise 5x5 14", (8, 256, 14, 14), (256, 1, 5, 5), {"padding": 2, "groups": 256}),
    ("depthwise 7x7 14", (8, 384, 14, 14), (384, 1, 7, 7), {"padding": 3, "groups": 384}),
    ("3x3 256 channels of 14", (8, 256, 14, 14), (256, 256, 3, 3), {"padding": 1}),
    ("3x3 512 channels of 7", (8, 512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
    ("4x4 stride 2", (16, 64, 32, 32), (128, 64, 4, 4), {"padding": 1, "stride": 2}),
    ("1x1 1024 channels", (8, 1024, 14, 14), (256, 1024, 1, 1), {}),
    ("dilated", (4, 32, 32, 32), (32, 32, 3, 3), {"padding": 2, "dilation": 2}),
    ("grouped", (4, 64, 32, 32), (64, 16, 3, 3), {"padding": 1, "groups": 4}),
)


def layers() -> Iterator[Kernel]:
    """Cases of a size of their own."""
    for name, x, w, keywords in _CONVOLUTIONS:
        for suffix, backward in (("", False), (" fwd+bwd", True)):
            yield Kernel(
                f"conv {name}{suffix}",
                lambda lib, x, w, b, k=keywords: lib.nn.functional.conv2d(x, w, b, **k),
                (normal(*x), normal(*w), normal(w[0])),
                backward,
            )
    image, channels = normal(16, 32, 32, 32), positive(32)
    for suffix, backward in (("", False), (" fwd+bwd", True)):
        yield Kernel(
            f"conv1d{suffix}",
            lambda lib, x, w: lib.nn.functional.conv1d(x, w, padding=1),
            (normal(16, 32, 256), normal(32, 32, 3)),
            backward,
        )
        yield Kernel(
            f"conv_transpose{suffix}",
            lambda lib, x, w: lib.nn.functional.conv_transpose2d(x, w, stride=2),
            (normal(4, 32, 16, 16), normal(32, 16, 2, 2)),
            backward,
        )
        yield Kernel(
            f"conv_transpose 4x4{suffix}",
            lambda lib, x, w: lib.nn.functional.conv_transpose2d(x, w, stride=2, padding=1),
            (normal(8, 128, 16, 16), normal(128, 64, 4, 4)),
            backward,
        )
        for name in ("max_pool2d", "avg_pool2d"):
            yield Kernel(
                f"{name}{suffix}",
                lambda lib, x, f=name: getattr(lib.nn.functional, f)(x, 2),
                (image,),
                backward,
            )
        yield Kernel(
            f"max_pool2d 3x3{suffix}",
            lambda lib, x: lib.nn.functional.max_pool2d(x, 3, 2, 1),
            (image,),
            backward,
        )
        yield Kernel(
            f"batch_norm{suffix}",
            lambda lib, x, w, b: lib.nn.functional.batch_norm(x, None, None, w, b, training=True),
            (image, channels, channels),
            backward,
        )
        yield Kernel(
            f"batch_norm of rows{suffix}",
            lambda lib, x, w, b: lib.nn.functional.batch_norm(x, None, None, w, b, training=True),
            (normal(64, 512), positive(512), positive(512)),
            backward,
        )
        yield Kernel(
            f"adaptive_avg_pool2d{suffix}",
            lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, 1),
            (normal(8, 256, 7, 7),),
            backward,
        )
        for mode in ("nearest", "bilinear", "bicubic"):
            yield Kernel(
                f"interpolate {mode}{suffix}",
                lambda lib, x, m=mode: lib.nn.functional.interpolate(x, scale_factor=2, mode=m),
                (normal(4, 16, 32, 32),),
                backward,
            )
        yield Kernel(
            f"cross_entropy of positions{suffix}",
            lambda lib, x, t: lib.nn.functional.cross_entropy(x, t),
            (normal(4, 8, 64, 64), integers(8, 4, 64, 64)),
            backward,
        )
        yield Kernel(
            f"group_norm{suffix}",
            lambda lib, x, w, b: lib.nn.functional.group_norm(x, 8, w, b),
            (image, channels, channels),
            backward,
        )
        for causal in (False, True):
            yield Kernel(
                f"attention{' causal' * causal}{suffix}",
                lambda lib, q, k, v, c=causal: lib.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=c
                ),
                (normal(2, 8, 256, 64),) * 3,
                backward,
            )
        for mode in ("bilinear", "nearest", "bicubic"):
            yield Kernel(
                f"grid_sample {mode}{suffix}",
                lambda lib, x, g, m=mode: lib.nn.functional.grid_sample(
                    x, g, m, align_corners=False
                ),
                (normal(2, 8, 64, 64), lambda rng: rng.random((2, 64, 64, 2)) * 2 - 1),
                backward,
            )
    yield Kernel("sum of channels", lambda lib, x: x.sum((0, 2, 3)), (image,))
    yield Kernel("matmul 512", lambda lib, x, y: x @ y, (normal(512, 512),) * 2)
    for rows, given, made in ((64, 784, 512), (1536, 128, 512)):
        for suffix, backward in (("", False), (" fwd+bwd", True)):
            yield Kernel(
                f"linear {rows}x{given} to {made}{suffix}",
                lambda lib, x, w, b: lib.nn.functional.linear(x, w, b),
                (normal(rows, given), normal(made, given), normal(made)),
                backward,
            )
    for suffix, backward in (("", False), (" fwd+bwd", True)):
        two = (normal(300, 64), normal(500, 64))
        yield Kernel(f"cdist{suffix}", lambda lib, x, y: lib.cdist(x, y), two, backward)
    yield Kernel("bmm", lambda lib, x, y: lib.bmm(x, y), (normal(64, 32, 32),) * 2)


def kernels(sizes: list[int]) -> Iterator[tuple[Kernel, int]]:
    """Every case with its size, 0 for cases of a size of their own."""
    for size in sizes:
        for kernel in (*elementwise(size), *matrices(size)):
            yield kernel, size
    for kernel in layers():
        yield kernel, 0
