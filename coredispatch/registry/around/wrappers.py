"""Values that stand for others: what a layer puts in a tensor's place.

A wrapper is the raw data of a tensor that carries the key of its layer, so that the layer sees
every call it takes part in. It carries the key ``wrapped`` as well, the lowest of all layers:
whatever the layer lets through unopened ends there, in an error that names the layer, and never
in a kernel that would take the wrapper for an array.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from coredispatch.registry.around.checks import describe_call
from coredispatch.registry.around.hookspecs import hookimpl
from coredispatch.registry.dispatch.boxed_kernels import LayerEntry
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Layer
from coredispatch.registry.model.errors import MissingKernel, OpError, RegistrationError
from coredispatch.registry.model.value import Value
from coredispatch.registry.wiring import HOOKS

__all__ = ["Wrapper", "coredispatch_register"]

W = TypeVar("W", bound="Wrapper")
_WRAPPED = TABLE.bit("wrapped")


class Wrapper:
    """What a layer puts in a tensor's place. Subclasses name the layer::

        class Batched(Wrapper):
            layer = "batch"

    ``Batched.wrap(tensor)`` is a tensor on the device of ``tensor`` that carries the layer's key,
    ``Batched.of(x)`` the wrapper inside it, and ``Batched.of(x).value`` the tensor again. The
    layer's kernels open what comes in, and wrap what goes out. A layer declared with
    ``wraps=True`` decomposes the composites for which it has no kernel. What asks for the data
    themselves (``stride()``, saving, and ``numpy()``, ``item()`` unless the layer has a kernel for
    ``to_host``) is refused.

    What else is to be known of it is given by name, ``Batched.wrap(tensor, level=1)``, and kept
    as attributes. ``shape`` and ``dtype`` are those of the tensor inside: override them where the
    program is to see others.
    """

    layer: ClassVar[str] = ""

    def __init__(self, value: Value, **details: Any) -> None:
        self.value = value
        self.__dict__.update(details)

    @property
    def shape(self) -> Any:
        """The shape that the program sees, a tuple of int."""
        return tuple(self.value.raw.shape)

    @property
    def dtype(self) -> Any:
        """The element type that the program sees."""
        return self.value.raw.dtype

    def describe(self) -> str:
        """What ``repr`` of the tensor shows between its parentheses."""
        return f"{type(self).__name__}({self.value!r})"

    def printed(self) -> str | None:
        """The whole ``repr`` of the tensor, None for the usual one around :meth:`describe`."""
        return None

    def own_strides(self) -> tuple[int, ...] | None:
        """What ``stride()`` says; refused unless a subclass knows."""
        raise OpError(
            f"a tensor that the layer {self.layer!r} wraps has no data of its own, and no strides",
            fix="use it in operators only, or ask the tensor inside: Wrapper.of(x).value",
        )

    def elements(self) -> Value | None:
        """The tensor whose elements together are those that this one stands for, None if there is
        no such tensor. Operators that check their arguments' values look at it."""
        return None

    def like(self, made: Any) -> Any:
        """What ``new_zeros`` and its kind give, from the tensor ``made`` of the shape asked for."""
        return made

    def __repr__(self) -> str:
        return self.describe()

    @classmethod
    def wrap(cls, value: Value, **details: Any) -> Any:
        """``cls(value, **details)`` as a tensor with the device and the layout of ``value``."""
        order = TABLE.snapshot.order
        key = order.by_name.get(cls.layer)
        if key is None or key.kind != "layer":
            HOOKS.load_plugins()
            order = TABLE.snapshot.order
            key = order.by_name.get(cls.layer)
        if key is None or key.kind != "layer":
            raise RegistrationError(
                f"{cls.__name__}.layer is {cls.layer!r}, which is no layer",
                fix="name the layer that opens these wrappers, and load its plugin",
            )
        if not isinstance(value, Value):
            raise OpError(
                f"{cls.__name__}.wrap() takes a tensor, not {type(value).__name__}",
                fix="pass cd.tensor(...)",
            )
        keys = value.keys & (order.backend_bits | order.layout_bits)
        return HOOKS.value_type(cls(value, **details), keys | key.bit | _WRAPPED)

    @classmethod
    def of(cls: type[W], value: Any) -> W | None:
        """The wrapper of this class inside the tensor ``value``, or None."""
        if isinstance(value, Value) and isinstance(value.raw, cls):
            return value.raw
        return None


def refuse(call: LayerEntry, args: tuple[Any, ...]) -> Any:
    """Where wrappers end that their layers have not opened."""
    op, wrappers = call.record, _wrappers(args)
    layer = wrappers[0].layer
    if TABLE.bit(layer) & call.mask:
        error = OpError(
            f"the layer {layer!r} passed its own wrapper on to the kernels of {op.name!r}",
            fix=f"open it in the layer's kernel: pass on {type(wrappers[0]).__name__}.of(x).value",
        )
    else:
        error = MissingKernel(
            f"the layer {layer!r} wraps tensors and has no kernel for {op.name!r}",
            fix=f"declare Layer({layer!r}, wraps=True, ...), or give it a generic kernel",
        )
    error.call = describe_call(op, args)
    raise error


def _wrappers(args: Any) -> list[Wrapper]:
    found: list[Wrapper] = []
    for argument in args:
        if isinstance(argument, (list, tuple)):
            found += _wrappers(argument)
        else:
            wrapper = Wrapper.of(argument)
            found += [] if wrapper is None else [wrapper]
    return found


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``wrapped``, below every other."""
    registrar.layer(Layer("wrapped", generic=refuse, below=("*",)))
