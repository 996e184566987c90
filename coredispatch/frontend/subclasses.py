"""Subclasses of ``Tensor``: how they are made, and what they do with calls of methods.

An instance carries the keys of its class (``_class_keys``), so that the layer of
``__torch_function__`` sees every operator it takes part in. A class that writes a
``__torch_function__`` of its own is also asked about methods and attributes that are no operators:
they are replaced on the class itself, so that nothing is paid by others.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.frontend.torch_dispatch import DISPATCH, disabled_torch_dispatch
from coredispatch.frontend.torch_function import (
    OVERRIDE,
    become,
    called_by,
    disabled_torch_function,
    flat,
    is_default,
    overridden,
    without_overrides,
)
from coredispatch.plugin import is_masked
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.device import current_device
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.value import storage_of
from coredispatch.registry.wiring import HOOKS

__all__ = ["PYTHON_METHODS", "as_subclass", "declare", "fill", "kept_class", "make_subclass"]

#: infix operators whose function is a method of another name, as in PyTorch
_INFIX = {
    "__add__": "add",
    "__sub__": "sub",
    "__mul__": "mul",
    "__truediv__": "div",
    "__matmul__": "matmul",
    "__pow__": "pow",
    "__mod__": "remainder",
    "__neg__": "neg",
    "__abs__": "abs",
    "__ne__": "ne",
    "__iadd__": "add_",
    "__isub__": "sub_",
    "__imul__": "mul_",
    "__itruediv__": "div_",
    "__imod__": "remainder_",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
}
_REFLECTED = {
    "__radd__": "add",
    "__rmul__": "mul",
    "__rsub__": "sub",
    "__rtruediv__": "div",
    "__rmatmul__": "matmul",
    "__rpow__": "pow",
    "__rmod__": "remainder",
    "__rfloordiv__": "floor_divide",
}
_OTHERS = (
    "__floordiv__ __invert__ __and__ __or__ __xor__ __lshift__ __rshift__ __eq__ "
    "__getitem__ __setitem__ __len__ __iter__ __reversed__ __contains__ __bool__ __float__ __int__ "
    "__complex__ __index__ __format__ __repr__ __deepcopy__ __reduce_ex__ __array__ __dlpack__"
).split()
#: what Python itself calls, and a class may override
PYTHON_METHODS = (*_INFIX, *_REFLECTED, *_OTHERS)
_IGNORED = {"as_subclass", "raw", "keys"}


def declare(cls: Any) -> None:
    """Called for each new subclass: what its instances carry, and its replaced methods."""
    method = cls.__torch_function__
    disabled = method is disabled_torch_function
    cls._class_keys = 0 if disabled else OVERRIDE
    if cls.__torch_dispatch__ is not disabled_torch_dispatch:
        cls._class_keys |= DISPATCH
    cls._from_data = not cls._makes_itself
    if not disabled and not is_default(cls):
        _replace_methods(cls)


def _replace_methods(cls: Any) -> None:
    base = HOOKS.value_type
    theirs = {
        name
        for owner in cls.__mro__[: cls.__mro__.index(base)]
        for name in vars(owner)
        if not name.startswith("__") or name in PYTHON_METHODS
    }
    for name in dir(base):
        if name in theirs or name in _IGNORED:
            continue
        if name.startswith("_") and name not in PYTHON_METHODS:
            continue
        found = next(vars(owner)[name] for owner in base.__mro__ if name in vars(owner))
        if isinstance(found, (staticmethod, classmethod)):
            continue
        replacement: Any
        if name in _REFLECTED:
            replacement = _reflected(name, getattr(base, name))
        elif callable(found):
            replacement = _method(name, getattr(base, name), getattr(base, _INFIX.get(name, name)))
        elif hasattr(type(found), "__get__"):
            replacement = _attribute(name, found)
        else:
            continue
        setattr(cls, name, replacement)


def _asked(args: Any) -> list[Any]:
    return [] if is_masked("torch_function") else overridden(flat(args))


def _named(function: Any, name: str, original: Any) -> Any:
    function.__name__ = name
    function.__qualname__ = f"Tensor.{name}"
    function.__doc__ = original.__doc__
    return function


def _method(name: str, function: Any, public: Any) -> Any:
    def method(*args: Any, **kwargs: Any) -> Any:
        objects = _asked((*args, *kwargs.values()))
        if not objects:
            return function(*args, **kwargs)
        return called_by(public, objects, args, kwargs, name)

    return _named(method, name, function)


def _reflected(name: str, function: Any) -> Any:
    """``other + self``, where Python asks the right-hand side first because it is a subclass."""
    base = HOOKS.value_type
    forward = getattr(base, _REFLECTED[name])
    commutes = name in ("__radd__", "__rmul__")

    def method(self: Any, other: Any) -> Any:
        objects = _asked((other, self))
        if not objects:
            return function(self, other)
        if isinstance(other, TensorBase):
            return called_by(forward, objects, (other, self), {}, name)
        return called_by(forward if commutes else function, objects, (self, other), {}, name)

    return _named(method, name, function)


def _attribute(name: str, found: Any) -> Any:
    def get(self: Any) -> Any:
        if is_masked("torch_function"):
            return found.__get__(self, type(self))
        return called_by(found.__get__, [self], (self,), {}, name)

    def change(self: Any, value: Any) -> None:
        if is_masked("torch_function"):
            found.__set__(self, value)
        else:
            called_by(found.__set__, [self], (self, value), {}, name)

    def delete(self: Any) -> None:
        found.__delete__(self)

    return property(_named(get, name, found), change, delete)


def fill(tensor: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Make ``tensor``, a new instance of ``Tensor`` or a subclass, what ``Tensor(*args)`` is."""
    from coredispatch.frontend.legacy import legacy_tensor

    device = current_device(options.get("device"))
    made = legacy_tensor(args, options, dtypes.default_dtype(), device, type(tensor).__name__, True)
    tensor.raw, tensor.keys = made.raw, made.keys & ~AUTOGRAD | type(tensor)._class_keys
    tensor._storage = storage_of(made)


