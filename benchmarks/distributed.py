"""Two ranks, coredispatch over MPI beside PyTorch over gloo, in one run of the same processes.

    python benchmarks/distributed.py [--ranks 2] [--json FILE] [--only all_reduce|training]

Reports the time of ``all_reduce`` by size, the time of a training step of a convolutional net under
DistributedDataParallel in both, how it scales, and what the wrapper costs a rank that is alone. All
traffic stays on this machine. PyTorch is needed (``pip install coredispatch[bench]``), and a core
for each rank: times on a busy machine say little.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"

SIZES = [2**power for power in range(12, 27, 2)]  # 4 KB to 64 MB
BATCH = 32


def measured(call: Callable[[], Any], meet: Callable[[], Any], repeats: int) -> float:
    """The median time of a call, which all ranks begin together."""
    times = []
    for _ in range(repeats):
        meet()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def reductions(cd: Any, torch: Any) -> list[dict[str, Any]]:
    """``all_reduce`` of float32 by size."""
    rows = []
    for size in SIZES:
        ours, theirs = cd.ones(size // 4), torch.ones(size // 4)
        repeats = 200 if size <= 2**16 else 30 if size <= 2**22 else 8
        pair = []
        for module, tensor in ((cd, ours), (torch, theirs)):
            dist = module.distributed
            for _ in range(3):
                dist.all_reduce(tensor)
            pair.append(measured(lambda d=dist, t=tensor: d.all_reduce(t), dist.barrier, repeats))
        rows.append({"bytes": size, "mpi": pair[0], "gloo": pair[1], "ratio": pair[1] / pair[0]})
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
    found: dict[str, Any] = {}
    for name, module in (("coredispatch", cd), ("torch", torch)):
        dist, wrap = module.distributed, module.nn.parallel.DistributedDataParallel
        plain = step_of(module, net(module.nn), BATCH)
        wrapped = step_of(module, wrap(net(module.nn)), BATCH)
        alone_group = [dist.new_group([r]) for r in range(dist.get_world_size())][dist.get_rank()]
        alone = step_of(module, wrap(net(module.nn), process_group=alone_group), BATCH)
        for step in (plain, wrapped, alone):
            for _ in range(3):
                step()
        # In turns: what else the machine does then falls on all of them.
        times: dict[str, list[float]] = {"plain": [], "ddp": [], "alone": []}
        for _ in range(15):
            for key, step in (("plain", plain), ("ddp", wrapped), ("alone", alone)):
                times[key].append(measured(step, dist.barrier, 1))
        found[name] = {key: statistics.median(values) for key, values in times.items()}
        found[name]["scaling"] = found[name]["plain"] / found[name]["ddp"]
        found[name]["overhead alone"] = found[name]["alone"] / found[name]["plain"] - 1
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
    facts: dict[str, Any] = {"ranks": size}
    if only in ("", "all_reduce"):
        facts["all_reduce"] = reductions(cd, torch)
    if only in ("", "training"):
        facts["training"] = training(cd, torch)
    if rank == 0:
        with open(where, "w") as file:
            json.dump(facts, file, indent=2)
    torch.distributed.destroy_process_group()
    cd.distributed.destroy_process_group()


def show(facts: dict[str, Any]) -> None:
    """Print the tables."""
    for row in facts.get("all_reduce", ()):
        print(
            f"all_reduce {row['bytes']:>9} bytes   MPI {row['mpi'] * 1e6:9.1f} us   "
            f"gloo {row['gloo'] * 1e6:9.1f} us   {row['ratio']:5.1f}x"
        )
    for name, row in facts.get("training", {}).items():
        print(
            f"{name:13} step {row['plain'] * 1e3:7.2f} ms   DDP {row['ddp'] * 1e3:7.2f} ms   "
            f"scaling {row['scaling']:.2f}   alone {row['overhead alone']:+.1%}"
        )
    if "training" in facts:
        both = facts["training"]
        ratio = both["coredispatch"]["ddp"] / both["torch"]["ddp"]
        print(f"DDP step, coredispatch / torch: {ratio:.2f}")


def main() -> None:
    """Start the ranks and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", default="distributed.json")
    parser.add_argument("--only", default="", choices=["", "all_reduce", "training"])
    options = parser.parse_args()
    import coredispatch as cd

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [cd.plugins.info("mpi")["mpiexec"], "-n", str(options.ranks), sys.executable, "-m"]
    command += ["mpi4py", __file__, "--rank", options.only, str(port), options.json]
    subprocess.run(command, check=True)
    with open(options.json) as file:
        show(json.load(file))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        rank_main(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
