"""What stands for a value while a graph is recorded: classes of which there are no instances."""

from __future__ import annotations

from coredispatch.frontend.announced import announced_class

__all__ = ["Attribute", "GraphAppendingTracer", "Proxy", "TraceError", "TracerBase"]

_FIX = "call the module itself"

Proxy = announced_class("fx.Proxy", _FIX)
Attribute = announced_class("fx.proxy.Attribute", _FIX, Proxy)
TracerBase = announced_class("fx.proxy.TracerBase", _FIX)
GraphAppendingTracer = announced_class("fx.proxy.GraphAppendingTracer", _FIX, TracerBase)


class TraceError(ValueError):
    """A program that cannot be traced."""
