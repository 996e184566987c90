"""Tests of the suite's reports: blockers by cause, and differences without noise."""

from __future__ import annotations

from typing import Any

import pytest

from coredispatch.conformance import report
from coredispatch.conformance.report.causes import causes, plain
from coredispatch.conformance.report.document import sentence, standing

SELECTION = "these cases pass (a selection, which certifies no level)"

pytestmark = pytest.mark.once


def result(op: str, check: int, message: str, number: int = 0, **details: Any) -> dict[str, Any]:
    status = "pass" if not message else "fail"
    return {
        "case": f"{op}/{check}/{number}:00000000",
        "check": check,
        "op": op,
        "dtype": "float32",
        "status": status,
        "mandatory": True,
        "seconds": 0.1,
        "assertions": 1,
        "margin": None,
        "message": message,
        "details": details,
    }


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            "output 0: beyond the bound, 3.5e+06 times: 4 of 12 elements; at [0, 1] got 0.5, "
            "reference 1.25 [mul(float32[3, 4], float32[4])]",
            "output 0: beyond the bound, 12 times: 1 of 5 elements; at [4] got nan, "
            "reference -3e-08 [mul(float16[5], 2)]",
        ),
        (
            "raised TypeError: 'int' object at index 3 at kernels.py:33 [any(float32[3])]",
            "raised TypeError: 'int' object at index 12 at kernels.py:33 [cat([float32[3]], 0)]",
        ),
        (
            "raised DimError: flip(float64[] (x), (0,)): axis 0 is out of bounds at kernels.py:9 "
            "[flip(float64[], 0)]",
            "raised DimError: flip(bool[] (x), (0,)): axis 0 is out of bounds at kernels.py:9 "
            "[flip(bool[], 0)]",
        ),
        (
            "output 0 has dtype float64, the rule says float32",
            "output 1 has dtype float32, the rule says float16",
        ),
    ],
)
def test_numbers_and_calls_are_no_part_of_a_cause(left: str, right: str) -> None:
    assert plain(left) == plain(right)
    assert plain(left) != plain(
        left.replace("beyond", "below").replace(":33", ":34").replace("d", "D")
    )


def test_words_after_not_stay() -> None:
    lost = "preparation failed: a write does not arrive; whether the op is right was not asked"
    assert plain(lost) == lost
    assert plain("dtype is not promoted, yet add takes it").startswith("dtype is not promoted,")
    values = ("3", "-1.5e-07", "nan", "True", "(1+2j)", "float32", "[1, 2]")
    assert {plain(f"the sum is 4.5, not {value}") for value in values} == {"the sum is #, not #"}


def test_a_line_that_raises_is_one_cause_whoever_calls_it() -> None:
    raised = "raised TypeError: 'DType' object is not callable at kernels.py:33 [{}(float32[3])]"
    many = [result(op, c, raised.format(op), c) for op in ("any", "all", "isin") for c in (1, 5)]
    lost = "preparation failed: a write with copy_ does not arrive: at [{}] the tensor holds {}"
    many += [result(op, 1, lost.format(n, n), n) for n, op in enumerate(("mul", "lt", "neg"))]
    found = causes(many)
    assert [len(c.results) for c in found] == [6, 3]
    assert "kernels.py:33" in found[0].text
    assert found[0].kernel == found[1].kernel == ""


def test_a_write_that_is_lost_is_one_cause_however_it_is_made() -> None:
    asked = "; whether the op is right was not asked"
    copied = "preparation failed: a write with copy_ does not arrive: at [{}] the tensor holds 0"
    filled = (
        "preparation failed: fill_({}) does not arrive: a tensor of {} holds {} afterwards" + asked
    )
    fills = [
        result("mul", 1, filled.format(*said))
        for said in (("77", "float32", "0.0"), ("True", "bool", "False"), ("False", "bool", "True"))
    ]
    (alone,) = causes(fills)
    assert alone.text.startswith("preparation failed: fill_#")
    (both,) = causes([*fills, result("lt", 1, copied.format(0) + asked)])
    assert len(both.results) == 4 and "copy_" in both.text


def test_a_dtype_of_which_no_tensor_is_made_is_one_cause() -> None:
    said = "no tensor of the dtype: to_device({} (cpu), device(type='x')): the device 'x' has no {}"
    shapes = {"argmax": "int64[2]", "sort": "int64[]", "topk": "int64[3, 4]"}
    (found,) = causes(result(op, 1, said.format(s, "int64")) for op, s in shapes.items())
    assert len(found.results) == 3 and found.kernel == ""


