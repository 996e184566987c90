"""Settings of PyTorch's fuser for compiled programs, which here runs operators one by one.

They are kept, so that programs that set them run; ``coredispatch.compile`` is what fuses.
"""

from __future__ import annotations

from typing import Any

from coredispatch._warnings import warn_of_jit

__all__ = [
    "enable_onednn_fusion",
    "onednn_fusion_enabled",
    "optimized_execution",
    "set_fusion_strategy",
    "strict_fusion",
]

_state: dict[str, Any] = {"onednn": False, "strategy": [("STATIC", 2), ("DYNAMIC", 10)]}


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Keep a strategy, pairs of ``"STATIC"`` or ``"DYNAMIC"`` and a depth; returns the last one.

    Raises ``RuntimeError`` for another kind.
    """
    warn_of_jit("set_fusion_strategy")
    for kind, _ in strategy:
        if kind not in ("STATIC", "DYNAMIC"):
            raise RuntimeError(f"FusionBehavior only supported 'STATIC' or 'DYNAMIC', got: {kind}")
    before: list[tuple[str, int]] = _state["strategy"]
    _state["strategy"] = list(strategy)
    return before


def enable_onednn_fusion(enabled: bool) -> None:
    """Keep the setting."""
    _state["onednn"] = bool(enabled)


def onednn_fusion_enabled() -> bool:
    """The setting."""
    return bool(_state["onednn"])


class optimized_execution:
    """A block with or without optimizations of compiled programs; the results are the same."""

    def __init__(self, should_optimize: bool) -> None:
        self.should_optimize = should_optimize

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


class strict_fusion:
    """A block that PyTorch warns about where it is not fused; here it is a block."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass
