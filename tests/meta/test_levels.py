"""Tests of levels, profiles and reports: nothing is reached that did not run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import (
    LEVELS,
    Result,
    Status,
    Subject,
    plan,
    plan_op,
    report,
    run_case,
    shards,
)
from coredispatch.conformance.levels import belongs
from coredispatch.conformance.report import document
from coredispatch.plugin import hookimpl


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("cpu")


def judged(subject: Subject, profiles: tuple[str, ...]) -> dict[str, Any]:
    options = shards.Options("cpu", level=None, profiles=profiles)
    cases = [c for cases in shards.planned(subject, options).values() for c in cases]
    run = shards.Run(options, cases)
    run.results = {c.id: run_case(subject, c) for c in cases}
    return document(subject, run)


def test_levels_are_nested_and_the_small_one_asks_every_operator(subject: Subject) -> None:
    cases = list(plan(subject, level="full"))
    asked = {level: {c.id for c in cases if belongs(c, level, ())} for level in LEVELS}
    names = list(LEVELS)
    assert all(asked[a] < asked[b] for a, b in itertools.pairwise(names))

    def judged(level: str) -> set[str]:
        return {c.op for c in cases if c.check == 1 and c.id in asked[level]}

    assert judged("operators") == judged("inference")
    assert 8 * len(asked["operators"]) < len(asked["training"])


def test_a_profile_of_which_nothing_ran_is_not_reached(subject: Subject) -> None:
    found = judged(subject, ("async",))
    assert found["counts"] == {"not_run": 2}
    assert found["verdict"]["unproven"] == ["async"]
    assert not found["verdict"]["passed"]
    text = report.summary(found)
    assert "does not conform to 'async'" in text
    assert "every call waits for its result" in text
    assert "every call waits for its result" in report.page(found, None)


def test_the_reports_of_a_folder_are_listed(subject: Subject, tmp_path: Path) -> None:
    import json

    (tmp_path / "one.json").write_text(json.dumps(judged(subject, ("async",))))
    documents = report.gather(tmp_path)
    assert report.listing(documents).startswith("one  async  does not conform  0 pass, 2 not_run")
    assert 'href="one.html"' in report.overview(documents)


# ---- kernels that reject -----------------------------------------------------------------------


@pytest.fixture
def pack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """Loads a kernel for ``exp`` that takes calls of 1,000 elements or more."""

    def load(fn: Any) -> None:
        @hookimpl
        def coredispatch_register(registrar: Any) -> None:
            registrar.kernels("cpu", {"exp": fn}, priority=10**6, least=1000)

        module = ModuleType("pack")
        module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
        cd.plugins.load("pack", module)
        monkeypatch.setattr(cd.plugins["pack"], "distribution", "pack")

    yield load
    cd.plugins.unload("pack")


def results(subject: Subject) -> list[Result]:
    cases = [c for c in plan_op(subject, "exp") if c.variant == "kernel+pack"]
    assert {c.dtype for c in cases} == {"float32", "float64", "bfloat16"}
    return [run_case(subject, c) for c in cases]


def test_a_kernel_is_tried_at_the_sizes_it_takes(subject: Subject, pack: Any) -> None:
    sizes: list[int] = []

    def counted(x: Any) -> Any:
        sizes.append(x.size)
        return np.exp(x)

    pack(counted)
    assert {r.status for r in results(subject)} == {Status.PASS}
    assert min(sizes) >= 1000
    assert max(sizes) > 50_000


def test_a_kernel_that_is_wrong_at_large_sizes_only_is_found(subject: Subject, pack: Any) -> None:
    def tail_dropped(x: Any) -> Any:
        out = np.exp(x)
        out.reshape(-1)[x.size - x.size % 4 :] = 0
        return out

    pack(tail_dropped)
    assert Status.FAIL in {r.status for r in results(subject)}


def test_a_kernel_that_no_sample_reaches_does_not_pass(subject: Subject, pack: Any) -> None:
    pack(lambda x: NotImplemented)
    *found, low = results(subject)
    assert {r.status for r in found} == {Status.FAIL}
    assert low.status is Status.NOT_RUN
    assert "served by pack" in found[0].message


def test_a_kernel_for_half_precision_alone_is_judged_there(subject: Subject, pack: Any) -> None:
    def serving(worse: float) -> Any:
        def kernel(x: Any) -> Any:
            if x.dtype.itemsize != 2:
                return NotImplemented
            return (np.exp(x.astype(np.float32)) * worse).astype(x.dtype)

        return kernel

    pack(serving(1.0))
    *others, low = results(subject)
    assert {r.status for r in others} == {Status.NOT_RUN}
    assert "serves bfloat16, and no calls of float" in others[0].message
    assert low.status is Status.PASS
    cd.plugins.unload("pack")
    pack(serving(1.1))
    assert results(subject)[-1].status is Status.FAIL


# ---- kernels of a layout ------------------------------------------------------------------------


@pytest.fixture
def layout_row() -> Iterator[Callable[..., None]]:
    """Puts a kernel above the one that a layout has for an operator."""

    def load(layout: str, op: str, fn: Any) -> None:
        @hookimpl
        def coredispatch_register(registrar: Any) -> None:
            registrar.kernels(layout, {op: fn}, backend="cpu", priority=10**6)

        module = ModuleType("layout_row")
        module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
        cd.plugins.load("layout_row", module)

    yield load
    if "layout_row" in cd.plugins:
        cd.plugins.unload("layout_row")


def of_layout(subject: Subject, op: str, profile: str) -> dict[str, Result]:
    cases = plan_op(subject, op, None, (profile,))
    return {f"{c.variant} {c.dtype}": run_case(subject, c) for c in cases}


def statuses(found: dict[str, Result]) -> set[Status]:
    return {r.status for r in found.values()}


def test_the_kernels_of_a_layout_are_judged(subject: Subject, layout_row: Any) -> None:
    pytest.importorskip("coredispatch_sparse")
    if "sparse_csr" not in cd.registry.TABLE.snapshot.layouts:
        pytest.skip("the sparse plugin is not loaded")
    found = of_layout(subject, "neg", "sparse")
    assert "sparse_csr+gradient float64" in found
    assert statuses(found) == {Status.PASS}
    layout_row("sparse_csr", "neg", lambda x: x)
    found = of_layout(subject, "neg", "sparse")
    assert found["sparse_csr+kernel float32"].status is Status.FAIL
    cd.plugins.unload("layout_row")

    def refuses(x: Any) -> Any:
        raise cd.MissingKernel("there is no sparse_csr kernel for this")

    layout_row("sparse_csr", "neg", refuses)
    found = of_layout(subject, "neg", "sparse")
    assert "served none" in found["sparse_csr+kernel float32"].message


def test_quantized_kernels_are_judged_in_output_steps(subject: Subject, layout_row: Any) -> None:
    pytest.importorskip("coredispatch_quant")
    if "quantized" not in cd.registry.TABLE.snapshot.layouts:
        pytest.skip("the quant plugin is not loaded")
    assert statuses(of_layout(subject, "relu", "quant")) == {Status.PASS}

    def off_by_one(q: Any) -> Any:
        zero = np.asarray(q.zero_point).astype(q.data.dtype)
        return q.like(np.asarray(np.maximum(q.data, zero + 1)))

    layout_row("quantized", "relu", off_by_one)
    (result,) = of_layout(subject, "relu", "quant").values()
    assert "output steps" in result.message
