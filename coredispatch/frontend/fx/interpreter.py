"""PyTorch's path of ``Interpreter`` and ``Transformer``."""

from coredispatch.frontend.fx.transformer import Transformer
from coredispatch.graph.interpreter import Interpreter

__all__ = ["Interpreter", "Transformer"]
