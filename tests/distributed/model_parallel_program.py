"""Sharded, tensor-parallel, both, and pipelined: the losses of one process, on several ranks.

Three models: a perceptron, a convolutional net with normalization over the batch, and a small GPT.
"""

from __future__ import annotations

import sys
from typing import Any

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.fsdp import full_state_dict, fully_shard
from coredispatch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from coredispatch.distributed.tensor import Replicate, Shard
from coredispatch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

BATCH, STEPS, WORDS, WIDTH, HEADS, TIME = 12, 4, 11, 16, 4, 8


class Attention(nn.Module):
    """Causal attention whose heads are as many as the projections give."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.k = nn.Linear(WIDTH, WIDTH, bias=False)  # the softmax does not see a bias of keys

    def forward(self, x: Any) -> Any:
        batch, time = x.shape[0], x.shape[1]
        q, k, v = (
            part(x).view(batch, time, -1, WIDTH // HEADS).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, time, -1))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = Attention()
        self.up, self.down = nn.Linear(WIDTH, 13), nn.Linear(13, WIDTH)

    def forward(self, x: Any) -> Any:
        x = x + self.attend(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def next_word(out: Any, target: Any) -> Any:
    return nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())


def fresh(kind: str) -> tuple[Any, Any, Any, Any]:
    """A model, inputs and targets of all steps, and the loss."""
    cd.manual_seed(11)
    if kind == "gpt":
        layers = [nn.Embedding(WORDS, WIDTH), Block(), Block(), nn.LayerNorm(WIDTH)]
        tokens = cd.randint(0, WORDS, (STEPS, BATCH, TIME + 1))
        model = nn.Sequential(*layers, nn.Linear(WIDTH, WORDS))
        return model, tokens[:, :, :-1], tokens[:, :, 1:], next_word
    if kind == "mlp":
        model = nn.Sequential(nn.Linear(5, 30), nn.Tanh(), nn.Linear(30, 7), nn.Linear(7, 2))
        return model, cd.randn(STEPS, BATCH, 5), cd.randn(STEPS, BATCH, 2), nn.MSELoss()
    # A bias before the norm would have a gradient of rounding errors, which Adam scales up.
    norm = nn.BatchNorm2d(4) if kind == "cnn" else nn.GroupNorm(2, 4)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        norm,
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 9),
        nn.Linear(9, 3),
    )
    x, y = cd.randn(STEPS, BATCH, 1, 6, 6), cd.randint(0, 3, (STEPS, BATCH))
    return model, x, y, nn.CrossEntropyLoss()


def close(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    assert len(a) == len(b)
    assert all(abs(p - q) <= tolerance * (1 + abs(q)) for p, q in zip(a, b, strict=True)), (a, b)


def values(losses: list[Any]) -> list[float]:
    return [loss.item() for loss in losses]


def train(kind: str, prepare: Any, share: slice) -> tuple[list[Any], Any]:
    model, x, y, loss_of = fresh(kind)
    model = prepare(model)
    opt = cd.optim.Adam(model.parameters(), lr=0.01)
    found = []
    for step in range(STEPS):
        opt.zero_grad()
        loss = loss_of(model(x[step, share]), y[step, share])
        loss.backward()
        opt.step()
        found.append(loss.detach())
    return found, model


def sharded(kind: str, rank: int, size: int) -> None:
    expected, reference = train(kind, lambda m: m, slice(None))
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    meshes: list[Any] = [None]
    if size == 4:  # two copies of what two ranks shard
        meshes.append(dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts")))
    for mesh in meshes:
        for keep in (True, False):

            def prepare(model: Any, keep: bool = keep, mesh: Any = mesh) -> Any:
                model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
                for layer in model:
                    if list(layer.parameters()):
                        fully_shard(layer, mesh=mesh, reshard_after_forward=keep)
                return fully_shard(model, mesh=mesh, reshard_after_forward=keep)

            found, model = train(kind, prepare, share)
            held = sum(p.to_local().numel() for p in model.parameters())
            parts = size if mesh is None else 2
            assert held <= sum(p.numel() for p in reference.parameters()) // parts + 100
            for loss in found:
                dist.all_reduce(loss, dist.ReduceOp.AVG)
            close(values(found), values(expected))
            state = full_state_dict(model)
            for name, value in reference.state_dict().items():
                close(state[name].flatten().tolist(), value.flatten().tolist(), 5e-4)


def plans(kind: str) -> list[Any]:
    """How layers are divided; of the GPT also with the sequence in parts between the blocks."""
    whole = {"output_layouts": Replicate()}
    if kind == "mlp":
        return [{"0": ColwiseParallel(), "2": RowwiseParallel(), "3": ColwiseParallel(**whole)}]
    if kind == "cnn":
        return [{"4": ColwiseParallel(), "5": RowwiseParallel()}]
    columns = {f"{b}.attend.{p}": ColwiseParallel() for b in (1, 2) for p in "qkv"}
    blocks = columns | {"*.up": ColwiseParallel()}
    rows = {"*.attend.out": RowwiseParallel(), "*.down": RowwiseParallel()}
    replicated = {"input_layouts": Replicate()}
    parts = {"output_layouts": Shard(1)}
    gathered = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
    return [
        {"0": RowwiseParallel(**replicated), **blocks, **rows, "4": ColwiseParallel(**whole)},
        {"0": ColwiseParallel(**whole), **blocks, **rows},
        {
            "0": RowwiseParallel(**replicated, **parts),
            "*.norm1": SequenceParallel(),
            "*.norm2": SequenceParallel(),
            "3": SequenceParallel(),
            "*.attend": gathered,
            "*.up": ColwiseParallel(input_layouts=Shard(1)),
            **columns,
            "*.attend.out": RowwiseParallel(**parts),
            "*.down": RowwiseParallel(**parts),
            "4": ColwiseParallel(input_layouts=Shard(1), **whole),
        },
    ]


def tensor_parallel(kind: str, rank: int, size: int) -> None:
    expected, reference = train(kind, lambda m: m, slice(None))
    mesh = dist.init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    for plan in plans(kind):
        found, model = train(
            kind, lambda m, p=plan: parallelize_module(m, mesh["tp"], p), slice(None)
        )
        close(values(found), values(expected))
        state = full_state_dict(model)
        for name, value in reference.state_dict().items():
            close(state[name].flatten().tolist(), value.flatten().tolist(), 5e-4)


def sharded_tensor_parallel(kind: str, rank: int, size: int) -> None:
    """Layers divided over the columns of a mesh, and their parts sharded over its rows."""
    if size != 4:
        return
    expected, reference = train(kind, lambda m: m, slice(None))
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    row = mesh["dp"].get_local_rank()
    share = slice(row * BATCH // 2, (row + 1) * BATCH // 2)
    for plan in plans(kind):

        def prepare(model: Any, plan: Any = plan) -> Any:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model, mesh.get_group("dp"))
            parallelize_module(model, mesh["tp"], plan)
            for layer in model:
                if list(layer.parameters()):
                    fully_shard(layer, mesh=mesh["dp"])
            return fully_shard(model, mesh=mesh["dp"])

        found, model = train(kind, prepare, share)
        for loss in found:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
        close(values(found), values(expected))
        state = full_state_dict(model)
        for name, value in reference.state_dict().items():
            close(state[name].flatten().tolist(), value.flatten().tolist(), 5e-4)


def pipelined(kind: str, rank: int, size: int) -> None:
    kind = "cnn by groups" if kind == "cnn" else kind  # a part of a batch has other statistics
    expected, _ = train(kind, lambda m: m, slice(None))
    for schedule_of in (ScheduleGPipe, Schedule1F1B):
        model, x, y, loss_of = fresh(kind)
        layers = list(model)
        per = -(-len(layers) // size)
        mine = nn.Sequential(*layers[rank * per : (rank + 1) * per])
        stage = PipelineStage(mine, rank, size)
        schedule = schedule_of(stage, n_microbatches=4, loss_fn=loss_of)
        opt = cd.optim.Adam(mine.parameters(), lr=0.01) if list(mine.parameters()) else None
        found = []
        for step in range(STEPS):
            mine.zero_grad()
            losses: list[Any] = []
            args = (x[step],) if rank == 0 else ()
            out = schedule.step(*args, target=y[step] if stage.is_last else None, losses=losses)
            if opt is not None:
                opt.step()
            if stage.is_last:
                assert out.shape[0] == BATCH
                found.append(sum(t.item() for t in losses) / 4)
        if stage.is_last:
            close(found, values(expected))


def check_all() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for form in (sharded, tensor_parallel, sharded_tensor_parallel, pipelined):
        for kind in ("mlp", "cnn", "gpt"):
            form(kind, rank, size)
            dist.barrier()
    engine = dist.group.WORLD.communicators["cpu"].name
    print(f"rank {rank} of {size} over {engine}: parallel models agree")


def spawned(rank: int, size: int, where: str) -> None:
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size)
    check_all()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        cd.multiprocessing.spawn(spawned, (int(sys.argv[2]), sys.argv[3]), nprocs=int(sys.argv[2]))
    else:
        dist.init_process_group(sys.argv[1])
        check_all()
        dist.destroy_process_group()
