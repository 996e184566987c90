"""What the tests of ONNX models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coredispatch as cd
from coredispatch import nn

__all__ = ["Call", "Pair", "tensors"]


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def tensors(value: Any) -> list[Any]:
    """The tensors in a result, in order."""
    return [v for v in cd.utils._pytree.tree_leaves(value) if isinstance(v, cd.Tensor)]


class Pair(Call):
    """The same of two inputs."""

    def forward(self, x: Any, y: Any) -> Any:  # type: ignore[override]
        return self.function(x, y)
