"""Defaults."""

from __future__ import annotations

from coredispatch.frontend.distributed.groups import default_pg_timeout

__all__ = ["default_pg_timeout"]
