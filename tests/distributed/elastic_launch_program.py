"""Launches a function of its own main module, and prints what came back."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.distributed.elastic.multiprocessing.errors import ChildFailedError
from coredispatch.distributed.launcher.api import LaunchConfig, elastic_launch


def work(how: str, amount: float) -> Any:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = cd.tensor([amount * (rank + 1)])
    dist.all_reduce(total)
    if rank == 1 and how == "raise":
        raise ValueError("this rank cannot go on")
    if rank == 1 and how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and how == "once" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit(7)
    dist.barrier()
    dist.destroy_process_group()
    return rank, total.item()


if __name__ == "__main__":
    how, launcher = sys.argv[1:]
    config = LaunchConfig(
        1, 1, 2, max_restarts=int(how == "once"), monitor_interval=0.01, launcher=launcher
    )
    try:
        print(elastic_launch(config, work)(how, 0.5))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(error.name, rank, failure.exitcode, failure.signal_name())
        print("this rank cannot go on" in failure.message and "this rank" in str(error))
