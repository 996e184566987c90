"""Attention and its gradients on the host, beside float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import close

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
    ((2, 2), (2, 1), 70, 70, 128, 72),
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


HALVES = [cd.float16, cd.bfloat16]
#: sizes for tensor cores, which are slow on the host, and which of the masks
ON_TENSOR_CORES = [
    (((1, 2), (1, 1), 33, 65, 16, 16), slice(None)),
    (((), (), 70, 66, 128, 72), slice(1, 2)),
    (((2,), (2,), 5, 7, 5, 3), slice(3, None)),
]


def agree(on_host: Any, size: Any, dtype: Any, which: slice) -> None:
    """Forward and gradients are those of the CPU, and run in so many kernels."""
    g, q, k, v = drawn(size, dtype)
    grouped = size[0] != size[1]
    for mask, causal, scale in masks(size, dtype)[which]:
        options = (causal, scale, grouped)
        on_host(
            lambda q, k, v, m, o=options: cd.ops.attention(q, k, v, m, *o),
            *(q, k, v, mask),
            launches=1,
            **close(dtype, 0.5),
        )
        on_host(
            lambda g, q, k, v, m, o=options: BACK(g, q, k, v, m, *o),
            *(g, q, k, v, mask),
            launches=(4 if dtype in HALVES else 2) + 2 * (mask is not None),
            **close(dtype, 2),
        )


@pytest.mark.parametrize("dtype", [cd.float32, cd.float64], ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_attention_and_gradients(on_host: Any, size: Any, dtype: Any) -> None:
    agree(on_host, size, dtype, slice(None))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("size", "which"), ON_TENSOR_CORES)
def test_attention_on_tensor_cores(on_host: Any, size: Any, which: slice, dtype: Any) -> None:
    agree(on_host, size, dtype, which)


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


def test_halves_of_older_devices_take_the_products_of_cublas(
    on_host: Any, stand_in: Any, monkeypatch: Any
) -> None:
    runtime, ask = stand_in.cupy.cuda.runtime, stand_in.cupy.cuda.runtime.getDeviceProperties
    monkeypatch.setattr(runtime, "getDeviceProperties", lambda i: {**ask(i), "major": 7})
    g, q, k, v = drawn(SIZES[0], cd.float16)
    on_host(lambda g, q, k, v: BACK(g, q, k, v), g, q, k, v, launches=2, **close(cd.float16, 2))


def test_special_values(on_host: Any) -> None:
    _, q, k, v = drawn(((1,), (1,), 4, 70, 16, 16), cd.float16)
    q[0, 1, 0] = float("nan")
    v[0, 3, 2] = float("inf")
    on_host(lambda q, k, v: cd.ops.attention(q, k, v), q, k, v, **close(cd.float16))


@pytest.mark.parametrize("dtype", [cd.float32, cd.float16], ids=str)
def test_what_is_hidden_is_not_read(on_host: Any, dtype: Any) -> None:
    """A query without a key has a result and gradients of 0, whatever is in it."""
    g, q, k, v = drawn(((2,), (2,), 5, 7, 4, 3), dtype)
    bias = cd.zeros(5, 7).to(dtype)
    bias[2] = -float("inf")
    q[:, 2], g[:, 2] = float("nan"), float("nan")
    for mask in (bias, bias == 0):
        on_host(lambda q, k, v, m: cd.ops.attention(q, k, v, m), q, k, v, mask, **close(dtype))
        launches = 6 if dtype in HALVES else 4
        got = on_host(
            lambda g, q, k, v, m: BACK(g, q, k, v, m),
            *(g, q, k, v, mask),
            launches=launches,
            **close(dtype, 2),
        )
        assert all(x.isfinite().all() for x in got)


def test_strides_and_what_is_left_to_others(on_host: Any) -> None:
    _, q, k, v = drawn(((2, 3), (2, 3), 20, 24, 8, 8), cd.float32)
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    on_host(lambda q, k, v: cd.ops.attention(q, k, v), *swapped, launches=None)
    on_host(lambda q, k, v: cd.ops.attention(q, k[:, :, :0], v[:, :, :0]), q, k, v, launches=0)
    with pytest.raises(cd.OpError):
        cd.ops.attention(q.to("cuda"), k[..., :4].to("cuda"), v.to("cuda"))
