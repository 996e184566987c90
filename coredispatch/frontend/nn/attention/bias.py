"""Masks of attention that are known by their form."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

from coredispatch.frontend.overrides import DisableTorchFunctionSubclass
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """Where the diagonal of a causal mask begins: at the upper left, or ends at the lower right."""

    UPPER_LEFT = auto()
    LOWER_RIGHT = auto()


class CausalBias(Tensor):
    """A causal mask ``(seq_len_q, seq_len_kv)``, True where a query may look."""

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"Expected variant to be CausalVariant, got {type(variant)}")
        first = 0 if variant is CausalVariant.UPPER_LEFT else seq_len_kv - seq_len_q
        ones: Any = TABLE.operator("ones")((seq_len_q, seq_len_kv), dtype="bool")
        mask: CausalBias = ones.tril(first).as_subclass(cls)
        mask.variant, mask.seq_len_q, mask.seq_len_kv = variant, seq_len_q, seq_len_kv
        return mask

    def __init__(self, *size: Any) -> None:
        """The mask is made by ``__new__``."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What is computed with a mask is an ordinary tensor."""
        with DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def causal_upper_left(*size: Any) -> CausalBias:
    """The mask of ``is_causal=True``: query ``i`` looks at keys up to ``i``."""
    if len(size) != 2:
        raise RuntimeError("causal_upper_left only supports 2D tensors")
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size: Any) -> CausalBias:
    """The mask under which the last query looks at all keys, as when decoding with a cache."""
    if len(size) != 2:
        raise RuntimeError("causal_lower_right only supports 2D tensors")
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
