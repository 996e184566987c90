"""The tutorial "Getting Started with Distributed Data Parallel", with coredispatch for torch."""

import os
import tempfile

import coredispatch as torch
import coredispatch.distributed as dist
import coredispatch.multiprocessing as mp
import coredispatch.nn as nn
import coredispatch.optim as optim
from coredispatch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def demo(rank, world_size, path):
    print(f"Running basic DDP example on rank {rank}.")
    setup(rank, world_size)
    model = ToyModel()
    ddp_model = DDP(model)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(20, 10))
    labels = torch.randn(20, 5)
    loss_fn(outputs, labels).backward()
    optimizer.step()
    if rank == 0:
        torch.save(ddp_model.state_dict(), path)
    dist.barrier()
    ddp_model.load_state_dict(torch.load(path, weights_only=True))
    model.zero_grad()
    with ddp_model.no_sync():
        loss_fn(ddp_model(torch.randn(20, 10)), labels).backward()
    average_gradients(model)
    every = [torch.zeros(5, 10) for _ in range(world_size)]
    dist.all_gather(every, model.net2.weight.grad)
    assert all(torch.equal(grad, every[0]) for grad in every)
    dist.destroy_process_group()
    print(f"Finished running basic DDP example on rank {rank}.")


if __name__ == "__main__":
    world_size = 2
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(demo, args=(world_size, folder + "/model.checkpoint"), nprocs=world_size)
