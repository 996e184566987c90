"""Calls whose values, shapes or refusals once differed from PyTorch's, with PyTorch 2.13's answers.

An answer is a value (numbers within 1e-4), a shape, or the built-in class of PyTorch's error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F

T = cd.tensor
inf, nan = math.inf, math.nan


def ones(*shape: int) -> cd.Tensor:
    return cd.ones(*shape)


def flat(n: int) -> cd.Tensor:
    return cd.zeros(2, 3)


VALUES: dict[str, tuple[Any, Any]] = {
    "cosine_embedding_loss of integers": (
        lambda: F.cosine_embedding_loss(T([[1, 2]]), T([[2, 2]]), T([1])),
        0.051317,
    ),
    "cosine_similarity over a broadcast dim": (
        lambda: F.cosine_similarity(T([[1.0], [2.0]]), T([[3.0, 4.0], [5.0, 6.0]])),
        [0.98995, 0.99589],
    ),
    "interpolate uint8": (
        lambda: F.interpolate(T([[[[1, 2], [3, 4]]]], dtype=cd.uint8), size=3, mode="bilinear"),
        [[[[1, 2, 2], [2, 3, 3], [3, 4, 4]]]],
    ),
    "interpolate uint8, aligned": (
        lambda: F.interpolate(
            T([[[[0, 255], [3, 4]]]], dtype=cd.uint8),
            scale_factor=1.5,
            mode="bilinear",
            align_corners=True,
        ),
        [[[[0, 128, 255], [2, 66, 130], [3, 4, 4]]]],
    ),
    "interpolate by area": (
        lambda: F.interpolate(cd.arange(16.0).reshape(1, 1, 4, 4), size=3, mode="area"),
        [[[[2.5, 3.5, 4.5], [6.5, 7.5, 8.5], [10.5, 11.5, 12.5]]]],
    ),
    "interpolate by cubics": (
        lambda: F.interpolate(cd.arange(16.0).reshape(1, 1, 4, 4), size=3, mode="bicubic"),
        [[[[0.63079, 2.0046, 3.3785], [6.1262, 7.5, 8.8738], [11.622, 12.995, 14.369]]]],
    ),
    "interpolate by cubics, aligned": (
        lambda: F.interpolate(
            cd.arange(16.0).reshape(1, 1, 4, 4), size=(1, 6), mode="bicubic", align_corners=True
        ),
        [[[[0, 0.504, 1.248, 1.752, 2.496, 3]]]],
    ),
    "diff of no order": (lambda: T([1, 2, 3]).diff(n=0, prepend=T([9])), [1, 2, 3]),
    "diff of too high an order": (lambda: T([1, 2, 3]).diff(n=5), []),
    "tensordot of length 1": (lambda: cd.tensordot(ones(1), ones(4), dims=1), 4.0),
    "tensordot of length 1 in a matrix": (
        lambda: cd.tensordot(ones(2, 1), ones(4, 2), dims=1),
        [[4.0, 4.0], [4.0, 4.0]],
    ),
    "put of another shape": (
        lambda: flat(6).put(T([[0, 1]]), T([[5.0], [6.0]])),
        [[5.0, 6.0, 0.0], [0.0, 0.0, 0.0]],
    ),
    "take_along_dim from the end": (lambda: cd.take_along_dim(T([1.0, 2, 3]), T([-1]), 0), [3.0]),
    "take_along_dim without dim": (lambda: cd.take_along_dim(T([[1.0, 2, 3]]), T([2])), [3.0]),
    "matrix_rank of nothing": (lambda: cd.linalg.matrix_rank(ones(0, 3)), 0),
    "matrix_rank of nothing, many": (lambda: cd.linalg.matrix_rank(ones(2, 0, 3)), [0, 0]),
    "2-norm of nothing": (lambda: cd.linalg.norm(ones(0, 3), 2), 0.0),
    "1-norm of nothing": (lambda: cd.linalg.norm(ones(3, 0), 1), 0.0),
    "inf-norm of nothing": (lambda: cd.linalg.norm(ones(0, 3), inf), 0.0),
    "pinv with limits": (
        lambda: cd.linalg.pinv(T([[1.0, 2], [2, 4]]), atol=0.1, rtol=0.1),
        [[0.04, 0.08], [0.08, 0.16]],
    ),
    "matrix_rank with limits": (
        lambda: cd.linalg.matrix_rank(T([[1.0, 2], [2, 4.001]]), atol=0.1, rtol=0.1),
        1,
    ),
    "dist in half precision": (
        lambda: cd.dist(T([100.0], dtype=cd.float16), T([0.0], dtype=cd.float16), 4),
        100.0,
    ),
    "a 0-dim tensor as dim": (lambda: ones(2, 3).sum(T(1)), [3.0, 3.0]),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    call, answer = VALUES[name]
    np.testing.assert_allclose(np.asarray(call().tolist()), np.asarray(answer), rtol=1e-4)


SHAPES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "unique_consecutive of no slices": (
        lambda: cd.unique_consecutive(ones(0, 3), dim=0),
        (0, 3),
    ),
    "unique of no slices": (lambda: cd.unique(ones(0, 3), dim=0), (0, 3)),
    "dropout2d of a matrix": (lambda: F.dropout2d(ones(2, 3), 0.5), (2, 3)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    call, shape = SHAPES[name]
    assert tuple(call().shape) == shape


def test_dropout2d_of_three_dimensions_drops_channels_of_samples() -> None:
    cd.manual_seed(0)
    out = F.dropout2d(ones(50, 20, 4), 0.5)
    rows = {tuple(row) for sample in out.tolist() for row in sample}
    assert rows == {(0.0,) * 4, (2.0,) * 4}
    assert len({tuple(map(tuple, sample)) for sample in out.tolist()}) > 2


def test_coordinates_are_int64() -> None:
    places = cd.unravel_index(T([3], dtype=cd.int32), (2, 2))
    assert [p.dtype for p in places] == [cd.int64, cd.int64]


REFUSED: dict[str, tuple[Any, type[Exception]]] = {
    "adaptive pooling to a negative size": (
        lambda: F.adaptive_avg_pool1d(ones(1, 1, 3), -1),
        RuntimeError,
    ),
    "avg_pool by 0": (lambda: F.avg_pool2d(ones(1, 4, 4), 2, divisor_override=0), RuntimeError),
    "embedding of three dimensions": (lambda: F.embedding(T([0]), ones(2, 2, 2)), RuntimeError),
    "embedding of a vector": (lambda: F.embedding(T([0]), ones(2)), RuntimeError),
    "cov, real counts": (lambda: cd.cov(ones(2, 3), fweights=T([1.0, 2, 3])), RuntimeError),
    "cov, whole importances": (lambda: cd.cov(ones(2, 3), aweights=T([1, 2, 3])), RuntimeError),
    "cov, negative counts": (lambda: cd.cov(ones(2, 3), fweights=T([1, -2, 3])), RuntimeError),
    "cov, too few": (lambda: cd.cov(ones(2, 3), fweights=T([1, 2])), RuntimeError),
    "cov, a matrix of counts": (lambda: cd.cov(ones(2, 3), fweights=T([[1, 2, 3]])), RuntimeError),
    "isclose, rtol": (lambda: cd.isclose(ones(2), ones(2), rtol=-1), RuntimeError),
    "allclose, atol": (lambda: cd.allclose(ones(2), ones(2), atol=-1), RuntimeError),
    "rot90 in no plane": (lambda: ones(2, 3).rot90(1, (0, 0)), RuntimeError),
    "rot90 of one dim": (lambda: ones(2, 3).rot90(1, (0,)), RuntimeError),
    "cauchy_": (lambda: ones(3).cauchy_(0, 0), RuntimeError),
    "exponential_": (lambda: ones(3).exponential_(-1), RuntimeError),
    "log_normal_": (lambda: ones(3).log_normal_(0, -1), RuntimeError),
    "rrelu": (lambda: F.rrelu(ones(2), 0.5, 0.2), RuntimeError),
    "one_hot of real numbers": (lambda: F.one_hot(T([1.0])), RuntimeError),
    "cosine_similarity of integers": (
        lambda: F.cosine_similarity(T([1, 2]), T([3, 4]), dim=0),
        RuntimeError,
    ),
    "gaussian_nll_loss, shape": (
        lambda: F.gaussian_nll_loss(ones(2), ones(2), ones(3)),
        ValueError,
    ),
    "gaussian_nll_loss, negative": (
        lambda: F.gaussian_nll_loss(ones(2), ones(2), -ones(2)),
        ValueError,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_fix(name: str) -> None:
    call, error = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, cd.CoreDispatchError)
    assert caught.value.fix


MISMATCHES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "matmul": (lambda: ones(2, 3) @ ones(2, 3), ("(2, 3)", "has 3 columns", "2 rows")),
    "linear": (lambda: F.linear(ones(4), ones(3, 2)), ("(4,)", "does not fit", "(3, 2)", "4", "2")),
    "mse_loss": (lambda: F.mse_loss(ones(3), ones(4)), ("(3,)", "(4,)", "do not broadcast")),
    "dim of no tensor": (lambda: ones(2, 3).repeat_interleave(2, 5), ("2-d tensor", "no dim 5")),
    "index": (lambda: ones(2, 3)[0, 0, 0], ("3 indices", "(2, 3)")),
    "conv": (
        lambda: F.conv2d(ones(1, 2, 4, 4), ones(3, 3, 2, 2)),
        ("takes 3 channels", "the input has 2"),
    ),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", MISMATCHES)
def test_an_error_names_both_values_that_do_not_fit(name: str) -> None:
    call, parts = MISMATCHES[name]
    with pytest.raises(cd.OpError) as caught:
        call()
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert caught.value.fix


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16])
def test_half_precision_is_rounded_once(dtype: Any) -> None:
    drawn = np.random.default_rng(0)

    def make(*shape: int) -> cd.Tensor:
        return cd.from_numpy(drawn.normal(size=shape)).to(dtype)

    index = cd.from_numpy(drawn.integers(0, 50, (4, 300)))
    weight, shares = make(50, 8), make(4, 300)
    a, b, c = make(20, 6, 30), make(20, 30, 5), make(6, 5)
    x, y = make(10, 100), make(10, 100)
    calls = [
        (lambda w: F.embedding_bag(index, w, mode="sum"), (weight,)),
        (lambda w: F.embedding_bag(index, w), (weight,)),
        (
            lambda w, s: F.embedding_bag(index, w, mode="sum", per_sample_weights=s),
            (weight, shares),
        ),
        (lambda *m: m[0].addbmm(m[1], m[2], alpha=1.5), (c, a, b)),
        (F.multilabel_soft_margin_loss, (x, y)),
    ]
    for call, given in calls:
        out, exact = call(*given), call(*(g.double() for g in given))
        assert out.dtype is dtype
        error = (out.double() - exact).abs().max() / exact.abs().max()
        assert error.item() < 1.01 * float(cd.finfo(dtype).eps)  # one rounding, and float32's


def test_a_mean_counts_more_rows_than_half_precision_does() -> None:
    weight = cd.ones(1, 1, dtype=cd.float16)
    index = cd.zeros(1, 70_000, dtype=cd.int64)
    assert F.embedding_bag(index, weight).tolist() == [[1.0]]
