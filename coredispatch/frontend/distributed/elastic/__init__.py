"""Training that goes on after a rank was lost."""

from __future__ import annotations

from coredispatch.frontend.distributed.elastic.state import ElasticState, restart_count

__all__ = ["ElasticState", "restart_count"]
