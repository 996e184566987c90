"""``utils.checkpoint``: the same gradients, computed again instead of kept."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn as nn
from coredispatch.autograd import graph
from coredispatch.utils.checkpoint import (
    CheckpointError,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_early_stop,
)


def network(inplace: bool) -> nn.Sequential:
    cd.manual_seed(1)
    parts = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=inplace), nn.Dropout(0.5)]
    return nn.Sequential(*parts, nn.Linear(8, 3), nn.Tanh()).double()


def data() -> cd.Tensor:
    return cd.tensor(np.random.default_rng(0).standard_normal((6, 4)), requires_grad=True)


def gradients(run: Any, inplace: bool = True) -> list[Any]:
    net, x = network(inplace), data()
    cd.manual_seed(7)
    run(net, x).pow(2).sum().backward()
    return [p.grad.tolist() for p in [*net.parameters(), x]]


def assert_same(found: list[Any], plain: list[Any]) -> None:
    """The same gradients, but for the order in which a BLAS sums, which may change every time."""
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradients_and_random_numbers_are_the_same(use_reentrant: bool) -> None:
    plain = gradients(lambda net, x: net(x) * cd.rand(3, dtype=cd.float64))

    def run(net: Any, x: Any) -> Any:
        y = checkpoint(net, x, use_reentrant=use_reentrant)
        return y * cd.rand(3, dtype=cd.float64)

    assert_same(gradients(run), plain)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_without_the_random_state_dropout_differs(use_reentrant: bool) -> None:
    x = cd.ones(200, dtype=cd.float64, requires_grad=True)
    y = checkpoint(
        lambda t: nn.functional.dropout(t * 1, 0.5),
        x,
        use_reentrant=use_reentrant,
        preserve_rng_state=False,
    )
    cd.manual_seed(5)
    y.sum().backward()
    assert (x.grad != y.detach()).any()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_the_random_state_goes_on_as_if_nothing_was_computed_again(use_reentrant: bool) -> None:
    x = cd.ones(4, requires_grad=True)
    cd.manual_seed(3)
    y = checkpoint(lambda t: nn.functional.dropout(t, 0.5), x, use_reentrant=use_reentrant)
    before = cd.random.get_rng_state()
    y.sum().backward()
    assert (cd.random.get_rng_state() == before).all()


def test_nothing_of_the_function_is_saved() -> None:
    kept: list[int] = []

    def pack(tensor: Any) -> Any:
        kept.append(tensor.numel())
        return tensor

    x, calls = data(), []

    def function(t: Any) -> Any:
        calls.append(1)
        return (t.exp() * t).tanh().sin()

    with graph.saved_tensors_hooks(pack, lambda t: t):
        y = checkpoint(function, x, use_reentrant=False)
    assert kept == [x.numel()] and calls == [1]  # its argument alone
    y.sum().backward()
    assert calls == [1, 1]


@pytest.mark.parametrize("early", [True, False])
def test_recomputation_stops_when_it_has_everything(early: bool) -> None:
    x, reached = data(), []

    def function(t: Any) -> Any:
        out = t.exp()
        reached.append(1)
        return out * 2

    y = checkpoint(function, x, use_reentrant=False, early_stop=early)
    with set_checkpoint_early_stop(early):
        z = checkpoint(function, x, use_reentrant=False)
    y.sum().backward()
    z.sum().backward()
    assert len(reached) == (2 if early else 4)


def test_nested_checkpoints_kept_graphs_and_double_backward() -> None:
    def inner(t: Any) -> Any:
        return (t * t).sin()

    def outer(t: Any) -> Any:
        return checkpoint(inner, t.exp(), use_reentrant=False) * t

    results = []
    for function in (outer, lambda t: inner(t.exp()) * t):
        x = data()
        y = function(x) if function is not outer else checkpoint(outer, x, use_reentrant=False)
        y.sum().backward(retain_graph=True)
        (g,) = cd.autograd.grad(y.sum(), x, create_graph=True)
        (gg,) = cd.autograd.grad(g.pow(2).sum(), x)
        results.append((x.grad.numpy(), g.detach().numpy(), gg.numpy()))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_autocast_is_the_same_in_both_runs(use_reentrant: bool) -> None:
    seen: list[Any] = []

    def function(t: Any) -> Any:
        out = t @ t.mT
        seen.append(out.dtype)
        return out.sin()

    x = cd.ones(3, 3, requires_grad=True)
    with cd.autocast("cpu", dtype=cd.bfloat16):
        y = checkpoint(function, x, use_reentrant=use_reentrant)
    y.sum().backward()
    z = checkpoint(function, x, use_reentrant=use_reentrant).sum()
    with cd.autocast("cpu", dtype=cd.bfloat16):
        z.backward()
    assert seen == [cd.bfloat16, cd.bfloat16, cd.float32, cd.float32]


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("segments", [1, 2, 3])
def test_checkpoint_sequential(use_reentrant: bool, segments: int) -> None:
    plain = gradients(lambda net, x: net(x))
    again = gradients(
        lambda net, x: checkpoint_sequential(net, segments, x, use_reentrant=use_reentrant),
        # a part must not begin with a write to its input: that of a reentrant one is a leaf
        inplace=not use_reentrant and segments < 3,
    )
    assert_same(again, plain)


def test_contexts_of_the_two_runs() -> None:
    order: list[str] = []

    @contextlib.contextmanager
    def note(name: str) -> Any:
        order.append(name)
        yield

    x = data()
    y = checkpoint(
        lambda t, scale: t.exp() * scale,
        x,
        scale=2.0,
        use_reentrant=False,
        context_fn=lambda: (note("first"), note("second")),
    )
    y.sum().backward()
    assert order == ["first", "second"]


def test_runs_that_differ_are_refused() -> None:
    runs: list[int] = []

    def more(t: Any) -> Any:
        runs.append(1)
        return t.exp() if len(runs) % 2 else t.exp().sin().cos()

    def fewer(t: Any) -> Any:
        runs.append(1)
        return t.exp().sin() if len(runs) % 2 else t * 1

    def other(t: Any) -> Any:
        runs.append(1)
        return (t if len(runs) % 2 else t[:2]).exp().sum()

    x = data()
    with pytest.raises(CheckpointError, match="more tensors during recomputation"):
        checkpoint(more, x, use_reentrant=False, early_stop=False).sum().backward()
    runs.clear()
    with pytest.raises(CheckpointError, match="a different number of tensors"):
        checkpoint(fewer, x, use_reentrant=False).sum().backward()
    runs.clear()
    with pytest.raises(CheckpointError, match="different metadata"):
        checkpoint(other, x, use_reentrant=False).backward()
    assert cd.is_grad_enabled()


def test_arguments_are_checked() -> None:
    x = data()
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed"):
        checkpoint(lambda t: t * 2, x)
    with pytest.warns(UserWarning, match="None of the inputs"):
        checkpoint(lambda t: t * 2, x.detach(), use_reentrant=True)
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(lambda t: t, x, use_reentrant=False, determinism_check="some")
    with pytest.raises(ValueError, match="Unexpected keyword"):
        checkpoint(lambda t: t, x, use_reentrant=True, scale=2)
    y = checkpoint(lambda t: t.exp(), x, use_reentrant=True).sum()
    with pytest.raises(RuntimeError, match="incompatible with"):
        cd.autograd.grad(y, x)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_autocast_that_was_off_is_off_in_the_second_run(use_reentrant: bool) -> None:
    """Also where a block was entered that switches it off."""
    seen: list[Any] = []

    def function(x: Any) -> Any:
        out = x @ x
        seen.append(out.dtype)
        return out.sin()

    x = cd.ones(2, 2, requires_grad=True)
    with cd.autocast("cpu"), cd.autocast("cpu", enabled=False), cd.autocast("meta"):
        out = checkpoint(function, x, use_reentrant=use_reentrant)
    with cd.autocast("cpu"):
        out.sum().backward()
    assert seen == [cd.float32, cd.float32]


@pytest.mark.parametrize("keyword", [False, True])
def test_writes_to_arguments_are_seen(keyword: bool) -> None:
    x, y = data(), cd.ones(6, 4, dtype="float64")
    for write in (lambda t: y.add_(1), lambda t: t.mul_(10)):
        made = x * 3
        named = {"b": y} if keyword else {}
        out = checkpoint(
            lambda a, b: (a * b).sin(),
            made,
            *([] if keyword else [y]),
            use_reentrant=False,
            **named,
        )
        write(made)
        with pytest.raises(RuntimeError, match="modified by an in-?place operation"):
            out.sum().backward()
    out = checkpoint(lambda t: t.add_(1) * t, x * 2, use_reentrant=False)
    with pytest.raises(RuntimeError, match="modified by an in-?place operation"):
        out.sum().backward()
