"""Uneven inputs (``join``) and communication hooks (``ddp_comm_hooks``)."""

from __future__ import annotations

from coredispatch.frontend.distributed.algorithms import ddp_comm_hooks
from coredispatch.frontend.distributed.algorithms.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable", "ddp_comm_hooks"]
