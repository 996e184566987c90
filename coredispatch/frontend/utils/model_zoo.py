"""Older names of :mod:`coredispatch.hub`, which many programs import."""

from __future__ import annotations

from coredispatch.frontend.hub import load_state_dict_from_url as load_url
from coredispatch.frontend.hub import tqdm

__all__ = ["load_url", "tqdm"]
