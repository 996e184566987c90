"""What ``benchmarks/gpu.py`` measures, written once for both libraries.

``lib`` is coredispatch or torch. A case makes a function of no arguments from a library, a device
and a scale; at scale 0 it is small enough to be rehearsed on a CPU. Inputs come from NumPy, so that
both libraries compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Case", "Training", "kernels", "trainings"]

Make = Callable[[Any, str, int], Callable[[], Any]]


@dataclass(frozen=True)
class Case:
    """A call to measure.

    Args:
        group: the part of the table it stands in
        name: what it is called there
        limit: the ratio ours / PyTorch's that is aimed at
        make: ``make(lib, device, scale)`` gives the function
    """

    group: str
    name: str
    limit: float
    make: Make


@dataclass(frozen=True)
class Training:
    """A training step to measure, in half precision under autocast.

    Args:
        name: what it is called in the table
        module: ``module(lib, scale)`` makes the network
        data: ``data(rng, scale)`` draws a batch and its targets
    """

    name: str
    module: Callable[[Any, int], Any]
    data: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def _normal(lib: Any, device: str, *shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return lib.from_numpy(values).to(device).to(getattr(lib, dtype))


def _unary(function: Callable[[Any, Any], Any], *shape: int, dtype: str = "float32") -> Make:
    """``function(lib, x)`` of a matrix; small at scale 0."""

    def make(lib: Any, device: str, scale: int) -> Callable[[], Any]:
        x = _normal(lib, device, *(shape if scale else [min(n, 8) for n in shape]), dtype=dtype)
        return lambda: function(lib, x)

    return make


def _binary(function: Callable[[Any, Any, Any], Any], *shape: int, dtype: str = "float32") -> Make:
    def make(lib: Any, device: str, scale: int) -> Callable[[], Any]:
        sizes = shape if scale else [min(n, 8) for n in shape]
        x, y = (_normal(lib, device, *sizes, dtype=dtype, seed=seed) for seed in (0, 1))
        return lambda: function(lib, x, y)

    return make


def _cross_entropy(lib: Any, device: str, scale: int) -> Callable[[], Any]:
    rows, classes = (1024, 1024) if scale else (4, 5)
    x = _normal(lib, device, rows, classes)
    target = np.random.default_rng(1).integers(0, classes, rows)
    y = lib.from_numpy(target).to(device)
    return lambda: lib.nn.functional.cross_entropy(x, y)


def _linear(lib: Any, device: str, scale: int) -> Callable[[], Any]:
    size, dtype = (4096, "bfloat16") if scale else (8, "float32")
    x, w = (_normal(lib, device, size, size, dtype=dtype, seed=seed) for seed in (0, 1))
    b = _normal(lib, device, size, dtype=dtype, seed=2)
    return lambda: lib.nn.functional.linear(x, w, b)


def _many(lib: Any, device: str, scale: int) -> Callable[[], Any]:
    size, dtype = (1024, "bfloat16") if scale else (8, "float32")
    count = 64 if scale else 2
    x, y = (_normal(lib, device, count, size, size, dtype=dtype, seed=seed) for seed in (0, 1))
    return lambda: x @ y.transpose(-1, -2)


def _groups(lib: Any, device: str, scale: int) -> Callable[[], Any]:
    groups, rows, size = (16, 8192, 1024) if scale else (3, 24, 16)
    x = _normal(lib, device, rows, size, dtype="bfloat16")
    w = _normal(lib, device, groups, size, size, dtype="bfloat16", seed=1)
    ends = np.sort(np.random.default_rng(2).integers(0, rows, groups)).astype(np.int32)
    ends[-1] = rows
    offs = lib.from_numpy(ends).to(device)
    return lambda: lib.nn.functional.grouped_mm(x, w, offs=offs)


def _clip(lib: Any, device: str, scale: int) -> Callable[[], Any]:
    """Of 200 gradients of 2^16 elements; a norm that is clipped to itself stays what it is."""
    count, size = (200, 1 << 16) if scale else (3, 8)
    parameters = [_normal(lib, device, size, seed=seed) for seed in range(count)]
    for parameter in parameters:
        parameter.grad = parameter.clone()
    return lambda: lib.nn.utils.clip_grad_norm_(parameters, 1e9)


def _embedding(lib: Any, device: str, scale: int) -> Callable[[], Any]:
    """The gradient of a table's rows, each taken several times."""
    words, width, count = (50257, 768, 8192) if scale else (5, 4, 8)
    table = _normal(lib, device, words, width).requires_grad_()
    index = lib.from_numpy(np.random.default_rng(1).integers(0, words, count)).to(device)
    embed = lib.nn.functional.embedding
    return lambda: lib.autograd.grad(embed(index, table).sum(), table)[0]