def as_subclass(self: Any, cls: type) -> Any:
    """The same data as an instance of ``cls``, a subclass of ``Tensor``; gradients flow through.

    ``cls`` is not called: attributes that its ``__init__`` would set are not there. Raises
    TypeError for anything that is no subclass of ``Tensor``.
    """
    if not (isinstance(cls, type) and issubclass(cls, HOOKS.value_type)):
        raise TypeError(f"as_subclass(): cls must be a subclass of Tensor, not {cls!r}")
    with without_overrides():
        alias = TABLE.operator("view_as")(self, self)
    return become(alias, cls)


def kept_class(source: Any, made: Any) -> Any:
    """The new tensor ``made`` in the class of ``source``, unless plain ones are asked for."""
    return made if is_masked("torch_function") else become(made, type(source))


def make_subclass(cls: type, data: Any, require_grad: bool = False, **options: Any) -> Any:
    """``Tensor._make_subclass``: a leaf of class ``cls`` over the memory of ``data``."""
    if not isinstance(data, TensorBase):
        raise DTypeError(
            f"_make_subclass(): data must be a tensor, not {type(data).__name__}",
            fix="pass cd.tensor(data)",
        )
    for name, value in options.items():
        if name not in ("dispatch_sizes_strides_policy", "dispatch_device", "dispatch_layout"):
            raise TypeError(f"_make_subclass() got an unexpected keyword argument {name!r}")
        if value:
            raise NotImplementedError(
                f"_make_subclass({name}={value!r}): sizes, device and layout are those of data; "
                f"leave {name}= away and override the attributes in the class"
            )
    leaf = HOOKS.value_type(data.raw, data.keys & ~(AUTOGRAD | OVERRIDE))
    leaf._dtype = data._dtype
    leaf._storage = storage_of(data)
    leaf = become(leaf, cls)
    if require_grad is not False:
        leaf.requires_grad = require_grad
    return leaf
