"""Optimizers hand all parameters to one operator where a backend has a kernel over lists."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.plugin import hookimpl

OPTIMIZERS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1}),
]


@pytest.fixture
def calls() -> Iterator[list[tuple[str, int]]]:
    """Kernels over lists for the CPU that reject every call; which calls there were."""
    found: list[tuple[str, int]] = []

    def rejecting(name: str) -> Any:
        def kernel(params: Any, *rest: Any) -> Any:
            found.append((name, len(params)))
            return NotImplemented

        return kernel

    module = types.ModuleType("lists")

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        names = ("sgd_steps", "adam_steps")
        kernels = {name: rejecting(name) for name in names}
        registrar.kernels("cpu", kernels, priority=30)  # above those of the packs

    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("lists", module)
    yield found
    if "lists" in cd.plugins and cd.plugins["lists"].status == "loaded":
        cd.plugins.unload("lists")


def trained(name: str, options: dict[str, Any]) -> list[Any]:
    """Parameters of two dtypes after two steps, one of them without a gradient in the first."""
    cd.manual_seed(0)
    parameters = [
        cd.nn.Parameter(cd.randn(shape, dtype=dtype))
        for shape, dtype in (((3, 4), cd.float32), ((5,), cd.float64), ((2,), cd.float32))
    ]
    optimizer = getattr(cd.optim, name)(parameters, **options)
    for step in range(2):
        optimizer.zero_grad()
        sum((p * p).sum() for p in parameters[step == 0 :]).backward()
        optimizer.step()
    return [p.detach() for p in parameters]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_steps_are_those_of_one_parameter_after_the_other(
    calls: list[tuple[str, int]], name: str, options: dict[str, Any]
) -> None:
    together = trained(name, options)
    operator = "sgd_steps" if name == "SGD" else "adam_steps"
    assert {op for op, _ in calls} == {operator}
    assert sum(count for _, count in calls) == 5
    assert max(count for _, count in calls) == (1 if name != "SGD" or len(options) > 1 else 2)
    cd.plugins.unload("lists")
    before = len(calls)
    for got, wanted in zip(together, trained(name, options), strict=True):
        assert cd.equal(got, wanted)
    assert len(calls) == before


def test_complex_parameters_are_stepped_alone(calls: list[tuple[str, int]]) -> None:
    p = cd.nn.Parameter(cd.randn(3, dtype=cd.complex64))
    optimizer = cd.optim.SGD([p], lr=0.1)
    p.grad = cd.ones(3, dtype=cd.complex64)
    optimizer.step()
    assert calls == []
