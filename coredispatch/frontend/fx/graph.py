"""PyTorch's path of ``Graph``."""

from coredispatch.graph.codegen import PythonCode
from coredispatch.graph.graph import Graph

__all__ = ["Graph", "PythonCode"]
