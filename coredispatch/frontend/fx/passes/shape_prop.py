"""``ShapeProp``: run a graph on an example and note the shape and type of every value."""

from __future__ import annotations

from typing import Any, NamedTuple

from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Interpreter, Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


class ShapeProp(Interpreter):
    """Runs a graph and enters ``tensor_meta`` and ``type`` in the ``meta`` of each node."""

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        """Run a node and note its result."""
        result = super().run_node(n)
        found: list[Tensor] = []

        def fact(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            found.append(value)
            return _metadata(value)

        details = map_aggregate(result, fact)
        if found:
            n.meta["tensor_meta"] = details
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on ``args``; its result."""
        return super().run(*args)


def _metadata(tensor: Tensor) -> TensorMetadata:
    quantized = bool(getattr(tensor, "is_quantized", False))
    stride = () if quantized else tuple(tensor.stride())
    return TensorMetadata(
        tensor.shape, tensor.dtype, tensor.requires_grad, stride, None, quantized, {}
    )
