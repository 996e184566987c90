"""Tensors as Python objects: operators with numbers and arrays, protocols, conversions."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle
import pydoc
import weakref
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift"]
BINARY += ["and_", "or_", "xor", "eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("name", BINARY)
def test_infix_operators_on_both_sides_of_a_number(name: str) -> None:
    torch = pytest.importorskip("torch")
    apply = getattr(operator, name)
    x, t = cd.tensor([1, 2, 3]), torch.tensor([1, 2, 3])
    for number in (2, np.int64(2)):
        assert apply(x, number).tolist() == apply(t, number).tolist()
    assert apply(2, x).tolist() == apply(2, t).tolist()
    assert apply(x, np.array([3, 2, 1])).tolist() == apply(t, torch.tensor([3, 2, 1])).tolist()
    right = apply(np.array([3, 2, 1]), x)
    assert isinstance(right, cd.Tensor)
    assert right.tolist() == apply(torch.tensor([3, 2, 1]), t).tolist()


@pytest.mark.parametrize("name", BINARY)
def test_infix_operators_leave_foreign_types_alone(name: str) -> None:
    apply = getattr(operator, name)
    if name in ("eq", "ne"):
        assert apply(cd.ones(2), "text") is (name == "ne")
        return
    for left, right in ((cd.tensor([1]), None), (None, cd.tensor([1])), (cd.tensor([1]), {})):
        with pytest.raises(TypeError, match=r"unsupported operand|not supported between"):
            apply(left, right)


def test_products_with_arrays() -> None:
    x, array = cd.arange(4.0).reshape(2, 2), np.ones((2, 2), np.float32)
    for product in (x @ array, array @ x):
        assert isinstance(product, cd.Tensor)
    assert (array @ x).tolist() == [[2, 4], [2, 4]]
    for left, right in ((2, x), (x, 2), ([1], x), (None, x)):
        with pytest.raises(TypeError, match="unsupported operand"):
            left @ right


def test_shifts_in_place() -> None:
    x = cd.tensor([1, 2])
    alias = x
    x <<= 2
    assert x is alias and x.tolist() == [4, 8]
    x >>= 1
    assert x is alias and x.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ~cd.ones(2), "bitwise_not(float32[2] (cpu)): not defined for 'self' of dtype"),
        (lambda: -cd.tensor([True]), "neg(bool[1] (cpu)): not defined for 'self' of dtype bool"),
        (lambda: cd.tensor([True]) - cd.tensor([True]), "every dtype but bool"),
        (lambda: cd.atan2(cd.tensor([1j]), cd.tensor([1j])), "it takes"),
    ],
)
def test_a_dtype_that_an_operator_has_not_is_named(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        call()
    assert isinstance(caught.value, cd.DTypeError) and text in str(caught.value)


def test_formatting() -> None:
    assert f"{cd.tensor(3.14159):.2f}" == "3.14" and f"{cd.tensor(7):3d}" == "  7"
    assert f"{cd.tensor(0.5)}" == "0.5" and f"{cd.tensor(True)}" == "True"
    assert f"{cd.ones(1)}" == "tensor([1.])"
    with pytest.raises(TypeError, match="format string"):
        f"{cd.ones(1):.2f}"


def test_length_iteration_and_membership() -> None:
    x = cd.arange(6).reshape(3, 2)
    assert len(x) == 3 and [row.tolist() for row in x] == [[0, 1], [2, 3], [4, 5]]
    assert [row.tolist() for row in reversed(x)] == [[4, 5], [2, 3], [0, 1]]
    assert 5 in x and 6 not in x
    first, *_ = x
    first[0] = 9
    assert x[0, 0] == 9, "rows are views"
    for refused in (len, iter):
        with pytest.raises(TypeError, match="0-dim"):
            refused(cd.tensor(1))


def test_numbers_of_one_element_tensors() -> None:
    assert float(cd.tensor([2.5])) == 2.5 and int(cd.tensor(2.9)) == 2
    assert complex(cd.tensor(1j)) == 1j and [10, 20, 30][cd.tensor(1)] == 20
    assert bool(cd.tensor(0.0)) is False
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(cd.ones(2))
    with pytest.raises(TypeError, match="only integer tensors"):
        [1, 2][cd.tensor(1.0)]


def test_identity_attributes_and_weak_references() -> None:
    x, same = cd.ones(2), cd.ones(2)
    assert len({x, same}) == 2 and {x: 1}[x] == 1 and hash(x) == hash(x)
    x.note = "kept"
    assert copy.deepcopy(x).note == "kept"
    reference = weakref.ref(x)
    assert reference() is x
    del x
    assert reference() is None


def test_copies_and_pickles() -> None:
    x = cd.arange(6.0).reshape(2, 3)
    pair = [x, x[0]]
    for again in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        again[1][0] = 100
        assert again[0][0, 0] == 100, "what shared memory shares it again"
    assert x[0, 0] == 0
    with pytest.raises(RuntimeError, match="only leaf tensors"):
        copy.deepcopy(cd.ones(1, requires_grad=True) * 2)
    result = x.max(0)
    for again in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert again.values.tolist() == [3, 4, 5] and again.indices.tolist() == [1, 1, 1]
        values = "values=tensor([3., 4., 5.]),\nindices=tensor([1, 1, 1])"
        assert repr(again) == f"cd.return_types.max(\n{values})"


DLPACK = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*DLPACK, "bool", "bfloat16", "complex64", "complex128"])
def test_dlpack_shares_memory_both_ways(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = cd.zeros(2, 3, dtype=getattr(cd, dtype))
    theirs = torch.from_dlpack(x)
    theirs[0, 1] = 1
    assert x[0, 1] == 1 and str(theirs.dtype) == f"torch.{dtype}"
    assert torch.from_dlpack(x.T).stride() == (1, 3)
    t = torch.zeros(3, 2, dtype=getattr(torch, dtype)).T
    mine = cd.from_dlpack(t)
    mine[1, 2] = 1
    assert t[1, 2] == 1 and mine.dtype.name == dtype and mine.stride() == (1, 2)


def test_dlpack_and_arrays_refuse_a_gradient() -> None:
    x = cd.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        np.from_dlpack(x)
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        np.asarray(x)
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        x.numpy()


def test_numpy_arrays_are_shared_not_copied() -> None:
    array = np.zeros((2, 3), dtype=np.float32)
    x = cd.from_numpy(array)
    x.add_(1)
    assert array.sum() == 6 and np.shares_memory(np.asarray(x), array)
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert x.T.numpy().strides == (4, 12)
    frozen = np.zeros(2)
    frozen.setflags(write=False)
    with pytest.raises(RuntimeError, match="read-only"):
        cd.from_numpy(frozen).add_(1)
    assert cd.from_numpy(frozen).add(1).tolist() == [1, 1]


def test_out_keeps_its_dtype_when_it_is_resized() -> None:
    a = cd.ones(2)
    for out in (cd.empty(0, dtype=cd.float64), cd.empty(2, dtype=cd.float64)):
        assert cd.add(a, a, out=out) is out
        assert out.dtype is cd.float64 and out.raw.dtype == np.float64 and out.tolist() == [2, 2]


def test_methods_are_functions_that_pickle_document_and_are_overridden() -> None:
    x = cd.tensor([-1.0, 2.0])
    for method in (x.abs, x.absolute, x.add_, cd.Tensor.abs, cd.Tensor.absolute):
        again = pickle.loads(pickle.dumps(method))
        assert again.__name__ == method.__name__ and again.__doc__ == method.__doc__
    assert pickle.loads(pickle.dumps(x.abs))().tolist() == [1.0, 2.0]
    assert pickle.loads(pickle.dumps(cd.Tensor.add)) is cd.Tensor.add
    assert str(inspect.signature(x.add)) == "(other: 'Tensor | Scalar') -> 'Tensor'"
    assert cd.Tensor.add(x, x).tolist() == [-2.0, 4.0] and "Elementwise" in cd.Tensor.add.__doc__
    assert "add(self" in pydoc.plain(pydoc.render_doc(cd.Tensor))

    class Louder(cd.Tensor):
        def add(self, other: Any, **more: Any) -> Any:
            return super().add(other, **more) + 100

    loud = x.as_subclass(Louder)
    assert loud.add(1).tolist() == [100.0, 103.0] and cd.Tensor.add(loud, 1).tolist() == [0.0, 3.0]


def test_subclasses_of_users_get_results_whose_init_nobody_calls() -> None:
    class Tagged(cd.Tensor):
        def __new__(cls, array: Any, tag: str) -> Any:
            return super().__new__(cls, cd.from_numpy(array))

        def __init__(self, array: Any, tag: str) -> None:
            super().__init__()
            self.tag = tag

    x = Tagged(np.ones(2, np.float32), "mine")
    results = [x + x, x * 2.0, x.exp(), x[0], x.reshape(1, 2), x.sum(), *x.unbind()]
    for out in results:
        assert (
            type(out) is Tagged
            and not hasattr(out, "tag")
            and out._node is None
            and out._grad is None
        )
        out.tag = "yours"
        assert weakref.ref(out)() is out and out.tag == "yours" and hash(out) == id(out)
    assert (x + 0).is_leaf and x.add_(1) is x and x.tag == "mine"
    x.requires_grad_()

    class Twice(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Any) -> Any:
            ctx.save_for_backward(t)
            return t  # an input handed on

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (saved,) = ctx.saved_tensors
            return grad * saved

    for leaf in (x, cd.nn.Parameter(cd.tensor([2.0, 2.0]))):
        out = Twice.apply(leaf)
        assert type(out) is cd.Tensor and leaf.is_leaf
        out.sum().backward()
        assert leaf.grad.tolist() == [2.0, 2.0]
