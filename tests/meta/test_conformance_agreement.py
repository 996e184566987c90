"""Two ways of one operator are compared: kernel and decomposition, in-place form and plain form."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import Status, Subject, plan_op, run_case
from coredispatch.conformance.variations import variations, variations_of_two
from coredispatch.plugin import hookimpl


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("cpu")


@pytest.fixture
def kernel() -> Iterator[Any]:
    """Registers a kernel of the highest priority."""

    def load(op: str, fn: Any) -> None:
        @hookimpl
        def coredispatch_register(registrar: Any) -> None:
            registrar.kernels("cpu", {op: fn}, priority=10**8)

        module = ModuleType("wrong")
        module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
        cd.plugins.load("wrong", module)

    yield load
    cd.plugins.unload("wrong")


def judged(subject: Subject, op: str, variant: str) -> dict[str, Any]:
    cases = [c for c in plan_op(subject, op) if c.variant == variant]
    return {c.dtype: run_case(subject, c) for c in cases}


def test_a_kernel_that_differs_for_an_option_no_sample_has_is_found(
    subject: Subject, kernel: Any
) -> None:
    def tril(x: Any, diagonal: int) -> Any:
        if x.ndim < 2:
            raise cd.ShapeError("a matrix is needed")
        return np.tril(x, max(diagonal, -2))

    assert {r.status for r in judged(subject, "tril", "decomposition").values()} == {Status.PASS}
    kernel("tril", tril)
    found = judged(subject, "tril", "decomposition")["float64"]
    assert found.status is Status.FAIL
    assert found.message.startswith("diagonal=-4: kernel and decomposition differ")


def test_a_kernel_that_refuses_an_empty_tensor_is_found(subject: Subject, kernel: Any) -> None:
    def bmm(a: Any, b: Any) -> Any:
        if a.size == 0:
            raise cd.ShapeError("nothing to multiply")
        return a @ b

    kernel("bmm", bmm)
    found = judged(subject, "bmm", "decomposition")["float64"]
    assert found.status is Status.FAIL
    assert "the kernel refuses what the decomposition serves" in found.message


def test_variations_turn_every_option_and_empty_every_array() -> None:
    op = cd.ops.sum
    sample = next(s for s in op.samples(_make()) if s.args[1:] == (1, False))
    said = {v.what for v in variations(op, sample)}
    assert {"as it stands", "dim=-1", "dim=0", "keepdim=True", "without dimensions"} <= said
    assert "0 in the place of 5 elements" in said
    both = {v.what for v in variations_of_two(op, sample)}
    assert "without dimensions, keepdim=True" in both


def _make() -> Any:
    from coredispatch.conformance.covering_array import ConfiguredMake

    return ConfiguredMake(np.dtype(np.float64))


@pytest.mark.parametrize("op", ["mul", "lerp", "scatter_add", "leaky_relu"])
def test_inplace_forms_are_compared_with_the_plain_ones(
    subject: Subject, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = judged(subject, op, "in-place-form")["float64"]
    assert result.status is Status.PASS
    assert result.assertions > 20


def test_an_inplace_form_with_another_derivative_is_found(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cd.ops.mul_, "vjp_rule", cd.ops.add.vjp_rule)
    cd.plugins.load("fresh_memos", _nothing())
    try:
        found = judged(subject, "mul", "in-place-form")["float64"]
    finally:
        monkeypatch.undo()
        cd.plugins.unload("fresh_memos")
    assert found.status is Status.FAIL
    assert "gradient" in found.message


def _nothing() -> ModuleType:
    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        pass

    module = ModuleType("nothing")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    return module
