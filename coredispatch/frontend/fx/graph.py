"""The graph of a program: a class of which there are no instances yet."""

from __future__ import annotations

from coredispatch.frontend.announced import announced_class

__all__ = ["CodeGen", "Graph", "PythonCode"]

Graph = announced_class("fx.Graph", "call the module itself")
CodeGen = announced_class("fx.graph.CodeGen", "call the module itself")
PythonCode = announced_class("fx.graph.PythonCode", "call the module itself")
