"""Two ranks, coredispatch over MPI beside PyTorch over gloo, in one run of the same processes.

    python benchmarks/distributed.py [--ranks 2] [--json FILE] [--only all_reduce|training]

Reports the time of ``all_reduce`` by size, the time of a training step of a convolutional net under
DistributedDataParallel in both, how it scales, and what the wrapper costs a rank that is alone. All
traffic stays on this machine. PyTorch is needed (``pip install coredispatch[bench]``), and a core
for each rank. What is compared runs in turns. Of each the median is shown, and the best tenth: on a
busy machine the median says how long ranks waited for a core rather than for each other.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"
# What is measured are compiled kernels, not what serves until they are.
os.environ.setdefault("COREDISPATCH_BACKGROUND", "0")

SIZES = [2**power for power in range(12, 27, 2)]  # 4 KB to 64 MB
BATCH = 32


Times = dict[str, list[float]]


def in_turns(calls: dict[str, Callable[[], Any]], meet: Callable[[], Any], repeats: int) -> Times:
    """Times of calls, which all ranks begin together, one after the other."""
    times: Times = {name: [] for name in calls}
    for i in range(repeats + 3):
        for name, call in calls.items():
            meet()
            began = time.perf_counter()
            call()
            if i >= 3:
                times[name].append(time.perf_counter() - began)
    return times


def best(times: list[float]) -> float:
    """The time that a tenth of the calls stays below."""
    return sorted(times)[len(times) // 10]


VIEWS: dict[str, Callable[[list[float]], float]] = {"median": statistics.median, "best": best}


def reductions(cd: Any, torch: Any) -> list[dict[str, Any]]:
    """``all_reduce`` of float32 by size."""
    rows = []
    for size in SIZES:
        ours, theirs = cd.ones(size // 4), torch.ones(size // 4)
        repeats = 200 if size <= 2**16 else 40 if size <= 2**22 else 10
        calls = {
            "mpi": lambda x=ours: cd.distributed.all_reduce(x),
            "gloo": lambda x=theirs: torch.distributed.all_reduce(x),
        }
        times = in_turns(calls, cd.distributed.barrier, repeats)
        row: dict[str, Any] = {"bytes": size}
        for view, of in VIEWS.items():
            pair = {name: of(values) for name, values in times.items()}
            row[view] = pair | {"ratio": pair["gloo"] / pair["mpi"]}
        rows.append(row)
    return rows


def net(nn: Any) -> Any:
    """A small convolutional net for 28 x 28 images."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 144, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def step_of(module: Any, model: Any, batch: int) -> Callable[[], None]:
    """One training step on a batch of noise."""
    x = module.randn(batch, 1, 28, 28)
    y = module.randint(0, 10, (batch,))
    optimizer = module.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        module.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def training(cd: Any, torch: Any) -> dict[str, Any]:
    """Seconds of a step: plain and wrapped, for both."""
    calls = {}
    for name, module in (("coredispatch", cd), ("torch", torch)):
        dist, wrap = module.distributed, module.nn.parallel.DistributedDataParallel
        calls[name, "plain"] = step_of(module, net(module.nn), BATCH)
        calls[name, "ddp"] = step_of(module, wrap(net(module.nn)), BATCH)
        alone_group = [dist.new_group([r]) for r in range(dist.get_world_size())][dist.get_rank()]
        alone = wrap(net(module.nn), process_group=alone_group)
        calls[name, "alone"] = step_of(module, alone, BATCH)
    named = {" ".join(key): step for key, step in calls.items()}
    times = in_turns(named, cd.distributed.barrier, 20)
    found: dict[str, Any] = {}
    for view, of in VIEWS.items():
        found[view] = {}
        for name in ("coredispatch", "torch"):
            row = {key: of(times[f"{name} {key}"]) for key in ("plain", "ddp", "alone")}
            row["scaling"] = row["plain"] / row["ddp"]
            row["overhead alone"] = row["alone"] / row["plain"] - 1
            found[view][name] = row
    return found


def rank_main(only: str, port: int, where: str) -> None:
    """What each rank runs."""
    import torch
    import torch.distributed

    import coredispatch as cd

    torch.set_num_threads(1)
    cd.set_num_threads(1)
    cd.distributed.init_process_group("mpi")
    rank, size = cd.distributed.get_rank(), cd.distributed.get_world_size()
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size
    )
    details: dict[str, Any] = {"ranks": size}
    if only in ("", "all_reduce"):
        details["all_reduce"] = reductions(cd, torch)
    if only in ("", "training"):
        details["training"] = training(cd, torch)
    if rank == 0:
        with open(where, "w") as file:
            json.dump(details, file, indent=2)
    torch.distributed.destroy_process_group()
    cd.distributed.destroy_process_group()


def show(details: dict[str, Any]) -> None:
    """Print the tables."""
    for view in VIEWS:
        for row in details.get("all_reduce", ()):
            pair = row[view]
            print(
                f"{view:6} all_reduce {row['bytes']:>9} bytes   MPI {pair['mpi'] * 1e6:9.1f} us   "
                f"gloo {pair['gloo'] * 1e6:9.1f} us   {pair['ratio']:5.1f}x"
            )
    for view, both in details.get("training", {}).items():
        for name, row in both.items():
            print(
                f"{view:6} {name:13} step {row['plain'] * 1e3:7.2f} ms   "
                f"DDP {row['ddp'] * 1e3:7.2f} ms   scaling {row['scaling']:.2f}   "
                f"alone {row['overhead alone']:+.1%}"
            )
        ratio = both["coredispatch"]["ddp"] / both["torch"]["ddp"]
        print(f"{view:6} DDP step, coredispatch / torch: {ratio:.2f}")


def main() -> None:
    """Start the ranks and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", default="", help="keep the details in this file")
    parser.add_argument("--only", default="", choices=["", "all_reduce", "training"])
    options = parser.parse_args()
    import coredispatch as cd

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        details = options.json or os.path.join(folder, "details.json")
        command = [
            cd.plugins.info("mpi")["mpiexec"],
            "-n",
            str(options.ranks),
            sys.executable,
            "-m",
        ]
        command += ["mpi4py", __file__, "--rank", options.only, str(port), details]
        subprocess.run(command, check=True)
        with open(details) as file:
            show(json.load(file))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        rank_main(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
