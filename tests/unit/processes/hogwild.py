"""Several processes train one model, after PyTorch's example of Hogwild: run as a program.

    python hogwild.py START_METHOD STRATEGY

Prints the loss before and after as JSON, and how many descriptors were left open.
"""

from __future__ import annotations

import json
import os
import sys

import coredispatch as cd
import coredispatch.multiprocessing as mp
from coredispatch import nn
from coredispatch.nn import functional as F


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        return self.fc2(self.norm(F.relu(self.fc1(x))))


def data(seed: int) -> tuple[cd.Tensor, cd.Tensor]:
    cd.manual_seed(seed)
    x = cd.randn(64, 8)
    return x, x.sum(1, keepdim=True)


def train(rank: int, model: nn.Module, done: object) -> None:
    cd.manual_seed(rank)
    optimizer = cd.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    for step in range(60):
        x, y = data(100 * rank + step)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    done.put((rank, model.fc2.bias.detach()))  # type: ignore[attr-defined]
    if os.environ.get("HOGWILD_WAIT"):
        done.get()  # type: ignore[attr-defined]


def loss(model: nn.Module) -> float:
    model.eval()
    x, y = data(9999)
    with cd.no_grad():
        return F.mse_loss(model(x), y).item()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def main(method: str, strategy: str) -> None:
    mp.set_sharing_strategy(strategy)
    context = mp.get_context(method)
    files = open_files()
    cd.manual_seed(0)
    model = Net()
    before = loss(model)
    model.train()
    model.share_memory()
    assert all(p.is_shared() for p in model.parameters())
    queue = context.SimpleQueue()
    answer = context.SimpleQueue()
    processes = []
    for rank in range(2):
        process = context.Process(target=worker, args=(rank, model, queue, answer))
        process.start()
        processes.append(process)
    ranks = set()
    for _ in processes:
        rank, bias = queue.get()
        # What came back is the memory of this process's own parameter.
        assert bias.data_ptr() == model.fc2.bias.data_ptr() or bias.is_shared()
        ranks.add(rank)
        del bias
        answer.put("done")
    for process in processes:
        process.join()
        assert process.exitcode == 0
        process.close()
    after = loss(model)
    del model, process, processes, queue, answer
    import gc

    gc.collect()
    left = [n for n in os.listdir("/dev/shm") if n.startswith(f"coredispatch_{os.getpid()}_")]
    print(json.dumps([before, after, sorted(ranks), open_files() - files, left]))


def worker(rank: int, model: nn.Module, queue: object, answer: object) -> None:
    train(rank, model, queue)
    answer.get()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(*sys.argv[1:])
