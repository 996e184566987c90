"""Attention against the operator's decomposition in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch_cpu_numba.kernels.nn import attention

pytestmark = pytest.mark.once

KERNEL = attention.KERNELS["attention"]
BACKWARD = attention.KERNELS["attention_backward"]
LENGTHS = st.sampled_from([1, 2, 5, 31, 33, 64, 65, 70, 130])


def drawn(rng: Any, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def wide(*arrays: Any) -> list[Any]:
    """Tensors in float64; masks that choose stay bool."""
    return [
        x if x is None else cd.from_numpy(x if x.dtype == bool else x.astype(np.float64))
        for x in arrays
    ]


def wanted(*arrays_and_options: Any) -> np.ndarray:
    """The definition in float64."""
    arrays, options = arrays_and_options[:4], arrays_and_options[4:]
    return cd.ops.attention.decomposition(*wide(*arrays), *options).numpy()


@settings(max_examples=40)
@given(
    st.sampled_from([(), (1,), (3,), (2, 4)]),
    st.tuples(LENGTHS, LENGTHS, LENGTHS, LENGTHS),
    st.sampled_from(["", "causal", "chosen", "added", "chosen for heads", "added to queries"]),
    st.sampled_from([None, 0.3, 0.0]),
    st.sampled_from([1, 2]),
    st.integers(0, 99),
)
def test_attention(lead, sizes, masked, scale, groups, seed) -> None:
    queries, keys, depth, columns = sizes
    rng = np.random.default_rng(seed)
    shared = lead if len(lead) < 2 else (*lead[:-1], lead[-1] // groups)
    q = drawn(rng, *lead, queries, depth)
    k, v = drawn(rng, *shared, keys, depth), drawn(rng, *shared, keys, columns)
    mask = None
    if masked.startswith("chosen"):
        mask = rng.random((*(lead if "heads" in masked else ()), queries, keys)) < 0.5
        mask[..., 0, :] = False  # a query to which no key belongs
    elif masked.startswith("added"):
        mask = drawn(rng, *(1 for _ in lead), queries, 1 if "queries" in masked else keys)
        mask[..., -1, :] = -np.inf
    rest = (masked == "causal", scale, shared != lead)
    found = KERNEL(q, k, v, mask, *rest)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted(q, k, v, mask, *rest), 1e-5, 2e-5)
    given = drawn(rng, *found.shape), q, k, v, mask
    expected = cd.ops.attention_backward.decomposition(*wide(*given), *rest)
    for mine, other in zip(BACKWARD(*given, *rest), expected, strict=True):
        assert mine.dtype == np.float32
        limit = 3e-5 * max(1.0, float(other.abs().max()))
        np.testing.assert_allclose(mine, other.numpy(), 0, limit)


def test_heads_may_lie_in_any_order() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (drawn(rng, 2, 40, 3, 8).transpose(0, 2, 1, 3) for _ in range(3))
    np.testing.assert_allclose(KERNEL(q, k, v, None, True, None, False),
                               wanted(q, k, v, None, True, None, False), 1e-5, 3e-6)  # fmt: skip


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(1)
    q, k, v = drawn(rng, 3, 200, 16), drawn(rng, 3, 150, 16), drawn(rng, 3, 150, 24)
    grad, before, found = drawn(rng, 3, 200, 24), cd.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            cd.set_num_threads(threads)
            out = KERNEL(q, k, v, None, True, None, False)
            found.append((out, *BACKWARD(grad, q, k, v, None, True, None, False)))
    finally:
        cd.set_num_threads(before)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_is_no_number_stays_in_its_row() -> None:
    rng = np.random.default_rng(2)
    q, k, v = (drawn(rng, 50, 8) for _ in range(3))
    q[7, 3] = np.nan
    lost = np.isnan(KERNEL(q, k, v, None, False, None, False)).any(1)
    assert np.flatnonzero(lost).tolist() == [7]


def test_what_the_loop_does_not_take_is_left_to_others() -> None:
    rng = np.random.default_rng(3)
    q, k, v = (drawn(rng, 2, 6, 4) for _ in range(3))
    mask = np.ones((6, 6), bool)
    for arguments in (
        (q, k, v, mask, True, None, False),
        (q, k, v, mask[:5], False, None, False),
        (q, k, v, mask.astype(np.float64), False, None, False),
        (q, k.astype(np.float64), v, None, False, None, False),
        (q, k[:1], v[:1], None, False, None, False),
        (q, k, v[:, :5], None, False, None, False),
        (q[:, :, :0], k[:, :, :0], v, None, False, 1.0, False),
    ):
        assert KERNEL(*arguments) is NotImplemented
        out = drawn(rng, 2, 6, arguments[2].shape[-1])
        assert BACKWARD(out, *arguments) is NotImplemented
    whole = (q, k, v, None, False, None, False)
    assert BACKWARD(q[:1], *whole) is NotImplemented
    assert BACKWARD(q.astype(np.float64), *whole) is NotImplemented


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_gradients_come_from_the_kernel(dtype) -> None:
    q, k, v = (cd.randn(2, 65, 8) for _ in range(3))
    mask = cd.rand(65, 65) > 0.5
    found = []
    for name in (dtype, "float64"):
        leaves = [x.detach().to(getattr(cd, name)).requires_grad_() for x in (q, k, v)]
        out = F.scaled_dot_product_attention(*leaves, mask)
        out.float().square().sum().backward()
        assert out.grad_fn.name() == "UnsafeViewBackward0"  # that of the operator: one node
        assert out.grad_fn.next_functions[0][0].variable is leaves[0]
        found.append([x.detach().double() for x in (out, *(leaf.grad for leaf in leaves))])
    limit = {"float32": 1e-5, "bfloat16": 5e-2, "float16": 5e-3}[dtype]
    for one, other in zip(*found, strict=True):
        assert cd.allclose(one, other, rtol=limit, atol=limit * float(other.abs().max()))


def test_second_derivatives_and_the_gradient_of_a_mask() -> None:
    def derivatives(op: Any, mask: Any) -> list[Any]:
        cd.manual_seed(0)
        leaves = [cd.randn(2, 33, 4, requires_grad=True) for _ in range(3)]
        out = op(*leaves, mask)
        first = cd.autograd.grad(out.square().sum(), leaves, create_graph=True)
        total = sum(x.square().sum() for x in first)
        needed = [*leaves, mask] if mask.requires_grad else leaves
        return [out, *first, *cd.autograd.grad(total, needed)]

    mask = cd.randn(33, 33)
    for needed in (False, True):
        mask.requires_grad_(needed)
        found = derivatives(F.scaled_dot_product_attention, mask)
        expected = derivatives(cd.ops.attention.decomposition, mask)
        for one, other in zip(found, expected, strict=True):
            limit = 1e-4 * float(other.abs().max())
            assert cd.allclose(one, other, rtol=1e-4, atol=limit)


def test_errors_are_those_of_the_operator() -> None:
    q = cd.randn(2, 40, 8)
    with cd.no_grad(), pytest.raises(cd.OpError, match="attn_mask and is_causal"):
        F.scaled_dot_product_attention(q, q, q, cd.ones(40, 40, dtype=cd.bool), is_causal=True)
