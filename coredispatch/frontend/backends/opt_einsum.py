"""opt_einsum: not used. ``einsum`` contracts from left to right."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.backends.settings import check_settings

__all__ = ["enabled", "get_opt_einsum", "is_available", "strategy"]

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False: it is not used."""
    return False


def get_opt_einsum() -> Any:
    """None: it is not used."""
    return None


def _enable(value: bool) -> bool:
    if value:
        raise ValueError(
            "opt_einsum is not available, so setting `enabled` to True will not reap the benefits "
            "of calculating an optimal path for einsum. torch.einsum will fall back to contracting "
            "from left to right. Contract in the order you want with several calls."
        )
    return value


def _choose(value: str | None) -> str | None:
    if value is not None:
        raise ValueError(
            f"opt_einsum is not available, so setting `strategy` to {value} will not be "
            "meaningful. torch.einsum will bypass path calculation and simply contract from "
            "left to right."
        )
    return value


check_settings(
    __name__,
    {"enabled": (bool,), "strategy": (str, type(None))},
    {"enabled": _enable, "strategy": _choose},
)
