"""Training that survives the loss of a rank: one is killed on purpose, and the job ends well.

    coredispatch launch --nproc-per-node 2 --max-restarts 3 examples/elastic.py

The launcher ends the round when a rank is lost and starts all again; they go on from the last
commit. So does a second job: to begin anew, remove the folder ``build/elastic``.
"""

from __future__ import annotations

import argparse
import os
import signal

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.elastic import ElasticState, restart_count
from coredispatch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Fit a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint", default="build/elastic")
    parser.add_argument(
        "--lose-at", type=int, default=25, help="the step at which rank 1 is killed"
    )
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cd.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(3, 1))
    optimizer = cd.optim.Adam(model.parameters(), lr=0.1)
    state = ElasticState(options.checkpoint, model, optimizer, step=0, loss=0.0)
    if state.restore() and rank == 0:
        print(f"round {restart_count()} goes on after step {state.step} of {options.checkpoint}")
    truth = cd.tensor([[1.0], [-2.0], [3.0]])
    while state.step < options.steps:
        x = cd.randn(16, 3, generator=cd.Generator().manual_seed(1000 * state.step + rank))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x @ truth)
        loss.backward()
        optimizer.step()
        state.step, state.loss = state.step + 1, loss.item()
        if state.step % 10 == 0:
            state.commit()
        if state.step == options.lose_at and rank == 1 and restart_count() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        print(f"done after {state.step} steps in round {restart_count()}: loss {state.loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
