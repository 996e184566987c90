"""Adds up 0, 1, 2, ...: alone until another machine has joined, then to the end."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.distributed.elastic import ElasticState, restart_count

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
state = ElasticState(folder / "state", step=0, total=0, alone=0)
state.register_reset_callback(lambda before, now: print(f"from {before} ranks to {now}"))
state.restore()
while size == 1 or state.step < state.alone + 5:
    part = cd.tensor([state.step if rank == size - 1 else 0])
    dist.all_reduce(part)
    state.total += part.item()
    state.step += 1
    state.alone += size == 1
    state.commit()
    (folder / "begun").touch()
    if size == 1:
        time.sleep(0.05)
assert state.total == state.step * (state.step - 1) // 2
print(f"rank {rank} of {size} ended {state.step - state.alone} steps later, "
      f"{restart_count()} restarts")  # fmt: skip
dist.destroy_process_group()
