"""Handwritten digits on several ranks: the same accuracy, each rank with its part of the data.

    coredispatch launch --nproc-per-node 2 examples/ddp_digits.py
    python examples/ddp_digits.py                     # one rank

The data are those of ``digits.py``, from scikit-learn.
"""

from __future__ import annotations

import argparse
import os

from sklearn.datasets import load_digits

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.nn.parallel import DistributedDataParallel
from coredispatch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> float:
    """Train; returns the accuracy on the held-out digits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("fake", rank=0, world_size=1)
    rank, size = dist.get_rank(), dist.get_world_size()

    images, labels = load_digits(return_X_y=True)
    x = cd.tensor(images / 16.0, dtype=cd.float32).view(-1, 1, 8, 8)
    y = cd.tensor(labels)
    train, test = TensorDataset(x[:1437], y[:1437]), (x[1437:], y[1437:])
    sampler = DistributedSampler(train, shuffle=True, seed=0)
    loader = DataLoader(train, batch_size=64 // size, sampler=sampler)

    cd.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10)
    )
    model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(net))
    optimizer = cd.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for images_, labels_ in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images_), labels_)
            loss.backward()
            optimizer.step()
        dist.all_reduce(loss := loss.detach(), dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")

    model.eval()
    with cd.no_grad():
        accuracy = (model(test[0]).argmax(1) == test[1]).float().mean().item()
    if rank == 0:
        print(f"{size} ranks: {accuracy:.1%} of the held-out digits")
    dist.destroy_process_group()
    return accuracy


if __name__ == "__main__":
    main()
