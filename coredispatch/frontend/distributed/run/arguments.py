"""torchrun's command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

__all__ = ["get_args_parser", "local_ranks", "parse_args", "streams"]


def get_args_parser() -> argparse.ArgumentParser:
    """The parser: torchrun's arguments, ``PET_*`` variables as their defaults."""
    parser = argparse.ArgumentParser(
        prog="coredispatch launch",
        description="Start the ranks of a job on this machine, and end all when one fails.",
    )

    def add(*names: str, **details: object) -> None:
        long = next(n for n in names if n.startswith("--"))
        variable = "PET_" + long[2:].replace("-", "_").upper()
        if variable in os.environ and details.get("action") != "store_true":
            details["default"] = os.environ[variable]
        both = dict.fromkeys([*names, long, "--" + long[2:].replace("-", "_")])
        parser.add_argument(*both, **details)  # type: ignore[arg-type]

    add("--nnodes", default="1:1", help="machines: a number, or min:max, which may join later")
    add("--nproc-per-node", default="1", help="ranks on this machine: a number, auto, cpu or gpu")
    add("--rdzv-backend", default="static", help="static or c10d; the ranks meet at the endpoint")
    add("--rdzv-endpoint", default="", help="host:port where the ranks meet")
    add("--rdzv-id", default="none", help="a name for the job")
    add("--rdzv-conf", default="", help="join_timeout=,last_call_timeout=,keep_alive_timeout=")
    add("--standalone", action="store_true", help="one machine, a free port")
    add("--max-restarts", type=int, default=0, help="how often to start again after a failure")
    add("--monitor-interval", type=float, default=0.1, help="seconds between looks at the ranks")
    add("--start-method", default="spawn", help="accepted; ranks are processes of their own")
    add("--event-log-handler", default="null", help="accepted; unused")
    add("--role", default="default", help="a name in the prefix of shown lines")
    add("-m", "--module", action="store_true", help="the script is a module, as in python -m")
    add("--no-python", action="store_true", help="the script is any program")
    add("--run-path", action="store_true", help="accepted; scripts always run in the rank itself")
    add("--log-dir", default=None, help="keep the output of each rank below this folder")
    add("-r", "--redirects", default="0", help="1 stdout, 2 stderr, 3 both: only into files")
    add("-t", "--tee", default="0", help="as --redirects, but also shown, with the rank in front")
    add("--local-ranks-filter", default="", help="show these ranks only: 0,1")
    add("--node-rank", type=int, default=0, help="which machine this is, from 0")
    add("--master-addr", default="127.0.0.1", help="address of the machine of rank 0")
    add("--master-port", type=int, default=None, help="its port; a free one by default")
    add("--local-addr", default=None, help="accepted; unused")
    add("--dashboard", action="store_true", help="show what the ranks do: samples/s, who is slow")
    add("--shutdown-timeout", type=float, default=30, help="seconds from SIGTERM to SIGKILL")
    add(
        "--launcher",
        default="auto",
        choices=["auto", "mpi", "processes"],
        help="start ranks by mpiexec, or as processes that meet by sockets",
    )
    parser.add_argument("training_script", help="a Python script, followed by its arguments")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    parser.set_defaults(pass_local_rank=False)
    return parser


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line."""
    return get_args_parser().parse_args(args)


def local_ranks(text: str) -> int:
    """How many ranks ``--nproc-per-node`` means. ValueError for what is no number."""
    if text in ("auto", "cpu", "gpu"):
        if text != "cpu":
            from coredispatch.frontend import cuda

            if cuda.is_available():
                return int(cuda.device_count())
            if text == "gpu":
                raise ValueError("--nproc-per-node gpu: there is no CUDA device here")
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"--nproc-per-node {text!r} is neither a number nor auto, cpu or gpu")
    return count


def streams(text: str, rank: int) -> int:
    """Bits of ``--redirects`` or ``--tee`` for a rank: ``"3"``, or ``"0:1,1:2"``."""
    if text.isdecimal():
        return int(text) & 3
    pairs = dict(pair.split(":") for pair in text.split(","))
    return int(pairs.get(str(rank), 0)) & 3
