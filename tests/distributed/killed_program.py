"""Sharded training that commits each step and keeps a diary; the test kills a rank of it.

    killed_program.py FOLDER

The diary has a line for each commit that has returned, and for each state that was restored.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.elastic import ElasticState
from coredispatch.distributed.fsdp import full_state_dict, fully_shard

STEPS, BATCH = 12, 8


def model_and_optimizer(prepare: Any = None) -> tuple[Any, Any]:
    """The same on all ranks, and in the test."""
    cd.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 2))
    model = model if prepare is None else prepare(model)
    return model, cd.optim.Adam(model.parameters(), lr=0.05)


def train(model: Any, optimizer: Any, step: int, share: slice) -> None:
    x = cd.randn(BATCH, 4, generator=cd.Generator().manual_seed(step))
    optimizer.zero_grad()
    model(x[share]).square().mean().backward()
    optimizer.step()


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    def note(what: str) -> None:
        if rank == 0:
            with open(folder / "diary", "a") as file:
                file.write(f"{what}\n")

    model, optimizer = model_and_optimizer(fully_shard)
    state = ElasticState(folder / "state", model, optimizer, step=0)
    state.restore()
    note(f"restored {state.step}")
    while state.step < STEPS:
        train(model, optimizer, state.step, slice(rank * BATCH // size, (rank + 1) * BATCH // size))
        state.step += 1
        state.commit()
        note(f"committed {state.step}")
    whole = full_state_dict(model)
    if rank == 0:
        cd.save(whole, folder / "end.cd")
        print(f"ended after {state.step} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
