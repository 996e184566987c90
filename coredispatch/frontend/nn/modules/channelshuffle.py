"""Layers that interleave groups of channels."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Interleave groups of channels."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Any) -> Any:
        """The rearranged input."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """The number of groups."""
        return f"groups={self.groups}"
