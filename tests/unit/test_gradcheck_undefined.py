"""``gradcheck(check_undefined_grad=True)``: outputs without a gradient count as zeros."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd


class Both(cd.autograd.Function):
    """``2 x`` and ``3 x``; takes None for a gradient."""

    @staticmethod
    def forward(ctx: Any, x: cd.Tensor) -> tuple[cd.Tensor, cd.Tensor]:
        ctx.set_materialize_grads(False)
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return 2 * a if b is None else 3 * b
        return 2 * a + 3 * b


class Careless(Both):
    """Does not expect None."""

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any) -> Any:
        return 2 * a + 3 * b


class Wrong(Both):
    """Takes None for something else than zeros."""

    @staticmethod
    def backward(ctx: Any, a: Any, b: Any) -> Any:
        return 2 * (1 if a is None else a) + 3 * (1 if b is None else b)


@pytest.fixture
def x() -> cd.Tensor:
    return cd.ones(2, dtype=cd.float64, requires_grad=True)


def test_outputs_that_may_be_left_out(x: cd.Tensor) -> None:
    assert cd.autograd.gradcheck(Both.apply, x)
    assert cd.autograd.gradcheck(lambda x: (x.exp(), x.sum(), x.detach()), x)
    assert cd.autograd.gradcheck(lambda x, y: (x * 2, y * 3), (x, x.detach().requires_grad_()))


@pytest.mark.parametrize("function", [Careless, Wrong])
def test_faults_are_found(x: cd.Tensor, function: Any) -> None:
    with pytest.raises(RuntimeError, match="undefined output grads"):
        cd.autograd.gradcheck(function.apply, x)
    assert not cd.autograd.gradcheck(function.apply, x, raise_exception=False)
