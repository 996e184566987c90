"""What the suite makes of libraries that add up in another order from call to call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import Result, Status, Subject, plan_op, run_case
from coredispatch.plugin import hookimpl

#: in-place-and-out, determinism, concurrency
CHECKS = (7, 10, 16)


@contextmanager
def served_by(op: str, kernel: Callable[..., Any]) -> Iterator[None]:
    """``kernel`` in the place of the embedded one."""

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.kernels("cpu", {op: kernel}, priority=10**9)

    module = ModuleType("another_order")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("another_order", module)
    try:
        yield
    finally:
        cd.plugins.unload("another_order")


def judged(op: str, kernel: Callable[..., Any]) -> list[Result]:
    with served_by(op, kernel):
        subject = Subject("cpu")
        return [
            run_case(subject, case)
            for case in plan_op(subject, op)
            if case.check in CHECKS and case.dtype == "float32"
        ]


def in_another_order(a: Any, b: Any) -> Any:
    """The product with its terms permuted, another way at every call."""
    if a.ndim and b.ndim and a.dtype.kind == "f":
        order = np.random.default_rng().permutation(a.shape[-1])
        a, b = a[..., order], b[order] if b.ndim == 1 else b[..., order, :]
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(a, b))


def test_an_order_that_changes_from_call_to_call_is_no_fault() -> None:
    results = judged("matmul", in_another_order)
    assert {r.check for r in results} == set(CHECKS)
    of_it = [r for r in results if "overlap" not in r.case]  # its results have other shapes
    assert {r.status for r in of_it} == {Status.PASS}, [r.message for r in results]
    # It is said, though.
    assert any(r.details.get("repeats") is False for r in results)


@pytest.mark.parametrize(
    ("op", "plain"), [("matmul", in_another_order), ("sum", lambda x, *rest: np.sum(x, rest[0]))]
)
def test_a_sum_that_is_wrong_every_other_time_fails(op: str, plain: Callable[..., Any]) -> None:
    calls = [0]

    def kernel(x: Any, *rest: Any) -> Any:
        calls[0] += 1
        with np.errstate(all="ignore"):
            result = np.asarray(plain(x, *rest))
            return result * result.dtype.type(1 + 1e-3 * (calls[0] % 2))

    results = [r for r in judged(op, kernel) if r.check == 10]
    assert {r.status for r in results} == {Status.FAIL}
    assert "the values differ" in results[0].message


def one_unit_off_every_other_time(function: Callable[..., Any]) -> Callable[..., Any]:
    calls = [0]

    def kernel(x: Any) -> Any:
        calls[0] += 1
        with np.errstate(all="ignore"):
            result = function(x)
            return np.nextafter(result, result.dtype.type(9)) if calls[0] % 2 else result

    return kernel


@pytest.mark.parametrize(("op", "function"), [("exp", np.exp), ("abs", np.abs)])
def test_what_sums_nothing_repeats_bit_by_bit(op: str, function: Callable[..., Any]) -> None:
    results = [r for r in judged(op, one_unit_off_every_other_time(function)) if r.check == 10]
    assert {r.status for r in results} == {Status.FAIL}
    assert "the values differ" in results[0].message


def test_other_code_for_other_strides_is_no_fault_of_what_rounds() -> None:
    results = [r for r in judged("exp", one_unit_off_every_other_time(np.exp)) if r.check == 7]
    assert {r.status for r in results} == {Status.PASS}, [r.message for r in results]
    assert any(r.details.get("repeats") is False for r in results)
    results = [r for r in judged("neg", one_unit_off_every_other_time(np.negative)) if r.check == 7]
    assert Status.FAIL in {r.status for r in results}
