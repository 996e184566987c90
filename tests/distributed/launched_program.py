"""What a user launches: says who it is, and fails as it is told to."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.distributed.distributed_c10d import _get_default_store

parser = argparse.ArgumentParser()
parser.add_argument("--fail", default="")
parser.add_argument("--once", default="")
parser.add_argument("--local-rank", type=int, default=None)
options = parser.parse_args()

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert (str(rank), str(size)) == (os.environ["RANK"], os.environ["WORLD_SIZE"])
assert dist.is_torchelastic_launched() and dist.get_node_local_rank() == rank
x = cd.tensor([rank + 1])
dist.all_reduce(x)
store = _get_default_store()
store.set(f"from {rank}", str(size))
assert store.get("from 0") == str(size).encode()
engine = dist.group.WORLD.communicators["cpu"].name
print(f"rank {rank} of {size} sees {x.item()} over {engine}")
print(f"restarts {os.environ['TORCHELASTIC_RESTART_COUNT']} local rank {options.local_rank}")
print(f"to stderr from {rank}", file=sys.stderr)
if rank == 1 and not (options.once and Path(options.once).exists()):
    if options.once:
        Path(options.once).touch()
    if options.fail == "raise":
        raise RuntimeError("this rank cannot go on")
    if options.fail == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if options.fail == "exit":
        sys.exit(7)
if options.fail == "hang" and rank == 1:
    time.sleep(1000)
dist.barrier()
dist.destroy_process_group()
