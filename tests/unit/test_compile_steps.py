"""Whole training steps as graphs: forward, backward, clipping, scaling, optimizer and schedule."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.nn import functional as F
from coredispatch.optim import lr_scheduler

STEPS = 20


class Run:
    """A model, what trains it, and the step, which is compiled or not."""

    def __init__(self, net: Any, optimizer: Any, step: Any, data: Any, after: Any = None) -> None:
        self.net, self.optimizer, self.step, self.data, self.after = (
            net,
            optimizer,
            step,
            data,
            after,
        )
        self.more: Any = lambda: None


def mlp_with_adam() -> Run:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = cd.optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-3)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return Run(net, optimizer, step, lambda: (cd.randn(6, 8), cd.randint(0, 4, (6,))), schedule)


def cnn_with_momentum_and_batch_norm() -> Run:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 5),
    )
    optimizer = cd.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    schedule = lr_scheduler.StepLR(optimizer, 3, 0.5)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        return loss, out.argmax(1)

    data = lambda: (cd.randn(6, 1, 8, 8), cd.randint(0, 5, (6,)))  # noqa: E731
    return Run(net, optimizer, step, data, schedule)


class Block(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.one(x)).split(width, 2)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.mlp(self.two(x))


def gpt_with_adamw_and_clipping() -> Run:
    """Tied weights, two groups, and a schedule that moves the betas as well."""
    embedding, blocks = nn.Embedding(11, 16), nn.Sequential(Block(), Block())
    head = nn.Linear(16, 11, bias=False)
    head.weight = embedding.weight
    net = nn.ModuleDict({"embedding": embedding, "blocks": blocks, "head": head})
    groups = [
        {"params": blocks.parameters(), "weight_decay": 0.1},
        {"params": embedding.parameters(), "weight_decay": 0.0},
    ]
    # eps: gradients that are 0 but for rounding must not become whole steps
    optimizer = cd.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), eps=1e-3)
    schedule = lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS + 5)

    def step(x: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        logits = head(blocks(embedding(x[:, :-1])))
        loss = F.cross_entropy(logits.reshape(-1, 11), x[:, 1:].reshape(-1))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss, norm

    return Run(net, optimizer, step, lambda: (cd.randint(0, 11, (3, 7)),), schedule)


def autocast_with_a_scaler() -> Run:
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = cd.optim.SGD(net.parameters(), lr=0.01)
    scaler = cd.amp.GradScaler("cpu", init_scale=64.0, growth_interval=5)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.95**epoch)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        with cd.autocast("cpu", dtype=cd.bfloat16):
            loss = F.mse_loss(net(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    made = Run(net, optimizer, step, lambda: (cd.randn(6, 8), cd.randn(6, 1)), schedule)
    made.more = scaler.state_dict
    return made


def accumulated_gradients() -> Run:
    net = nn.Linear(8, 1)
    optimizer = cd.optim.Adagrad(net.parameters(), lr=0.05)
    seen = {"batches": 0}

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(net(x), y) / 2
        loss.backward()
        seen["batches"] += 1
        if seen["batches"] % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    made = Run(net, optimizer, step, lambda: (cd.randn(6, 8), cd.randn(6, 1)))
    made.more = lambda: dict(seen)
    return made


def averaged_weights() -> Run:
    net = nn.Linear(8, 2)
    average = copy.deepcopy(net).requires_grad_(False)
    optimizer = cd.optim.NAdam(net.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        with cd.no_grad():
            for mean, parameter in zip(average.parameters(), net.parameters()):
                mean.lerp_(parameter, 0.1)
        return loss.item()

    made = Run(net, optimizer, step, lambda: (cd.randn(6, 8), cd.randn(6, 2)))
    made.more = lambda: [parameter.clone() for parameter in average.parameters()]
    return made


def a_closure_and_a_plateau() -> Run:
    net = nn.Linear(8, 1)
    optimizer = cd.optim.RMSprop(net.parameters(), lr=0.05, momentum=0.5)
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)

    def step(x: Any, y: Any) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = F.smooth_l1_loss(net(x), y)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        schedule.step(loss.item())
        return loss

    return Run(net, optimizer, step, lambda: (cd.randn(6, 8), cd.randn(6, 1)))


MAKERS = [
    mlp_with_adam,
    cnn_with_momentum_and_batch_norm,
    gpt_with_adamw_and_clipping,
    autocast_with_a_scaler,
    accumulated_gradients,
    averaged_weights,
    a_closure_and_a_plateau,
]


def trained(make: Callable[[], Run], backend: str | None) -> Any:
    """20 steps: the run, its results, its rates, and the compiled function."""
    cd.manual_seed(0)
    run = make()
    step = run.step if backend is None else cd.compile(run.step, backend=backend)
    results, rates = [], []
    for _ in range(STEPS):
        results.append(step(*run.data()))
        if run.after is not None:
            run.after.step()
        rates.append([group["lr"] for group in run.optimizer.param_groups])
    return run, results, rates, step


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_compiled_step_trains_as_the_eager_one(make: Callable[[], Run]) -> None:
    plain, wanted, wanted_rates, _ = trained(make, None)
    run, got, rates, step = trained(make, "eager")
    bound = {"rtol": 1e-4, "atol": 1e-5}
    cd.testing.assert_close(got, wanted, **bound)
    assert rates == wanted_rates
    cd.testing.assert_close(dict(run.net.state_dict()), dict(plain.net.state_dict()), **bound)
    told, state = run.optimizer.state_dict(), plain.optimizer.state_dict()
    assert told["state"].keys() == state["state"].keys()
    cd.testing.assert_close(list(told["state"].values()), list(state["state"].values()), **bound)
    if run.after is not None:
        assert str(run.after.state_dict()) == str(plain.after.state_dict())
    if run.more() is not None:
        cd.testing.assert_close(run.more(), plain.more(), **bound)
    assert step.given_up is None and not step.problems and not step.eager_calls
    assert step.captures <= 8  # numbers that change are inputs; looks at them have few answers


SCHEDULES: list[Callable[[Any], Any]] = [
    lambda o: lr_scheduler.StepLR(o, 4),
    lambda o: lr_scheduler.MultiStepLR(o, [3, 9]),
    lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    lambda o: lr_scheduler.LinearLR(o, 0.5, total_iters=6),
    lambda o: lr_scheduler.PolynomialLR(o, 8),
    lambda o: lr_scheduler.CosineAnnealingLR(o, 10, 1e-4),
    lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5),
    lambda o: lr_scheduler.CyclicLR(o, 1e-4, 1e-2, 4, cycle_momentum=False),
    lambda o: lr_scheduler.OneCycleLR(o, 1e-2, total_steps=30),
]


@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: str(s.__code__.co_names[1]))
def test_schedules_move_the_rate_of_a_compiled_step(schedule: Any, inside: bool) -> None:
    def train(compiled: bool) -> Any:
        cd.manual_seed(0)
        net = nn.Linear(3, 1)
        optimizer = cd.optim.Adam(net.parameters(), lr=1e-2)
        schedules = schedule(optimizer)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            if inside:
                schedules.step()
            return loss

        fast = cd.compile(step, backend="eager") if compiled else step
        rates = []
        for _ in range(16):
            fast(cd.randn(4, 3))
            if not inside:
                schedules.step()
            rates.append(optimizer.param_groups[0]["lr"])
        return rates, [p.tolist() for p in net.parameters()], schedules.last_epoch, fast

    wanted, got = train(False), train(True)
    assert got[0] == wanted[0] and got[2] == wanted[2]
    cd.testing.assert_close(got[1], wanted[1])
    fast = got[3]
    if not inside:
        assert fast.captures == 2 and not fast.eager_calls and fast.given_up is None


def test_a_schedule_that_the_program_reads_is_one_of_its_conditions() -> None:
    parameter = nn.Parameter(cd.ones(1))
    optimizer = cd.optim.SGD([parameter], lr=1.0)
    schedule = lr_scheduler.StepLR(optimizer, 2, 0.5)

    def program(x: Any) -> Any:
        return x * schedule.last_epoch + schedule.get_last_lr()[0]

    fast = cd.compile(program, backend="eager")
    for _ in range(6):
        optimizer.step()
        schedule.step()
        assert fast(cd.ones(1)).tolist() == program(cd.ones(1)).tolist()


def test_betas_that_move_are_inputs() -> None:
    """A tuple of numbers that is replaced in each step needs no new program in each step."""
    parameter = nn.Parameter(cd.ones(3))
    twin = nn.Parameter(cd.ones(3))
    results = []
    for p, compiled in ((parameter, True), (twin, False)):
        optimizer = cd.optim.Adam([p], lr=0.1)

        def step(p: Any = p, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            p.square().sum().backward()
            optimizer.step()

        fast = cd.compile(step, backend="eager") if compiled else step
        for k in range(8):
            optimizer.param_groups[0]["betas"] = (0.5 + k / 20, 0.9)
            fast()
        results.append(p.detach())
        if compiled:
            assert fast.captures <= 3 and fast.given_up is None
    cd.testing.assert_close(*results)
