"""What libraries import of PyTorch's first exporter, to describe operators of their own to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["parse_args"]

_F = TypeVar("_F", bound=Callable[..., Any])
#: ``onnx.symbolic_opset11`` and the like, where descriptions look for operators
MODULE = sys.modules[__name__]


def parse_args(*descriptors: str) -> Callable[[_F], _F]:
    """A mark on the description of an operator, which nothing here calls. Returns it."""
    return lambda function: function


#: what was registered: (name, opset) -> the description
REGISTERED: dict[tuple[str, int], Callable[..., Any]] = {}


def register_custom_op_symbolic(
    symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int
) -> None:
    """Keep a description for PyTorch's first exporter, which is not there: nothing reads it."""
    REGISTERED[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget a description."""
    REGISTERED.pop((symbolic_name, opset_version), None)
