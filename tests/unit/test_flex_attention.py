"""``nn.attention.flex_attention``: attention whose scores and masks are functions."""

from __future__ import annotations

import pytest

import coredispatch as cd
from coredispatch.nn.attention.flex_attention import (
    AuxRequest,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)

attention = cd.nn.functional.scaled_dot_product_attention


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def near(b, h, q_idx, kv_idx):
    return q_idx - kv_idx <= 2


@pytest.fixture
def qkv() -> tuple[cd.Tensor, ...]:
    cd.manual_seed(0)
    return tuple(cd.randn(2, 4, 8, 5, dtype=cd.float64, requires_grad=True) for _ in range(3))


def test_is_attention(qkv) -> None:
    assert cd.allclose(flex_attention(*qkv), attention(*qkv))
    assert cd.allclose(flex_attention(*qkv, scale=0.3), attention(*qkv, scale=0.3))


def test_a_mask_and_its_gradients(qkv) -> None:
    mask = create_block_mask(causal, None, None, 8, 8, BLOCK_SIZE=4)
    found = flex_attention(*qkv, block_mask=mask)
    expected = attention(*qkv, is_causal=True)
    assert cd.allclose(found, expected)
    ours = cd.autograd.grad((found**2).sum(), qkv)
    theirs = cd.autograd.grad((expected**2).sum(), qkv)
    assert all(cd.allclose(a, b) for a, b in zip(ours, theirs))


def test_scores_by_place(qkv) -> None:
    slopes = cd.tensor([0.5, 0.25, 0.125, 0.0625], dtype=cd.float64)

    def alibi(score, b, h, q_idx, kv_idx):
        return score + slopes[h] * (kv_idx - q_idx)

    distance = cd.arange(8)[None] - cd.arange(8)[:, None]
    bias = slopes[:, None, None] * distance
    assert cd.allclose(flex_attention(*qkv, score_mod=alibi), attention(*qkv, attn_mask=bias))


def test_what_is_returned_besides(qkv) -> None:
    scores = qkv[0] @ qkv[1].mT * 5**-0.5
    out, lse = flex_attention(*qkv, return_lse=True)
    assert cd.allclose(lse, scores.logsumexp(-1)) and out.shape == (2, 4, 8, 5)
    _, more = flex_attention(*qkv, return_aux=AuxRequest(max_scores=True))
    assert more.lse is None and cd.allclose(more.max_scores, scores.amax(-1))


def test_heads_in_groups(qkv) -> None:
    q, k, v = qkv
    found = flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True)
    assert cd.allclose(found, attention(q, k[:, :2], v[:, :2], enable_gqa=True))
    with pytest.raises(ValueError, match="enable_gqa"):
        flex_attention(q, k[:, :2], v[:, :2])


def test_queries_for_which_nothing_counts(qkv) -> None:
    mask = create_block_mask(lambda b, h, q, k: (q > 0) & (k < 3), None, None, 8, 8)
    out = flex_attention(*qkv, block_mask=mask)
    assert not out[:, :, 0].any()
    (grad,) = cd.autograd.grad(out.sum(), qkv[0])
    assert grad.isfinite().all()


def test_masks() -> None:
    both = create_mask(and_masks(causal, near), None, None, 6, 6)[0, 0]
    distance = cd.arange(6)[:, None] - cd.arange(6)[None]
    assert cd.equal(both, (distance >= 0) & (distance <= 2))
    either = create_mask(or_masks(causal, near), 2, 3, 6, 6)
    assert either.shape == (2, 3, 6, 6) and cd.equal(either[1, 2], distance > -7)
    with pytest.raises(RuntimeError, match="callable"):
        and_masks(3)


def test_blocks() -> None:
    mask = create_block_mask(causal, None, None, 10, 10, BLOCK_SIZE=4)
    assert mask.shape == (1, 1, 10, 10)
    assert mask.kv_num_blocks.tolist() == [[[1, 2, 3]]]
    assert mask.to_dense().tolist() == [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    assert mask.sparsity() == pytest.approx(100 / 3)
