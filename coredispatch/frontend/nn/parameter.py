"""Parameters: tensors that a module trains."""

from __future__ import annotations

from types import NoneType
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.frontend.torch_function import disabled_torch_function
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.value import storage_of

__all__ = ["Buffer", "Parameter"]


class _ParameterMeta(type):
    """Tensors of other classes may be parameters too: they say so themselves."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (
            cls is Parameter and isinstance(instance, Tensor) and hasattr(instance, "_is_param")
        )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that registers itself when it is assigned to an attribute of a module.

    It shares the memory of ``data`` (an empty tensor if None) and has no history. Raises
    :class:`DTypeError` for data that is no tensor.

    Data of another subclass of Tensor stay of that class, and are a parameter nevertheless:
    ``isinstance(p, Parameter)`` holds. Results of operators are plain tensors, of any parameter.
    """

    __torch_function__ = disabled_torch_function
    _makes_itself = True

    def __new__(cls, data: Any = None, requires_grad: bool = True, **options: Any) -> Any:
        if type(data) in (Tensor, NoneType, cls) or not isinstance(data, Tensor):
            return super().__new__(cls)
        if isinstance(data, Parameter) and type(data)._class_keys == 0:
            return super().__new__(cls)
        twin = data.detach().requires_grad_(requires_grad)
        if type(twin) is not type(data):
            raise DTypeError(
                f"Parameter({type(data).__name__}): detach() gave {type(twin).__name__}",
                fix=f"let {type(data).__name__}.__torch_function__ keep the class for detach()",
            )
        twin._is_param = True
        return twin

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

    __torch_function__ = disabled_torch_function
    _makes_itself = True

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        if data is None:
            data = TABLE.operator("empty")((0,))
        super().__init__(data.raw, data.keys & ~AUTOGRAD)
        self._storage = storage_of(data)
        self.persistent = persistent
