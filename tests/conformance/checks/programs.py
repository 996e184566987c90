"""Small programs for check 29: names, functions of two matrices, and what they are about.

Each gets ``x`` (3, 4) and ``y`` (4, 3), both float32, and may write to them. Programs in ``OPEN``
hold for every number of rows of ``x``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coredispatch as cd

__all__ = ["OPEN", "PROGRAMS"]

F = cd.nn.functional


def _normalized(x: Any, y: Any) -> Any:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()


def _row_write(x: Any, y: Any) -> Any:
    x[0] = y[:, 0]
    return x * 2


def _column_write(x: Any, y: Any) -> Any:
    column = x[:, 1]
    column += 1
    return x.sum(0), column


def _transposed_write(x: Any, y: Any) -> Any:
    x.t().add_(y)
    return x


def _part_of_a_part(x: Any, y: Any) -> Any:
    part = x[1:].t()[1:3]
    part.mul_(3)
    return part.sum(), x


def _chunk_write(x: Any, y: Any) -> Any:
    left, right = x.chunk(2, 1)
    left.copy_(right)
    right.zero_()
    return x + 1


def _diagonal_write(x: Any, y: Any) -> Any:
    square = x @ y
    square.diagonal().fill_(1.0)
    return square


def _kept_dtype(x: Any, y: Any) -> Any:
    z = x.clone()
    z.gt_(0.0)
    return z.sum(), z


def _masked_write(x: Any, y: Any) -> Any:
    z = x.clone()
    z[z > 0] = -1
    return z


def _old_value(x: Any, y: Any) -> Any:
    before = x[0] * 1
    x[0] += 5
    return before, x[0]


def _reshaped_write(x: Any, y: Any) -> Any:
    flat = x.view(-1)
    flat[::3] = 0
    return x, flat.sum()


def _optimizer(x: Any, y: Any) -> Any:
    momentum = cd.zeros_like(x)
    for _ in range(3):
        momentum.mul_(0.9).add_(x - y.t())
        x.sub_(momentum * 0.1)
    return x.norm()


def _twice(x: Any, y: Any) -> Any:
    return x.exp() + x.exp(), (x.exp() * 1).sum()


def _made_and_written(x: Any, y: Any) -> Any:
    total = cd.zeros(4, device=x.device)
    total += x.sum(0)
    return total * 1, cd.zeros(4, device=x.device) + 1


def _random(x: Any, y: Any) -> Any:
    noise = cd.rand(3, 4, device=x.device) - cd.rand(3, 4, device=x.device)
    return x * noise, F.dropout(x, 0.5)


def _attention(x: Any, y: Any) -> Any:
    q = x[None]
    return F.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True)


def _mlp(x: Any, y: Any) -> Any:
    return F.gelu(x @ y) @ y.t()


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "chain": lambda x, y: ((x * 2 + 1).tanh() - x).abs(),
    "twice the same": _twice,
    "normalized": _normalized,
    "softmax": lambda x, y: x.softmax(-1) @ y,
    "log softmax": lambda x, y: F.nll_loss(x.log_softmax(-1), x.argmax(-1)),
    "layer norm": lambda x, y: F.layer_norm(x, (4,)),
    "rms norm": lambda x, y: F.rms_norm(x, (4,)),
    "cross entropy": lambda x, y: F.cross_entropy(x, x.argmax(1), label_smoothing=0.1),
    "attention": _attention,
    "mlp": _mlp,
    "convolution": lambda x, y: F.conv1d(x[None], y.t()[:2, None, :3].expand(2, 3, 3)),
    "pooling": lambda x, y: F.max_pool2d(x[None, None], 2, 1) + F.avg_pool2d(x[None, None], 2, 1),
    "embedding": lambda x, y: F.embedding(y.argmax(0), y),
    "gather": lambda x, y: x.gather(1, y.argmax(0)[:, None]),
    "scatter": lambda x, y: x.scatter_add(1, y.argmax(0)[:, None], x[:, :1]),
    "top": lambda x, y: x.topk(2, 1),
    "sorted": lambda x, y: x.sort(0, descending=True),
    "statistics": lambda x, y: (x.std(0), x.var(1), x.amax(), x.norm(dim=1), x.logsumexp(0)),
    "cumulative": lambda x, y: x.cumsum(0) + x.cumprod(0),
    "comparisons": lambda x, y: cd.where((x > y.t()) | (x < 0), x, y.t()).clamp(-1, 1),
    "integers": lambda x, y: (x * 10).long() // 3 % 4 + cd.arange(4, device=x.device),
    "dtypes": lambda x, y: (x.double() * 2, x.sum(0, dtype=cd.float64), x.half().float()),
    "broadcast": lambda x, y: x[:, None, :] * y.t()[None] + y[0, 0],
    "joined": lambda x, y: cd.cat([x, y.t()], 1).reshape(4, 6).permute(1, 0),
    "stacked": lambda x, y: cd.stack([x, y.t()]).unbind(1)[1],
    "padded": lambda x, y: F.pad(x, (1, 2, 0, 1), value=3.0).roll(1, 0).flip(1),
    "triangles": lambda x, y: (x @ y).tril() + (x @ y).triu(1) * 2,
    "einsum": lambda x, y: cd.einsum("ij,jk,ik->i", x, y, x @ y),
    "factories": lambda x, y: cd.eye(3, device=x.device) @ x + cd.full_like(x, 0.25),
    "made and written": _made_and_written,
    "random": _random,
    "row written": _row_write,
    "column written": _column_write,
    "written transposed": _transposed_write,
    "part of a part written": _part_of_a_part,
    "chunk written": _chunk_write,
    "diagonal written": _diagonal_write,
    "dtype kept": _kept_dtype,
    "mask written": _masked_write,
    "old value kept": _old_value,
    "reshaped written": _reshaped_write,
    "optimizer": _optimizer,
}
OPEN = (
    "chain", "normalized", "softmax", "layer norm", "rms norm", "attention", "mlp", "statistics",
    "cumulative", "padded", "made and written", "column written",
)  # fmt: skip
