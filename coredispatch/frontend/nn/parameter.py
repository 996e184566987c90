"""Parameters: tensors that a module trains."""

from __future__ import annotations

from typing import Any, Self, cast

from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.frontend.torch_function import OVERRIDE, disabled_torch_function
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import DTypeError, NotATensorError
from coredispatch.registry.model.value import storage_of

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]


class _ParameterMeta(type):
    """Tensors of other classes may be parameters too: they say so themselves."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (
            cls is Parameter and isinstance(instance, Tensor) and hasattr(instance, "_is_param")
        )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that registers itself when it is assigned to an attribute of a module.

    It shares the memory of ``data`` (an empty tensor if None) and has no history. Raises
    :class:`NotATensorError`, an ``AttributeError``, for data that is no tensor.

    Data of another subclass of Tensor stay of that class, and are a parameter nevertheless:
    ``isinstance(p, Parameter)`` holds. Results of operators are plain tensors, of any parameter.
    """

    __torch_function__ = disabled_torch_function
    _makes_itself = True

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Self:
        if data is None:
            data = TABLE.operator("empty")((0,))
        if not isinstance(data, TensorBase):
            raise NotATensorError(
                f"Parameter({type(data).__name__})", fix="give a tensor: Parameter(cd.tensor(...))"
            )
        if type(data) not in (Tensor, cls) and isinstance(data, Tensor):
            if not isinstance(data, Parameter) or data.keys & OVERRIDE:
                return cast(Self, _twin(data, requires_grad))
        self = super().__new__(cls)
        marks: int = cast(Any, cls)._class_keys
        TensorBase.__init__(self, data.raw, data.keys & ~AUTOGRAD | marks)
        self._storage = storage_of(data)
        if requires_grad is not False:
            self.requires_grad = requires_grad
        return self

    def __init__(self, *args: Any, **options: Any) -> None:
        """Nothing is left to do: a subclass may take what it likes in its own ``__new__``."""

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


def _twin(data: Any, requires_grad: bool) -> Any:
    """The same data in the same class, a leaf that is a parameter."""
    twin = data.detach().requires_grad_(requires_grad)
    if type(twin) is not type(data):
        raise DTypeError(
            f"Parameter({type(data).__name__}): detach() gave {type(twin).__name__}",
            fix=f"let {type(data).__name__}.__torch_function__ keep the class for detach()",
        )
    twin.__dict__["_is_param"] = True
    return twin


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


_ABSENT = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
    "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. "
    "Call `forward` to initialize the parameters before accessing their attributes."
)


class UninitializedTensorMixin(Tensor):
    """What a lazy module's tensors share until their shape is known."""

    __torch_function__ = disabled_torch_function
    _makes_itself = True
    cls_to_become: type = Tensor

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an ordinary tensor of ``shape``, uninitialised; dtype and device stay."""
        device = self.device if device is None else device
        dtype = self.dtype if dtype is None else dtype
        self.data = TABLE.operator("empty")(tuple(shape), dtype=dtype, device=device)
        self.__class__ = self.cls_to_become

    def _absent(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(_ABSENT)

    shape = property(_absent)
    ndim = property(_absent)
    dim = size = numel = nelement = _absent

    def share_memory_(self) -> Any:
        """Raises ``RuntimeError``: there is no memory yet."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return memo[id(self)]


def is_lazy(param: Any) -> bool:
    """Whether ``param`` is a parameter or buffer whose shape is not known yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter without a shape, until :meth:`materialize` gives it one."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Self:
        empty = TABLE.operator("empty")((0,), dtype=dtype, device=device)
        return Parameter.__new__(cls, empty, requires_grad)


class UninitializedBuffer(UninitializedTensorMixin):
    """A buffer without a shape, until :meth:`materialize` gives it one."""

    def __init__(
        self,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> None:
        empty = TABLE.operator("empty")((0,), dtype=dtype, device=device)
        Tensor.__init__(self, empty.raw, empty.keys)
        self._storage = storage_of(empty)
        self.persistent = persistent
        if requires_grad is not False:
            self.requires_grad = requires_grad
