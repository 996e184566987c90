"""Pooling: windows of every kind against PyTorch, ties, NaN, indices, and gradients."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.autograd import gradcheck
from coredispatch.registry.dispatch.table import TABLE

RNG = np.random.default_rng(0)
SIZES = (9, 7, 6)
OPTIONS = [
    (n, kernel, stride, padding, dilation, ceil)
    for n, kernel, stride, padding, dilation, ceil in product(
        (1, 2, 3), (2, 3), (None, 1, 3), (0, 1), (1, 2), (False, True)
    )
    if not (n == 3 and dilation == 2 and kernel == 3)
]


def same(mine: Any, theirs: Any, tolerance: float = 0.0) -> None:
    np.testing.assert_allclose(
        mine.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize(("n", "kernel", "stride", "padding", "dilation", "ceil"), OPTIONS)
def test_max_pool_against_torch(
    n: int, kernel: int, stride: Any, padding: int, dilation: int, ceil: bool
) -> None:
    torch = pytest.importorskip("torch")
    # Whole numbers: many ties, of which the first in row order must get the gradient.
    x = np.round(RNG.standard_normal((2, 3, *SIZES[:n])))
    options = (kernel, stride, padding, dilation, ceil)
    theirs = torch.tensor(x).requires_grad_()
    expected, positions = getattr(torch.nn.functional, f"max_pool{n}d")(
        theirs, *options, return_indices=True
    )
    for with_indices in (False, True):
        mine = cd.from_numpy(x.copy()).requires_grad_()
        op = getattr(F, f"max_pool{n}d")
        if with_indices:
            y, indices = op(mine, *options, return_indices=True)
            same(indices, positions)
        else:
            y = op(mine, *options)
        same(y, expected)
        weight = RNG.standard_normal(tuple(y.shape))
        (y * cd.from_numpy(weight)).sum().backward()
        theirs.grad = None
        (expected * torch.tensor(weight)).sum().backward(retain_graph=True)
        same(mine.grad, theirs.grad, 1e-12)


@pytest.mark.parametrize(("n", "kernel", "stride", "padding", "dilation", "ceil"), OPTIONS)
def test_avg_pool_against_torch(
    n: int, kernel: int, stride: Any, padding: int, dilation: int, ceil: bool
) -> None:
    if dilation > 1:
        return  # averages have none
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((2, 3, *SIZES[:n]))
    cases: list[tuple[Any, ...]] = [(True,), (False,)]
    if n > 1:
        cases.append((True, 5))
    for case in cases:
        mine, theirs = cd.from_numpy(x).requires_grad_(), torch.tensor(x).requires_grad_()
        y = getattr(F, f"avg_pool{n}d")(mine, kernel, stride, padding, ceil, *case)
        expected = getattr(torch.nn.functional, f"avg_pool{n}d")(
            theirs, kernel, stride, padding, ceil, *case
        )
        same(y, expected, 1e-12)
        (y * y).sum().backward()
        (expected * expected).sum().backward()
        same(mine.grad, theirs.grad, 1e-12)


@pytest.mark.parametrize("size", [1, (3, 4), (9, 7), (5, None), (12, 2)])
def test_adaptive_against_torch(size: Any) -> None:
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((2, 3, 9, 7))
    mine, theirs = cd.from_numpy(x).requires_grad_(), torch.tensor(x).requires_grad_()
    y = F.adaptive_avg_pool2d(mine, size)
    expected = torch.nn.functional.adaptive_avg_pool2d(theirs, size)
    same(y, expected, 1e-12)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    same(mine.grad, theirs.grad, 1e-12)
    values, indices = F.adaptive_max_pool2d(mine, size, return_indices=True)
    expected, positions = torch.nn.functional.adaptive_max_pool2d(theirs, size, True)
    same(values, expected)
    same(indices, positions)


@pytest.mark.parametrize("name", ["max_pool", "avg_pool", "max_pool_with_indices"])
def test_kernel_agrees_with_the_body(name: str) -> None:
    x = cd.from_numpy(RNG.standard_normal((2, 3, 9, 7)))
    options: tuple[Any, ...] = ((3, 2), (2, 2), (1, 1))
    options += (True, False, None) if name == "avg_pool" else ((1, 2), True)
    op = TABLE.operator(name)
    kernel, body = op(x, *options), op.decomposition(x, *options)
    for a, b in zip(kernel, body) if isinstance(kernel, tuple) else [(kernel, body)]:
        same(a, b, 1e-13)
    backward = TABLE.snapshot.ops.get(name + "_backward")
    if backward is not None:
        grad = cd.from_numpy(RNG.standard_normal(tuple(kernel.shape)))
        first = tuple(x.shape) if name == "avg_pool" else x
        same(backward(grad, first, *options), backward.decomposition(grad, first, *options), 1e-13)


def test_nan_wins_and_takes_the_gradient() -> None:
    x = cd.tensor([[[1.0, float("nan"), 3.0, 2.0]]], requires_grad=True)
    y = F.max_pool1d(x, 2)
    assert np.isnan(y.detach().numpy()[0, 0, 0])
    y.backward(cd.ones_like(y))
    np.testing.assert_array_equal(x.grad.numpy(), [[[0, 1, 1, 0]]])


def test_infinite_gradients_do_not_leak() -> None:
    x = cd.tensor([[[1.0, 2.0]]], requires_grad=True)
    F.max_pool1d(x, 2).backward(cd.full((1, 1, 1), float("inf")))
    np.testing.assert_array_equal(x.grad.numpy(), [[[0, np.inf]]])


def test_windows_of_lowest_values_stay_inside() -> None:
    x = cd.full((1, 1, 4, 4), float("-inf"))
    _, indices = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    np.testing.assert_array_equal(indices.numpy()[0, 0], [[0, 1], [4, 5]])
    op = TABLE.operator("max_pool_with_indices")
    _, again = op.decomposition(x, (3, 3), (2, 2), (1, 1), (1, 1), False)
    np.testing.assert_array_equal(again.numpy(), indices.numpy())


def test_integers() -> None:
    x = cd.tensor([[[3, -7, -2, -5]]], dtype=cd.int8)
    y = F.max_pool1d(x, 3, 2, 1)
    assert y.dtype is cd.int8 and y.tolist() == [[[3, -2]]]


def test_gradients() -> None:
    x = cd.from_numpy(RNG.permutation(70).reshape(1, 2, 7, 5) / 10).requires_grad_()
    assert gradcheck(lambda x: F.max_pool2d(x, 3, 2, 1), (x,))
    assert gradcheck(lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (x,))
    assert gradcheck(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), (x,))
    assert gradcheck(lambda x: F.adaptive_max_pool2d(x, (3, 4)), (x,))


@pytest.mark.parametrize(
    ("size", "kernel", "padding", "text"),
    [((1, 1, 2, 2), 3, 0, "does not fit"), ((1, 1, 4, 4), 2, 2, "half"), ((4,), 2, 0, "input")],
)
def test_errors_name_the_fault(size: Any, kernel: int, padding: int, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        F.max_pool2d(cd.zeros(size), kernel, None, padding)
    with pytest.raises(RuntimeError, match=text):
        F.avg_pool2d(cd.zeros(size), kernel, None, padding)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_windows_that_lie_in_the_padding_have_no_place_and_no_gradient(n):
    options = {"kernel_size": 2, "stride": 1, "padding": 1, "dilation": 3}
    pool = getattr(F, f"max_pool{n}d")
    x = cd.ones(1, 1, *(2,) * n, requires_grad=True)
    values, places = pool(x, **options, return_indices=True)
    assert values.isneginf().all() and (places == -1).all()
    assert cd.autograd.grad(values.sum(), x)[0].tolist() == cd.zeros_like(x).tolist()
    (once,) = cd.autograd.grad(pool(x, **options).sum(), x, create_graph=True)
    assert once.tolist() == cd.zeros_like(x).tolist()
    assert cd.autograd.grad(once.sum(), x)[0].tolist() == cd.zeros_like(x).tolist()

    # A longer input has windows of both kinds; its last dimension is 3 long.
    y = cd.arange(float(2 ** (n - 1) * 3)).reshape(1, 1, *(2,) * (n - 1), 3).requires_grad_()
    kernel = (*(1,) * (n - 1), 2)
    more = {"stride": 1, "padding": (*(0,) * (n - 1), 1), "dilation": (*(1,) * (n - 1), 4)}
    values, places = pool(y, kernel, **more, return_indices=True)
    assert values.flatten().isneginf().all() and (places == -1).all()
    more["dilation"] = (*(1,) * (n - 1), 3)
    values, places = pool(y, kernel, **more, return_indices=True)
    assert values[..., 0].flatten().tolist() == y[..., 2].flatten().tolist()
    assert values[..., 1].flatten().tolist() == y[..., 0].flatten().tolist()
    assert (places >= 0).all()
