"""Operators that return Python numbers, texts or lists of them, and those that are properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.plugin import Layer, Mode, OpError, SchemaError, Switch, composite, primitive

Load = Callable[[str, Callable[[Any], None]], None]


@primitive(namespace=())
def count_positive(self: Tensor) -> int:  # noqa: F821
    """The number of elements above 0."""


@composite(namespace=())
def extent(self: Tensor, dim: int = 0) -> float:  # noqa: F821
    """The difference of the ends along ``dim``, of a vector."""
    return (self.amax(dim) - self.amin(dim)).item()


@composite(property=True)
def sides(self: Tensor) -> tuple[int, ...]:  # noqa: F821
    """The shape, sorted."""
    return sorted(self.shape)


@composite(namespace=())
def answer(self: Tensor, value: object) -> int | None:  # noqa: F821
    """``value``, whatever it is."""
    return value


@pytest.fixture
def plain(load: Load) -> None:
    def register(registrar: Any) -> None:
        registrar.op(count_positive, extent, sides, answer)
        registrar.kernels("cpu", {"count_positive": lambda raw: (raw > 0).sum()})

    load("plain", register)


def test_a_kernel_may_return_a_number(plain: None) -> None:
    x = cd.tensor([[1.0, -2.0], [3.0, 4.0]])
    found = x.count_positive()
    assert found == 3 and type(found) is int  # NumPy's number became Python's
    assert count_positive(x) == cd.ops.count_positive(x) == 3
    assert type(x[0].extent()) is float and x[0].extent() == 3.0


def test_a_property_is_read_without_a_call(plain: None) -> None:
    assert cd.zeros(5, 2, 3).sides == (2, 3, 5)
    assert "sorted" in type(cd.zeros(1)).sides.__doc__
    with pytest.raises(AttributeError):
        cd.zeros(1).sides = (1,)


def test_unloading_takes_methods_and_properties_away(load: Load) -> None:
    load("sides", lambda r: r.op(sides))
    assert cd.zeros(2).sides == (2,)
    cd.plugins.unload("sides")
    assert not hasattr(cd.Tensor, "sides")
    with pytest.raises(AttributeError, match="sides"):
        cd.zeros(2).sides  # noqa: B018


@pytest.mark.parametrize(
    ("value", "ok"),
    [(3, True), (None, True), (np.int64(3), True), (True, False), (3.5, False), ("3", False)],
)
def test_a_body_returns_what_the_schema_says(plain: None, value: Any, ok: bool) -> None:
    x = cd.ones(2)
    if ok:
        assert x.answer(value) == value and not isinstance(x.answer(value), np.generic)
    else:
        with pytest.raises(OpError, match=r"answer.*schema says int \| None"):
            x.answer(value)


def test_a_tensor_is_no_number(plain: None) -> None:
    with pytest.raises(OpError, match="schema says"):
        cd.ones(2).answer(cd.ones(2))


def test_gradients_do_not_mind(plain: None) -> None:
    x = cd.tensor([1.0, -2.0], requires_grad=True)
    assert x.count_positive() == 1 and x.sides == (2,) and x.extent() == 3.0
    (x * x.count_positive()).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_layers_see_them(plain: None, load: Load) -> None:
    seen: list[str] = []

    class watching(Mode):
        switch = Switch(on=("watch",))

    def watch(call: Any, args: tuple[Any, ...]) -> Any:
        seen.append(call.op.name)
        return call.below(args)

    load("watch", lambda r: r.layer(Layer("watch", generic=watch)))
    x = cd.ones(2)
    with watching():
        assert x.count_positive() == 2 and x.sides == (2,)
    assert seen == ["count_positive", "sides"]


def test_meta_tensors_answer_where_a_body_does(plain: None) -> None:
    x = cd.empty(4, 3, device="meta")
    assert x.sides == (3, 4) and x.is_sparse is False
    with pytest.raises(OpError, match="count_positive"):
        x.count_positive()


def test_a_number_cannot_be_written_into_a_tensor(plain: None) -> None:
    with pytest.raises(OpError, match="returns int, which cannot be written into out="):
        count_positive(cd.ones(2), out=cd.ones(2))


def declared(returns: str, **details: Any) -> Any:
    def fact(self: Any) -> None: ...

    fact.__annotations__ = {"self": "Tensor", "return": returns}
    return composite(**details)(fact)


@pytest.mark.parametrize(
    "returns",
    ["int", "float", "bool", "str", "tuple[int, ...]", "list[float]", "int | None"],
)
def test_what_a_schema_may_return(returns: str) -> None:
    op = declared(returns)
    assert op.schema.plain and not op.schema.multi_output and not op.differentiable
    assert str(op.schema).endswith(f"-> {returns}")


@pytest.mark.parametrize(
    "returns", ["tuple[int]", "list[int, ...]", "dict", "Tensor | int", "set[int]"]
)
def test_what_a_schema_may_not_return(returns: str) -> None:
    with pytest.raises(SchemaError, match="return annotation"):
        declared(returns)


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({"cast": "lower"}, "states cast="),
        ({"out": lambda self: ()}, "states out="),
        ({"dtype": cd.float32}, "states dtype="),
        ({"mutates": ("self",)}, "states mutates="),
        ({"inplace": True}, "inplace=True"),
    ],
)
def test_details_that_only_tensors_have_are_refused(details: dict[str, Any], text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        declared("int", **details)


def test_a_property_takes_the_tensor_alone() -> None:
    with pytest.raises(SchemaError, match="property=True"):

        @composite(property=True)
        def two(self: Tensor, dim: int) -> int:  # noqa: F821
            return dim

    with pytest.raises(SchemaError, match="property=True"):
        declared("int", property=True, method=False)


def test_every_layout_answers_for_itself() -> None:
    dense = cd.ones(2, 2)
    assert dense.is_sparse is False and dense.is_quantized is False
    assert not hasattr(cd, "is_sparse")  # as in PyTorch, a property and no function
