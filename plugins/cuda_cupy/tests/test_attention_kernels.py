"""Attention and its gradients on the host, beside float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import DTYPES, close

import coredispatch as cd

F = cd.nn.functional
pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
BACK = cd.ops.attention_backward
#: batch and heads of query and key, queries, keys, depth, columns of values
SIZES = [
    ((2, 3), (2, 3), 5, 7, 4, 3),
    ((1, 4), (1, 2), 33, 65, 16, 16),
    ((2,), (2,), 64, 33, 40, 24),
    ((1, 2), (1, 2), 1, 130, 8, 64),
    ((), (), 17, 17, 64, 64),
]


def drawn(size: Any, dtype: Any) -> Any:
    lead, shared, queries, keys, depth, columns = size
    q, k = cd.randn(*lead, queries, depth), cd.randn(*shared, keys, depth)
    v, g = cd.randn(*shared, keys, columns), cd.randn(*lead, queries, columns)
    return [x.to(dtype) for x in (g, q, k, v)]


def masks(size: Any, dtype: Any) -> Any:
    """Options of calls: none, causal, a mask for all heads, one for each, a bias; a scale."""
    lead, _, queries, keys, *_ = size
    chosen = cd.rand(queries, keys) > 0.4
    chosen[0] = False
    each = cd.rand(*lead, queries, keys) > 0.2
    bias = cd.randn(queries, keys).to(dtype)
    bias[-1, :] = -float("inf")
    return [(None, False, None), (None, True, 0.3), (chosen, False, None), (each, False, None),
            (bias, False, None)]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_attention_and_gradients(on_host: Any, size: Any, dtype: Any) -> None:
    g, q, k, v = drawn(size, dtype)
    grouped = size[0] != size[1]
    for mask, causal, scale in masks(size, dtype):
        options = (causal, scale, grouped)
        on_host(
            lambda q, k, v, m, o=options: cd.ops.attention(q, k, v, m, *o),
            *(q, k, v, mask),
            launches=None,
            **close(dtype, 0.5),
        )
        on_host(
            lambda g, q, k, v, m, o=options: BACK(g, q, k, v, m, *o),
            *(g, q, k, v, mask),
            launches=None,
            **close(dtype, 2),
        )


def test_the_function_takes_the_kernels(on_host: Any) -> None:
    def gradients(q: Any, k: Any, v: Any) -> Any:
        given = [x.detach().requires_grad_() for x in (q, k, v)]
        out = F.scaled_dot_product_attention(*given, is_causal=True)
        (out * out).sum().backward()
        return [x.grad for x in given]

    _, q, k, v = drawn(((2, 2), (2, 2), 20, 20, 8, 8), cd.float32)
    before = on_host.library.launches
    on_host(gradients, q, k, v, launches=None, **close(cd.float32))
    assert on_host.library.launches >= before + 3


def test_strides_and_what_is_left_to_others(on_host: Any) -> None:
    _, q, k, v = drawn(((2, 3), (2, 3), 20, 24, 8, 8), cd.float32)
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    on_host(lambda q, k, v: cd.ops.attention(q, k, v), *swapped, launches=None)
    on_host(lambda q, k, v: cd.ops.attention(q, k[:, :, :0], v[:, :, :0]), q, k, v, launches=0)
    with pytest.raises(cd.OpError):
        cd.ops.attention(q.to("cuda"), k[..., :4].to("cuda"), v.to("cuda"))
