"""Where tensors come from and values go to: ``zeros_like`` and its kind, and what is refused."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.transforms.batching.batch import Batch
from coredispatch.plugin import dispatch

__all__ = ["REFUSED", "RULES"]


def like(batch: Batch, self: Any, *args: Any) -> Any:
    """A tensor of numbers for each sample, so that each may be written to."""
    return dispatch(batch.op, (batch.front(self), *args))


def same_for_all(batch: Batch, *args: Any) -> Any:
    """What depends on types and sizes only."""
    return dispatch(batch.op, batch.opened(args))


RULES: dict[str, Any] = {
    **dict.fromkeys(["zeros_like", "ones_like", "full_like", "empty_like"], like),
    **dict.fromkeys(["is_sparse", "is_quantized"], same_for_all),
}

_CONTROL = (
    "vmap: the value of a tensor that is mapped over is not one number: .item(), .tolist(), "
    "float(x), print(f'{x:.2f}') and data-dependent control flow (`if x > 0`) are not supported"
)
_SHAPE = "vmap: the shape of the result of {} depends on values, which differ between the samples"

REFUSED: dict[str, str] = {
    "to_host": _CONTROL,
    **{
        name: _SHAPE.format(name)
        for name in (
            *("nonzero", "argwhere", "masked_select", "unique", "unique_all", "unique_runs"),
            *("unique_consecutive", "bincount"),
        )
    },
}
