"""What programs call all day beside the calls of ``dispatch.py``: on 64 float32 elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["calls"]


def calls(lib: Any) -> dict[str, Callable[[], Any]]:
    """The calls of a library, by name."""
    f = lib.nn.functional
    x, y = lib.zeros(64), lib.ones(64)
    square, batch = x.view(8, 8), y.view(1, 8, 8)
    counts, one = lib.arange(64), lib.tensor(0)
    norm = lib.nn.BatchNorm2d(16)
    image = lib.randn(16, 16, 8, 8)
    mask = y > 2
    return {
        "int tensor + 1": lambda: counts + 1,
        "add_ of 1 to a counter": lambda: one.add_(1),
        "1 - x": lambda: 1 - x,
        "x / 3": lambda: x / 3,
        "-x": lambda: -x,
        "x ** 2": lambda: x**2,
        "x == 1": lambda: x == 1,
        "add_, alpha": lambda: x.add_(y, alpha=-1e-3),
        "addcmul_": lambda: x.addcmul_(y, y, value=1e-3),
        "addcdiv_": lambda: x.addcdiv_(y, y, value=1e-3),
        "lerp_": lambda: x.lerp_(y, 0.1),
        "mul_, add_": lambda: x.mul_(0.9).add_(y),
        "copy_": lambda: x.copy_(y),
        "zero_": lambda: x.zero_(),
        "clamp_": lambda: x.clamp_(-1, 1),
        "sqrt": lambda: y.sqrt(),
        "exp": lambda: x.exp(),
        "where": lambda: lib.where(mask, x, y),
        "masked_fill": lambda: x.masked_fill(mask, 0.0),
        "max": lambda: x.max(),
        "max of rows": lambda: square.max(1),
        "argmax": lambda: x.argmax(),
        "any": lambda: mask.any(),
        "norm": lambda: x.norm(),
        "mean of rows": lambda: square.mean(-1),
        "sum of rows, keepdim": lambda: square.sum(-1, keepdim=True),
        "cumsum": lambda: x.cumsum(0),
        "stack": lambda: lib.stack([x, y]),
        "unsqueeze": lambda: x.unsqueeze(0),
        "reshape": lambda: x.reshape(8, 8),
        "expand": lambda: x.expand(3, 64),
        "split": lambda: x.split(32),
        "index by a list": lambda: x[[0, 1]],
        "set an element": lambda: x.__setitem__(0, 1.0),
        "double()": lambda: x.double(),
        "clone": lambda: x.clone(),
        "detach": lambda: x.detach(),
        "zeros": lambda: lib.zeros(8, 8),
        "randn": lambda: lib.randn(8, 8),
        "arange": lambda: lib.arange(10),
        "tensor": lambda: lib.tensor([1.0, 2.0]),
        "bmm": lambda: lib.bmm(batch, batch),
        "dropout": lambda: f.dropout(x, 0.5),
        "gelu": lambda: f.gelu(x),
        "mse_loss": lambda: f.mse_loss(x, y),
        "batch norm, training": lambda: norm(image),
    }
