"""``distributed.nn``: collectives with derivatives, public in :mod:`~.functional`."""

from __future__ import annotations

from coredispatch.frontend.distributed.nn import functional
from coredispatch.frontend.distributed.nn.functional import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "functional",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]
