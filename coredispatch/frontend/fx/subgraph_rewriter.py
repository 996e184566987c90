"""PyTorch's path of ``replace_pattern``."""

from coredispatch.frontend.fx.transformer import Match, replace_pattern

__all__ = ["Match", "replace_pattern"]
