"""The gradient scaler goes through the stages that PyTorch's goes through, and refuses the rest."""

from __future__ import annotations

import math
from typing import Any

import pytest

import coredispatch as cd


def _prepared(dtype: Any = cd.float32) -> tuple[Any, Any, Any]:
    parameter = cd.nn.Parameter(cd.ones(2, dtype=dtype))
    optimizer = cd.optim.SGD([parameter], lr=0.5)
    scaler = cd.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
    scaler.scale((parameter * 2).sum()).backward()
    return parameter, optimizer, scaler


def test_a_step() -> None:
    parameter, optimizer, scaler = _prepared()
    assert parameter.grad.tolist() == [8, 8]
    scaler.unscale_(optimizer)
    assert parameter.grad.tolist() == [2, 2]
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [0, 0]
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ("unscale_ unscale_", RuntimeError),
        ("step unscale_", RuntimeError),
        ("step step", RuntimeError),
        ("update", AssertionError),
        ("step update update", AssertionError),
    ],
)
def test_calls_out_of_turn(calls: str, error: type[Exception]) -> None:
    _, optimizer, scaler = _prepared()
    *before, last = calls.split()
    for call in before:
        getattr(scaler, call)(*([] if call == "update" else [optimizer]))
    with pytest.raises(error) as caught:
        getattr(scaler, last)(*([] if last == "update" else [optimizer]))
    assert isinstance(caught.value, cd.CoreDispatchError) and caught.value.fix


def test_float16_gradients_and_closures_are_refused() -> None:
    _, optimizer, scaler = _prepared(cd.float16)
    with pytest.raises(ValueError, match="FP16"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="Closure"):
        scaler.step(optimizer, closure=lambda: None)


def test_an_optimizer_without_gradients_is_refused() -> None:
    parameter, optimizer, scaler = _prepared()
    parameter.grad = None
    with pytest.raises(AssertionError):
        scaler.step(optimizer)


def test_an_overflow_skips_the_step_and_lowers_the_scale() -> None:
    parameter, optimizer, scaler = _prepared()
    parameter.grad[0] = math.inf
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [1, 1] and scaler.get_scale() == 2.0


def test_the_scale_grows_after_clean_steps_and_stays_finite() -> None:
    _, optimizer, scaler = _prepared()
    for _ in range(2):
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 8.0
    scaler.step(optimizer)
    scaler.update(cd.tensor(3e38))
    scaler.set_growth_factor(1e10)
    scaler.set_growth_interval(1)
    scaler._scale = 1e308
    scaler._adjust(False)
    assert scaler.get_scale() == 1e308


def test_two_optimizers_share_an_update() -> None:
    _, first, scaler = _prepared()
    other = cd.nn.Parameter(cd.ones(1))
    second = cd.optim.SGD([other], lr=0.5)
    scaler.scale(other.sum()).backward()
    other.grad[0] = math.nan
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert other.tolist() == [1] and scaler.get_scale() == 2.0
