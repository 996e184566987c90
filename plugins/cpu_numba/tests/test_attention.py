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

KERNEL = attention.KERNELS["scaled_dot_product_attention"]
LENGTHS = st.sampled_from([1, 2, 5, 31, 32, 33, 70])


def drawn(rng: Any, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def wanted(q: Any, k: Any, v: Any, mask: Any = None, *rest: Any) -> np.ndarray:
    """The definition in float64."""
    wide = [cd.from_numpy(x.astype(np.float64)) for x in (q, k, v)]
    if mask is not None:
        mask = cd.from_numpy(mask if mask.dtype == bool else mask.astype(np.float64))
    op = cd.ops.scaled_dot_product_attention
    return op.decomposition(*wide, mask, 0.0, *rest).numpy()


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
    found = KERNEL(q, k, v, mask, 0.0, *rest)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted(q, k, v, mask, *rest), 1e-5, 3e-6)


def test_heads_may_lie_in_any_order() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (drawn(rng, 2, 40, 3, 8).transpose(0, 2, 1, 3) for _ in range(3))
    np.testing.assert_allclose(KERNEL(q, k, v, None, 0.0, True, None, False),
                               wanted(q, k, v, None, True, None, False), 1e-5, 3e-6)  # fmt: skip


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(1)
    q, k, v = drawn(rng, 3, 200, 16), drawn(rng, 3, 150, 16), drawn(rng, 3, 150, 24)
    before, found = cd.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            cd.set_num_threads(threads)
            found.append(KERNEL(q, k, v, None, 0.0, True, None, False))
    finally:
        cd.set_num_threads(before)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_what_is_no_number_stays_in_its_row() -> None:
    rng = np.random.default_rng(2)
    q, k, v = (drawn(rng, 50, 8) for _ in range(3))
    q[7, 3] = np.nan
    lost = np.isnan(KERNEL(q, k, v, None, 0.0, False, None, False)).any(1)
    assert np.flatnonzero(lost).tolist() == [7]


def test_what_the_loop_does_not_take_is_left_to_others() -> None:
    rng = np.random.default_rng(3)
    q, k, v = (drawn(rng, 2, 6, 4) for _ in range(3))
    mask = np.ones((6, 6), bool)
    for arguments in (
        (q, k, v, None, 0.5, False, None, False),  # dropout
        (q, k, v, mask, 0.0, True, None, False),
        (q, k, v, mask[:5], 0.0, False, None, False),
        (q, k, v, mask.astype(np.float64), 0.0, False, None, False),
        (q, k.astype(np.float64), v, None, 0.0, False, None, False),
        (q, k[:1], v[:1], None, 0.0, False, None, False),
        (q, k, v[:, :5], None, 0.0, False, None, False),
        (q[:, :, :0], k[:, :, :0], v, None, 0.0, False, 1.0, False),
    ):
        assert KERNEL(*arguments) is NotImplemented


def test_gradients_and_errors_are_those_of_the_decomposition() -> None:
    q = cd.randn(2, 40, 8, requires_grad=True)
    out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    with cd.no_grad():
        assert cd.allclose(out, F.scaled_dot_product_attention(q, q, q, is_causal=True), atol=1e-6)
    out.sum().backward()
    assert q.grad is not None
    with cd.no_grad(), pytest.raises(cd.OpError, match="attn_mask and is_causal"):
        F.scaled_dot_product_attention(q, q, q, cd.ones(40, 40, dtype=cd.bool), is_causal=True)
