"""``fullgraph=True`` takes what has shapes that no values decide: checks of values are nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.frontend.utils._pytree import tree_leaves
from coredispatch.nn import functional

TARGETS = cd.tensor([1, 0, 4, 2])
LENGTHS = cd.tensor([6, 6]), cd.tensor([2, 1])
CTC: Any = functional.ctc_loss


def _masked(x: Any) -> Any:
    x = x.clone()
    x[x > 0] = 0.0
    x[:, 1][x[:, 0] < 0] = 3.0
    return x


def _masked_by(x: Any, value: Any) -> Any:
    x = x.clone()
    x[x > 0] = value
    return x


def _normal(*shape: int) -> Any:
    return cd.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def _masked_by_rows(x: Any) -> Any:
    """As many values as the mask selects, rows, and one row for all."""
    y = x.clone()
    y[MASK] = x.flatten()[:SELECTED] * 2
    y[ROWS] = x[:2] * 3
    y[~ROWS] = x[0] * 4
    return y


def _masked_by_given(x: Any, values: Any, mask: Any) -> Any:
    x = x.clone()
    x[mask] = values
    return x


X = _normal(4, 5)
MASK = X > 0
SELECTED = int(MASK.sum())
ROWS = cd.tensor([True, False, True, False])
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "an index of no dimensions": (lambda x: x[x[:, 0].argmax()], (X,)),
    "masked writes": (_masked, (X,)),
    "a masked write of a tensor": (_masked_by, (X, cd.tensor(3.0))),
    "masked writes of rows": (_masked_by_rows, (X,)),
    "cov": (
        lambda x: cd.cov(x, fweights=TARGETS.new_ones(5), aweights=x[0].detach().abs()),
        (X,),
    ),
    "as_strided": (lambda x: cd.as_strided_copy(x, (2, 3), (1, 2), 4), (X,)),
    "nll_loss": (lambda x: functional.nll_loss(x.log_softmax(1), TARGETS), (X,)),
    "gaussian_nll_loss": (lambda x: functional.gaussian_nll_loss(x, x * 2, x.exp()), (X,)),
    "multilabel_margin_loss": (
        lambda x: functional.multilabel_margin_loss(x, cd.tensor([[0, 1, -1, 2, 3]] * 4)),
        (X,),
    ),
    "ctc_loss": (
        lambda x: CTC(x.log_softmax(-1), cd.tensor([[1, 2], [2, 9]]), *LENGTHS),
        (_normal(6, 2, 4),),
    ),
    "ctc_loss of joined targets": (
        lambda x, y: CTC(x.log_softmax(-1), y, *LENGTHS),
        (_normal(6, 2, 4), cd.tensor([1, 2, 2])),
    ),
    "scatter_reduce": (
        lambda x: x.scatter_reduce(1, TARGETS[:, None].expand(4, 5), x, "amax"),
        (X,),
    ),
    "index_reduce": (lambda x: x.index_reduce(0, TARGETS.clamp(0, 3), x, "mean"), (X,)),
    "masked_scatter": (lambda x: x.masked_scatter(MASK, x * 2), (X,)),
    "cumprod": (lambda x: x.cumprod(1), (X,)),
    "det": (lambda x: cd.linalg.det(x[:, :4]), (X,)),
    "lu_factor": (lambda x: cd.linalg.lu_factor(x[:, :4])[0], (X,)),
    "matrix_exp": (lambda x: cd.linalg.matrix_exp(x[:, :4]), (X,)),
    "max_unpool1d": (
        lambda x: functional.max_unpool1d(
            *functional.max_pool1d(x[None], 2, return_indices=True), 2
        ),
        (X[:, :4].clone(),),
    ),
    "distributions": (
        lambda x: cd.distributions.Normal(x, x.exp()).log_prob(x + 1),
        (X,),
    ),
    "istft": (
        lambda x: cd.istft(
            cd.stft(x.flatten(), 8, window=cd.ones(8), return_complex=True), 8, window=cd.ones(8)
        ),
        (X,),
    ),
    "repeat_interleave": (
        lambda x: x.repeat_interleave(cd.tensor([1, 2, 0, 1]), 0, output_size=4),
        (X,),
    ),
    "views of an input": (lambda x: (x.split(2, 1), x.unbind(0), x[0].chunk(2)), (X,)),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_whole(name: str, grad: bool) -> None:
    program, given = PROGRAMS[name]
    fast: Any = cd.compile(program, backend="eager", fullgraph=True)
    for _ in range(3):
        sides = []
        for run in (program, fast):
            args = [x.clone().requires_grad_(grad and x.is_floating_point()) for x in given]
            found = tree_leaves(run(*args))
            if grad:
                cd.autograd.backward([out.sum() for out in found])
            sides.append([*found, *(x.grad for x in args if x.grad is not None)])
        assert len(sides[0]) == len(sides[1])
        for a, b in zip(*sides):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-4, 1e-5)
    assert fast.eager_calls == 0 and not fast.problems


@pytest.mark.parametrize(
    "program",
    [
        lambda x: cd.nonzero_static(x > 0, size=7),
        lambda x: (x > 0).nonzero_static(size=30, fill_value=9),
        lambda x: cd.histogramdd(x[:, :2], bins=3),
        lambda x: cd.histogramdd(x[:, :2], bins=[2, 3], range=[-1.0, 1.0, -2.0, 2.0]),
    ],
)
def test_shapes_that_are_given(program: Any) -> None:
    fast: Any = cd.compile(program, backend="eager", fullgraph=True)
    for scale in (1, 2, -1):
        for a, b in zip(tree_leaves(fast(X * scale)), tree_leaves(program(X * scale))):
            assert a.tolist() == b.tolist()
    assert fast.eager_calls == 0


def test_the_checks_hold_in_every_call() -> None:
    def loss(x: Any, target: Any) -> Any:
        return functional.nll_loss(x.log_softmax(1), target)

    fast: Any = cd.compile(loss, fullgraph=True)
    x = cd.randn(2, 3, requires_grad=True)
    for _ in range(3):
        fast(x, cd.tensor([0, 2]))
    with pytest.raises(IndexError, match="target 3 is out of bounds for 3 classes"):
        fast(x, cd.tensor([0, 3]))
    cov: Any = cd.compile(lambda x, w: cd.cov(x, fweights=w), fullgraph=True)
    for _ in range(3):
        cov(x, cd.tensor([1, 2, 1]))
    with pytest.raises(cd.ArgumentError, match="fweights has a negative element, -2"):
        cov(x, cd.tensor([1, -2, 1]))
    puts: Any = cd.compile(_masked_by_given, fullgraph=True)
    for _ in range(3):
        puts(cd.ones(4), cd.ones(2, requires_grad=True), ROWS).sum().backward()
    with pytest.raises(RuntimeError):
        puts(cd.ones(4), cd.ones(2, requires_grad=True), ~ROWS | ROWS)
    scatter: Any = cd.compile(lambda x, i: x.scatter_reduce(0, i, x, "sum"), fullgraph=True)
    y = cd.ones(3, requires_grad=True)
    for _ in range(3):
        scatter(y, cd.tensor([0, 1, 1]))
    with pytest.raises(IndexError, match="index 7 is out of bounds for size 3"):
        scatter(y, cd.tensor([0, 7, 1]))


def test_views_of_one_call_stay_views_of_the_argument() -> None:
    fast: Any = cd.compile(lambda x: (x.split(2), x[:2]), fullgraph=True)
    for _ in range(3):
        x = cd.zeros(4)
        (first, _), head = fast(x)
        first.add_(1)
        assert x.tolist() == [1.0, 1.0, 0.0, 0.0] == [*head.tolist(), 0.0, 0.0]
        assert first._base is x
    whole: Any = cd.compile(lambda x: x.contiguous(), fullgraph=True)
    for _ in range(3):  # its other argument is a keyword
        assert whole(cd.ones(2)).tolist() == [1.0, 1.0]
    same: Any = cd.compile(lambda x: (x[0],) * 2, fullgraph=True)
    for _ in range(3):
        one, other = same(cd.ones(2, 2))
        assert one is other


def test_matrix_exp_has_derivatives_of_second_order() -> None:
    x = cd.tensor(np.random.default_rng(1).normal(size=(3, 3)), requires_grad=True)
    assert cd.autograd.gradcheck(cd.linalg.matrix_exp, (x,))
    assert cd.autograd.gradgradcheck(cd.linalg.matrix_exp, (x,))


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_cumprod_has_derivatives_of_second_order(zeros: int) -> None:
    x = cd.tensor([2.0, 3.0, 0.5, 4.0], dtype=cd.float64)
    x[:zeros] = 0
    assert cd.autograd.gradgradcheck(lambda x: x.cumprod(0), (x.requires_grad_(),))


def test_a_check_of_values_names_the_operator_that_asks() -> None:
    def loss(x: Any, target: Any) -> Any:
        return functional.nll_loss(x, target)

    compiled: Any = cd.compile(loss, backend="eager", fullgraph=True)
    compiled(cd.ones(2, 3), cd.tensor([0, 1]))
    for called in (loss, compiled):
        with pytest.raises(cd.DimError, match=r"nll_loss\(float32\[2, 3\].*target 7 is out of"):
            called(cd.ones(2, 3), cd.tensor([0, 7]))
    with pytest.raises(cd.ShapeError, match=r"^masked_scatter\(.*asks for 2 elements"):
        cd.zeros(3).masked_scatter(cd.tensor([True, False, True]), cd.ones(1))
    with pytest.raises(RuntimeError, match="invalid max index: 99"):
        functional.max_unpool2d(cd.ones(1, 1, 2, 2), cd.full((1, 1, 2, 2), 99), 2)
