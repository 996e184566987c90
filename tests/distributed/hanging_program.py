"""Rank 1 does something else while rank 0 waits in a collective of MPI."""

from __future__ import annotations

import time
from datetime import timedelta

import coredispatch as cd
import coredispatch.distributed as dist

dist.init_process_group("mpi", timeout=timedelta(seconds=1))
if dist.get_rank() == 0:
    try:
        dist.recv(cd.ones(2), src=1)
    except dist.DistBackendError as error:
        print(f"message: {error}", flush=True)
    dist.all_reduce(cd.ones(3))
else:
    time.sleep(600)