def test_a_line_that_warns_is_one_cause_whatever_numpy_says() -> None:
    warned = "let a RuntimeWarning through at kernels.py:{}: {} encountered in {} [{}(float32[3])]"
    said = [(7, "divide by zero", "log"), (7, "invalid value", "arccos"), (9, "overflow", "exp")]
    found = causes(
        [
            result(op, 1, warned.format(*details, op))
            for op, details in zip("abc", said, strict=True)
        ]
    )
    assert [len(c.results) for c in found] == [2, 1]
    assert found[0].text == "let a RuntimeWarning through at kernels.py:7"


def test_a_composite_fails_for_its_primitive() -> None:
    said = "output 0: beyond the bound, {} times: 1 of 2 elements; at [0] got {}, reference 1.0"
    seen = [
        result("mean", 21, "", served=["sum: kernel of x (a)", "div: kernel of x (b)"]),
        result("var", 21, "", served=["mean: kernel of x (c)", "sum: kernel of x (a)"]),
        result("sum", 21, "", served=["sum: kernel of x (a)"]),
        result("exp", 21, "", served=["exp: kernel of x (d)"]),
    ]
    failing = [
        result("mean", 1, said.format(3, 0.5), 1),
        *(result("var", 1, said.format(9.25, n), n) for n in range(9)),
        result("sum", 1, said.format(2, 1.5), 1),
        result("exp", 1, said.format(7, 2.5), 1),
    ]
    found = causes([*seen, *failing])
    assert [(c.kernel, len(c.results)) for c in found] == [("sum", 11), ("exp", 1)]
    assert found[0].ops == ["sum", "var", "mean"]
    assert found[0].results[0]["op"] == "sum", "the cause itself stands first"


def test_deaths_come_first() -> None:
    dead = {**result("neg", 9, "exit status 3: noise"), "status": "crash"}
    found = causes([*(result("add", 1, "the values differ", n) for n in range(5)), dead])
    assert [c.status for c in found] == ["crash", "fail"]


def document(margins: list[float], fresh: int = 0) -> dict[str, Any]:
    results = [{**result("sin", 1, "", n), "margin": m} for n, m in enumerate(margins)]
    return {"results": results, "options": {"fresh": fresh}}


@pytest.mark.parametrize(
    ("old", "new", "worse"),
    [
        ([0.02, 0.3], [0.3, 0.02], 0),  # another case of the operator has it now
        ([0.1, 0.2], [0.1, 0.35], 0),  # far from the bound
        ([0.4, 0.2], [0.7, 0.2], 0),  # not twice as much
        ([0.1, 0.2], [0.9, 0.8], 1),  # an operator, not each of its cases
    ],
)
def test_a_margin_is_worth_a_line_near_the_bound_only(
    old: list[float], new: list[float], worse: int
) -> None:
    found = report.difference(document(old), document(new))["worse_margins"]
    assert len(found) == worse
    assert report.difference(document(old), document(new, fresh=7))["worse_margins"] == []


def run_of(ops: list[str] | None, ended: str, *results: dict[str, Any]) -> dict[str, Any]:
    """A document, as far as its verdict goes."""
    passed = all(r["status"] == "pass" for r in results)
    return {
        "backend": "mine",
        "ended": ended,
        "results": list(results),
        "options": {"ops": ops, "checks": [], "profiles": []},
        "verdict": {
            "passed": passed,
            "complete": ops is None,
            "level": "training",
            "reached": None,
            "blockers": 0 if passed else 1,
            "unmatched": [],
            "unproven": [],
        },
    }


@pytest.mark.parametrize("ops", [None, ["mul"]])
def test_a_run_that_was_ended_says_nothing_of_the_level_until_a_case_fails(
    ops: list[str] | None,
) -> None:
    good, bad = result("mul", 1, ""), result("mul", 5, "output 0 is wrong")
    missing = {**result("mul", 8, "the run ended before it (interrupted)"), "status": "not_run"}
    early = run_of(ops, "interrupted", good, missing)
    assert standing(early) == "ended"
    assert "ended before the others (interrupted), which certifies no" in sentence(
        early, "training"
    )
    assert "ended early" in report.badge(early)
    failed = run_of(ops, "interrupted", good, bad, missing)
    assert sentence(failed, "training") == "mine does not conform to 'training'"
    whole = sentence(run_of(ops, "", good), "training")
    assert whole == ("mine conforms to 'training'" if ops is None else SELECTION)
