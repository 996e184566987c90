"""Sharded, tensor-parallel and pipelined: the losses of one process, on several ranks."""

from __future__ import annotations

import sys
from typing import Any

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.fsdp import full_state_dict, fully_shard
from coredispatch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from coredispatch.distributed.tensor import Replicate
from coredispatch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

BATCH, STEPS, WORDS, WIDTH = 12, 4, 11, 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 13), nn.Linear(13, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.blocks(self.embed(tokens)))


def loss_of(out: Any, target: Any) -> Any:
    return nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())


def fresh() -> tuple[Any, Any, Any]:
    cd.manual_seed(11)
    tokens = cd.randint(0, WORDS, (STEPS, BATCH, 6))
    return Model(), tokens[:, :, :-1], tokens[:, :, 1:]


def close(a: Any, b: Any, tolerance: float = 2e-6) -> None:
    assert len(a) == len(b)
    assert all(abs(p - q) <= tolerance * (1 + abs(q)) for p, q in zip(a, b, strict=True)), (a, b)


def train(prepare: Any, share: slice) -> tuple[list[float], Any]:
    model, x, y = fresh()
    prepare(model)
    opt = cd.optim.Adam(model.parameters(), lr=0.01)
    found = []
    for step in range(STEPS):
        opt.zero_grad()
        loss = loss_of(model(x[step, share]), y[step, share])
        loss.backward()
        opt.step()
        found.append(loss.detach())
    return found, model


def sharded(rank: int, size: int) -> None:
    expected, reference = train(lambda m: None, slice(None))
    share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    for keep in (True, False):

        def prepare(model: Any, keep: bool = keep) -> None:
            for block in model.blocks:
                fully_shard(block, reshard_after_forward=keep)
            fully_shard(model, reshard_after_forward=keep)
            total = sum(p.numel() for p in model.parameters())
            whole = sum(p.numel() for p in Model().parameters())
            assert total <= whole // size + 200, (total, whole)

        found, model = train(prepare, share)
        for loss in found:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
        close([t.item() for t in found], [t.item() for t in expected])
        state = full_state_dict(model)
        for name, value in reference.state_dict().items():
            close(state[name].flatten().tolist(), value.flatten().tolist(), 2e-4)


def tensor_parallel(rank: int, size: int) -> None:
    expected, reference = train(lambda m: None, slice(None))
    mesh = dist.init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    for embedding in (RowwiseParallel(input_layouts=Replicate()),
                      ColwiseParallel(output_layouts=Replicate())):  # fmt: skip

        def prepare(model: Any, embedding: Any = embedding) -> None:
            plan = {
                "embed": embedding,
                "blocks.*.up": ColwiseParallel(),
                "blocks.*.down": RowwiseParallel(),
                "head": ColwiseParallel(output_layouts=Replicate()),
            }
            parallelize_module(model, mesh["tp"], plan)

        found, model = train(prepare, slice(None))
        close([t.item() for t in found], [t.item() for t in expected])
        ours, theirs = model.blocks[0].norm.weight, reference.blocks[0].norm.weight
        close(ours.tolist(), theirs.tolist(), 2e-4)


def pipelined(rank: int, size: int) -> None:
    expected, _ = train(lambda m: None, slice(None))
    for kind in (ScheduleGPipe, Schedule1F1B):
        model, x, y = fresh()
        layers = [model.embed, *model.blocks, model.head]
        per = -(-len(layers) // size)
        mine = nn.Sequential(*layers[rank * per : (rank + 1) * per])
        stage = PipelineStage(mine, rank, size)
        schedule = kind(stage, n_microbatches=4, loss_fn=loss_of)
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
                assert out.shape == (BATCH, 5, WORDS)
                found.append(sum(t.item() for t in losses) / 4)
        if stage.is_last:
            close(found, [t.item() for t in expected])


def check_all() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for check in (sharded, tensor_parallel, pipelined):
        check(rank, size)
        dist.barrier()
    print(f"rank {rank} of {size} over {dist.get_backend_config()}: parallel models agree")


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
