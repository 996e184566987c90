"""Parameters: tensors that a module trains."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.value import storage_of

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that registers itself when it is assigned to an attribute of a module.

    It shares the memory of ``data`` (an empty tensor if None) and has no history. Raises
    :class:`DTypeError` for data that is no tensor.
    """

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        if data is None:
            data = TABLE.operator("empty")((0,))
        if not isinstance(data, TensorBase):
            raise DTypeError(
                f"Parameter({type(data).__name__})", fix="give a tensor: Parameter(cd.tensor(...))"
            )
        super().__init__(data.raw, data.keys & ~AUTOGRAD)
        self._storage = storage_of(data)
        if requires_grad:
            self.requires_grad = True

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


class Buffer(Tensor):
    """A tensor that registers itself as a buffer when it is assigned to a module's attribute."""

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        if data is None:
            data = TABLE.operator("empty")((0,))
        super().__init__(data.raw, data.keys & ~AUTOGRAD)
        self._storage = storage_of(data)
        self.persistent = persistent
