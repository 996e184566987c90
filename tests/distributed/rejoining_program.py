"""Leaves the default group and joins it again, some ranks earlier than others."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.distributed.distributed_c10d import _get_default_store

where: dict[str, Any] = {}
if len(sys.argv) > 1:
    where = {
        "init_method": sys.argv[1],
        "rank": int(os.environ["RANK"]),
        "world_size": int(os.environ["WORLD_SIZE"]),
    }
kept = []
for turn in range(6):
    dist.init_process_group("gloo", **where)
    rank, size = dist.get_rank(), dist.get_world_size()
    total = cd.tensor([rank + turn])
    dist.all_reduce(total)
    assert total.item() == sum(range(size)) + size * turn
    part = dist.new_group(list(range(size - 1)))
    if rank < size - 1:
        dist.broadcast(total, 0, group=part)
    if turn == 2:
        _get_default_store().set(f"from {rank}", "")
        _get_default_store().wait([f"from {other}" for other in range(size)])
        dist.barrier()
    if turn % 2:
        kept.append((dist.group.WORLD, _get_default_store()))
        dist.barrier()
    if rank == turn % size:
        time.sleep(0.02)
    dist.destroy_process_group()
    if rank == (turn // 2) % size:
        time.sleep(0.02)
print(f"rank {rank} joined {turn + 1} times")
