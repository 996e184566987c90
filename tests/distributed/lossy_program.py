"""Adds up 0 .. 29 over steps; as often as it is told, a rank is killed at a random moment."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.distributed.elastic import ElasticState, restart_count

folder, losses = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), restart_count()
if attempt < losses and rank == attempt % dist.get_world_size():

    def die() -> None:
        time.sleep(random.Random(attempt).uniform(0.0, 0.15))
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=die, daemon=True).start()
state = ElasticState(folder, step=0, total=0)
state.restore()
while state.step < 30 or attempt < losses:
    part = cd.tensor([state.step if rank == 0 else 0])
    dist.all_reduce(part)
    if state.step < 30:
        state.total += part.item()
        state.step += 1
        state.commit()
if rank == 0:
    print(f"ended after {state.step} steps with the sum {state.total}")
dist.destroy_process_group()
