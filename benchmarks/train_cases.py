"""Networks and their inputs for ``benchmarks/train.py``, written once for both libraries.

``lib`` is coredispatch or torch. Each function makes a module of ``lib``; the sizes are those of a
step that takes from one to some hundred milliseconds on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Training", "trainings"]

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Training:
    """A network to be trained.

    Args:
        name: what it is called in the table
        module: ``module(lib)`` makes the network
        data: draws a batch and its targets
        optimizer: ``optimizer(lib, parameters)``
        loss: ``loss(lib, output, target)``
        autocast: whether the forward pass runs in bfloat16 under autocast
    """

    name: str
    module: Callable[[Any], Any]
    data: Callable[[np.random.Generator], Arrays]
    optimizer: Callable[[Any, Any], Any]
    loss: Callable[[Any, Any, Any], Any]
    autocast: bool = False


def _adam(lib: Any, parameters: Any) -> Any:
    return lib.optim.Adam(parameters, lr=1e-3)


def _sgd(lib: Any, parameters: Any) -> Any:
    return lib.optim.SGD(parameters, lr=1e-2, momentum=0.9)


def _cross_entropy(lib: Any, output: Any, target: Any) -> Any:
    return lib.nn.functional.cross_entropy(output, target)


def _labelled(*shape: int, classes: int) -> Callable[[np.random.Generator], Arrays]:
    """Normal inputs, the first size of which is the batch, and a class for each."""
    return lambda rng: (
        rng.standard_normal(shape).astype(np.float32),
        rng.integers(0, classes, shape[0]),
    )


def mlp(lib: Any) -> Any:
    """784-512-512-10."""
    nn = lib.nn
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def lenet(lib: Any) -> Any:
    """LeNet-5 over 28x28 images (LeCun et al. 1998), with ReLU and max pooling."""
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def resnet(lib: Any) -> Any:
    """A residual network of three stages of one block, 16, 32 and 64 channels (He et al. 2015)."""
    nn = lib.nn

    def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)
        )

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = conv(inputs, outputs, 3, stride)
            self.second = conv(outputs, outputs, 3)
            self.short = conv(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            y = self.second(lib.relu(self.first(x)))
            return lib.relu(y + self.short(x))

    return nn.Sequential(
        conv(3, 16, 3), nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


_TOKENS, _LENGTH, _WIDTH, _HEADS = 256, 128, 128, 4


def gpt(lib: Any) -> Any:
    """Two blocks of a GPT-2: 128 wide, 4 heads, 128 tokens out of 256."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.norm2 = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
            self.together, self.out = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
            self.feed = nn.Sequential(
                nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH)
            )

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            parts = self.together(self.norm(x)).split(width, 2)
            q, k, v = (p.view(batch, length, _HEADS, -1).transpose(1, 2) for p in parts)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.feed(self.norm2(x))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(_TOKENS, _WIDTH), nn.Embedding(_LENGTH, _WIDTH)
            self.blocks = nn.Sequential(Block(), Block())
            self.norm, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _TOKENS, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places(lib.arange(tokens.shape[1]))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    return GPT()


def _text(rng: np.random.Generator) -> Arrays:
    tokens = rng.integers(0, _TOKENS, (8, _LENGTH + 1))
    return tokens[:, :-1].copy(), tokens[:, 1:].reshape(-1).copy()


def lstm(lib: Any) -> Any:
    """Two LSTM layers, 128 wide, and a class for each sequence."""
    nn = lib.nn

    class Classifier(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.sequence = nn.LSTM(64, 128, num_layers=2, batch_first=True)
            self.head = nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.sequence(x)[0][:, -1])

    return Classifier()


def unet(lib: Any) -> Any:
    """A U-Net of two levels, 16, 32 and 64 channels (Ronneberger et al. 2015)."""
    nn = lib.nn

    def double(inputs: int, outputs: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(),
        )  # fmt: skip

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.middle = double(1, 16), double(16, 32), double(32, 64)
            self.up2, self.up1 = (
                nn.ConvTranspose2d(64, 32, 2, stride=2),
                nn.ConvTranspose2d(32, 16, 2, stride=2),
            )
            self.left2, self.left1 = double(64, 32), double(32, 16)
            self.head = nn.Conv2d(16, 2, 1)

        def forward(self, x: Any) -> Any:
            pool = nn.functional.max_pool2d
            one = self.down1(x)
            two = self.down2(pool(one, 2))
            low = self.up2(self.middle(pool(two, 2)))
            low = self.left2(lib.cat((two, low), 1))
            return self.head(self.left1(lib.cat((one, self.up1(low)), 1)))

    return UNet()


def _masks(rng: np.random.Generator) -> Arrays:
    return rng.standard_normal((4, 1, 64, 64)).astype(np.float32), rng.integers(0, 2, (4, 64, 64))


def trainings() -> list[Training]:
    """Every network, in float32 and under autocast to bfloat16."""
    found = []
    for suffix, autocast in (("", False), (" bf16", True)):
        for name, module, data, optimizer in (
            ("MLP", mlp, _labelled(64, 784, classes=10), _adam),
            ("LeNet", lenet, _labelled(64, 1, 28, 28, classes=10), _adam),
            ("ResNet", resnet, _labelled(16, 3, 32, 32, classes=10), _sgd),
            ("GPT", gpt, _text, _adam),
            ("LSTM", lstm, _labelled(32, 48, 64, classes=10), _adam),
            ("U-Net", unet, _masks, _adam),
        ):
            found.append(Training(name + suffix, module, data, optimizer, _cross_entropy, autocast))
    return found
