"""Schemas: what a signature may say, and the errors for what it may not."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
from coredispatch.plugin import composite, primitive, rules
from coredispatch.registry import Schema


def test_every_kind_of_parameter() -> None:
    def op(
        self: Tensor,
        other: Tensor | Scalar,
        weight: Tensor | None,
        tensors: list[Tensor],
        dim: int,
        size: IntList = (1,),
        *,
        dtype: DType | None = None,
        device: Device | None = None,
        p: float = 0.5,
    ) -> Tensor: ...

    schema = Schema.parse(op, "op")
    kinds = [p.kind for p in schema.params]
    assert kinds == [
        "Tensor", "Tensor", "Tensor", "list[Tensor]", "int", "IntList", "DType", "Device", "float",
    ]  # fmt: skip
    assert schema.params[1].scalar and schema.params[2].optional
    assert [p.name for p in schema.params if p.keyword_only] == ["dtype", "device", "p"]
    assert str(schema).startswith("op(self: Tensor, other: Tensor | Scalar")


def bad_annotation(self: Tensor, other: Matrix) -> Tensor: ...
def no_annotation(self: Tensor, other) -> Tensor: ...  # type: ignore[no-untyped-def]
def variadic(*tensors: Tensor) -> Tensor: ...
def bad_return(self: Tensor) -> dict: ...
def no_tensor(size: IntList) -> Tensor: ...


@pytest.mark.parametrize(
    ("function", "details", "text"),
    [
        (bad_annotation, {}, "unknown type 'Matrix'"),
        (no_annotation, {}, "'other' has no annotation"),
        (variadic, {}, r"\*tensors is not allowed"),
        (bad_return, {}, "return annotation 'dict'"),
        (no_tensor, {}, "no tensor parameter"),
        (lambda self: self, {}, "has no annotation"),
    ],
)
def test_an_invalid_schema_is_refused(function: Any, details: Any, text: str) -> None:
    with pytest.raises(cd.SchemaError, match=text):
        composite(**details)(function)


def valid(self: Tensor) -> Tensor: ...


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({"cast": "sideways"}, "unknown cast policy"),
        ({"mutates": ("other",)}, "mutates 'other'"),
        ({"view": "perhaps"}, "view='perhaps'"),
        ({"factory": True}, "no device parameter"),
    ],
)
def test_details_that_do_not_fit_are_refused(details: Any, text: str) -> None:
    with pytest.raises(cd.SchemaError, match=text):
        composite(**details)(valid)


def test_a_primitive_states_its_rules() -> None:
    with pytest.raises(cd.SchemaError, match="no out= rule"):
        primitive(dtype=rules.same)(valid)
    with pytest.raises(cd.SchemaError, match="no dtype= rule"):
        primitive(out=rules.same_shape)(valid)


def test_a_vjp_names_only_what_the_operator_has() -> None:
    op = composite()(valid)
    with pytest.raises(cd.SchemaError, match="names 'nonsense'"):

        @op.vjp
        def _(grad: Any, nonsense: Any) -> Any: ...

    with pytest.raises(cd.SchemaError, match="names 'nonsense'"):
        op.vjp(self=lambda grad, nonsense: grad)
    with pytest.raises(cd.SchemaError, match="a formula for 'nonsense', which is none of its"):
        op.vjp(nonsense=lambda grad: grad)
    with pytest.raises(cd.SchemaError, match="takes one function, or one per tensor parameter"):
        op.vjp()
    with pytest.raises(cd.SchemaError, match="takes one function, or one per tensor parameter"):
        op.vjp(lambda grad: grad, self=lambda grad: grad)
    with pytest.raises(cd.SchemaError, match="names 'grads'"):  # it has one output
        op.vjp(self=lambda grads: grads)
    with pytest.raises(cd.SchemaError, match="not a plain function"):
        op.vjp(self=max)


# -- binding -------------------------------------------------------------------------------------


def test_keywords_defaults_and_spread_ints() -> None:
    x = cd.arange(6).reshape(2, 3)
    assert x.view(3, 2).shape == x.view((3, 2)).shape == x.view(shape=(3, 2)).shape == (3, 2)
    assert cd.sum(input=x, dim=0).tolist() == cd.sum(x, axis=0).tolist() == [3, 5, 7]
    assert x.sum(dim=1, keepdim=True).shape == x.sum(1, keepdims=True).shape == (2, 1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x.sum(dimension=0), "unexpected keyword argument 'dimension'"),
        (lambda x: cd.sum(x, 0, dim=0), "several values for argument 'dim'"),
        (lambda x: cd.sum(), "missing the argument 'self'"),
        (lambda x: cd.exp(x, 1), "takes 1 positional argument, got 2"),
        (lambda x: cd.add(x, "a"), "argument 'other' must be Tensor | Scalar, not str"),
        (lambda x: cd.add([1.0], x), "argument 'self' must be"),
        (lambda x: x.transpose("a", 0), "argument 'dim0' must be int, not str"),
    ],
)
def test_a_call_that_does_not_bind_says_why(call: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        call(cd.ones(2, 3))
    assert text in str(caught.value)


EVALUATED = """
from typing import List, Optional, Tuple, Union
from coredispatch.plugin import DType, Device, FloatList, IntList, Scalar, Tensor

def op(
    self: Tensor,
    other: Tensor | Scalar,
    weight: Optional[Tensor],
    tensors: List[Tensor],
    value: Union[Tensor, Scalar, None],
    dim: int | tuple[int, ...],
    size: IntList = (1,),
    *,
    scale: FloatList | None = None,
    alpha: Scalar = 1,
    dtype: Optional[DType] = None,
    device: Device | None = None,
) -> Tuple[Tensor, Tensor]: ...

def wrong(self: Tensor, other: dict) -> Tensor: ...
"""


def test_a_module_without_postponed_annotations() -> None:
    module: dict[str, Any] = {}
    exec(compile(EVALUATED, "evaluated", "exec", dont_inherit=True), module)
    assert str(Schema.parse(module["op"], "op")) == (
        "op(self: Tensor, other: Tensor | Scalar, weight: Tensor | None, tensors: list[Tensor], "
        "value: Tensor | Scalar | None, dim: IntList, size: IntList = (1,), *, "
        "scale: FloatList | None = None, alpha: Scalar = 1, dtype: DType | None = None, "
        "device: Device | None = None) -> tuple[Tensor, Tensor]"
    )
    with pytest.raises(cd.SchemaError, match="unknown type 'dict'") as caught:
        Schema.parse(module["wrong"], "wrong")
    assert "begin the module with `from __future__ import annotations`" in str(caught.value)


def test_the_spellings_of_pytorch() -> None:
    x = cd.arange(6.0)
    assert [t.tolist() for t in x.split(split_size=4)] == [[0, 1, 2, 3], [4, 5]]
    assert len(cd.split(tensor=x, split_size_or_sections=2)) == 3
    assert len(x.tensor_split(sections=2)) == 2 and len(x.tensor_split(indices=(1, 3))) == 3
    assert x.sum(axis=0, keepdims=True).shape == (1,)
    assert 3 <= cd.zeros(9).uniform_(**{"from": 3, "to": 4}).min() <= 4
    assert cd.isin(x, test_element=3).tolist() == [False] * 3 + [True] + [False] * 2
    with pytest.raises(TypeError, match="several values for argument 'dim'"):
        x.sum(dim=0, axis=0)
