"""Attention whose scores a program changes: ``flex_attention``, and masks made of functions.

The functions of a program see a score and where it is; they are called once, with tensors of all
places that broadcast, so they are made of operators and of indexing, as PyTorch asks too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model import dtypes

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

#: rows and columns of a block of a mask, where nobody says
_DEFAULT_SPARSE_BLOCK_SIZE = 128
MaskMod = Callable[[Any, Any, Any, Any], Any]
ScoreMod = Callable[[Any, Any, Any, Any, Any], Any]


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """True: every place counts."""
    return token_q.new_ones((), dtype=dtypes.bool_)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """A mask of the places that are in all masks. Raises RuntimeError for what is no function."""
    return _joined(mask_mods, lambda a, b: a & b, True)


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """A mask of the places that are in any mask. Raises RuntimeError for what is no function."""
    return _joined(mask_mods, lambda a, b: a | b, False)


def _joined(mask_mods: tuple[Any, ...], join: Callable[[Any, Any], Any], start: bool) -> MaskMod:
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        found = q_idx.new_full((), start, dtype=dtypes.bool_)
        for mod in mask_mods:
            found = join(found, mod(b, h, q_idx, kv_idx))
        return found

    return mask


def _places(sizes: tuple[int, int, int, int], device: Any) -> list[Tensor]:
    """Batch, head, query and key as tensors that broadcast to (B, H, Q, KV)."""
    arange = TABLE.operator("arange")
    shapes = [(-1, 1, 1, 1), (-1, 1, 1), (-1, 1), (-1,)]
    return [arange(n, device=device).reshape(shape) for n, shape in zip(sizes, shapes)]


def create_mask(
    mod_fn: Any,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> Tensor:
    """(B, H, Q_LEN, KV_LEN): the values of a mask, or of changes of scores, at all places.

    A ``score_mod``, which takes five arguments, gives a mask of the places it does not set to
    ``-inf``.
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    places = _places(sizes, device)
    if _arguments(mod_fn) == 5:
        zero = TABLE.operator("zeros")(sizes, device=device)
        found = mod_fn(zero, *places) != -float("inf")
    else:
        found = mod_fn(*places)
    expanded: Tensor = found.to(dtypes.bool_).expand(sizes)
    return expanded


def _arguments(function: Any) -> int:
    import inspect

    parameters = inspect.signature(function).parameters.values()
    needed = (p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL)
    return sum(1 for _ in needed)


class BlockMask:
    """A mask of attention, and which blocks of it have places that count.

    Attributes:
        mask_mod: the function of batch, head, query and key.
        seq_lengths: numbers of queries and of keys.
        kv_num_blocks: (B, H, rows): how many blocks of each row of blocks have any place.
        kv_indices: (B, H, rows, columns): which these are, first.
        BLOCK_SIZE: rows and columns of a block.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        BLOCK_SIZE: tuple[int, int],
        mask_mod: MaskMod,
    ) -> None:
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, Q, KV)."""
        return (*self.kv_num_blocks.shape[:2], *self.seq_lengths)

    def numel(self) -> int:
        """How many places there are."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """How many blocks have no place that counts, in percent."""
        filled = int(self.kv_num_blocks.sum())
        return 100 * (1 - filled / self.kv_indices.numel())

    def to_dense(self) -> Tensor:
        """(B, H, rows, columns): 1 for blocks with places that count."""
        columns = self.kv_indices.shape[-1]
        arange = TABLE.operator("arange")(columns, device=self.kv_indices.device)
        counted = (arange < self.kv_num_blocks.unsqueeze(-1)).to(dtypes.int32)
        dense: Tensor = TABLE.operator("zeros_like")(self.kv_indices)
        return dense.scatter(-1, self.kv_indices.to(dtypes.int64), counted)

    def to(self, device: Any) -> BlockMask:
        """The same mask on a device."""
        return BlockMask(
            self.seq_lengths,
            self.kv_num_blocks.to(device),
            self.kv_indices.to(device),
            self.BLOCK_SIZE,
            self.mask_mod,
        )

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    **options: Any,
) -> BlockMask:
    """The mask of a function: see :class:`BlockMask`. B or H of None have length 1."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    rows, columns = -(-Q_LEN // size[0]), -(-KV_LEN // size[1])
    padding = (0, columns * size[1] - KV_LEN, 0, rows * size[0] - Q_LEN)
    padded = TABLE.operator("constant_pad_nd")(mask, padding, False)
    blocks = padded.reshape(*mask.shape[:2], rows, size[0], columns, size[1])
    filled = blocks.any(-1).any(-2).to(dtypes.int32)
    order = filled.argsort(dim=-1, descending=True, stable=True).to(dtypes.int32)
    counts = filled.sum(-1).to(dtypes.int32)
    return BlockMask((Q_LEN, KV_LEN), counts, order, (size[0], size[1]), mask_mod)


class AuxRequest(NamedTuple):
    """What :func:`flex_attention` returns besides: the logarithms of sums, the largest scores."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for with :class:`AuxRequest`; None for the rest."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Attention whose scores ``score_mod(score, b, h, q_idx, kv_idx)`` changes.

    Args:
        query: (B, Hq, L, E).
        key: (B, H, S, E).
        value: (B, H, S, Ev).
        score_mod: makes the score that counts of each score and its place.
        block_mask: which places count, a :class:`BlockMask`.
        scale: of the scores; ``1 / sqrt(E)`` unless given.
        enable_gqa: whether several heads of queries share a head of keys.
        return_lse: return the logarithms of the sums of exponentials (B, Hq, L) as well.
        return_aux: what to return besides.

    Returns (B, Hq, L, Ev). A query for which nothing counts gives 0.

    Raises:
        ValueError: numbers of heads differ, and ``enable_gqa`` is not set or they do not divide.
    """
    heads, key_heads = query.shape[1], key.shape[1]
    if heads != key_heads:
        if not enable_gqa:
            raise ValueError(
                f"Expect query and key/value to have the same number of heads but got Hq={heads} "
                f"and Hkv={key_heads}. Try setting enable_gqa=True for GQA."
            )
        if heads % key_heads:
            raise ValueError(
                f"Expect number of query heads to be a multiple of kv heads for GQA but got "
                f"Hq={heads} and Hkv={key_heads}."
            )
        key = key.repeat_interleave(heads // key_heads, 1)
        value = value.repeat_interleave(heads // key_heads, 1)
    scores = (query @ key.mT) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if scores.dtype.itemsize < 4:
        scores = scores.to(dtypes.float32)
    sizes = (scores.shape[0], heads, scores.shape[-2], scores.shape[-1])
    places = _places(sizes, scores.device)
    if score_mod is not None:
        scores = score_mod(scores, *places)
    low = -float("inf")
    if block_mask is not None:
        scores = TABLE.operator("where")(block_mask.mask_mod(*places), scores, low)
    top = scores.amax(-1, True)
    nothing = top == low
    top = TABLE.operator("where")(nothing, 0.0, top).detach()
    exponentials = (scores - top).exp()
    total = exponentials.sum(-1, keepdim=True)
    weights = exponentials / TABLE.operator("where")(nothing, 1.0, total)
    out = weights.to(value.dtype) @ value
    if not return_lse and return_aux is None:
        return out
    lse = (total.log() + top).squeeze(-1)
    if return_lse:
        return out, lse
    assert return_aux is not None
    best = scores.amax(-1) if return_aux.max_scores else None
    return out, AuxOutput(lse if return_aux.lse else None, best)
