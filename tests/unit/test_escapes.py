"""Where values leave the table and where they come in: one operator each, which a layer sees."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.plugin import Layer, Mode, Switch, hookimpl

SEEN: list[str] = []


class watching(Mode):
    """Operators are noted in ``SEEN``."""

    switch = Switch(on=("watch",))


def note(call: Any, args: tuple[Any, ...]) -> Any:
    SEEN.append(call.op.name)
    return call.below(args)


@hookimpl
def coredispatch_register(registrar: Any) -> None:
    registrar.layer(Layer("watch", generic=note, below=("autograd", "autocast")))


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    cd.plugins.load("watch", sys.modules[__name__])
    SEEN.clear()
    yield
    cd.plugins.unload("watch")


READS: dict[str, Callable[[cd.Tensor], Any]] = {
    "item": lambda x: x.item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.detach().numpy(),
    "array": lambda x: np.asarray(x.detach()),
    "float": float,
    "int": int,
    "bool": bool,
    "complex": complex,
    "format": lambda x: f"{x:.3f}",
    "if": lambda x: 1 if x > 0 else 2,
    "in": lambda x: 1.0 in x.reshape(1),
    "index of a list": lambda x: [1, 2, 3][x.long()],
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_read_of_a_value_is_an_operator(name: str, requires_grad: bool) -> None:
    x = cd.tensor(1.0, requires_grad=requires_grad)
    expected = READS[name](x)
    assert not SEEN
    with watching():
        assert READS[name](x) == expected
    assert SEEN[-1] == "to_host" and SEEN.count("to_host") == 1


CONSTANTS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: cd.tensor([1.0]),
    "as_tensor": lambda: cd.as_tensor([1.0]),
    "from_numpy": lambda: cd.from_numpy(np.ones(1, np.float32)),
    "asarray": lambda: cd.asarray(np.ones(1)),
    "new_tensor": lambda: cd.tensor(2.0).new_tensor([1.0]),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_from_outside_is_an_operator(name: str) -> None:
    with watching():
        made = CONSTANTS[name]()
    assert "from_host" in SEEN and made.tolist() == [1]


def test_reads_and_constants_are_observed() -> None:
    with cd.observe() as log:
        cd.tensor(3.0).item()
    assert [seen.op for seen in log] == ["from_host", "to_host"]


def test_a_meta_tensor_has_nothing_to_read() -> None:
    with pytest.raises(cd.OpError, match="no data"):
        cd.ones(1, device="meta").item()