def _dropout(lib: Any, device: str, scale: int) -> Callable[[], Any]:
    x = _normal(lib, device, *((4096, 4096) if scale else (8, 8)))
    part = 0.1 if scale else 0.0  # a rehearsal compares results
    return lambda: lib.nn.functional.dropout(x, part, training=True)


def _images_by(function: Callable[[Any, Any], Any]) -> Make:
    """``function(lib, x)`` of images."""

    def make(lib: Any, device: str, scale: int) -> Callable[[], Any]:
        x = _normal(lib, device, *((32, 64, 56, 56) if scale else (2, 3, 6, 6)))
        return lambda: function(lib, x)

    return make


def _rows(lib: Any, device: str, scale: int) -> Callable[[], Any]:
    count, width = (65536, 64) if scale else (6, 4)
    x = _normal(lib, device, count, width)
    index = lib.from_numpy(np.random.default_rng(1).integers(0, count, count)).to(device)
    return lambda: x[index]


def _attention(backward: bool) -> Make:
    def make(lib: Any, device: str, scale: int) -> Callable[[], Any]:
        shape = (8, 16, 1024, 64) if scale else (1, 2, 8, 4)
        inputs = [
            _normal(lib, device, *shape, dtype="bfloat16" if scale else "float32", seed=seed)
            for seed in range(3)
        ]
        attend = lib.nn.functional.scaled_dot_product_attention
        if not backward:
            return lambda: attend(*inputs, is_causal=True)
        for x in inputs:
            x.requires_grad_()

        def step() -> Any:
            return lib.autograd.grad(attend(*inputs, is_causal=True).sum(), inputs)[0]

        return step

    return make


def _convolution(backward: bool) -> Make:
    def make(lib: Any, device: str, scale: int) -> Callable[[], Any]:
        dtype = "float16" if scale else "float32"
        shape = (32, 64, 56, 56) if scale else (2, 3, 6, 6)
        x = _normal(lib, device, *shape, dtype=dtype)
        weight = _normal(lib, device, shape[1], shape[1], 3, 3, dtype=dtype, seed=1)
        convolve = lib.nn.functional.conv2d
        if not backward:
            return lambda: convolve(x, weight, padding=1)
        x.requires_grad_()
        weight.requires_grad_()

        def step() -> Any:
            return lib.autograd.grad(convolve(x, weight, padding=1).sum(), [x, weight])[1]

        return step

    return make


def kernels() -> list[Case]:
    """Small calls, kernels from 2^20 elements, products, attention and convolutions."""
    small, large = "small calls", "from 1e6 elements"
    size = 4096

    def norm(lib: Any, x: Any) -> Any:
        return lib.nn.functional.layer_norm(x, (x.shape[-1],))

    def rms(lib: Any, x: Any) -> Any:
        return lib.nn.functional.rms_norm(x, (x.shape[-1],))

    def batch_norm(lib: Any, x: Any) -> Any:
        return lib.nn.functional.batch_norm(x, None, None, training=True)

    def pool(lib: Any, x: Any) -> Any:
        return lib.nn.functional.max_pool2d(x, 3, 2, 1)

    return [
        Case(small, "add", 1.5, _binary(lambda lib, x, y: x + y, 64, 64)),
        Case(small, "relu", 1.5, _unary(lambda lib, x: lib.relu(x), 64, 64)),
        Case(small, "sum", 1.5, _unary(lambda lib, x: x.sum(), 64, 64)),
        Case(small, "matmul", 1.5, _binary(lambda lib, x, y: x @ y, 64, 64)),
        Case(small, "softmax", 1.5, _unary(lambda lib, x: x.softmax(-1), 64, 64)),
        Case(large, "add of 2^20", 1.05, _binary(lambda lib, x, y: x + y, 1024, 1024)),
        Case(large, "exp of 2^20", 1.05, _unary(lambda lib, x: x.exp(), 1024, 1024)),
        Case(large, "sum of 2^20", 1.05, _unary(lambda lib, x: x.sum(), 1024, 1024)),
        Case(large, "softmax of 2^20", 1.05, _unary(lambda lib, x: x.softmax(-1), 1024, 1024)),
        Case(large, "add", 1.05, _binary(lambda lib, x, y: x + y, size, size)),
        Case(large, "exp", 1.05, _unary(lambda lib, x: x.exp(), size, size)),
        Case(
            large,
            "gelu bf16",
            1.05,
            _unary(lambda lib, x: lib.nn.functional.gelu(x), size, size, dtype="bfloat16"),
        ),
        Case(large, "sum", 1.05, _unary(lambda lib, x: x.sum(), size, size)),
        Case(large, "sum of rows", 1.05, _unary(lambda lib, x: x.sum(-1), size, size)),
        Case(large, "softmax", 1.05, _unary(lambda lib, x: x.softmax(-1), size, size)),
        Case(large, "layer_norm", 1.05, _unary(norm, size, size)),
        Case(large, "rms_norm", 1.05, _unary(rms, size, size)),
        Case(large, "batch_norm", 1.05, _images_by(batch_norm)),
        Case(large, "max_pool2d", 1.05, _images_by(pool)),
        Case(large, "dropout", 1.05, _dropout),
        Case(large, "gradient of embedding", 1.05, _embedding),
        Case(large, "cumsum", 1.05, _unary(lambda lib, x: x.cumsum(-1), size, 1024)),
        Case(large, "sort", 1.05, _unary(lambda lib, x: x.sort(-1)[0], 1024, 1024)),
        Case(large, "sort of one row", 1.05, _unary(lambda lib, x: x.sort(-1)[0], 1, 1 << 20)),
        Case(large, "topk", 1.05, _unary(lambda lib, x: x.topk(4, -1)[0], 64, 1 << 17)),
        Case(large, "cumsum of one row", 1.05, _unary(lambda lib, x: x.cumsum(-1), 1, 1 << 24)),
        Case(large, "transposed copy", 1.05, _unary(lambda lib, x: x.t().contiguous(), size, size)),
        Case(large, "cross_entropy", 1.05, _cross_entropy),
        Case(large, "rows by index", 1.05, _rows),
        Case(
            "matmul", "8192^3 bf16", 1.03,
            _binary(lambda lib, x, y: x @ y, 8192, 8192, dtype="bfloat16"),
        ),
        Case("matmul", "4096^3 float32", 1.03, _binary(lambda lib, x, y: x @ y, 4096, 4096)),
        Case("matmul", "linear 4096^3 bf16 with bias", 1.03, _linear),
        Case("matmul", "64 of 1024^3 bf16, transposed", 1.03, _many),
        Case("matmul", "16 groups of 8192 rows bf16", 1.5, _groups),
        Case("training", "clip 200 gradients", 1.5, _clip),
        Case("attention", "causal bf16", 1.10, _attention(False)),
        Case("attention", "causal bf16 with gradients", 1.10, _attention(True)),
        Case("convolution", "3x3 float16", 1.10, _convolution(False)),
        Case("convolution", "3x3 float16 with gradients", 1.10, _convolution(True)),
    ]  # fmt: skip


