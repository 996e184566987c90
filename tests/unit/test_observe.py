"""What ``observe`` says of kernels that reject: the one that served is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.plugin import hookimpl


@pytest.fixture
def large_only() -> Iterator[None]:
    """A kernel pack that takes calls of 100 elements or more, and of those no integers."""

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.kernels(
            "cpu",
            {"exp": np.exp, "add": lambda a, b, out=None: np.add(a, b, out=out)},
            priority=10**6,
            least=100,
            when=lambda a, *_: a.dtype.kind == "f",
        )

    module = ModuleType("large_only")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("large_only", module)
    yield
    cd.plugins.unload("large_only")


def served(call: Any) -> str:
    with cd.observe() as log:
        call()
    return log[0].plugin


def test_the_kernel_that_served_is_named(large_only: None) -> None:
    small, large = cd.ones(5), cd.ones(500)
    assert served(lambda: cd.exp(small)) != "large_only"
    assert served(lambda: cd.exp(large)) == "large_only"
    assert served(lambda: small + small) != "large_only"
    assert served(lambda: large + large) == "large_only"
    assert served(lambda: cd.ones(500, dtype=cd.int64) + 1) != "large_only"


def test_in_place_forms_name_it_too(large_only: None) -> None:
    small, large = cd.ones(5), cd.ones(500)
    assert served(lambda: small.add_(small)) != "large_only"
    assert served(lambda: large.add_(large)) == "large_only"
    assert large.tolist() == [2.0] * 500


def test_calls_inside_do_not_rename_those_outside(large_only: None) -> None:
    with cd.observe() as log:
        cd.softmax(cd.ones(5, requires_grad=True), 0)
        cd.exp(cd.ones(500))
    assert [o.plugin for o in log if o.plugin == "large_only"] == ["large_only"]


def test_a_call_is_not_looked_for_among_all_earlier_ones(large_only: None) -> None:
    """A watch over 20,000 calls would take minutes."""
    small = cd.ones(5)
    steps = 0

    def see(frame: Any, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"  # one also where a loop begins again
        return see

    def of_calls(count: int) -> int:
        nonlocal steps
        with cd.observe():
            cd.exp(small)
            before, steps = sys.gettrace(), 0
            sys.settrace(see)
            try:
                for _ in range(count):
                    cd.exp(small)
            finally:
                sys.settrace(before)
        return steps

    assert of_calls(200) <= 2.5 * of_calls(100)
