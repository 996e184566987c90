"""Attention with dropout: the loops against the definition, and how much memory they take."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch_cpu_numba.kernels.nn import attention

pytestmark = pytest.mark.once

KERNEL = attention.KERNELS["attention_dropout"]
BACKWARD = attention.KERNELS["attention_dropout_backward"]
LENGTHS = st.sampled_from([1, 2, 31, 33, 64, 65, 130])


def wide(*arguments: Any) -> list[Any]:
    """Arrays as tensors, floating ones in float64."""
    return [
        cd.from_numpy(x.astype(np.float64) if x.dtype.kind == "f" else x)
        if isinstance(x, np.ndarray)
        else x
        for x in arguments
    ]


def drawn(lead: Any, shared: Any, sizes: Any, dtype: str, seed: int) -> tuple[Any, ...]:
    """A gradient, query, key, value and two seeds."""
    queries, keys, depth, columns = sizes
    rng = np.random.default_rng(seed)
    shapes = (*lead, queries, columns), (*lead, queries, depth), (*shared, keys, depth)
    grad, q, k, v = (rng.normal(size=s).astype(dtype) for s in (*shapes, (*shared, keys, columns)))
    return grad, q, k, v, rng.integers(0, 1 << 32, 2)


@settings(max_examples=40)
@given(
    st.sampled_from([(), (3,), (2, 4)]),
    st.tuples(LENGTHS, LENGTHS, LENGTHS, LENGTHS),
    st.sampled_from(["", "causal", "chosen", "added"]),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    st.sampled_from([1, 2]),
    st.sampled_from(["float32", "float64"]),
    st.integers(0, 99),
)
def test_the_loops_drop_what_the_definition_drops(
    lead: Any, sizes: Any, masked: str, p: float, groups: int, dtype: str, seed: int
) -> None:
    shared = lead if len(lead) < 2 else (*lead[:-1], lead[-1] // groups)
    grad, q, k, v, words = drawn(lead, shared, sizes, dtype, seed)
    rng, mask = np.random.default_rng(seed), None
    if masked == "chosen":
        mask = rng.random(sizes[:2]) < 0.5
        mask[0] = False  # a query to which no key belongs
    elif masked == "added":
        mask = rng.normal(size=sizes[:2]).astype(dtype)
    given = q, k, v, mask, words, p, masked == "causal", None, shared != lead
    exact = 1e-5 if dtype == "float32" else 1e-12
    found, expected = KERNEL(*given), cd.ops.attention_dropout.decomposition(*wide(*given))
    assert found.dtype == dtype
    limit = 2 * exact * max(1.0, 1 / (1 - p) if p < 1 else 1.0)
    np.testing.assert_allclose(found, expected.numpy(), exact, limit)
    others = cd.ops.attention_dropout_backward.decomposition(*wide(grad, *given))
    for mine, other in zip(BACKWARD(grad, *given), others, strict=True):
        assert mine.dtype == dtype
        limit = 3 * exact * max(1.0, float(other.abs().max()))
        np.testing.assert_allclose(mine, other.numpy(), 0, limit)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    grad, q, k, v, words = drawn((3,), (3,), (200, 150, 16, 24), "float32", 0)
    before, found = cd.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            cd.set_num_threads(threads)
            given = q, k, v, None, words, 0.3, True, None, False
            found.append((KERNEL(*given), *BACKWARD(grad, *given)))
    finally:
        cd.set_num_threads(before)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def kept(p: float, heads: int, keys: int) -> np.ndarray:
    """Which weights of equal scores stay, read off by values that are the unit matrix."""
    q = cd.zeros(heads, keys, 4)
    v = cd.eye(keys).expand(heads, keys, keys)
    found = F.scaled_dot_product_attention(q, q, v, dropout_p=p).numpy()
    present = found[found != 0]
    np.testing.assert_allclose(present, 1 / (1 - p) / keys, 1e-6)
    return found != 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_weights_are_dropped_independently(p: float) -> None:
    """Six standard deviations hold the number of what stays, and of neighbours that both do."""
    cd.manual_seed(1)
    stay = kept(p, 4, 256).astype(np.float64) - (1 - p)
    variance = p * (1 - p)
    assert abs(stay.sum()) < 6 * np.sqrt(stay.size * variance)
    for pairs in (
        stay[..., 1:] * stay[..., :-1],
        stay[:, 1:] * stay[:, :-1],
        stay[1:] * stay[:-1],
        stay[:, 1:, 1:] * stay[:, :-1, :-1],
    ):
        assert abs(pairs.sum()) < 6 * np.sqrt(pairs.size) * variance


def test_the_generator_decides() -> None:
    q = cd.zeros(1, 128, 4)
    v = cd.eye(128).expand(1, 128, 128)
    found = []
    for seed in (0, 0, 1):
        cd.manual_seed(seed)
        found += [F.scaled_dot_product_attention(q, q, v, dropout_p=0.5) for _ in range(2)]
    assert cd.equal(found[0], found[2])
    assert cd.equal(found[1], found[3])
    assert not cd.equal(found[0], found[1])
    assert not cd.equal(found[0], found[4])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("causal", [False, True])
def test_no_matrix_of_queries_and_keys(dtype: str, causal: bool) -> None:
    length = 4096
    leaves = [cd.randn(1, length, 16).to(getattr(cd, dtype)).requires_grad_(True) for _ in range(3)]

    def step() -> None:
        out = F.scaled_dot_product_attention(*leaves, dropout_p=0.1, is_causal=causal)
        out.sum().backward()

    step()  # compiles
    tracemalloc.start()
    try:
        step()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * length * length  # bytes: not even one of half precision


def test_gradients_are_those_of_differences() -> None:
    grad, *arrays, words = drawn((2,), (2,), (20, 23, 5, 4), "float64", 3)
    leaves = [cd.from_numpy(x).requires_grad_() for x in arrays]
    seed = cd.from_numpy(words)

    def attended(*given: Any) -> Any:
        return cd.ops.attention_dropout(*given, None, seed, 0.4)

    assert cd.autograd.gradcheck(attended, leaves)
    assert cd.autograd.gradgradcheck(attended, [x[:, :4].detach().requires_grad_() for x in leaves])
    mask = cd.randn(20, 23, dtype=cd.float64, requires_grad=True)
    assert cd.autograd.gradcheck(
        lambda mask: cd.ops.attention_dropout(*leaves, mask, seed, 0.4).sum(), [mask]
    )


def test_seeds_and_probabilities_that_do_not_fit() -> None:
    q = cd.randn(2, 40, 8)
    seed = cd.randint(0, 1 << 32, (2,))
    for bad, p, what in (
        (seed, 0.0, "with a probability above 0 and up to 1, got 0.0"),
        (seed, 1.5, "got 1.5"),
        (seed[:1], 0.5, r"a seed of shape \(1,\), expected \(2,\)"),
        (seed.int(), 0.5, "a seed of int32"),
    ):
        with pytest.raises(cd.OpError, match=what):
            cd.ops.attention_dropout(q, q, q, None, bad, p)
        with pytest.raises(cd.OpError, match=what):
            cd.ops.attention_dropout_backward(q, q, q, q, None, bad, p)
    for p in (1.5, -0.1, float("nan")):
        with pytest.raises(cd.OpError, match=f"between 0 and 1, got {p}"):
            F.scaled_dot_product_attention(q, q, q, dropout_p=p)
