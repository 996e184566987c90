"""Per-sample gradients by vmap over grad, clipped and noised as in differentially private training."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

import given


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.conv2 = nn.Conv2d(4, 8, 3, 1)
        self.fc1 = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        return F.log_softmax(self.fc1(x), dim=1)


model = given.initialized(SimpleCNN())
data, targets = given.images(8, 12, 12).unsqueeze(1), given.integers(10, 8)


def compute_loss(params, buffers, sample, target):
    predictions = functional_call(model, (params, buffers), (sample.unsqueeze(0),))
    return F.nll_loss(predictions, target.unsqueeze(0))


per_sample = vmap(grad(compute_loss), in_dims=(None, None, 0, 0))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(4):
    params = {k: v.detach() for k, v in model.named_parameters()}
    buffers = {k: v.detach() for k, v in model.named_buffers()}
    grads = per_sample(params, buffers, data, targets)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    factor = (1.0 / (norms + 1e-6)).clamp(max=1.0)
    for name, p in model.named_parameters():
        clipped = torch.einsum("n,n...->...", factor, grads[name])
        p.grad = (clipped + 0.01 * given.normal(*p.shape)) / len(data)
    optimizer.step()
    loss = F.nll_loss(model(data), targets)
    print(f"step {step} loss {loss.item():.6f} norms {norms.min():.5f} {norms.max():.5f}")
