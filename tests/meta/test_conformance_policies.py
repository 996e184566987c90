"""Tests of the suite: what a backend declares to do otherwise is allowed, and no more than that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import (
    Expectations,
    ExpectationsError,
    Result,
    Status,
    Subject,
    plan_op,
    run_case,
)
from coredispatch.conformance.policies import Policies, flushed
from coredispatch.plugin import hookimpl

TINY = float(np.finfo(np.float32).smallest_subnormal)


def flushing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel as on a device without subnormal numbers of float32."""

    def kernel(*args: Any) -> Any:
        given = [zeroed(a) if isinstance(a, np.ndarray) else a for a in args]
        return zeroed(np.asarray(fn(*given)))

    def zeroed(a: Any) -> Any:
        if a.dtype != np.float32:
            return a
        small = np.abs(a) < np.finfo(np.float32).smallest_normal
        return np.where(small, np.copysign(np.float32(0), a), a)

    return kernel


def coarse(fn: Callable[..., Any], bits: int = 10) -> Callable[..., Any]:
    """Products whose operands keep ``bits`` of their mantissa."""

    def kernel(a: Any, b: Any) -> Any:
        if a.dtype != np.float32:
            return fn(a, b)
        mask = np.uint32(0xFFFFFFFF << (23 - bits) & 0xFFFFFFFF)
        half = np.uint32(1 << (22 - bits))
        return fn(*(((x.view(np.uint32) + half) & mask).view(np.float32) for x in (a, b)))

    return kernel


@pytest.fixture(scope="module", autouse=True)
def numpy_alone() -> Iterator[None]:
    """The kernels that tests wrap are NumPy's, whatever else is installed."""
    if "cpu_numba" not in cd.plugins:
        yield
        return
    module = cd.plugins["cpu_numba"].module
    cd.plugins.unload("cpu_numba")
    yield
    cd.plugins.load("cpu_numba", module)


@pytest.fixture
def replace() -> Iterator[Callable[..., None]]:
    """A pack whose kernels are made of the backend's own."""

    def load(**wrappers: Any) -> None:
        own = {op: Subject("cpu").kernel(op).fn for op in wrappers}  # type: ignore[union-attr]
        kernels = {op: wrap(own[op]) for op, wrap in wrappers.items()}

        def coredispatch_register(registrar: Any) -> None:
            registrar.kernels("cpu", kernels, priority=10**6)

        module = ModuleType("policies_pack")
        module.coredispatch_register = hookimpl(  # type: ignore[attr-defined]
            specname="coredispatch_register"
        )(coredispatch_register)
        cd.plugins.load("policies_pack", module)

    yield load
    if "policies_pack" in cd.plugins:
        cd.plugins.unload("policies_pack")


def subject(tmp_path: Path, text: str = "") -> Subject:
    path = tmp_path / "conformance.toml"
    path.write_text(text)
    return Subject("cpu", path)


def values(under: Subject, op: str) -> list[Result]:
    cases = [c for c in plan_op(under, op) if c.check in (1, 5, 8) and c.dtype == "float32"]
    return [run_case(under, c) for c in cases]


def failed(results: list[Result]) -> list[Result]:
    return [r for r in results if r.status not in (Status.PASS, Status.NOT_RUN)]


@pytest.mark.parametrize("op", ["mul", "neg", "log", "eq", "div"])
def test_a_device_that_flushes_says_so_once(tmp_path: Path, replace: Any, op: str) -> None:
    replace(**{op: flushing})
    strict = values(subject(tmp_path), op)
    assert failed(strict), "the special values hold subnormal numbers"
    declared = values(subject(tmp_path, '[policies]\nflush_to_zero = ["float32"]\n'), op)
    assert not failed(declared), failed(declared)[0].message
    used = [r for r in declared if r.details.get("policies") == ["flush_to_zero"]]
    assert {r.case for r in used} == {r.case for r in failed(strict)}
    other = values(subject(tmp_path, '[policies]\nflush_to_zero = ["float16"]\n'), op)
    assert {r.case for r in failed(other)} == {r.case for r in failed(strict)}


