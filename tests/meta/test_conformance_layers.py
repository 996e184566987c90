"""Layers of third parties are certified: calls through them against calls without them."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.conformance import BACKEND, Result, Status, Subject, plan_op, run_case
from coredispatch.conformance.levels import known_profiles
from coredispatch.plugin import Layer, Mode, Switch, hookimpl
from coredispatch.registry import PluginError


class Watching(Mode):
    """Every call inside is seen by the layer ``watch``."""

    switch = Switch(on=("watch",))


def inside(function: Any, args: Any) -> Any:
    with Watching():
        return function(*args)


@pytest.fixture
def load() -> Iterator[Any]:
    """Loads a plugin with one layer called ``watch``."""

    def plugin(**details: Any) -> None:
        @hookimpl
        def coredispatch_register(registrar: Any) -> None:
            registrar.layer(Layer("watch", above=("autograd",), **details))

        module = ModuleType("theirs")
        module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
        cd.plugins.load("theirs", module)

    yield plugin
    if "theirs" in cd.plugins:
        cd.plugins.unload("theirs")


def judged(op: str, *profiles: str) -> list[Result]:
    subject = Subject("cpu")
    return [run_case(subject, case) for case in plan_op(subject, op, None, profiles or ("watch",))]


def passes(*results: Result) -> bool:
    return bool(results) and all(r.status is Status.PASS for r in results)


@pytest.mark.parametrize(
    "op", [BACKEND, "add", "permute", "std_mean", "randn_like", "fill_", "cat", "linear"]
)
def test_a_layer_that_only_counts_is_certified(load: Any, op: str) -> None:
    seen = []

    def count(call: Any, args: Any) -> Any:
        seen.append(call.op.name)
        return call.below(args)

    load(generic=count, through=inside)
    assert "watch" in known_profiles() and "theirs" in known_profiles()
    assert passes(*judged(op))
    assert seen


def test_a_kernel_for_one_operator_is_judged_on_that_one_alone(load: Any) -> None:
    load(kernels={"neg": lambda call, x: call.run_below(cd.mul, x, -1.5)}, through=inside)
    wrong = judged("neg")
    assert not passes(*wrong) and "with the layer" in wrong[0].message
    assert judged("abs") == []


def test_another_meaning_is_declared_and_then_held_to(load: Any) -> None:
    def soft(call: Any, x: Any) -> Any:
        return call.run_below(cd.nn.functional.softplus, x)

    kept: dict[str, Any] = {"through": inside, "keeps": ("bits", "gradients")}
    load(kernels={"relu": soft}, **kept)
    assert not passes(*judged("relu"))
    cd.plugins.unload("theirs")
    load(
        kernels={"relu": soft},
        meaning=lambda op, function, args: cd.nn.functional.softplus(*args),
        **kept,
    )
    assert passes(*judged("relu"))


def test_a_layer_whose_call_is_never_in_force_is_not_certified(load: Any) -> None:
    load(
        generic=lambda call, args: call.below(args), through=lambda function, args: function(*args)
    )
    assert any("no call was seen" in result.message for result in judged("mul"))


def test_a_layer_that_declares_nothing_is_not_judged(load: Any) -> None:
    load(generic=lambda call, args: call.below(args))
    (result,) = judged(BACKEND)
    assert result.status is Status.NOT_RUN and "through=" in result.message
    assert judged("mul") == []


@pytest.mark.parametrize("keeps", ["bits", ("bits", "shapes")])
def test_what_a_layer_may_keep_is_checked(load: Any, keeps: Any) -> None:
    with pytest.raises(PluginError, match="keeps="):
        load(through=inside, keeps=keeps)


@pytest.mark.parametrize("profile", ["autograd", "autocast", "inference"])
def test_our_own_layers_conform(profile: str) -> None:
    results = [
        r for op in (BACKEND, "mul", "matmul", "softmax", "cat") for r in judged(op, profile)
    ]
    assert passes(*[r for r in results if r.mandatory])
    assert all(r.status in (Status.PASS, Status.NOT_RUN) for r in results)
