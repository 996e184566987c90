"""Nodes that only PyTorch's files have."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.serialization.building import Builder
from coredispatch.frontend.serialization.element_types import dtype_named
from coredispatch.frontend.serialization.errors import Damage, shown
from coredispatch.frontend.serialization.node_graph import Steps
from coredispatch.registry.model.spelling import TensorLayout

__all__ = ["TorchBuilder"]


class TorchBuilder(Builder):
    """Also makes storages, layouts and NumPy's element types."""

    def _storage(self, number: int, payload: Any, node: Any) -> Steps:
        self.made[number] = self.source.storage(payload)  # type: ignore[attr-defined]
        yield from ()

    def _layout(self, number: int, payload: Any, node: Any) -> Steps:
        self.made[number] = TensorLayout(payload)
        yield from ()

    def _numpy_dtype(self, number: int, payload: Any, node: Any) -> Steps:
        found = dtype_named(payload, numpy=True)
        if found is None:
            raise Damage("", f"{shown(payload)} is not an element type of NumPy that is saved")
        self.made[number] = found
        yield from ()


TorchBuilder.KINDS = Builder.KINDS | {
    "storage": TorchBuilder._storage,
    "layout": TorchBuilder._layout,
    "numpy dtype": TorchBuilder._numpy_dtype,
}