def test_a_device_that_flushes_has_no_other_license(tmp_path: Path, replace: Any) -> None:
    replace(mul=lambda fn: lambda a, b: fn(a, b) + np.float32(1e-5))
    assert failed(values(subject(tmp_path, '[policies]\nflush_to_zero = ["float32"]\n'), "mul"))


def test_products_of_ten_bits_are_a_policy_and_of_seven_a_fault(
    tmp_path: Path, replace: Any
) -> None:
    replace(matmul=coarse)
    assert failed(values(subject(tmp_path), "matmul"))
    allowing = subject(tmp_path, "[policies]\ntf32 = true\n")
    for op in ("matmul", "linear"):
        found = values(allowing, op)
        assert not failed(found), failed(found)[0].message
    cd.plugins.unload("policies_pack")
    replace(matmul=lambda fn: coarse(fn, 4), exp=lambda fn: lambda x: fn(x) * np.float32(1.001))
    assert failed(values(allowing, "matmul"))
    assert failed(values(allowing, "exp")), "tf32 is about products"


def test_the_cases_of_a_backend_that_compiles_share_their_shapes(tmp_path: Path) -> None:
    def rows(text: str) -> tuple[set[Any], set[Any]]:
        cases = [c for c in plan_op(subject(tmp_path, text), "sum") if c.check in (1, 5)]
        drawn = [c for c in cases if c.distribution != "-"]
        return {(c.dtype, c.rows) for c in drawn}, {c.rows for c in drawn}

    varied, _ = rows("")
    shared, met = rows("[policies]\ncompiles = true\n")
    dtypes = {dtype for dtype, _ in varied}
    assert len(varied) > len(shared) == len(dtypes)
    modulus = next(iter(met))[1]
    assert len({number % modulus for number, _ in met}) == modulus, "every sample is met"


def test_a_backend_that_compiles_is_shown_what_its_shapes_cost(tmp_path: Path) -> None:
    under = subject(tmp_path, "[policies]\ncompiles = true\n")
    values(under, "neg")
    taken = under.compilations.taken()
    assert taken["shapes"] > 1
    assert taken["first"] > 0
    assert under.compilations.taken() == {"shapes": 0, "first": 0.0, "again": 0.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[policies]\nfast = true\n", "unknown policy 'fast'"),
        ("[policies]\ntf32 = 1\n", "must be true or false"),
        ('[policies]\nflush_to_zero = ["int8"]\n', "'int8' in policies.flush_to_zero is unknown"),
        ("policies = 3\n", "policies must be a table"),
    ],
)
def test_policies_that_mean_nothing_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "conformance.toml"
    path.write_text(text)
    with pytest.raises(ExpectationsError, match=said):
        Expectations.load(path)


def test_policies_of_the_class_need_no_file(tmp_path: Path) -> None:
    path = tmp_path / "conformance.toml"
    path.write_text("[policies]\ncompiles = false\n")
    own = {"flush_to_zero": ["float32"], "compiles": True}
    assert Expectations.load(None, own).policies == Policies(("float32",), compiles=True)
    assert Expectations.load(path, own).policies == Policies(("float32",)), "the file is heard last"
    with pytest.raises(ExpectationsError, match="Mine: unknown policy 'fast'"):
        Expectations.load(None, {"fast": True}, "Mine")


def test_a_backend_has_the_policies_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Subject("cpu").backend
    monkeypatch.setattr(type(backend), "policies", {"tf32": True})
    assert Subject("cpu").expectations.policies == Policies(tf32=True)


def test_flushing_keeps_signs_and_normal_numbers() -> None:
    array = np.array([TINY, -TINY, 1e-30, np.nan, np.inf, 0.0, 2e-38], np.float32)
    found = flushed(array, ("float32",))
    assert np.array_equal(found[2:], array[2:], equal_nan=True)
    assert found[0] == found[1] == 0
    assert np.signbit(found[:2]).tolist() == [False, True]
    assert flushed(array, ("float64",)) is array
    both = flushed(np.array([TINY + TINY * 1j], np.complex64), ("float32",))
    assert both[0] == 0
