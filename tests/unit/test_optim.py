"""Optimizers and schedules: whole trajectories against PyTorch's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn, optim
from coredispatch.optim import lr_scheduler
from coredispatch.registry.dispatch.table import TABLE

RNG = np.random.default_rng(0)
STEPS = 12

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True}),
    ("Adam", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "betas": (0.7, 0.8), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "maximize": True}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3}),
    ("AdamW", {"lr": 0.1, "amsgrad": True}),
    ("RMSprop", {"lr": 0.1}),
    ("RMSprop", {"lr": 0.1, "centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1}),
]


def problem() -> tuple[list[Any], Any]:
    """Starting points, and the minimum of a curved function of them."""
    start = [RNG.standard_normal((3, 4)), RNG.standard_normal(5), np.array(RNG.standard_normal())]
    return start, [np.array(RNG.standard_normal(x.shape)) for x in start]


def loss_of(parameters: Any, targets: Any) -> Any:
    total: Any = 0
    for parameter, target in zip(parameters, targets):
        difference = parameter - target
        total = total + (difference * difference * difference * difference).sum()
    return total


def descend(library: Any, make: Any, start: list[Any], targets: list[Any]) -> list[Any]:
    convert = cd.from_numpy if library is cd else library.tensor
    parameters = [convert(x.copy()).requires_grad_() for x in start]
    goals = [convert(t.copy()) for t in targets]
    optimizer = make(parameters)
    path = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(parameters, goals).backward()
        optimizer.step()
        path.append([p.detach().numpy().copy() for p in parameters])
    return path


@pytest.mark.parametrize(
    ("name", "options"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)]
)
def test_trajectory(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    start, targets = problem()
    mine = descend(cd, lambda p: getattr(optim, name)(p, **options), start, targets)
    theirs = descend(torch, lambda p: getattr(torch.optim, name)(p, **options), start, targets)
    for a, b in zip(mine, theirs):
        for x, y in zip(a, b):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["sgd_step", "adam_step", "rmsprop_step"])
@pytest.mark.parametrize("size", [7, 40_000])
def test_kernel_agrees_with_the_body(name: str, size: int) -> None:
    op = TABLE.operator(name)
    numbers = {
        "lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1, "step": 3,
        "beta1": 0.9, "beta2": 0.99, "eps": 1e-6, "alpha": 0.9,
    }  # fmt: skip
    flags = {"nesterov": False, "maximize": True, "first": False, "decoupled": False}
    arrays = [np.abs(RNG.standard_normal(size)) + 1 for _ in op.schema.params]
    runs = []
    for run in (op, op.decomposition):
        args = [
            cd.from_numpy(a.copy()) if p.is_tensor else numbers.get(p.name, flags.get(p.name))
            for a, p in zip(arrays, op.schema.params)
        ]
        with cd.no_grad():
            run(*args)
        runs.append(args)
    for a, b, p in zip(*runs, op.schema.params):
        if p.is_tensor:
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-12, 1e-14, err_msg=p.name)


def test_a_step_is_a_write_that_autograd_sees() -> None:
    weight = nn.Parameter(cd.ones(3))
    loss = (weight * weight).sum()
    weight.grad = cd.ones(3)
    optim.Adam([weight]).step()
    with pytest.raises(RuntimeError, match="modified by an in-place operation"):
        loss.backward()


def test_groups_and_their_options() -> None:
    a, b = nn.Parameter(cd.ones(2)), nn.Parameter(cd.ones(2))
    optimizer = optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    a.grad, b.grad = cd.ones(2), cd.ones(2)
    optimizer.step()
    np.testing.assert_allclose([a.tolist(), b.tolist()], [[0.9, 0.9], [0.5, 0.5]], 1e-6)
    with pytest.raises(ValueError, match="more than one"):
        optimizer.add_param_group({"params": [a]})
    with pytest.raises(ValueError, match="non-leaf"):
        optim.SGD([a * 2], lr=0.1)
    with pytest.raises(ValueError, match="empty"):
        optim.SGD([], lr=0.1)
    with pytest.raises(TypeError, match="iterable"):
        optim.SGD(a, lr=0.1)
    with pytest.raises(ValueError, match="learning rate"):
        optim.Adam([a], lr=-1.0)
    assert "Parameter Group 1" in repr(optimizer)


def test_zero_grad_and_closure() -> None:
    weight = nn.Parameter(cd.ones(2))
    optimizer = optim.SGD([weight], lr=0.1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    with cd.no_grad():
        assert optimizer.step(closure).item() == 2
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert weight.grad is None


def test_step_hooks() -> None:
    weight = nn.Parameter(cd.ones(2))
    optimizer = optim.SGD([weight], lr=0.1)
    seen: list[str] = []
    before = optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.step()
    before.remove()
    optimizer.step()
    assert seen == ["before", "after", "after"]


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_state_dict_continues_the_run(name: str) -> None:
    options = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.1}

    def start() -> tuple[Any, Any]:
        weight = nn.Parameter(cd.ones(3))
        return weight, getattr(optim, name)([weight], **options)

    def run(weight: Any, optimizer: Any, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            (weight**2 * cd.arange(1, 4)).sum().backward()
            optimizer.step()

    weight, optimizer = start()
    run(weight, optimizer, 3)
    saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
    other, again = start()
    with cd.no_grad():
        other.copy_(weight)
    again.load_state_dict(saved)
    run(weight, optimizer, 3)
    run(other, again, 3)
    np.testing.assert_array_equal(weight.detach().numpy(), other.detach().numpy())
    kept = copy.deepcopy(saved["state"])
    run(other, again, 1)
    for key, value in saved["state"][0].items():
        if isinstance(value, cd.Tensor):
            np.testing.assert_array_equal(value.numpy(), kept[0][key].numpy())
    with pytest.raises(ValueError, match="size"):
        getattr(optim, name)([nn.Parameter(cd.ones(1)) for _ in range(2)]).load_state_dict(saved)


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3}),
    ("MultiStepLR", {"milestones": [2, 5, 5]}),
    ("ExponentialLR", {"gamma": 0.7}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.9**epoch}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.9}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 3}),
    ("LinearLR", {"start_factor": 0.3, "total_iters": 4}),
    ("PolynomialLR", {"total_iters": 6, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 20}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 20, "three_phase": True,
                    "anneal_strategy": "linear"}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 3}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 2, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 2, "mode": "exp_range",
                  "gamma": 0.9}),
]  # fmt: skip


def rates(library: Any, schedule: Any) -> list[Any]:
    parameters = [library.nn.Parameter(library.ones(1)) for _ in range(2)]
    groups = [{"params": parameters[0]}, {"params": parameters[1], "lr": 0.5}]
    optimizer = library.optim.SGD(groups, lr=0.1, momentum=0.9)
    scheduler = schedule(library.optim.lr_scheduler, optimizer)
    seen = []
    for _ in range(15):
        seen.append([[g["lr"], g["momentum"]] for g in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return seen


@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_schedule(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")

    def make(module: Any, optimizer: Any) -> Any:
        return getattr(module, name)(optimizer, **options)

    np.testing.assert_allclose(rates(cd, make), rates(torch, make), 1e-12)


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, about the order of steps
def test_compound_schedules() -> None:
    torch = pytest.importorskip("torch")

    def sequential(module: Any, optimizer: Any) -> Any:
        first = module.LinearLR(optimizer, 0.1, total_iters=4)
        second = module.ExponentialLR(optimizer, 0.8)
        return module.SequentialLR(optimizer, [first, second], [4])

    def chained(module: Any, optimizer: Any) -> Any:
        first = module.ConstantLR(optimizer, 0.1, 3)
        return module.ChainedScheduler([first, module.ExponentialLR(optimizer, 0.8)])

    for make in (sequential, chained):
        np.testing.assert_allclose(rates(cd, make), rates(torch, make), 1e-12)


def test_reduce_on_plateau() -> None:
    torch = pytest.importorskip("torch")
    metrics = [1.0, 0.9, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.4]
    for options in (
        {"patience": 1},
        {"patience": 1, "cooldown": 2, "min_lr": 0.02},
        {"mode": "max", "patience": 0, "threshold_mode": "abs"},
    ):
        seen = []
        for library in (cd, torch):
            parameter = library.nn.Parameter(library.ones(1))
            optimizer = library.optim.SGD([parameter], lr=0.1)
            scheduler = library.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
            path = []
            for metric in metrics:
                scheduler.step(metric)
                path.append(optimizer.param_groups[0]["lr"])
            seen.append(path)
        assert seen[0] == seen[1]


def test_schedule_state_dict() -> None:
    optimizer = optim.SGD([nn.Parameter(cd.ones(1))], lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    saved = pickle.loads(pickle.dumps(scheduler.state_dict()))
    other = lr_scheduler.StepLR(optimizer, 5)
    other.load_state_dict(saved)
    assert other.step_size == 2 and other.last_epoch == 3
    assert other.get_last_lr() == scheduler.get_last_lr()


def test_stepping_the_schedule_first_warns() -> None:
    optimizer = optim.SGD([nn.Parameter(cd.ones(1))], lr=1.0)
    scheduler = lr_scheduler.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
