"""An optimizer and Functions of one's own: a straight-through quantizer, a fused activation, hooks."""

import math

import torch
from torch import nn
from torch.autograd import Function, gradcheck
from torch.optim.optimizer import Optimizer

import given


class RoundSTE(Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.save_for_backward(x)
        return torch.round(x.clamp(-1, 1) * levels) / levels

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1).type_as(grad_output), None


class Mish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.mul(torch.tanh(nn.functional.softplus(x)))

    @staticmethod
    def backward(ctx, grad_output):
        x = ctx.saved_tensors[0]
        sigmoid, tanh = torch.sigmoid(x), torch.tanh(nn.functional.softplus(x))
        return grad_output * (tanh + x * sigmoid * (1 - tanh * tanh))


class RAdamLike(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        if not 0.0 <= lr:
            raise ValueError("Invalid learning rate: {}".format(lr))
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def __setstate__(self, state):
        super().__setstate__(state)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                state["step"] += 1
                exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
                if group["weight_decay"] != 0:
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                exp_avg.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                c1, c2 = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
                denom = (exp_avg_sq.sqrt() / math.sqrt(c2)).add_(group["eps"])
                p.addcdiv_(exp_avg, denom, value=-group["lr"] / c1)
        return loss


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.b(RoundSTE.apply(Mish.apply(self.a(x)), 7))


gradcheck(Mish.apply, (given.normal(5).double().requires_grad_(),), eps=1e-6, atol=1e-4)
net = given.initialized(Net())
seen = []
net.a.register_forward_hook(lambda module, args, out: seen.append(out.shape))
net.b.weight.register_hook(lambda g: g * 0.5)
decayed = [p for p in net.parameters() if p.dim() > 1]
optimizer = RAdamLike(
    [{"params": decayed, "weight_decay": 0.1}, {"params": [p for p in net.parameters() if p.dim() == 1]}],
    lr=0.02,
)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
x, y = given.normal(32, 6), given.integers(3, 32)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    return loss


for step in range(6):
    loss = optimizer.step(closure)
    scheduler.step()
    print(f"step {step} loss {loss.item():.6f} lr {scheduler.get_last_lr()[0]:.6f}")
state = optimizer.state_dict()
print(len(seen), seen[0], sorted(state["state"][0]), state["param_groups"][0]["weight_decay"])
