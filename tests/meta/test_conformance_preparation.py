"""Tests of the suite: what prepares a call is looked at, and faults are named where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import Result, Status, Subject, plan_op, run_case
from coredispatch.plugin import ArrayApiBackend, DimError, check, check_index, hookimpl
from coredispatch.registry import TABLE


class Box:
    """An array in memory of its own: nothing that NumPy is given shares it."""

    def __init__(self, array: Any) -> None:
        self.held = np.array(array)
        self.shape, self.dtype, self.ndim = self.held.shape, self.held.dtype, self.held.ndim


def of_box(function: Any) -> Any:
    def kernel(*args: Any) -> Any:
        found = function(*(a.held if isinstance(a, Box) else a for a in args))
        return tuple(map(Box, found)) if isinstance(found, tuple) else Box(found)

    return kernel


class Numbers(ArrayApiBackend):
    name, array_type, xp = "numbers", np.ndarray, np


class Boxes(cd.plugin.Backend):
    """Separate memory, over the array-API kernels of NumPy, with one fault at a time."""

    name, array_type = "boxes", Box
    kernels = {op: of_box(function) for op, function in Numbers().kernels.items()}
    lost_writes = lost_in_transfer = False

    def from_numpy(self, array: Any) -> Box:
        boxed = Box(array)
        if self.lost_in_transfer and boxed.held.size > 1:
            boxed.held.reshape(-1)[-1] = 0
        return boxed

    def to_numpy(self, raw: Box) -> Any:
        return raw.held.copy()

    def copyto(self, dst: Box, src: Box) -> None:
        if not self.lost_writes:
            np.copyto(dst.held, src.held, casting="unsafe")


def plugin(register: Any) -> ModuleType:
    module = ModuleType("written_here")
    module.coredispatch_register = hookimpl(  # type: ignore[attr-defined]
        specname="coredispatch_register"
    )(register)
    return module


@pytest.fixture
def boxes() -> Iterator[Boxes]:
    backend = Boxes()

    def coredispatch_register(registrar: Any) -> None:
        registrar.backend(backend)

    cd.plugins.load("boxes", plugin(coredispatch_register))
    try:
        yield backend
    finally:
        cd.plugins.unload("boxes")


def judged(subject: Subject, op: str, check: int, dtype: str = "float32") -> list[Result]:
    cases = [c for c in plan_op(subject, op) if c.check == check and c.dtype == dtype]
    assert cases
    return [run_case(subject, case) for case in cases]


@pytest.mark.parametrize("op", ["mul", "lt"])
@pytest.mark.parametrize("check", [1, 7, 26])
def test_writes_that_are_lost_are_blamed_on_copy_and_on_no_operator(
    boxes: Boxes, op: str, check: int
) -> None:
    sound = judged(Subject("boxes"), op, check)
    assert {r.status for r in sound} <= {Status.PASS, Status.NOT_RUN}
    boxes.lost_writes = True
    found = [r for r in judged(Subject("boxes"), op, check) if r.status is Status.FAIL]
    assert found
    for result in found:
        assert result.message.startswith("preparation failed: ")
        assert "copy_ does not arrive" in result.message or "fill_" in result.message


def test_values_that_do_not_reach_the_device_are_blamed_on_the_way(boxes: Boxes) -> None:
    boxes.lost_in_transfer = True
    found = judged(Subject("boxes"), "mul", 1)
    assert {r.status for r in found} == {Status.FAIL}
    assert all("the way to the device and back does not arrive" in r.message for r in found)


def test_a_kernels_exception_is_located_at_its_authors_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
import numpy as np
from coredispatch.plugin import ArrayApiBackend, hookimpl

def neg(x):
    return helper(x)

def helper(x):
    return np.concatenate([x, 3])  # line 9

class Authored(ArrayApiBackend):
    name, array_type, xp = "authored", np.ndarray, np
    overrides = {"neg": neg}

@hookimpl
def coredispatch_register(registrar):
    registrar.backend(Authored())
"""
    (tmp_path / "authored_backend.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    import authored_backend

    cd.plugins.load("authored", authored_backend)
    try:
        found = judged(Subject("authored"), "neg", 1)
    finally:
        cd.plugins.unload("authored")
    assert {r.status for r in found} == {Status.FAIL}
    assert all(" at authored_backend.py:9 " in r.message for r in found), found[0].message


@pytest.fixture
def pack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Loads a pack of a distribution with a kernel for ``neg``."""
    loaded: list[str] = []

    def load(name: str, priority: int, fn: Any, least: int = 0) -> None:
        def coredispatch_register(registrar: Any) -> None:
            registrar.kernels("cpu", {"neg": fn}, priority=priority, least=least)

        cd.plugins.load(name, plugin(coredispatch_register))
        loaded.append(name)
        monkeypatch.setattr(cd.plugins[name], "distribution", name)

    yield load
    for name in loaded:
        if name in cd.plugins:
            cd.plugins.unload(name)


def of_pack(name: str) -> Result:
    """What becomes of the case of a pack's kernel for ``neg``."""
    subject = Subject("cpu")
    cases = [c for c in plan_op(subject, "neg") if c.variant == f"kernel+{name}"]
    return run_case(subject, next(c for c in cases if c.check == 1))


def test_a_pack_that_is_outranked_is_no_fault(pack: Callable[..., None]) -> None:
    served = Subject("cpu").kernel("neg")
    assert served is not None
    pack("below_pack", 1000, lambda x: served.fn(x))
    pack("above_pack", 2000, lambda x: served.fn(x))
    assert of_pack("above_pack").status is Status.PASS
    shadowed = of_pack("below_pack")
    assert shadowed.status is Status.NOT_RUN
    assert not shadowed.mandatory
    assert "above_pack took every call of below_pack" in shadowed.message
    cd.plugins.unload("above_pack")
    pack("above_pack", 2000, lambda x: NotImplemented)  # leaves every call to the others
    assert of_pack("below_pack").status is Status.PASS
    idle = of_pack("above_pack")
    assert idle.status is Status.FAIL
    assert "nothing certifies it" in idle.message


@pytest.mark.parametrize(("below", "above"), [(2000, 2000), (5000, 2000)])
def test_a_pack_that_is_outranked_from_a_size_on_is_no_fault(
    pack: Callable[..., None], below: int, above: int
) -> None:
    """The plain kernel serves the small calls, which neither pack takes."""
    served = Subject("cpu").kernel("neg")
    assert served is not None
    pack("below_pack", 1000, lambda x: served.fn(x), below)
    pack("above_pack", 2000, lambda x: served.fn(x), above)
    rows = TABLE.snapshot.registrations["neg", "cpu", None]
    assert of_pack("above_pack").status is Status.PASS
    shadowed = of_pack("below_pack")
    assert shadowed.status is Status.NOT_RUN, shadowed.message
    assert "above_pack took every call of below_pack" in shadowed.message
    assert TABLE.snapshot.registrations["neg", "cpu", None] == rows, "the ranks are put back"


def test_a_pack_that_takes_nothing_is_a_fault_below_others_as_well(
    pack: Callable[..., None],
) -> None:
    served = Subject("cpu").kernel("neg")
    assert served is not None
    pack("below_pack", 1000, lambda x: NotImplemented)
    pack("above_pack", 2000, lambda x: served.fn(x), 2000)
    idle = of_pack("below_pack")
    assert idle.status is Status.FAIL
    assert "nothing certifies it" in idle.message


def test_an_index_outside_is_refused_with_the_one_that_lies_outside() -> None:
    check_index(np.array([[0, 2], [1, 1]]), 3)
    check_index(np.array([], np.int64), 0)
    for bad, size, said in (([0, -1], 3, "index -1"), ([0, 3], 3, "index 3"), ([0], 0, "index 0")):
        with pytest.raises(DimError, match=f"{said} is out of bounds for size {size}"):
            check_index(np.array(bad), size)
    # What check() refuses is seen in shapes and dtypes: elements are not read.
    check("gather", (np.zeros(3), 0, np.array([-1])))
