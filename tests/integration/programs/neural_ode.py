"""A neural ordinary differential equation: Runge-Kutta steps, with the adjoint as a custom Function."""

import torch
import torch.nn as nn

import given


def rk4_step(f, t, y, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, tuple(a + h / 2 * k for a, k in zip(y, k1)))
    k3 = f(t + h / 2, tuple(a + h / 2 * k for a, k in zip(y, k2)))
    k4 = f(t + h, tuple(a + h * k for a, k in zip(y, k3)))
    return tuple(a + h / 6 * (b + 2 * c + 2 * d + e) for a, b, c, d, e in zip(y, k1, k2, k3, k4))


def odeint(f, y0, t, steps=4):
    ys = [y0]
    for t0, t1 in zip(t[:-1], t[1:]):
        y, h = ys[-1], (t1 - t0) / steps
        for i in range(steps):
            y = rk4_step(f, t0 + i * h, y, h)
        ys.append(y)
    return ys


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y0, t, flat, func):
        ctx.func = func
        with torch.no_grad():
            ys = torch.stack([y[0] for y in odeint(lambda s, y: (func(s, y[0]),), (y0,), t)])
        ctx.save_for_backward(t, ys, flat)
        return ys

    @staticmethod
    def backward(ctx, grad):
        t, ys, flat = ctx.saved_tensors
        func, params = ctx.func, tuple(ctx.func.parameters())

        def augmented(s, state):
            y, a, _ = state
            with torch.enable_grad():
                y = y.detach().requires_grad_(True)
                out = func(s, y)
                vjps = torch.autograd.grad(out, (y,) + params, -a, allow_unused=True)
            rest = [torch.zeros_like(p) if g is None else g for p, g in zip(params, vjps[1:])]
            return out.detach(), vjps[0], torch.cat([g.reshape(-1) for g in rest])

        with torch.no_grad():
            a, g = grad[-1], torch.zeros_like(flat)
            for i in range(len(t) - 1, 0, -1):
                state = odeint(augmented, (ys[i], a, g), t[[i, i - 1]])[-1]
                a, g = state[1] + grad[i - 1], state[2]
        return a, None, g, None


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t, y):
        return self.net(y**3)


true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
t = torch.linspace(0.0, 1.0, 6)
y0 = given.normal(8, 2)
with torch.no_grad():
    true_y = torch.stack([y[0] for y in odeint(lambda s, y: (torch.mm(y[0] ** 3, true_A),), (y0,), t)])

func = given.initialized(ODEFunc())
optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-2)
for itr in range(6):
    optimizer.zero_grad()
    flat = nn.utils.parameters_to_vector(func.parameters())
    pred_y = Adjoint.apply(y0, t, flat, func)
    loss = torch.mean(torch.abs(pred_y - true_y))
    loss.backward()
    optimizer.step()
    norm = torch.linalg.norm(torch.cat([p.grad.flatten() for p in func.parameters()]))
    print("Iter {:04d} | Total Loss {:.6f} | {:.6f}".format(itr, loss.item(), norm.item()))
