"""Adam with ``capturable``: every number that changes from step to step is a tensor."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

SHAPES: list[tuple[int, ...]] = [(5,), (3, 4), (), (300,)]
VARIANTS = [
    ("Adam", {}),
    ("Adam", {"weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"maximize": True, "betas": (0.0, 0.9), "eps": 1e-3}),
    ("AdamW", {"weight_decay": 0.1}),
    ("AdamW", {"weight_decay": 0.1, "amsgrad": True, "maximize": True}),
]


def follow(
    library: Any, name: str, dtype: str, steps: int = 7, lr: Any = 0.05, **options: Any
) -> tuple[list[Any], Any]:
    """Parameters and state after some steps, as arrays, and the optimizer.

    A learning rate that is a tensor falls on the way.
    """
    rng = np.random.default_rng(0)
    start = [np.asarray(rng.normal(size=shape)) for shape in SHAPES]
    parameters = [
        library.nn.Parameter(library.tensor(x).to(getattr(library, dtype))) for x in start
    ]
    optimizer = getattr(library.optim, name)(parameters, lr=lr, **options)
    for number in range(steps):
        for parameter in parameters:
            grad = library.tensor(np.asarray(rng.normal(size=parameter.shape)))
            parameter.grad = grad.to(parameter.dtype)
        if number == 4 and not isinstance(lr, float):
            lr.fill_(0.01)
        optimizer.step()
    found = [p.detach().double().numpy() for p in parameters]
    names = ("exp_avg", "exp_avg_sq")
    return found + [optimizer.state[p][n].double().numpy() for p in parameters for n in names], (
        optimizer
    )


@pytest.mark.parametrize("tensor_lr", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_values_are_pytorchs(
    monkeypatch: pytest.MonkeyPatch, name: str, options: Any, dtype: str, tensor_lr: bool
) -> None:
    torch = pytest.importorskip("torch")
    from torch.optim import adam

    # It refuses the CPU, whose values the formulas of its other devices have as well.
    monkeypatch.setattr(adam, "_get_capturable_supported_devices", lambda *a, **k: ["cpu"])
    own, mine = (
        follow(lib, name, dtype, lr=lib.tensor(0.05) if tensor_lr else 0.05, capturable=True,
               **options)
        for lib in (torch, cd)
    )  # fmt: skip
    # Its corrections are computed in float32, and lose digits where beta is near 1.
    for got, wanted in zip(mine[0], own[0], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    counters = [[s["step"] for s in o.state.values()] for _, o in (mine, own)]
    for got, wanted in zip(*counters, strict=True):
        assert got.item() == wanted.item() == 7.0
        assert str(got.dtype).rpartition(".")[2] == str(wanted.dtype).rpartition(".")[2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_values_are_those_of_numbers_on_the_host(name: str, options: Any, dtype: str) -> None:
    near = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
    got = follow(cd, name, dtype, capturable=True, **options)[0]
    wanted = follow(cd, name, dtype, **options)[0]
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=near, atol=near)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many parameters each call of the operator was."""
    from coredispatch.frontend.optim import on_device

    found: list[int] = []
    operator = on_device._adam_steps

    class Counting:
        decomposition = operator.decomposition

        def __call__(self, params: Any, *rest: Any) -> Any:
            found.append(len(params))
            return operator(params, *rest)

    monkeypatch.setattr(on_device, "_adam_steps", Counting())
    return found


def test_a_dtype_is_one_call(calls: list[int]) -> None:
    kinds = cd.float32, cd.complex64, cd.float64, cd.float32, cd.float16
    parameters = [cd.nn.Parameter(cd.ones(3, dtype=kind)) for kind in kinds]
    optimizer = cd.optim.Adam(parameters, capturable=True)
    for p in parameters[1:]:
        p.grad = cd.ones_like(p)
    optimizer.step()
    assert sorted(calls) == [1, 1, 2]  # complex numbers are pairs; one has no gradient
    assert parameters[0] not in optimizer.state


def test_numbers_of_steps_come_and_go_with_state_dicts() -> None:
    weight = cd.nn.Parameter(cd.ones(3))
    plain = cd.optim.Adam([weight], lr=0.1)
    weight.grad = cd.ones(3)
    plain.step()
    other = cd.optim.Adam([weight], lr=0.1, capturable=True)
    state = copy.deepcopy(plain.state_dict())
    state["param_groups"][0]["capturable"] = True
    other.load_state_dict(state)
    other.step()
    counter = other.state[weight]["step"]
    assert counter.dtype is cd.float32 and counter.item() == 2.0
    state = copy.deepcopy(other.state_dict())
    state["param_groups"][0]["capturable"] = False
    plain.load_state_dict(state)
    plain.step()
    assert plain.state[weight]["step"] == 3


