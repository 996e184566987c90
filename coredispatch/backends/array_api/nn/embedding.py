"""Embedding over an array-API namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.registry.model.errors import DimError

__all__ = ["kernels"]


def kernels(xp: Any) -> dict[str, Callable[..., Any]]:
    """``embedding_lookup`` over ``xp``; its gradient comes from its decomposition."""

    def embedding_lookup(
        input: Any, weight: Any, padding_idx: int | None, scale_grad_by_freq: bool, sparse: bool
    ) -> Any:
        if not xp.isdtype(input.dtype, "signed integer"):
            raise TypeError(f"indices must be int32 or int64, got {input.dtype}")
        flat, rows = xp.reshape(input, (-1,)), weight.shape[0]
        if flat.shape[0]:
            low, high = int(xp.min(flat)), int(xp.max(flat))
            if low < 0 or high >= rows:
                raise DimError(
                    f"index {low if low < 0 else high} is out of range for {rows} embeddings",
                    fix=f"use indices from 0 to {rows - 1}",
                )
        taken = xp.take(weight, flat, axis=0)
        return xp.reshape(taken, (*input.shape, weight.shape[1]))

    return {"embedding_lookup": embedding_lookup}
