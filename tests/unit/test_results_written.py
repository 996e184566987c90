"""A result that is written in place keeps the history of the operator that made it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sampled_operators import LARGEST, arrays_of, determined_operators, dtype_of

import coredispatch as cd
from coredispatch.frontend.utils._pytree import tree_flatten, tree_unflatten
from coredispatch.ops.support.samples import Make
from coredispatch.plugin import Tensor, composite, rules
from coredispatch.registry import Operator

SAMPLES = 3  # of each operator
OPERATORS = [op for op in determined_operators(set()) if not op.mutates]


def double(result: cd.Tensor) -> cd.Tensor:
    return result * 2


def double_in_place(result: cd.Tensor) -> cd.Tensor:
    return result.mul_(2)


def gradients(op: Operator, sample: Any, output: int, write: Any) -> list[Any] | None:
    """Of the inputs, where ``write`` goes on with that output; None: there is nothing to derive."""
    leaves, structure = tree_flatten((sample.args, sample.kwargs))
    given = [cd.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x for x in leaves]
    inputs = [
        x.requires_grad_()
        for x in given
        if isinstance(x, cd.Tensor) and (x.is_floating_point() or x.is_complex())
    ]
    args, kwargs = tree_unflatten(given, structure)
    made = [x for x in tree_flatten(op(*args, **kwargs))[0] if isinstance(x, cd.Tensor)]
    if output >= len(made) or not made[output].requires_grad:
        return None
    result = write(made[output])
    if result.is_complex():
        result = cd.view_as_real(result.resolve_conj())
    result.sum().backward()
    return [None if x.grad is None else x.grad.numpy() for x in inputs]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_the_gradients_are_those_of_a_result_that_is_not_written(op: Operator) -> None:
    assert op.samples is not None
    samples = list(op.samples(Make(dtype_of(op), seed=0, values=op.values)))
    small = [s for s in samples if all(a.size <= LARGEST for a in arrays_of(s))]
    for sample in small[:SAMPLES]:
        for output in range(3):
            try:
                expected = gradients(op, sample, output, double)
            except RuntimeError:
                break  # the operator has no derivative here
            if expected is None:
                continue
            try:
                found = gradients(op, sample, output, double_in_place)
            except RuntimeError:
                continue  # it saves its result, as PyTorch's may
            assert found is not None
            for own, other in zip(found, expected, strict=True):
                assert (own is None) == (other is None)
                if other is not None:
                    np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("make", [cd.diag, cd.diag_embed, cd.diagflat])
def test_a_part_of_the_result_is_written(make: Any) -> None:
    x = cd.ones(3, requires_grad=True)
    y = make(x)
    y[0] = 7.0
    y.view(-1).mul_(2)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 2.0, 2.0]


@composite(out=lambda self: self.shape[::-1], dtype=rules.same)
def twice_across(self: Tensor) -> Tensor:
    """Twice the matrix, transposed."""
    return (self * 2).t()


@twice_across.vjp
def _(grad: Tensor) -> Tensor:
    return grad.t() * 2


def test_an_operator_of_somebody_else_whose_body_ends_in_a_view(register: Any) -> None:
    register(lambda registrar: registrar.op(twice_across))
    x = cd.ones(2, 3, requires_grad=True)
    y = x.twice_across()  # type: ignore[attr-defined]
    y *= 3
    y[0] = 0
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0, 6.0, 6.0]] * 2