def test_the_default_dtype_decides_between_the_counters_dtypes() -> None:
    for default, wanted in ((cd.float64, cd.float64), (cd.float16, cd.float32)):
        weight = cd.nn.Parameter(cd.ones(3))
        weight.grad = cd.ones(3)
        optimizer = cd.optim.Adam([weight], capturable=True)
        cd.set_default_dtype(default)
        try:
            optimizer.step()
        finally:
            cd.set_default_dtype(cd.float32)
        assert optimizer.state[weight]["step"].dtype is wanted


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_an_overflow_leaves_everything_as_it_is(amsgrad: bool, capturable: bool) -> None:
    weight = cd.nn.Parameter(cd.ones(4))
    optimizer = cd.optim.AdamW(
        [weight], lr=0.1, amsgrad=amsgrad, capturable=capturable, fused=not capturable
    )
    scaler = cd.amp.GradScaler(init_scale=4.0)
    for value, steps in ((float("inf"), 0), (1.0, 1), (float("nan"), 1), (2.0, 2)):
        before = {k: v.clone() for k, v in optimizer.state[weight].items()}, weight.tolist()
        optimizer.zero_grad()
        scaler.scale((weight * value).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        after = optimizer.state[weight]
        assert after["step"].item() == steps
        if value not in (1.0, 2.0):
            assert weight.tolist() == before[1]
            assert all(cd.equal(after[k], v) for k, v in before[0].items())
        else:
            assert weight.tolist() != before[1]


def test_differentiable_steps_are_recorded() -> None:
    start = cd.full((3,), 2.0, dtype=cd.float64, requires_grad=True)
    weight = start * 1
    optimizer = cd.optim.Adam(
        [weight], lr=0.1, eps=1.0, betas=(0.5, 0.5), capturable=True, differentiable=True
    )
    weight.grad = (start**2).detach().requires_grad_()
    gradient = weight.grad
    optimizer.step()
    found = cd.autograd.grad(weight.sum(), (start, gradient))
    assert found[0].tolist() == [1.0] * 3
    # g / (|g| + 1) after the corrections of the first step: its slope is 1 / (g + 1)**2
    assert found[1].tolist() == pytest.approx([-0.1 / 25] * 3)


def test_a_compiled_step_counts_and_sees_its_learning_rate() -> None:
    found = []
    for run_by in (lambda step: step, lambda step: cd.compile(step, fullgraph=True)):
        weight = cd.nn.Parameter(cd.arange(5.0))
        lr = cd.tensor(0.5)
        optimizer = cd.optim.Adam([weight], lr=lr, capturable=True)

        def step(x: Any, optimizer: Any = optimizer, weight: Any = weight) -> Any:
            optimizer.zero_grad()
            (weight * x).square().sum().backward()
            optimizer.step()
            return weight.detach().clone()

        run: Callable[..., Any] = run_by(step)
        for number in range(6):
            if number == 4:
                lr.fill_(0.001)
            last = run(cd.full((5,), 1.0 + number))
        assert optimizer.state[weight]["step"].item() == 6.0
        found.append(last)
    cd.testing.assert_close(found[1], found[0])


def test_bad_arguments_are_named() -> None:
    def call(lr: Any = 0.1, beta1: float = 0.9, beta2: float = 0.9, found: Any = None) -> None:
        lists = [[cd.ones(2)] for _ in range(4)]
        steps = [cd.zeros(())]
        cd.ops.capturable_adam_steps(
            *lists, [], steps, found, lr, beta1, beta2, 1e-8, 0.0, False, False
        )

    call()
    call(cd.tensor([0.1]), found=cd.tensor([0.0]))
    for beta, which in itertools.product((-0.5, 1.0, float("nan")), ("beta1", "beta2")):
        with pytest.raises(ValueError, match=rf"{which} is {beta}[\s\S]*fix: pass a number in"):
            call(**{which: beta})
    with pytest.raises(RuntimeError, match=r"lr has shape \(2,\)[\s\S]*fix: pass a tensor of one"):
        call(cd.tensor([0.1, 0.2]))
    with pytest.raises(RuntimeError, match=r"found_inf has shape \(2,\)"):
        call(found=cd.zeros(2))
