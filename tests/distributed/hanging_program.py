"""Rank 1 does something else while rank 0 waits in a collective of MPI.

    hanging_program.py FILE

Rank 0 writes what the errors say to FILE: what a rank prints just before it ends all others
may be lost on its way through ``mpiexec``.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import coredispatch as cd
import coredispatch.distributed as dist

dist.init_process_group("mpi", timeout=timedelta(seconds=1))
if dist.get_rank() == 0:
    messages = []
    try:
        dist.recv(cd.ones(2), src=1)
    except dist.DistBackendError as error:
        messages.append(str(error))
    try:
        dist.all_reduce(cd.ones(3))
    except dist.DistBackendError as error:
        messages.append(str(error))
        Path(sys.argv[1]).write_text(json.dumps(messages))
        raise
else:
    time.sleep(600)
