"""PyTorch's path of ``replace_pattern``."""

from coredispatch.frontend.fx.transformer import (
    InternalMatch,
    Match,
    ReplacedPatterns,
    replace_pattern,
    replace_pattern_with_filters,
)

__all__ = [
    "InternalMatch",
    "Match",
    "ReplacedPatterns",
    "replace_pattern",
    "replace_pattern_with_filters",
]
