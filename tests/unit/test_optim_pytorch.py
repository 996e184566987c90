"""Every optimizer and option against PyTorch itself: paths, printed forms and state dicts."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")

CASES = [
    ("NAdam", {}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "momentum_decay": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9)}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.2), "maximize": True}),
    ("ASGD", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 3, "weight_decay": 0.1, "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.1, "eps": (1e-4, 1e-2), "maximize": True}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "differentiable": False, "foreach": True}),
]


def start() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((3, 4)), rng.standard_normal(5), np.array(rng.standard_normal())]


def loss_of(parameters: Any) -> Any:
    total: Any = 0
    for number, parameter in enumerate(parameters):
        square = (parameter - 0.1 * number) ** 2
        total = total + (square * (parameter.sin() + 1.5)).sum()
    return total


def follow(library: Any, name: str, options: dict[str, Any], steps: int = 12) -> tuple[Any, Any]:
    parameters = [library.tensor(x.tolist(), dtype=library.float64) for x in start()]
    if name == "Muon":
        parameters = parameters[:1]
    for parameter in parameters:
        parameter.requires_grad_()
    optimizer = getattr(library.optim, name)(parameters, **options)
    path = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(parameters)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
        path.append([p.detach().numpy().copy() for p in parameters])
    return path, optimizer


@pytest.mark.parametrize(("name", "options"), CASES)
def test_trajectory(name: str, options: dict[str, Any]) -> None:
    mine, own = follow(cd, name, options)
    theirs, other = follow(torch, name, options)
    for a, b in zip(mine, theirs):
        for x, y in zip(a, b):
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)
    assert repr(own) == repr(other)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.1, "max_iter": 7},
        {"line_search_fn": "strong_wolfe"},
        {"line_search_fn": "strong_wolfe", "history_size": 2, "max_iter": 3, "lr": 0.5},
        {"line_search_fn": "strong_wolfe", "max_eval": 4},
    ],
)
def test_lbfgs(options: dict[str, Any]) -> None:
    mine, own = follow(cd, "LBFGS", options, 4)
    theirs, other = follow(torch, "LBFGS", options, 4)
    for a, b in zip(mine, theirs):
        for x, y in zip(a, b):
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)
    assert repr(own) == repr(other)
    key, state = next(iter(own.state.items()))
    expected = next(iter(other.state.values()))
    assert (state["func_evals"], state["n_iter"]) == (expected["func_evals"], expected["n_iter"])


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.1},
        {"lr": 0.1, "nesterov": False, "ns_steps": 3},
        {"lr": 0.1, "adjust_lr_fn": "match_rms_adamw"},
    ],
)
def test_muon(options: dict[str, Any]) -> None:
    """The iteration is in bfloat16: its last digits depend on how a product is summed."""
    mine, own = follow(cd, "Muon", options, 4)
    theirs, other = follow(torch, "Muon", options, 4)
    for a, b in zip(mine, theirs):
        np.testing.assert_allclose(a[0], b[0], atol=0.02)
    assert repr(own) == repr(other)


NAMES = ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "RMSprop", "NAdam", "RAdam",
         "Rprop", "ASGD", "Adafactor"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_printed_form_and_options(name: str) -> None:
    own, other = follow(cd, name, {"lr": 0.1}, 2)[1], follow(torch, name, {"lr": 0.1}, 2)[1]
    assert repr(own) == repr(other)
    mine, theirs = own.state_dict(), other.state_dict()
    assert [set(g) for g in mine["param_groups"]] == [set(g) for g in theirs["param_groups"]]
    assert {k: set(v) for k, v in mine["state"].items()} == {
        k: set(v) for k, v in theirs["state"].items() if v
    }
    assert own.defaults == other.defaults
    for optimizer, library in ((own, cd), (other, torch)):
        optimizer.add_param_group({"params": [library.zeros(1, requires_grad=True)], "lr": 0.5})
    assert repr(own) == repr(other)


@pytest.mark.parametrize("name", [*NAMES, "LBFGS"])
def test_state_dict_carries_over(name: str) -> None:
    """Half of the steps there, the other half here, from PyTorch's own state dict."""
    path, _ = follow(torch, name, {"lr": 0.1}, 6)
    half, other = follow(torch, name, {"lr": 0.1}, 3)
    parameters = [cd.tensor(x).requires_grad_() for x in half[-1]]
    optimizer = getattr(cd.optim, name)(parameters, lr=0.1)

    def here(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return cd.tensor(value.numpy())
        if isinstance(value, dict):
            return {k: here(v) for k, v in value.items()}
        return [here(v) for v in value] if isinstance(value, list) else value

    optimizer.load_state_dict(here(other.state_dict()))
    optimizer = pickle.loads(pickle.dumps(optimizer)) if name == "SGD" else optimizer
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(parameters)
        loss.backward()
        return loss

    for step in range(3, 6):
        optimizer.step(closure)
        for p, expected in zip(parameters, path[step]):
            np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "NAdam",
                                  "RAdam", "Rprop", "ASGD"])  # fmt: skip
