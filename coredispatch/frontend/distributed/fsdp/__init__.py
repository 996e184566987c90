"""Fully sharded parameters: each rank keeps a part of every weight."""

from __future__ import annotations

from coredispatch.frontend.distributed.fsdp.sharding import full_state_dict, fully_shard

__all__ = ["full_state_dict", "fully_shard"]
