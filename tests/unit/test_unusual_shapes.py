"""Shapes that no operator definition has a sample of: what is defined has its value, the rest is
refused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.nn import functional as F

ops = cd.ops


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    "call",
    [
        lambda z: ops.adaptive_avg_pool(z(2, 3, 0, 4), (2, 2)),
        lambda z: ops.adaptive_max_pool(z(), (2, 3)),
        lambda z: ops.adaptive_avg_pool_backward(z(2, 3), (2, 3, 4, 6), (2, 3)),
        lambda z: ops.max_pool(z(4), (2, 2), (2, 2), (0, 0), (1, 1), False),
        lambda z: ops.avg_pool_backward(
            z(2, 1, 2, 2), (2, 1, 2, 2), (2, 2), (2, 2), (0, 0), False, True, None
        ),
        lambda z: ops.max_pool_backward(
            z(1, 1, 4, 4), z(1, 1, 2, 2), (2, 2), (2, 2), (0, 0), (1, 1), False
        ),
        lambda z: ops.batch_norm_train(z(2, 3)[:0], z(3), z(3), 1e-5),
        lambda z: ops.conv_weight_grad(
            z(2, 3, 3, 3), z(2, 2, 3, 3), (3, 2, 3, 3), (1, 1), (0, 0), (1, 1), 1
        ),
        lambda z: F.conv_transpose1d(z(1, 2, 0), z(2, 1, 3)),
        lambda z: F.conv1d(z(1, 2, 4), z(2, 2, 0)),
        lambda z: ops.getitem_backward(z(3, 5), (slice(None), 1), (3, 5)),
        lambda z: ops.group_norm_backward(z(2, 1, 3), z(2, 1, 3), 2, None, 1e-3),
        lambda z: ops.narrow(z(), 0, 0, 1),
        lambda z: ops.chunk(z(), 2),
        lambda z: ops.vander(z(1, 2)),
        lambda z: cd.linalg.norm(z(3, 4), "fro", 1),
        lambda z: F.scaled_dot_product_attention(z(2, 3, 0), z(2, 3, 0), z(2, 3, 4)),
    ],
)
def test_what_no_rule_covers_is_refused_by_name(call: Callable[..., Any], device: str) -> None:
    with pytest.raises((cd.ShapeError, cd.DimError, cd.ArgumentError)):
        call(lambda *shape: cd.zeros(shape, device=device))


def test_empty_channels_and_batches_are_convolved() -> None:
    assert F.conv_transpose1d(cd.zeros(1, 0, 7), cd.zeros(0, 1, 3)).tolist() == [[[0.0] * 9]]
    options = (1, 1), (0, 0), (1, 1), 1
    grad = ops.conv_weight_grad(cd.zeros(2, 2, 4, 4), cd.zeros(2, 0, 4, 4), (2, 0, 1, 1), *options)
    assert tuple(grad.shape) == (2, 0, 1, 1)
    grad = ops.conv_input_grad(cd.zeros(0, 0, 4, 4), cd.zeros(0, 3, 1, 1), (0, 3, 4, 4), *options)
    assert tuple(grad.shape) == (0, 3, 4, 4)


def test_an_empty_index_gathers_nothing_whatever_its_other_sizes() -> None:
    index = cd.zeros(0, 4, dtype=cd.int64)
    assert tuple(cd.gather(cd.zeros(3, 0), 0, index).shape) == (0, 4)


def test_statistics_and_quantiles_of_numbers_without_dimensions() -> None:
    x = cd.tensor([1.0, 3.0])
    assert cd.logsumexp(x, ()).item() == pytest.approx(math.log(math.exp(1) + math.exp(3)))
    assert cd.nanquantile(cd.tensor(2.0), 0.5, 0, keepdim=True).item() == 2.0


@pytest.mark.parametrize("dtype", [cd.float32, cd.float64, cd.bfloat16])
def test_sigmoid_of_large_negative_numbers_is_small_and_not_zero(dtype: Any) -> None:
    x = cd.tensor([-88.9], dtype=dtype)
    for result in (cd.sigmoid(x), cd.sigmoid(x[0]), ops.sigmoid.decomposition(x)):
        assert float(result) == pytest.approx(math.exp(float(x)), rel=0.02)
    assert cd.sigmoid(cd.tensor([500.0, -math.inf, math.inf], dtype=dtype)).tolist() == [1, 0, 1]


def test_parts_of_a_sum_are_computed_in_the_dtype_of_the_whole() -> None:
    self = cd.tensor(1.0, dtype=cd.bfloat16)
    a, b = (cd.tensor(v, dtype=cd.float16) for v in (1.0, 3.0))
    assert ops.addcdiv.decomposition(self, a, b, 1).item() == pytest.approx(4 / 3, rel=1e-6)


def test_numbers_beyond_the_dtype_are_results_and_no_warnings() -> None:
    x = cd.tensor([math.inf, 0.0], dtype=cd.bfloat16)
    index = (cd.tensor([0, 0]),)
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        cd.outer(x, x)
        for dtype in (cd.float16, cd.float32, cd.bfloat16):
            m = cd.tensor([[math.inf, -math.inf], [0.0, math.nan]], dtype=dtype)
            cd.mm(m, m)
            cd.addmm(m, m, m, beta=2, alpha=3)
            F.max_pool1d(m.reshape(1, 1, 4), 2)
        ops.index_put(x, index, cd.tensor([math.inf, -math.inf], dtype=cd.bfloat16), True)


@pytest.mark.parametrize("shape", [(40, 40), (2, 1, 40, 40), (40,)])
def test_keys_that_a_mask_hides_from_all_queries_may_hold_anything(shape: tuple[int, ...]) -> None:
    query, key, value = (cd.randn(2, 3, 40, 8, requires_grad=True) for _ in range(3))
    mask = cd.ones(*shape, dtype=cd.bool)
    mask[..., 5] = False
    found = []
    for hidden in (0.0, float("nan")):
        keys = cd.where((cd.arange(40) == 5).unsqueeze(1), hidden, key)
        out = F.scaled_dot_product_attention(query, keys, value, mask)
        found.append([out, *cd.autograd.grad(out.sin().sum(), (query, key, value))])
    for mine, theirs in zip(*found, strict=True):
        assert cd.equal(mine, theirs)
