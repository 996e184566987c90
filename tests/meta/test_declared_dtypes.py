"""What a backend declares to have no dtype for is refused before a kernel sees it."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
import coredispatch.plugin as cdp
from coredispatch.conformance import Status, Subject, plan_op, run_case
from coredispatch.testing import assert_close

from . import fake_devices
from .fake_devices import QUEUE


class Small(fake_devices.Delayed):
    """:class:`Delayed` on a device that has three dtypes; its kernels would take every one."""

    name = "small"
    dtypes = frozenset({"bool", "int64", "float32"})


@pytest.fixture
def small() -> Iterator[None]:
    plugin = types.ModuleType("small")
    plugin.coredispatch_register = cdp.hookimpl(  # type: ignore[attr-defined]
        lambda registrar: registrar.backend(Small()), specname="coredispatch_register"
    )
    cd.plugins.load("small", plugin)
    yield
    cd.plugins.unload("small")


UNDECLARED: dict[str, Callable[[], Any]] = {
    "zeros": lambda: cd.zeros(2, dtype=cd.float64, device="small"),
    "rand": lambda: cd.rand(2, dtype=cd.float64, device="small"),
    "tensor": lambda: cd.tensor([1.0], dtype=cd.float64, device="small"),
    "to": lambda: cd.ones(2, dtype=cd.float64).to("small"),
    "module": lambda: cd.nn.Linear(2, 2).double().to("small"),
    "double": lambda: cd.ones(2, device="small").double(),
    "like": lambda: cd.ones_like(cd.ones(2, device="small"), dtype=cd.float64),
    "sum": lambda: cd.ones(2, device="small").sum(dtype=cd.float64),
    "promotion": lambda: cd.ones(2, device="small") * 1j,
    "number": lambda: cd.ones(2, device="small") * cd.tensor(2.0, dtype=cd.float64),
}


@pytest.mark.parametrize("name", UNDECLARED)
def test_a_dtype_that_the_backend_does_not_declare_reaches_no_kernel(
    name: str, small: None
) -> None:
    work = len(QUEUE.work)
    with pytest.raises(cd.DTypeError, match=r"'small' has no (float64|complex64)") as caught:
        UNDECLARED[name]()
    assert "use one of bool, int64, float32" in str(caught.value)
    assert len(QUEUE.work) <= work + 1  # what the argument was made by


def test_what_the_backend_declares_is_not_looked_at(small: None) -> None:
    """The kernel of an addition is the backend's own function, with nothing around it."""
    x = cd.ones(2, device="small")
    assert ((x + x) > 1).all() and (x.long() + 1).tolist() == [2, 2]
    cdp.call_raw("add", "small", x.raw, x.raw)
    entry: Any = cdp.operator("add").memo.entries[cdp.key_bit("small")]
    assert entry.fn is Small.kernels["add"]
    with pytest.raises(cd.DTypeError, match="no bfloat16"), cd.autocast("small", cd.bfloat16):
        x.view(1, 2) @ x.view(2, 1)


APPROXIMATED: dict[str, Callable[[Any], Any]] = {
    "gelu": F.gelu,
    "erfinv": cd.erfinv,
    "digamma": cd.digamma,
    "i0": cd.i0,
    "zeta": lambda x: cd.special.zeta(x + 2, 0.5),
    "hermite": lambda x: cd.special.hermite_polynomial_h(x, 3),
    "cross": lambda x: cd.linalg.cross(x.view(1, 3), x.flip(0).view(1, 3)),
    "histc": lambda x: x.histc(3),
    "isclose": lambda x: cd.isclose(x.long(), x.long() + 1).float(),
    "linspace": lambda x: cd.linspace(0, 1, 5, device=x.device),
    "logspace": lambda x: cd.logspace(0, 1, 5, device=x.device),
    "kaiser": lambda x: cd.kaiser_window(5, device=x.device),
}


@pytest.mark.parametrize("name", APPROXIMATED)
def test_bodies_compute_in_the_widest_dtype_of_the_device(name: str, small: None) -> None:
    x = cd.tensor([0.1, 0.4, 0.7])
    found = APPROXIMATED[name](x.to("small"))
    assert found.device.type == "small"
    assert_close(found.cpu(), APPROXIMATED[name](x), rtol=1e-5, atol=1e-6)


def test_samples_are_drawn_in_the_widest_dtype_of_the_device(small: None) -> None:
    rate = cd.full((2000,), 3.0, device="small")
    for drawn in (cd.poisson(rate), cd.distributions.Gamma(rate, cd.ones_like(rate)).rsample()):
        assert drawn.device.type == "small"
        assert 2.8 < float(drawn.mean()) < 3.2


def test_copies_are_converted_before_they_move(small: None) -> None:
    x = cd.ones(2, device="small")
    assert x.copy_(cd.full((2,), 3.0, dtype=cd.float64)).tolist() == [3, 3]
    x[:1] = cd.full((1,), 4.0, dtype=cd.float64)
    assert x.tolist() == [4, 3]
    layer = cd.nn.Linear(1, 1).to("small")
    layer.load_state_dict(cd.nn.Linear(1, 1).double().state_dict())
    assert layer.weight.dtype is cd.float32 and layer.weight.device.type == "small"
    assert cd.ones(2, dtype=cd.float64).to("small", cd.float32).device.type == "small"


def test_a_declared_dtype_has_the_name_of_one() -> None:
    class Wrong(fake_devices.Delayed):
        name, dtypes = "wrong", frozenset({"float"})

    with pytest.raises(cd.RegistrationError, match="'float'"):
        cdp.Registrar("wrong").backend(Wrong())


@pytest.mark.once
def test_the_suite_asks_for_no_dtype_that_the_class_does_not_declare(small: None) -> None:
    subject = Subject("small")
    assert {*subject.dtypes} == Small.dtypes
    found = {
        case.id: run_case(subject, case)
        for op, check in (("to_dtype", 1), ("mean", 33), ("full", 1))
        for case in plan_op(subject, op, "inference", only=(check,))
    }
    for name, result in found.items():
        refused = "/undeclared:" in name
        assert result.status is (Status.UNSUPPORTED if refused else Status.PASS), result.message
    assert any("/options" in name for name in found)
