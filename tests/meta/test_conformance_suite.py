"""Tests of the tests: ids, coverage of pairs, honesty of statuses, waivers."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import (
    BACKEND,
    CHECKS,
    Case,
    Expectations,
    ExpectationsError,
    Result,
    Status,
    Subject,
    plan_op,
    run_case,
)
from coredispatch.conformance.bounds import Deviation, compare
from coredispatch.conformance.context import Context
from coredispatch.conformance.covering_array import LAYOUTS, ConfiguredMake, combinations, strided
from coredispatch.conformance.distributions import distributions_for
from coredispatch.conformance.levels import SECOND_DEVICE
from coredispatch.conformance.options import levels
from coredispatch.conformance.reference import Reference
from coredispatch.conformance.report.document import verdict
from coredispatch.conformance.runner import unmatched
from coredispatch.conformance.shards import Options, Run
from coredispatch.conformance.subject import DTYPES, numpy_dtype
from coredispatch.ops.support.samples import Sample
from coredispatch.plugin import hookimpl


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("cpu")


# ---- options ------------------------------------------------------------------------------------


def test_each_option_that_is_a_text_has_two_values(subject: Subject) -> None:
    """An option that no call gives another value than its default is not asked."""
    alone = []
    for name in subject.operators():
        metadata = subject.metadata(name)
        texts = [p.name for p in metadata.op.schema.params if p.kind in ("str", "str | None")]
        case = next(iter(plan_op(subject, name, "operators")), None) if texts else None
        if case is None or metadata.op.samples is None:
            continue
        samples = [*metadata.op.samples(Context(subject, case, metadata).make())]
        varied = levels(metadata.op, samples)
        alone += [f"{name}({text}=)" for text in texts if len(varied.get(text, ())) < 2]
    # The equation has ways to be spelled; the other names the operator in a message.
    assert {*alone} <= {"einsum(equation=)", "even_edges(op=)"}


# ---- cases --------------------------------------------------------------------------------------


def test_an_id_is_content_and_not_position() -> None:
    a = Case(1, "add", "float32", rows=(0, 1))
    b = Case(1, "add", "float32", rows=(3, 4))
    assert a.id == b.id
    assert a.id != Case(1, "add", "float64").id
    assert a.seed == b.seed


def test_ids_do_not_depend_on_hash_seeds_or_the_process() -> None:
    program = (
        "from coredispatch.conformance import Subject, plan_op\n"
        "print(*[c.id for c in plan_op(Subject('cpu'), 'add')])"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_the_covering_array_covers_all_pairs() -> None:
    names = ("bool", "int8", "int64", "float16", "float32", "float64", "complex64")
    dtypes = [(i, n, numpy_dtype(n)) for i, n in enumerate(DTYPES) if n in names]
    rows = list(combinations(dtypes))
    assert len({r[:3] for r in rows}) == len(rows)
    for _, name, dtype in dtypes:
        mine = [r for r in rows if r[0] == name]
        assert {r[1] for r in mine} == set(LAYOUTS)
        assert {r[2] for r in mine} == set(distributions_for(dtype))
    pairs = {(layout, distribution) for _, layout, distribution, _ in rows}
    distributions = {p for _, _, d in dtypes for p in distributions_for(d)}
    assert pairs == {(layout, distribution) for layout in LAYOUTS for distribution in distributions}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 4), (2, 3, 4)])
def test_strided_arrays_have_their_shape_and_stay_inside_their_buffer(
    layout: str, shape: tuple[int, ...]
) -> None:
    count = int(np.prod(shape))
    array = strided(np.arange(max(count, 1), dtype=np.float32)[:count], shape, layout)
    assert array.shape == shape
    assert array.flags.writeable
    assert np.isfinite(array).all()
    if layout == "transposed" and array.ndim > 1:
        assert not array.flags.c_contiguous


def test_distributions_hold_what_they_promise() -> None:
    special = ConfiguredMake("float32", distribution="special", seed=1)((400,))
    assert np.isnan(special).any()
    assert np.isinf(special).any()
    assert (np.signbit(special) & (special == 0)).any()
    edges = ConfiguredMake("int8", distribution="integer_extremes", seed=1)((400,))
    assert edges.max() == 127
    assert edges.min() == -128
    narrow = ConfiguredMake("float32", distribution="special", seed=1)((50,), low=0.5, high=1.0)
    assert np.isfinite(narrow).all()


def test_every_check_has_cases_or_is_visibly_elsewhere(subject: Subject) -> None:
    ops = (BACKEND, "add", "softmax", "randn", "fill_", "permute", "sum", "linear")
    profiles = ("sparse", "quant", "compiler", "autograd")
    found = {c.check for op in ops for c in plan_op(subject, op, "full", profiles)}
    # The second device is asked of backends that have one: test_conformance_devices.py.
    assert found == set(CHECKS) - {SECOND_DEVICE}


# ---- honesty of statuses ------------------------------------------------------------------------


def broken(fn: Any) -> ModuleType:
    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.kernels("cpu", {"neg": fn}, priority=10**6)

    module = ModuleType("broken")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    return module


def test_a_wrong_kernel_fails_and_a_right_one_passes(subject: Subject) -> None:
    case = next(c for c in plan_op(subject, "neg") if c.check == 1 and c.dtype == "float32")
    assert run_case(subject, case).status is Status.PASS
    cd.plugins.load("broken", broken(lambda x: -x * x.dtype.type(1.01)))
    try:
        result = run_case(subject, case)
    finally:
        cd.plugins.unload("broken")
    assert result.status is Status.FAIL
    assert "beyond the bound" in result.message
    assert result.margin is not None
    assert result.margin > 1


def test_absolute_inputs_are_those_in_which_an_op_is_linear() -> None:
    # Two windows of one maximum, whose gradients cancel. Absolute values of the input would move
    # the maximum away.
    grad, x = np.array([[1.0, -1.0]]), np.array([[-3.0, 2.0, 0.0]])
    sample = Sample(grad, x, (2,), (1,), (0,), (1,), False)
    reference = Reference(cd.ops.max_pool_backward, sample)
    np.testing.assert_array_equal(reference(), [[0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(reference.magnitude(), [[0.0, 2.0, 0.0]])


def test_the_factors_of_an_op_may_cancel_what_absolute_inputs_reach() -> None:
    # Half way between two pixels a cubic weighs its four neighbours -3/32, 19/32, 19/32, -3/32:
    # of these numbers nothing is left, and the rounding of each product is.
    x = np.roll(np.tile([19.0, 3.0, 3.0, 19.0], 3), 1).reshape(1, 1, 1, 12)
    reference = Reference(cd.ops.interpolate, Sample(x, (1, 6), mode="bicubic"))
    cancelled = int(np.argmin(np.abs(reference())))
    assert np.abs(reference.magnitude()).flat[cancelled] < 1e-14
    assert max(abs(reference.signed(i).flat[cancelled]) for i in range(6)) > 3


def test_all_of_a_source_may_be_added_to_one_element() -> None:
    """The bound grows with the addends of the busiest element, not with the average."""
    op, n = cd.ops.scatter_add, 4096
    source = np.full(n, 0.1, np.float32)
    sample = Sample(np.zeros(64, np.float32), 0, np.zeros(n, np.int64), source)
    reference = Reference(op, sample)
    total = np.float32(0)
    for value in source:
        total += value
    got = np.zeros(64, np.float32)
    got[0] = total
    assert 0 < compare(op, got, reference, reference()) <= 1
    with pytest.raises(Deviation):
        compare(op, got * np.float32(1.01), reference, reference())


def test_single_precision_is_compared_on_the_same_inputs() -> None:
    # Without rounding on the way the two runs are equal, however the inputs moved.
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    for op in (cd.ops.neg, cd.ops.relu):
        for direction in range(6):
            single, double = Reference(op, Sample(x)).single(direction)
            assert single.dtype == np.float32
            np.testing.assert_array_equal(single, double)
    mean = Reference(cd.ops.mean, Sample(x))
    assert any(a != b for a, b in map(mean.single, range(6)))


def test_a_factor_may_underflow_before_the_product_does() -> None:
    x = np.array([-103.9, 1.0], np.float32)
    silu, sigmoid = (Reference(op, Sample(x)) for op in (cd.ops.silu, cd.ops.sigmoid))
    flushed = silu().astype(np.float32)
    assert flushed[0] != 0
    flushed[0] = 0.0
    assert compare(cd.ops.silu, flushed, silu, silu()) <= 1
    flushed[1] *= 1.01
    with pytest.raises(Deviation):
        compare(cd.ops.silu, flushed, silu, silu())
    with pytest.raises(Deviation):  # the factor itself is allowed no more than it was
        compare(cd.ops.sigmoid, np.float32([1e-43, sigmoid()[1]]), sigmoid, sigmoid())


def test_a_fast_transform_may_take_one_of_two_that_are_not_finite_for_the_other() -> None:
    """Infinities cancel in the order in which a library adds; a finite number is wrong."""
    op = cd.ops.fft_irfft2
    x = np.array([[1.0, np.inf, 2.0], [3.0, -np.inf, np.nan]], np.float32)
    reference = Reference(op, Sample(x))
    with np.errstate(all="ignore"):
        wanted = np.asarray(reference())
        undefined = np.isnan(wanted)
        assert undefined.any()
        compare(op, np.where(undefined, np.inf, wanted).astype(np.float32), reference, wanted)
        with pytest.raises(Deviation, match="NaN"):
            compare(op, np.where(undefined, 1, wanted).astype(np.float32), reference, wanted)


def test_a_case_that_asserts_nothing_is_vacuous(subject: Subject, monkeypatch: Any) -> None:
    case = plan_op(subject, "neg")[0]
    from coredispatch.conformance import checks, runner

    monkeypatch.setattr(runner, "seal", lambda: SimpleNamespace(broken=list))  # for this test
    monkeypatch.setattr(checks, "find", lambda case: checks.Check((1,), None, None, lambda c: None))
    assert run_case(subject, case).status is Status.VACUOUS


def test_undeclared_dtypes_are_unsupported_or_fail(tmp_path: Path) -> None:
    path = tmp_path / "conformance.toml"
    path.write_text('[capabilities]\ndtypes = ["float32", "bool"]\n')
    narrow = Subject("cpu", path)
    cases = [c for c in plan_op(narrow, "exp") if c.variant == "undeclared"]
    assert {c.dtype for c in cases if c.mandatory} >= {"float64", "int64"}
    # The embedded backend takes float64 all the same: an undeclared dtype that is not refused.
    result = run_case(narrow, next(c for c in cases if c.dtype == "float64"))
    assert result.status is Status.FAIL
    assert "is not declared" in result.message
    # Its index is int64 whatever the case's dtype: there is no call that could be refused.
    cases = [c for c in plan_op(narrow, "bincount") if c.variant == "undeclared"]
    result = run_case(narrow, next(c for c in cases if c.dtype == "uint16"))
    assert result.status is Status.UNSUPPORTED, result.message


# ---- expected failures --------------------------------------------------------------------------

ENTRY = """
[[expected_failures]]
case = "{case}"
reason = "because"
issue = "https://example.org/1"
expires = {expires}
"""


def waivers(tmp_path: Path, text: str) -> Expectations:
    path = tmp_path / "conformance.toml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return Expectations.load(path)


def test_waivers_are_strict(tmp_path: Path) -> None:
    case = Case(1, "neg", "float32")
    known = waivers(tmp_path, ENTRY.format(case=case.id, expires="2999-01-01"))
    assert known.judge(case, Result.of(case, Status.FAIL)).status is Status.WAIVED
    assert known.judge(case, Result.of(case, Status.CRASH)).status is Status.WAIVED
    assert known.judge(case, Result.of(case, Status.PASS)).status is Status.XPASS
    late = datetime.date(3000, 1, 1)
    assert known.judge(case, Result.of(case, Status.FAIL), late).status is Status.FAIL
    assert known.unmatched([], ["neg"])
    assert not known.unmatched([case.id], ["neg"])


def test_a_waiver_of_a_case_outside_the_run_does_not_count(
    tmp_path: Path, subject: Subject
) -> None:
    higher = next(c for c in plan_op(subject, "neg", "training") if c.check == 12)
    boot = plan_op(subject, "neg", "boot")
    assert higher.id not in {c.id for c in boot}
    for case, wrong in ((higher.id, False), ("neg/gradients/float64:00000000", True)):
        path = tmp_path / f"{wrong}.toml"
        path.write_text(ENTRY.format(case=case, expires="2999-01-01"))
        declaring = Subject("cpu", expectations=path)
        assert [e.case for e in unmatched(declaring, boot)] == ([case] if wrong else [])
        run = Run(Options("cpu", level="boot", ops=("neg",)), boot, {})
        assert verdict(declaring, run)["unmatched"] == ([case] if wrong else [])


@pytest.mark.parametrize(
    "text",
    [
        "x = 1",
        "[capabilities]\ncolour = 1",
        '[capabilities]\ndtypes = ["float31"]',
        "[capabilities]\ndtypes = 3",
        '[[expected_failures]]\ncase = "a:1"',
        ENTRY.format(case="neg/*", expires="2999-01-01"),
        ENTRY.format(case="neg:1", expires='"soon"'),
        ENTRY.format(case="neg:1", expires="2999-01-01") * 2,
        ENTRY.format(case="neg:1", expires="2999-01-01T00:00:00"),
        ENTRY.format(case="neg:1", expires="2999-13-01"),
        ENTRY.format(case="neg:1", expires="2999-01-01") + 'colour = "red"',
        ENTRY.format(case="", expires="2999-01-01"),
        "expected_failures = [1]",
        "expected_failures = 3",
        "capabilities = 3",
        '[capabilities]\ndtypes = ["float32", "float32"]',
        '[capabilities]\nabsent = ["everything"]',
        'x = "\udcff"',  # not UTF-8
        "not toml",
    ],
)
def test_malformed_declarations_are_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ExpectationsError, match=r"conformance\.toml"):
        waivers(tmp_path, text)
