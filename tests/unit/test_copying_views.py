"""Backends without strided views: what is an alias there, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.plugin import ArrayApiBackend, check, hookimpl


class Copying(ArrayApiBackend):
    """NumPy as a device whose view operators copy."""

    name: ClassVar[str] = "copying"
    array_type: ClassVar[type] = np.ndarray
    xp: ClassVar[Any] = np
    views: ClassVar[bool] = False


@pytest.fixture(autouse=True)
def loaded() -> Iterator[None]:
    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.backend(Copying())

    module = ModuleType("copying")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("copying", module)
    yield
    cd.plugins.unload("copying")


def matrix() -> Any:
    return cd.arange(12.0).reshape(3, 4).to("copying")


@pytest.mark.parametrize("index", [(0,), (slice(1, 3),), (Ellipsis, 1), (None, 2)])
def test_a_basic_index_gives_an_alias(index: Any) -> None:
    x = matrix()
    part = x[index]
    with pytest.raises(cd.OpError, match="live view"):
        part.fill_(1.0)
    with pytest.raises(cd.OpError, match="live view"):
        x.fill_(1.0)
    assert part._version == x._version


@pytest.mark.parametrize("index", [([0, 2],), (slice(None), [1]), (True,)])
def test_what_indices_select_has_memory_of_its_own(index: Any) -> None:
    x = matrix()
    part = x[index]
    part.fill_(1.0)
    x.fill_(2.0)
    assert set(part.cpu().reshape(-1).tolist()) == {1.0}


def test_masks_and_index_tensors_select_too() -> None:
    x = matrix()
    for index in (x > 3, cd.tensor([0, 2]).to("copying")):
        x[index].fill_(1.0)
    assert x.cpu().tolist() == cd.arange(12.0).reshape(3, 4).tolist()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.diagonal(),
        lambda x: x.unfold(1, 2, 1),
        lambda x: cd.as_strided(x, (2, 2), (4, 1)),
        lambda x: x.split(2, 1)[1],
    ],
)
def test_view_operators_made_of_selections_give_aliases(view: Any) -> None:
    x = matrix()
    part = view(x)
    with pytest.raises(cd.OpError, match="live view"):
        part.fill_(1.0)
    del part
    x.fill_(1.0)


def test_an_empty_scan_is_no_alias_of_its_input() -> None:
    x = cd.zeros(0).to("copying")
    assert cd.logcumsumexp(x, 0, out=x) is x


def test_check_refuses_what_an_array_library_would_take() -> None:
    x = np.ones((3, 4))
    check("add", (x, 2.0))
    with pytest.raises(cd.DTypeError, match="'text'"):
        check("add", ("text", x))
    with pytest.raises(cd.ShapeError):
        check("add", (x, np.ones((3, 5))))
    with pytest.raises(cd.DimError):
        check("argmax", (np.ones(()), 9, False))
    check("getitem", (x, (np.array([1, 2]),)))  # the values of an index are the library's to check


def test_an_index_out_of_bounds_in_a_kernel_is_a_dim_error() -> None:
    with pytest.raises(cd.DimError, match="out of bounds"):
        matrix()[cd.tensor([5]).to("copying")]


def test_a_refused_step_has_written_nothing() -> None:
    state = cd.ones(3), cd.ones(3)
    with pytest.raises(cd.DTypeError):
        cd.ops.adagrad_step("text", cd.ones(3), state[0], 0.1, 1e-10, 0.0, False)
    assert state[0].tolist() == [1.0] * 3