# ---- networks ----------------------------------------------------------------------------------


def mlp(lib: Any, scale: int) -> Any:
    """784-4096-4096-10."""
    nn, width = lib.nn, 4096 if scale else 16
    return nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def resnet18(lib: Any, scale: int) -> Any:
    """ResNet-18 (He et al. 2015); two stages of a few channels at scale 0."""
    nn = lib.nn
    widths = (64, 128, 256, 512) if scale else (4, 8)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            self.short = nn.Identity()
            if stride > 1 or inputs != outputs:
                short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.short = nn.Sequential(short, nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            y = lib.relu(self.norm(self.first(x)))
            return lib.relu(self.norm2(self.second(y)) + self.short(x))

    blocks, inputs = [], widths[0]
    for stage, width in enumerate(widths):
        blocks += [Block(inputs, width, 2 if stage else 1), Block(width, width, 1)]
        inputs = width
    stem = [nn.Conv2d(3, widths[0], 7, 2, 3, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10)]
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *head)


_GPT2 = {0: (50, 8, 16, 2, 2), 1: (50257, 1024, 768, 12, 12)}


def gpt2(lib: Any, scale: int) -> Any:
    """GPT-2 with 124 million parameters (Radford et al. 2019); two narrow blocks at scale 0."""
    nn = lib.nn
    words, length, width, heads, depth = _GPT2[scale]

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.together, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, count, _ = x.shape
            parts = self.together(self.norm(x)).split(width, 2)
            q, k, v = (p.view(batch, count, heads, -1).transpose(1, 2) for p in parts)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, count, width))
            return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, tokens: Any) -> Any:
            places = lib.arange(tokens.shape[1], device=tokens.device)
            x = self.tokens(tokens) + self.places(places)
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    return GPT()


def _text(rng: np.random.Generator, scale: int) -> tuple[np.ndarray, np.ndarray]:
    words, length = _GPT2[scale][:2]
    tokens = rng.integers(0, words, (4, length + 1))
    return tokens[:, :-1].copy(), tokens[:, 1:].reshape(-1).copy()


def _images(rng: np.random.Generator, scale: int) -> tuple[np.ndarray, np.ndarray]:
    shape = (64, 3, 224, 224) if scale else (4, 3, 32, 32)
    return rng.standard_normal(shape).astype(np.float32), rng.integers(0, 10, shape[0])


def _vectors(rng: np.random.Generator, scale: int) -> tuple[np.ndarray, np.ndarray]:
    count = 1024 if scale else 4
    return rng.standard_normal((count, 784)).astype(np.float32), rng.integers(0, 10, count)


def trainings() -> list[Training]:
    """The networks whose steps are measured."""
    return [
        Training("MLP", mlp, _vectors),
        Training("ResNet-18", resnet18, _images),
        Training("GPT-2 124M", gpt2, _text),
    ]
