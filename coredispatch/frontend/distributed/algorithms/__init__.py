"""Uneven inputs (``join``), communication hooks, and averages of models."""

from __future__ import annotations

from coredispatch.frontend.distributed.algorithms import ddp_comm_hooks, model_averaging
from coredispatch.frontend.distributed.algorithms.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable", "ddp_comm_hooks", "model_averaging"]
