"""The forms of writing operators that write nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.nn import functional as F
from coredispatch.ops.support.samples import Make
from coredispatch.plugin import (
    composite,
)
from coredispatch.registry import Operator
from coredispatch.registry.around.arguments import complete
from coredispatch.registry.dispatch.dispatcher import canonicalized

# -- functional forms ------------------------------------------------------------------------------


def mutating() -> list[Operator]:
    ops = [getattr(cd.ops, name) for name in sorted(dir(cd.ops))]
    return [op for op in ops if op.mutates]


def sampled() -> list[Any]:
    return [pytest.param(op, id=op.name) for op in mutating() if op.samples is not None]


def samples_of(op: Operator) -> list[tuple[Any, ...]]:
    """The complete arguments of the operator's samples, with tensors for arrays."""
    dtype = {"int": "int64", "bool+int": "int64"}.get(op.dtypes, "float32")
    if not isinstance(op.dtypes, str):
        names = [str(d).rpartition(".")[2] for d in op.dtypes]
        dtype = "float32" if "float32" in names else names[0]

    found = []
    for sample in op.samples(Make(np.dtype(dtype), seed=5, values=op.values)):
        call = sample.map(lambda array: cd.from_numpy(array.copy()))
        found.append(canonicalized(op, complete(op, call.args, call.kwargs), op.arity))
    return found


def tensors(items: Any) -> list[Any]:
    flat = [x for item in items for x in (item if isinstance(item, (list, tuple)) else [item])]
    return [x for x in flat if isinstance(x, cd.Tensor)]


def alike(a: np.ndarray, b: np.ndarray) -> None:
    """Equal; floats within rounding, for BLAS may sum in another order the second time."""
    if a.dtype.kind in "fc":
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(a, b)


def test_every_operator_that_writes_has_a_functional_form_with_the_same_arguments() -> None:
    assert len(mutating()) > 140
    for op in mutating():
        form = op.functional
        assert form is not None and form is getattr(cd.ops, form.name), op.name
        assert not form.mutates and form.functional is None
        assert [(p.name, p.kind, p.default) for p in form.schema.params] == [
            (p.name, p.kind, p.default) for p in op.schema.params
        ]
        assert form.random == op.random


@pytest.mark.parametrize("op", sampled())
def test_the_functional_form_and_copies_are_the_operator(op: Operator) -> None:
    calls = 0
    for args in samples_of(op):
        before = [tensor.clone() for tensor in tensors(args)]
        versions = [tensor._version for tensor in tensors(args)]
        cd.manual_seed(3)
        try:
            expected_args = tuple(
                type(a)([x.clone() if isinstance(x, cd.Tensor) else x for x in a])
                if isinstance(a, (list, tuple))
                else a.clone()
                if isinstance(a, cd.Tensor)
                else a
                for a in args
            )
            expected = cd.plugin.dispatch(op, expected_args)
        except cd.ShapeError as error:
            # An in-place form whose result does not fit into self.
            assert "cannot be resized" in str(error)
            continue
        calls += 1
        cd.manual_seed(3)
        result, writes = op.without_writing(args)
        assert [tensor._version for tensor in tensors(args)] == versions, "something was written"
        for tensor, old in zip(tensors(args), before, strict=True):
            assert cd.equal(tensor, old) or tensor.isnan().any()
        for tensor, new in writes:
            assert all(new is not argument for argument in tensors(args))
            with cd.no_grad():
                tensor.copy_(new)
        for mine, theirs in zip(tensors(args), tensors(expected_args), strict=True):
            alike(mine.numpy(), theirs.numpy())
        for mine, theirs in zip(tensors([result]), tensors([expected]), strict=True):
            alike(mine.numpy().astype(theirs.numpy().dtype), theirs.numpy())
    assert calls, "no sample could be written in place"


def test_the_functional_batch_norm_returns_new_statistics_and_is_differentiable() -> None:
    x = cd.arange(24.0).reshape(2, 3, 4).requires_grad_()
    mean, var = cd.zeros(3), cd.ones(3)
    out, new_mean, new_var = cd.ops.batch_norm_functional(x, mean, var, training=True)
    assert mean.tolist() == [0, 0, 0] and mean._version == 0
    wanted = F.batch_norm(x.detach(), mean, var, training=True)
    assert out.tolist() == wanted.tolist()
    assert new_mean.tolist() == mean.tolist() and new_var.tolist() == var.tolist()
    (out * out * out).sum().backward()
    assert x.grad is not None and not new_mean.requires_grad
    (only,) = cd.ops.batch_norm_functional(x, mean, var)
    assert only.shape == x.shape


def test_a_functional_form_has_the_gradient_of_the_write() -> None:
    x = cd.ones(3, requires_grad=True)
    y = cd.ops.fill_diagonal_functional(x.reshape(1, 3).expand(3, 3).clone(), 7.0)
    (y * y).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0, 4.0]
    drawn = cd.ops.uniform_functional(x)
    assert (drawn < 1).all() and x.tolist() == [1, 1, 1]


def test_a_named_functional_form_is_used_and_checked() -> None:
    @composite(namespace=())
    def twice(self: Tensor) -> Tensor:  # noqa: F821
        """Twice ``self``."""
        return self * 2

    def twice_(self: Tensor) -> Tensor:  # noqa: F821
        """Double ``self``."""
        return self.mul_(2)

    op = composite(name="twice_", mutates=("self",), functional=twice, namespace=())(twice_)
    assert op.functional is twice
    x = cd.ones(2)
    result, ((old, new),) = op.without_writing((x,))
    assert old is x and result is new and new.tolist() == [2, 2] and x.tolist() == [1, 1]

    @composite(namespace=())
    def other(self: Tensor, factor: float) -> Tensor:  # noqa: F821
        """Something else."""
        return self * factor

    with pytest.raises(cd.SchemaError, match="other parameters"):
        composite(mutates=("self",), functional=other)(twice_)
    with pytest.raises(cd.SchemaError, match="writes to nothing"):
        composite(mutates=("self",), functional=op)(twice_)
    with pytest.raises(cd.SchemaError, match="no mutates="):
        composite(functional=other)(lambda_less)


def lambda_less(self: Tensor, factor: float) -> Tensor: ...  # noqa: F821
