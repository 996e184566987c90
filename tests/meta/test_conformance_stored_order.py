"""Layouts that store indices: what the suite makes of order and of places that are stored twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import Result, Status, Subject, plan_op, run_case
from coredispatch.conformance.repro import case_of, script
from coredispatch.conformance.selftest import coordinate_layout
from coredispatch.conformance.selftest.coordinate_layout import NAME
from coredispatch.plugin import Layout, hookimpl, to_raw
from coredispatch.registry import TABLE, PluginError

ORDERS = ("unsorted", "duplicates")


@pytest.fixture
def coordinates() -> Iterator[Layout]:
    with coordinate_layout.loaded():
        yield TABLE.snapshot.layouts[NAME][0]


def found(op: str, layout: str = NAME) -> dict[str, Result]:
    """The results of check 27 for a layout, by variant and dtype."""
    subject = Subject("cpu")
    cases = [c for c in plan_op(subject, op, "training", (layout,)) if c.check == 27]
    chosen = [c for c in cases if c.variant.startswith(f"{layout}+")]
    return {f"{c.variant.partition('+')[2]} {c.dtype}": run_case(subject, c) for c in chosen}


#: operators of core that the layout has kernels for
SERVED = [op for op in coordinate_layout.KERNELS if op != "coordinates_to_dense"]


@pytest.mark.parametrize("op", ["backend", *SERVED])
def test_a_layout_that_takes_both_is_certified(coordinates: Layout, op: str) -> None:
    results = found(op)
    assert {k: r.message for k, r in results.items() if r.status is Status.FAIL} == {}
    dtype = "float32" if op == "backend" else "float64"
    for what in ORDERS:
        assert results[f"{what} {dtype}"].status is Status.PASS


@pytest.mark.parametrize(
    ("takes", "fails"),
    [
        (None, set()),
        (ORDERS, set()),
        (("unsorted",), {"duplicates"}),
        ((), {"unsorted", "duplicates"}),
    ],
)
def test_what_is_taken_must_be_declared(coordinates: Layout, takes: Any, fails: set[str]) -> None:
    coordinates.takes = takes
    results = {k.split()[0]: r for k, r in found("backend").items()}
    for what in ORDERS:
        told = "does not declare it" in results[what].message
        assert told is (what in fails), results[what].message


@pytest.mark.parametrize("what", ORDERS)
def test_the_reproducer_makes_the_tensors_of_the_call(coordinates: Layout, what: str) -> None:
    subject = Subject("cpu")
    cases = [c for c in plan_op(subject, "neg", "training", (NAME,)) if c.check == 27]
    case = next(c for c in cases if c.variant == f"{NAME}+{what}" and c.dtype == "float64")
    own = script(subject, case_of(subject, case.id)).partition("# the whole case")[0]
    assert "unpacked({" in own
    given: list[Any] = []
    exec(own.replace("cd.ops.neg(", "given("), {"given": given.append})
    at = coordinate_layout.pack(to_raw(given[0]))["indices"]
    steps = np.diff(at, axis=-1)
    assert (steps == 0).any() if what == "duplicates" else (steps < 0).any()


def test_a_layout_that_refuses_is_asked_of_no_kernel(coordinates: Layout) -> None:
    coordinates.takes = ()
    assert not {k for k in found("neg") if k.split()[0] in ORDERS}
    coordinates.takes = ("unsorted",)
    assert {k for k in found("neg") if k.split()[0] in ORDERS} == {"unsorted float64"}


def _distances(coordinates: Layout) -> None:
    """Packs the distance of each element from the one before."""
    pack, unpack = coordinate_layout.pack, coordinate_layout.unpack

    def packed(raw: Any) -> Any:
        at = coordinate_layout.places(coordinate_layout.settled(raw))
        return {**pack(raw), "indices": np.diff(at, prepend=0)}

    def unpacked(parts: Any) -> Any:
        at = np.unravel_index(np.cumsum(parts["indices"]), parts["size"])
        return unpack({**parts, "indices": np.array(at)})

    coordinates.pack, coordinates.unpack = packed, unpacked


def test_what_is_declared_and_not_found_fails(coordinates: Layout) -> None:
    _distances(coordinates)
    results = {k.split()[0]: r for k, r in found("backend").items()}
    for what in ORDERS:
        assert results[what].status is Status.FAIL
        assert "none of the packed arrays gives the indices" in results[what].message
    coordinates.takes = None
    results = {k.split()[0]: r for k, r in found("backend").items()}
    assert all(results[what].status is Status.NOT_RUN for what in ORDERS)
    assert results["saved"].status is Status.PASS


@pytest.mark.parametrize("takes", ["unsorted", ("sorted",)])
def test_other_words_are_refused(takes: Any) -> None:
    class Plugin:
        @staticmethod
        @hookimpl
        def coredispatch_register(registrar: Any) -> None:
            data_type = coordinate_layout.Coordinates
            registrar.layout(Layout("odd", data_type=data_type, takes=takes))

    with pytest.raises(PluginError, match="takes=.*'odd'.*'unsorted', 'duplicates'"):
        cd.plugins.load("odd", Plugin)


@pytest.mark.parametrize(("word", "fails"), [("repeats", "duplicates"), ("follows", "unsorted")])
def test_csr_that_takes_what_it_should_refuse_fails(
    monkeypatch: pytest.MonkeyPatch, word: str, fails: str
) -> None:
    csr = pytest.importorskip("coredispatch_sparse.csr")
    if "sparse_csr" not in TABLE.snapshot.layouts:
        pytest.skip("the plugin sparse is not loaded")
    checked: Callable[..., None] = csr._check_columns

    def lenient(pattern: Any, columns: int) -> None:
        try:
            checked(pattern, columns)
        except cd.ArgumentError as error:
            if word not in str(error):
                raise

    before = found("backend", "sparse_csr")
    assert all(r.status is Status.PASS for k, r in before.items() if k.split()[0] in ORDERS)
    monkeypatch.setattr(csr, "_check_columns", lenient)
    results = {k.split()[0]: r for k, r in found("backend", "sparse_csr").items()}
    assert "takes=() does not declare it" in results[fails].message
