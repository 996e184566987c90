"""Idioms of published libraries that go beyond plain programs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.nn import Parameter
from coredispatch.utils import _pytree


def test_a_function_may_leave_the_sum_over_broadcast_dimensions_to_autograd() -> None:
    class Scale(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: cd.Tensor, w: cd.Tensor) -> cd.Tensor:
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: cd.Tensor) -> tuple[cd.Tensor, cd.Tensor]:
            return grad, grad

    x = cd.ones(3, 4, requires_grad=True)
    for shape, expected in (((1, 1), [[12.0]]), ((4,), [3.0] * 4), ((), 12.0)):
        w = cd.ones(shape, requires_grad=True)
        Scale.apply(x, w).sum().backward()
        assert w.grad is not None and w.grad.tolist() == expected

    class Wrong(Scale):
        @staticmethod
        def backward(ctx: Any, grad: cd.Tensor) -> tuple[cd.Tensor, cd.Tensor]:
            return grad, cd.ones(4)

    with pytest.raises(RuntimeError):  # (4,) is no sum that gives (3,)
        Wrong.apply(cd.ones(3), cd.ones(3, requires_grad=True)).sum().backward()


def test_a_parameter_class_may_make_itself_with_arguments_of_its_own() -> None:
    class Tagged(Parameter):
        tag: str

        def __new__(cls, data: Any, tag: str, requires_grad: bool = True) -> Any:
            made = cd.Tensor._make_subclass(cls, data, requires_grad)
            made.tag = tag
            return made

    class Extra(Parameter):
        def __new__(cls, data: Any, extra: Any = None) -> Any:
            return super().__new__(cls, data)

        def __init__(self, data: Any, extra: Any = None) -> None:
            self.extra = extra

    data = cd.ones(3)
    tagged, extra = Tagged(data, tag="t"), Extra(cd.ones(2), extra=5)
    module = cd.nn.Module()
    module.tagged, module.extra = tagged, extra
    assert [type(p) for p in module.parameters()] == [Tagged, Extra]
    assert (tagged.tag, extra.extra, tagged.requires_grad, tagged.is_leaf) == ("t", 5, True, True)
    (tagged.sum() + extra.sum()).backward()
    cd.optim.SGD(module.parameters(), lr=0.5).step()
    assert data.tolist() == [0.5] * 3 and extra.tolist() == [0.5] * 2
    with pytest.raises(TypeError):
        Parameter(data, manifold=None)  # type: ignore[call-arg]


def test_getattr_of_a_module_finds_its_members() -> None:
    norm = cd.nn.BatchNorm1d(2)
    model = cd.nn.Sequential(norm)
    assert norm.__getattr__("weight") is norm.weight
    assert norm.__getattr__("running_mean") is norm.running_mean
    assert model.__getattr__("0") is norm
    with pytest.raises(AttributeError, match="no_such"):
        norm.__getattr__("no_such")


def test_what_is_made_of_sizes_is_a_size() -> None:
    size = cd.Size([2, 3])
    for made, expected in (
        ((5,) + size, (5, 2, 3)),
        (size + (5,), (2, 3, 5)),
        (size * 2, (2, 3, 2, 3)),
        (2 * size, (2, 3, 2, 3)),
        (size[-1:], (3,)),
        (cd.broadcast_shapes((1, 3), (2, 1)), (2, 3)),
    ):
        assert type(made) is cd.Size and made == expected
    with pytest.raises(TypeError):
        [5] + size  # type: ignore[operator]


def test_struct_sequences_are_told_from_named_tuples() -> None:
    now = time.localtime()
    assert _pytree.is_structseq_instance(now) and _pytree.is_structseq_class(type(now))
    assert _pytree.is_structseq(now) and not _pytree.is_structseq((1, 2))


def test_numpy_is_refused_while_gradients_are_recorded_only() -> None:
    weight = Parameter(cd.ones(2))
    with cd.no_grad():
        assert weight.numpy().tolist() == np.asarray(weight).tolist() == [1.0, 1.0]
        with cd.enable_grad(), pytest.raises(RuntimeError, match="requires grad"):
            weight.numpy()
    with cd.inference_mode():
        assert weight.numpy().tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        weight.numpy()


def test_a_subclass_of_parameter_says_its_name() -> None:
    class Mine(Parameter):
        pass

    made = Mine(cd.ones(1))
    assert cd.Tensor.__repr__(made) == "Parameter(Mine([1.], requires_grad=True))"
    assert cd.Tensor.__repr__(Parameter(cd.ones(1))) == "tensor([1.], requires_grad=True)"


def test_a_traced_einsum_is_written_with_its_operands_in_a_row() -> None:
    def program(a: cd.Tensor, b: cd.Tensor) -> cd.Tensor:
        return cd.einsum("ij,jk->ik", [a, b]) + cd.einsum("ij,jk->ik", a, b)

    traced = cd.fx.symbolic_trace(program)
    found = [node.args for node in traced.graph.nodes if node.op == "call_function"][:2]
    assert [len(args) for args in found] == [3, 3]
    assert traced(cd.eye(2), cd.ones(2, 2)).tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_copy_takes_a_source_on_another_device() -> None:
    layer = cd.nn.Linear(2, 3, device="meta")
    with cd.no_grad():
        assert layer.weight.copy_(cd.ones(3, 2)) is layer.weight and layer.weight.is_meta
        assert layer.bias.copy_(cd.ones(3, dtype="float64")).dtype is cd.float32
    with pytest.raises(RuntimeError):
        cd.empty(2, 3, device="meta").copy_(cd.ones(4))
    with pytest.raises(NotImplementedError):  # there is nothing to be read
        cd.empty(2).copy_(cd.empty(2, device="meta"))
    filled = cd.empty(3, device="meta")
    filled.copy_(cd.ones(3, requires_grad=True))
    assert filled.requires_grad