def test_complex_parameters(name: str) -> None:
    values = []
    for library in (cd, torch):
        x = library.tensor([1 + 2j, -0.5 + 0.25j], dtype=library.complex128, requires_grad=True)
        optimizer = getattr(library.optim, name)([x], lr=0.05)
        for _ in range(4):
            optimizer.zero_grad()
            (x * x.conj() - 0.3 * x).abs().sum().backward()
            optimizer.step()
        values.append(x.detach().numpy())
    np.testing.assert_allclose(*values, rtol=1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Rprop", "ASGD"])
def test_differentiable(name: str) -> None:
    grads = []
    for library in (cd, torch):
        leaf = library.tensor([1.0, -2.0], dtype=library.float64, requires_grad=True)
        p = leaf.clone()
        p.grad = (leaf * 3).detach() + 0 * leaf
        optimizer = getattr(library.optim, name)([p], lr=0.1, differentiable=True)
        optimizer.step()
        (p**2).sum().backward()
        grads.append(leaf.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-6)


def test_refusals() -> None:
    for name, options in [
        ("Rprop", {"etas": (1.5, 1.2)}),
        ("NAdam", {"momentum_decay": -1}),
        ("Adafactor", {"d": 0.5}),
        ("Adafactor", {"beta2_decay": 1}),
        ("Muon", {"adjust_lr_fn": "other"}),
        ("Muon", {}),
        ("SparseAdam", {"lr": 0.0}),
        ("Adam", {"fused": True, "differentiable": True}),
        ("LBFGS", {"lr": -1}),
    ]:
        errors = []
        for library in (cd, torch):
            with pytest.raises((ValueError, RuntimeError)) as caught:
                getattr(library.optim, name)([library.zeros(3, requires_grad=True)], **options)
            errors.append(str(caught.value).replace("torch.Size", "cd.Size"))
        assert errors[0] == errors[1]


class Halving(cd.optim.Optimizer):
    """What a user writes: a ``step`` of their own over ``defaults``."""

    def __init__(self, params: Any, lr: float = 0.5) -> None:
        super().__init__(params, {"lr": lr})

    @cd.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])
                self.state[p]["count"] = self.state[p].get("count", 0) + 1


def test_an_optimizer_of_a_user() -> None:
    x = cd.ones(2, requires_grad=True)
    optimizer = Halving([x])
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
    everywhere = cd.optim.optimizer.register_optimizer_step_post_hook(
        lambda o, args, kwargs: seen.append("everywhere")
    )
    schedule = cd.optim.lr_scheduler.StepLR(optimizer, 1)
    x.sum().backward()
    optimizer.step()
    schedule.step()  # warns of nothing: the step was counted
    everywhere.remove()
    assert seen == ["before", "after", "everywhere"]
    assert x.tolist() == [0.5, 0.5] and optimizer.param_groups[0]["lr"] == 0.05
    saved = optimizer.state_dict()
    assert saved["state"][0] == {"count": 1}
    again = copy.deepcopy(optimizer)
    assert again.param_groups[0]["lr"] == 0.05


def test_state_dict_hooks() -> None:
    optimizer = cd.optim.SGD([cd.ones(2, requires_grad=True)], lr=0.1)
    seen: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("pre"))
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, s: seen.append("load"))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    saved = optimizer.state_dict()
    assert saved["more"] == 1
    optimizer.load_state_dict(saved)
    assert seen == ["pre", "load", "loaded"]


def swa(library: Any, use_buffers: bool, avg: str | None) -> Any:
    nn, utils = library.nn, library.optim.swa_utils
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    values = np.random.default_rng(1)
    with library.no_grad():
        for p in model.parameters():
            p.copy_(library.tensor(values.standard_normal(tuple(p.shape)).astype("float32")))
    options = {
        None: {},
        "ema": {"avg_fn": utils.get_ema_avg_fn(0.9)},
        "multi": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9)},
        "swa": {"multi_avg_fn": utils.get_swa_multi_avg_fn()},
    }[avg]
    averaged = utils.AveragedModel(model, use_buffers=use_buffers, **options)
    optimizer = library.optim.SGD(model.parameters(), lr=0.1)
    schedule = utils.SWALR(optimizer, swa_lr=0.01, anneal_epochs=3)
    data = [library.tensor(values.standard_normal((5, 3)).astype("float32")) for _ in range(5)]
    rates = []
    for x in data:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        averaged.update_parameters(model)
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    utils.update_bn(data, averaged)
    state = {k: v.numpy() for k, v in averaged.state_dict().items()}
    return state, rates


# PyTorch's own "swa" function refuses integer buffers.
@pytest.mark.parametrize(
    ("avg", "use_buffers"),
    [(None, False), (None, True), ("ema", False), ("ema", True), ("multi", True), ("swa", False)],
)
def test_averaged_model(avg: str | None, use_buffers: bool) -> None:
    mine, theirs = swa(cd, use_buffers, avg), swa(torch, use_buffers, avg)
    assert list(mine[0]) == list(theirs[0])
    for name, value in theirs[0].items():
        np.testing.assert_allclose(mine[0][name], value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mine[1], theirs[1])
