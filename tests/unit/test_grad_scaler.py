"""The gradient scaler goes through the stages that PyTorch's goes through, and refuses the rest."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_what_needs_a_scaled_loss_first() -> None:
    parameter = cd.nn.Parameter(cd.ones(1))
    optimizer = cd.optim.SGD([parameter], lr=0.5)
    scaler = cd.amp.GradScaler("cpu")
    for call in (lambda: scaler.unscale_(optimizer), lambda: scaler.step(optimizer), scaler.update):
        with pytest.raises(AssertionError, match="_scale is None"):
            call()
    with pytest.raises(ValueError, match="iterable of Tensors"):
        scaler.scale(3)  # type: ignore[call-overload]
    assert [x.item() for x in scaler.scale(iter([cd.ones(())]))] == [65536]  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_outputs_are_scaled_as_pytorchs(name: str, shape: tuple[int, ...]) -> None:
    """The usual first scale, 65536, is more than float16 holds; half of it is not."""
    torch = pytest.importorskip("torch")
    results = []
    for lib in (cd, torch):
        value = lib.ones(shape) / (1 if name == "int64" else 2)
        scaled = lib.amp.GradScaler("cpu").scale(value.to(getattr(lib, name)))
        results.append((str(scaled.dtype).rpartition(".")[2], scaled.tolist()))
    assert results[0] == results[1]


def test_it_is_pickled_between_steps() -> None:
    _, optimizer, scaler = _prepared()
    scaler.step(optimizer)
    with pytest.raises(AssertionError, match="may only be pickled"):
        pickle.dumps(scaler)
    scaler.update()
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == scaler.state_dict()


def test_a_sparse_gradient_is_unscaled() -> None:
    table = cd.nn.Embedding(5, 2, sparse=True)
    optimizer = cd.optim.SGD(table.parameters(), lr=1.0)
    scaler = cd.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(table(cd.tensor([1, 1, 2])).sum()).backward()
    scaler.unscale_(optimizer)
    assert table.weight.grad.to_dense().sum(1).tolist() == [0, 4, 2, 0, 0]


OPTIMIZERS = {
    "sgd": lambda m, p, **k: m.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, **k),
    "adam": lambda m, p, **k: m.Adam(p, lr=0.1, weight_decay=0.1, amsgrad=True, **k),
    "adamw": lambda m, p, **k: m.AdamW(p, lr=0.1, maximize=True, **k),
}


def _trained(lib: Any, name: str, overflows: list[bool], fused: bool) -> tuple[Any, ...]:
    """Parameters, state of the optimizer and of the scaler after steps, some of which overflow."""
    parameter = lib.nn.Parameter(lib.tensor([1.0, -2.0, 0.5]))
    optimizer = OPTIMIZERS[name](lib.optim, [parameter], fused=fused)
    scaler = lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for overflow in overflows:
        optimizer.zero_grad()
        loss = (parameter * lib.tensor([1.0, 2.0, 3.0])).sin().sum()
        scaler.scale(loss).backward()
        if overflow:
            parameter.grad[1] = math.inf
        scaler.step(optimizer)
        scaler.update()
    state = optimizer.state_dict()["state"].get(0, {})
    kept = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in state.items()}
    return parameter.tolist(), kept, scaler.state_dict()


@pytest.mark.parametrize("name", OPTIMIZERS)
@given(st.lists(st.booleans(), min_size=1, max_size=6))
@settings(max_examples=15)
def test_a_step_decided_without_reading_is_the_usual_one(name: str, overflows: list[bool]) -> None:
    read, kept, state = _trained(cd, name, overflows, fused=False)
    decided, other, again = _trained(cd, name, overflows, fused=True)
    assert decided == pytest.approx(read, rel=1e-4, abs=1e-6)
    assert state == again
    for key, value in kept.items():
        assert other[key] == pytest.approx(value, rel=1e-4, abs=1e-6), key


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_that_overflow_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    overflows = [True, False, False, True, False, False, False]
    wanted = _trained(torch, name, overflows, fused=False)
    for fused in (False, True):
        parameter, _, state = _trained(cd, name, overflows, fused)
        assert parameter == pytest.approx(wanted[0], rel=1e-4, abs=1e-6)
        assert state == wanted[2]


@pytest.mark.parametrize("inverse", [0.25, cd.tensor(0.25)], ids=["number", "tensor"])
def test_a_list_is_unscaled_and_looked_at_by_one_operator(inverse: Any) -> None:
    given = [cd.full((3,), 8.0), cd.full((2, 2), 4.0, dtype=cd.float64), cd.tensor(2.0)]
    found = cd.zeros(())
    cd.ops.unscale_each(given, found, inverse)
    assert [x.flatten()[0].item() for x in given] == [2.0, 1.0, 0.5] and found.item() == 0
    given[1][0, 1] = -math.inf
    cd.ops.unscale_each(given, found, inverse)
    assert found.item() == 1 and given[0].tolist() == [0.5] * 3
    cd.ops.unscale_each(given[:1], found, inverse)
    assert found.item() == 1  # it stays raised


def test_a_mode_sees_the_operators_of_each_gradient() -> None:
    from coredispatch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    gradients, found = [cd.ones(2), cd.tensor([1.0, math.nan])], cd.zeros(())
    with Seen():
        cd._amp_foreach_non_finite_check_and_unscale_(gradients, found, cd.tensor(0.5))
    assert found.item() == 1 and gradients[0].tolist() == [0.5, 0.5]
    assert len([name for name in seen if "mul" in name]) == 2
