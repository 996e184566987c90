"""Programs "an operator, then a write in place", for coredispatch and for PyTorch alike.

``python tests/unit/inplace_after_programs.py`` runs them with PyTorch and records which of them
train in ``inplace_after.json``; ``test_inplace_after.py`` compares.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

RECORD = pathlib.Path(__file__).with_name("inplace_after.json")

Program = Callable[..., Any]

# f(library, functional, inputs ...), each input of shape (4, 4)
PROGRAMS: dict[str, Program] = {
    # one input
    "neg": lambda t, F, x: -x,
    "abs": lambda t, F, x: x.abs(),
    "exp": lambda t, F, x: x.exp(),
    "expm1": lambda t, F, x: x.expm1(),
    "log": lambda t, F, x: x.log(),
    "log1p": lambda t, F, x: x.log1p(),
    "sqrt": lambda t, F, x: x.sqrt(),
    "rsqrt": lambda t, F, x: x.rsqrt(),
    "reciprocal": lambda t, F, x: x.reciprocal(),
    "sin": lambda t, F, x: x.sin(),
    "tan": lambda t, F, x: x.tan(),
    "atan": lambda t, F, x: x.atan(),
    "tanh": lambda t, F, x: x.tanh(),
    "sigmoid": lambda t, F, x: x.sigmoid(),
    "erf": lambda t, F, x: x.erf(),
    "square": lambda t, F, x: x.square(),
    "pow 2": lambda t, F, x: x**2,
    "pow 0.5": lambda t, F, x: x**0.5,
    "number ** x": lambda t, F, x: 2.0**x,
    "x * number": lambda t, F, x: x * 3,
    "x / number": lambda t, F, x: x / 3,
    "number / x": lambda t, F, x: 3 / x,
    "x + number": lambda t, F, x: x + 3,
    "clamp": lambda t, F, x: x.clamp(0.9, 1.4),
    "round": lambda t, F, x: x.round(),
    "relu": lambda t, F, x: F.relu(x),
    "leaky_relu": lambda t, F, x: F.leaky_relu(x),
    "elu": lambda t, F, x: F.elu(x),
    "gelu": lambda t, F, x: F.gelu(x),
    "silu": lambda t, F, x: F.silu(x),
    "softplus": lambda t, F, x: F.softplus(x),
    "hardtanh": lambda t, F, x: F.hardtanh(x, 0.0, 1.0),
    "softmax": lambda t, F, x: x.softmax(1),
    "log_softmax": lambda t, F, x: x.log_softmax(1),
    "logsumexp": lambda t, F, x: x.logsumexp(1),
    "sum": lambda t, F, x: x.sum(1),
    "mean": lambda t, F, x: x.mean(),
    "prod": lambda t, F, x: x.prod(),
    "cumsum": lambda t, F, x: x.cumsum(0),
    "var": lambda t, F, x: x.var(1),
    "std": lambda t, F, x: x.std(1),
    "amax": lambda t, F, x: x.amax(1),
    "max of a dim": lambda t, F, x: x.max(1)[0],
    "sort": lambda t, F, x: x.sort(1)[0],
    "topk": lambda t, F, x: x.topk(2)[0],
    "norm": lambda t, F, x: x.norm(),
    "clone": lambda t, F, x: x.clone(),
    "contiguous of t": lambda t, F, x: x.t().contiguous(),
    "cat": lambda t, F, x: t.cat([x, x]),
    "index by tensor": lambda t, F, x: x[t.tensor([0, 2])],
    "gather": lambda t, F, x: x.gather(1, t.tensor([[0], [1], [2], [3]])),
    "index_select": lambda t, F, x: x.index_select(0, t.tensor([1, 1])),
    "tril": lambda t, F, x: x.tril(),
    "flip": lambda t, F, x: x.flip(0),
    "roll": lambda t, F, x: x.roll(1, 0),
    "masked_fill": lambda t, F, x: x.masked_fill(t.tensor([True, False, True, False]), 0.5),
    "repeat": lambda t, F, x: x.repeat(2, 1),
    "pad": lambda t, F, x: F.pad(x, (1, 1)),
    "dropout": lambda t, F, x: F.dropout(x, 0.5),
    "layer_norm": lambda t, F, x: F.layer_norm(x, (4,)),
    "batch_norm": lambda t, F, x: F.batch_norm(x, None, None, training=True),
    "max_pool": lambda t, F, x: F.max_pool2d(x[None], 2),
    "avg_pool": lambda t, F, x: F.avg_pool2d(x[None], 2),
    "inverse": lambda t, F, x: t.linalg.inv(x),
    "cholesky": lambda t, F, x: t.linalg.cholesky(x @ x.t()),
    "to float32": lambda t, F, x: x.to(t.float32),
    # two inputs
    "x + y": lambda t, F, x, y: x + y,
    "x - y": lambda t, F, x, y: x - y,
    "x * y": lambda t, F, x, y: x * y,
    "x / y": lambda t, F, x, y: x / y,
    "x ** y": lambda t, F, x, y: x**y,
    "x @ y": lambda t, F, x, y: x @ y,
    "x @ vector": lambda t, F, x, y: x @ y[0],
    "maximum": lambda t, F, x, y: t.maximum(x, y),
    "atan2": lambda t, F, x, y: t.atan2(x, y),
    "hypot": lambda t, F, x, y: t.hypot(x, y),
    "logaddexp": lambda t, F, x, y: t.logaddexp(x, y),
    "fmod": lambda t, F, x, y: t.fmod(x, y),
    "where": lambda t, F, x, y: t.where(t.tensor([True, False, True, False]), x, y),
    "lerp by a number": lambda t, F, x, y: x.lerp(y, 0.3),
    "xlogy": lambda t, F, x, y: t.xlogy(x, y),
    "mse_loss": lambda t, F, x, y: F.mse_loss(x, y),
    "linear": lambda t, F, x, y: F.linear(x, y),
    "bce": lambda t, F, x, y: F.binary_cross_entropy(x / 5, y / 5),
    "index_add": lambda t, F, x, y: x.index_add(0, t.tensor([0, 1]), y[:2]),
    "scatter_add": lambda t, F, x, y: x.scatter_add(1, t.tensor([[0], [1], [2], [3]]), y[:, :1]),
    "index_put": lambda t, F, x, y: x.index_put((t.tensor([0, 1]),), y[:2]),
    "solve": lambda t, F, x, y: t.linalg.solve(x, y),
    "embedding": lambda t, F, x, y: F.embedding(t.tensor([0, 1]), y) + x[:2],
    "conv": lambda t, F, x, y: F.conv1d(x[None], y[:, :, None]),
    # three
    "addcmul": lambda t, F, x, y, z: t.addcmul(x, y, z),
    "addmm": lambda t, F, x, y, z: t.addmm(x, y, z),
    "lerp": lambda t, F, x, y, z: x.lerp(y, z),
    "linear with bias": lambda t, F, x, y, z: F.linear(x, y, z[0]),
    "layer_norm, affine": lambda t, F, x, y, z: F.layer_norm(x, (4,), y[0], z[0]),
    "batch_norm, affine": lambda t, F, x, y, z: F.batch_norm(
        x, None, None, y[0], z[0], training=True
    ),
}


def count(program: Program) -> int:
    """Number of inputs."""
    return program.__code__.co_argcount - 2


def cases() -> Iterator[tuple[str, tuple[bool, ...], str]]:
    """Each program, with each choice of inputs that require grad, and each tensor to write."""
    for name, program in PROGRAMS.items():
        n = count(program)
        for wanted in itertools.product([True, False], repeat=n):
            if any(wanted):
                for written in ("result", *(f"input {i}" for i in range(n))):
                    yield name, wanted, written


def label(name: str, wanted: tuple[bool, ...], written: str) -> str:
    """One line for a case."""
    return f"{name} | {''.join('y' if w else 'n' for w in wanted)} | {written}"


def trains(library: Any, functional: Any, name: str, wanted: Any, written: str) -> Any:
    """The gradients after the write, as arrays; None where the backward pass is refused.

    With ``written`` "nothing" or "nothing, twice", what they should be.
    """
    library.manual_seed(0)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.6, 1.8, (4, 4)) + 2 * np.eye(4) for _ in wanted]
    leaves = [library.tensor(a, requires_grad=want) for a, want in zip(arrays, wanted, strict=True)]
    inputs = [leaf * 1 for leaf in leaves]  # leaves could not be written
    result = PROGRAMS[name](library, functional, *inputs)
    try:
        if written == "nothing, twice":
            result = result * 2
        elif written == "result":
            result.mul_(2)
        elif written != "nothing":
            inputs[int(written.split()[1])].mul_(2)
        result.sum().backward()
    except RuntimeError:
        return None
    return [None if leaf.grad is None else np.asarray(leaf.grad) for leaf in leaves]


def record() -> None:
    """Write what PyTorch does."""
    import torch

    functional = torch.nn.functional
    refused = [label(*case) for case in cases() if trains(torch, functional, *case) is None]
    known = {"torch": torch.__version__, "refused": refused}
    RECORD.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    record()
