"""Modules on DTensors of two ranks: results, gradients and buffers of one process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from seeding import seeded

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from coredispatch.frontend.utils._pytree import tree_flatten

pytestmark = pytest.mark.once

DOUBLE: dict[str, Any] = {"dtype": cd.float64}
FIRST: dict[str, Any] = {"batch_first": True, **DOUBLE}


def values(*shape: int) -> Any:
    return cd.tensor(np.random.default_rng(list(shape)).standard_normal(shape))


def whole(high: int, *shape: int) -> Any:
    return cd.tensor(np.random.default_rng(high).integers(0, high, shape))


class Masked(nn.Module):
    """A module that gets its last argument by name."""

    def __init__(self, inner: nn.Module, name: str) -> None:
        super().__init__()
        self.inner, self.name = inner, name

    def forward(self, *args: Any) -> Any:
        return self.inner(*args[:-1], **{self.name: args[-1]})


QUERY = values(4, 3, 8)
CAUSAL = cd.ones(3, 3).triu(1).bool()
PADDING = cd.tensor([[False, False, True]] * 4)

MODULES: dict[str, tuple[Callable[[], nn.Module], list[Any]]] = {
    "attention": (lambda: nn.MultiheadAttention(8, 2, **FIRST), [QUERY] * 3),
    "causal attention": (
        lambda: Masked(nn.MultiheadAttention(8, 2, **FIRST), "attn_mask"),
        [QUERY, QUERY, QUERY, CAUSAL],
    ),
    "padded attention": (
        lambda: Masked(nn.MultiheadAttention(8, 2, **FIRST), "key_padding_mask"),
        [QUERY, QUERY, QUERY, PADDING],
    ),
    "encoder": (
        lambda: Masked(nn.TransformerEncoderLayer(8, 2, 16, 0.0, **FIRST), "src_mask"),
        [QUERY, CAUSAL],
    ),
    "decoder": (
        lambda: nn.TransformerDecoderLayer(8, 2, 16, 0.0, **FIRST),
        [QUERY, values(4, 5, 8)],
    ),
    "lstm": (lambda: nn.LSTM(4, 3, 2, bidirectional=True, **FIRST), [values(4, 5, 4)]),
    "gru": (lambda: nn.GRU(4, 3, **DOUBLE), [values(4, 5, 4)]),
    "convolution": (
        lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular", **DOUBLE),
        [values(4, 4, 5, 5)],
    ),
    "batch_norm": (lambda: nn.BatchNorm1d(3, **DOUBLE), [values(4, 3, 5)]),
    "instance_norm": (
        lambda: nn.InstanceNorm2d(3, track_running_stats=True, **DOUBLE),
        [values(4, 3, 5, 5)],
    ),
    "fractional pooling": (
        lambda: nn.FractionalMaxPool2d(2, output_size=3),
        [values(4, 3, 6, 6)],
    ),
    "bicubic": (lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), [values(4, 3, 4, 4)]),
    "ctc": (
        lambda: nn.CTCLoss(),
        [
            values(6, 4, 5).log_softmax(2),
            whole(4, 4, 3) + 1,
            cd.tensor([6, 6, 5, 6]),
            cd.tensor([3, 2, 3, 1]),
        ],
    ),
    "cross_entropy": (
        lambda: nn.CrossEntropyLoss(
            label_smoothing=0.1, weight=cd.tensor([0.5, 1.0, 2.0]).double()
        ),
        [values(4, 3), whole(3, 4)],
    ),
    "embedding_bag": (lambda: nn.EmbeddingBag(7, 3, mode="mean", **DOUBLE), [whole(7, 4, 5)]),
    "orthogonal": (
        lambda: nn.utils.parametrizations.orthogonal(nn.Linear(3, 3, **DOUBLE)),
        [values(4, 3)],
    ),
}


def computed(module: nn.Module, inputs: list[Any]) -> list[Any]:
    """Results, gradients of parameters and inputs, and buffers."""
    results = [x for x in tree_flatten(module(*inputs))[0] if isinstance(x, cd.Tensor)]
    loss: Any = sum((x * x).sum() for x in results if x.requires_grad)
    leaves = [x for x in [*module.parameters(), *inputs] if x.requires_grad]
    return [*results, *cd.autograd.grad(loss, leaves), *module.buffers()]


@pytest.mark.parametrize("name", MODULES)
def test_module(name: str) -> None:
    make, inputs = MODULES[name]
    with seeded(2):
        module = make()

    def leaf(tensor: Any, placed: Any) -> Any:
        return placed.requires_grad_(tensor.is_floating_point())

    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        for layout in (Replicate(), Shard(0)):
            mine = distribute_module(copy.deepcopy(module), mesh)
            given = [
                leaf(x, distribute_tensor(x, mesh, [layout], src_data_rank=None)) for x in inputs
            ]
            found = computed(mine, given)
            for ours, want in zip(found, expected, strict=True):
                assert isinstance(ours, DTensor)
                detached: Any = ours.detach()
                cd.testing.assert_close(detached.full_tensor(), want.detach())
            dist.barrier()
            if rank == 0:
                cd.manual_seed(6)
            dist.barrier()

    with seeded(6):
        expected = computed(copy.deepcopy(module), [leaf(x, x.clone()) for x in inputs])
    with seeded(6):
        dist.threads.spawn(program, nprocs=2)
