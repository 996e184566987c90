"""``Tensor``: what a user holds.

The operators' methods are installed from the table (:mod:`.methods`). What is not an operator is
written in the other bases of this class, a file per subject: details, gradients, conversions,
protocols of Python. Here is how tensors and their subclasses are made.
"""

from __future__ import annotations

from typing import Any, Self

from coredispatch.frontend.subclasses import as_subclass, declare, fill, make_subclass
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.frontend.tensor_conversions import TensorConversions
from coredispatch.frontend.tensor_gradients import TensorGradients
from coredispatch.frontend.tensor_properties import TensorProperties
from coredispatch.frontend.tensor_protocols import TensorProtocols
from coredispatch.frontend.torch_dispatch import disabled_torch_dispatch, make_wrapper_subclass
from coredispatch.frontend.torch_function import default_torch_function
from coredispatch.registry.around.loader import plugins
from coredispatch.registry.wiring import HOOKS

__all__ = ["Tensor", "is_tensor"]


# TensorBase stands first: a call asks several times whether something is a Value, and each class
# between Tensor and Value costs it 1 ns each time.
class Tensor(TensorBase, TensorProtocols, TensorConversions, TensorGradients, TensorProperties):
    """A multi-dimensional array of one dtype on one device.

    Make one with :func:`coredispatch.tensor`, ``zeros``, ``from_numpy`` and the like.
    """

    __array_priority__ = 1000
    __torch_function__ = classmethod(default_torch_function)
    __torch_dispatch__ = staticmethod(disabled_torch_dispatch)
    #: of a subclass: the keys its instances carry; whether they are made as ``Tensor(data)`` is
    _class_keys = 0
    _from_data = False
    _makes_itself = False

    def __new__(cls, *args: Any, **options: Any) -> Self:
        self = TensorBase.__new__(cls)
        if cls._from_data:
            fill(self, args, options)
        return self

    def __init__(self, raw: Any = None, keys: Any = None, *sizes: Any, **options: Any) -> None:
        if self._from_data:
            return
        # The framework says which keys; a user's Tensor(2, 3) and Tensor([1, 2]) do not.
        if type(keys) is int and type(raw) is not int and not sizes:
            TensorBase.__init__(self, raw, keys)
        else:
            given = tuple(arg for arg in (raw, keys, *sizes) if arg is not None)
            fill(self, given, options)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        declare(cls)

    as_subclass = as_subclass
    _make_subclass = staticmethod(make_subclass)
    _make_wrapper_subclass = staticmethod(make_wrapper_subclass)


def is_tensor(obj: Any) -> bool:
    """Whether ``obj`` is a :class:`Tensor`."""
    return isinstance(obj, Tensor)


HOOKS.value_type = Tensor


def _ask_plugins(self: Tensor, name: str) -> Any:
    """``__getattr__`` until the plugins are there: one of them may bring ``name`` as a method."""
    if not name.startswith("_"):
        plugins.discover()
        found = getattr(type(self), name, None)
        if found is not None:
            return found.__get__(self, type(self))
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _stop_asking() -> None:
    # The mere presence of __getattr__ costs every method call 0.1 us.
    del Tensor.__getattr__


Tensor.__getattr__ = _ask_plugins  # type: ignore[attr-defined]
plugins.discovered.append(_stop_asking)
