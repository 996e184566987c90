"""The layers of ``__torch_dispatch__``: calls below autograd go to a class, or to a mode.

``torch_dispatch`` is carried by instances of subclasses of Tensor that define the method;
``torch_dispatch_mode`` is switched on by ``TorchDispatchMode``. What a handler calls begins below
autograd again, so that it is not recorded twice.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.stacked_modes import ModeStack
from coredispatch.frontend.torch_function import as_written, become, flat
from coredispatch.plugin import (
    Layer,
    LayerEntry,
    Mode,
    Registrar,
    Switch,
    Value,
    Wrapper,
    bump_version,
    hookimpl,
    key_bit,
)
from coredispatch.registry.dispatch.masks import call_masked
from coredispatch.registry.wiring import HOOKS

__all__ = [
    "DISPATCH",
    "DispatchModes",
    "SubclassData",
    "coredispatch_register",
    "disabled_torch_dispatch",
    "make_wrapper_subclass",
    "without_dispatch",
    "in_its_class",
]

DISPATCH = key_bit("torch_dispatch")
_WRAPPED = key_bit("wrapped")
_TENSOR_OVERLOADS = ("add", "sub", "mul", "div", "remainder", "floor_divide")


def disabled_torch_dispatch(
    func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """The ``__torch_dispatch__`` of classes that take no part."""
    with without_dispatch():
        return func(*args, **(kwargs or {}))


class without_dispatch(Mode):
    """Neither classes nor modes are asked inside."""

    switch = Switch(off=("torch_dispatch", "torch_dispatch_mode"))


class DispatchModes(ModeStack):
    """The stack of modes that is in force, innermost last."""

    filled, empty = Switch(on=("torch_dispatch_mode",)), Switch(released=("torch_dispatch_mode",))


class _Details:
    """What stands for the data of a wrapper subclass."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, device: Any, strides: Any) -> None:
        self.shape, self.dtype, self.device, self.strides = shape, dtype, device, strides
        self.raw = self


class SubclassData(Wrapper):
    """The raw data of a wrapper subclass: there are none, its class knows what it holds."""

    layer = "torch_dispatch"
    #: the class of its tensors, and their attributes
    kind: Any = None
    attributes: Any = None

    def describe(self) -> str:
        """What ``repr`` shows unless the class says something better."""
        return "..."


def make_wrapper_subclass(
    cls: Any,
    size: Any,
    strides: Any = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = "strided",
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **options: Any,
) -> Any:
    """``Tensor._make_wrapper_subclass``: an instance of ``cls`` with a size, a dtype and no data.

    Its operators go to ``cls.__torch_dispatch__``, below autograd. Raises RuntimeError for a class
    without that method.
    """
    if cls.__torch_dispatch__ is disabled_torch_dispatch:
        raise RuntimeError(f"{cls.__name__} must define __torch_dispatch__")
    from coredispatch.registry.model.device import Device, default_device
    from coredispatch.registry.model.dtypes import default_dtype

    place = default_device() if device is None else Device(device)
    details: Any = _Details(tuple(size), dtype or default_dtype(), place, strides)
    made = HOOKS.value_type(SubclassData(details), HOOKS.device_bit(place) | DISPATCH | _WRAPPED)
    made = become(made, cls)
    made.raw.kind, made.raw.attributes = cls, getattr(made, "__dict__", None)
    if requires_grad:
        made.requires_grad = True
    return made


def in_its_class(item: Any) -> Any:
    """A tensor that autograd made anew from what it saved, in the class it was of."""
    if isinstance(item, (list, tuple)):
        if any(isinstance(part, Value) for part in item):
            return type(item)([in_its_class(part) for part in item])
        return item
    raw = item.raw if isinstance(item, Value) else None
    if not isinstance(raw, SubclassData) or isinstance(item, raw.kind) or raw.attributes is None:
        return item
    found = become(item, raw.kind)
    found.__dict__.update(raw.attributes)
    return found


def overload_name(op: Any, args: tuple[Any, ...]) -> str:
    """What PyTorch calls the overload that takes these arguments, where that depends on them."""
    name = op.name.removesuffix("_")
    if name in ("sum", "mean") and len(args) > 1 and args[1] is not None:
        return "dim_IntList" if name == "sum" else "dim"
    params = op.schema.params
    if len(params) > 1 and params[1].is_tensor and params[1].scalar:
        number = not isinstance(args[1], Value)
        if name == "pow":
            return "Tensor_Scalar" if number else "Tensor_Tensor"
        return "Scalar" if number and name not in _TENSOR_OVERLOADS else "Tensor"
    return "default"


class _DispatchEntry(LayerEntry):
    """Both layers: finds who is asked, and calls it with what is above this layer masked."""

    def handled(self, handler: Any, types: tuple[type, ...], args: tuple[Any, ...]) -> Any:
        """What the handler makes of the call."""
        from coredispatch.frontend.library.overloads import BUILTIN, OpOverload

        op: Any = self.op
        namespace, _, name = op.name.rpartition("::")
        name, _, overload = name.partition(".")
        func = OpOverload(namespace or BUILTIN, name, overload or overload_name(op, args), op)
        given, keywords = as_written(op, args)
        result = call_masked(handler, (func, types, given, keywords), self.mask)
        if result is NotImplemented:
            raise TypeError(
                f"Multiple dispatch failed for '{func}'; all __torch_dispatch__ handlers returned "
                "NotImplemented"
            )
        return self.finished(result, args)

    def finished(self, result: Any, args: tuple[Any, ...]) -> Any:
        """An operator that writes returns what it wrote to, and has counted the write."""
        op: Any = self.op
        written = op.schema.written(args)
        for target in written:
            if isinstance(target.raw, SubclassData):
                bump_version(target)
        itself = [a.position for a in op.schema.aliases if a.itself]
        return args[itself[0]] if len(itself) == 1 and written else result


class SubclassEntry(_DispatchEntry):
    """Asks the class of the first argument that has the method, subclasses first."""

    def call(self, args: tuple[Any, ...]) -> Any:
        args = tuple([in_its_class(item) for item in args])
        kinds: list[Any] = []
        for item in flat(args):
            kind: Any = type(item)
            method = getattr(kind, "__torch_dispatch__", disabled_torch_dispatch)
            if method is disabled_torch_dispatch or kind in kinds:
                continue
            place = next((i for i, k in enumerate(kinds) if issubclass(kind, k)), len(kinds))
            kinds.insert(place, kind)
        if not kinds:  # a plain tensor that was made from one of a subclass
            return self.below(args)

        def handler(*call: Any) -> Any:
            for kind in kinds:
                result = kind.__torch_dispatch__(*call)
                if result is not NotImplemented:
                    return result
            return NotImplemented

        return self.handled(handler, tuple(kinds), args)


class ModeEntry(_DispatchEntry):
    """Hands the call to the innermost mode, which runs without itself."""

    def call(self, args: tuple[Any, ...]) -> Any:
        stack = DispatchModes.current()
        if not stack:
            return self.below(args)
        types = tuple({type(i) for i in flat(args) if isinstance(i, Value) and i.keys & DISPATCH})

        def handler(*call: Any) -> Any:
            with DispatchModes(stack[:-1]):
                return stack[-1].__torch_dispatch__(*call)

        return self.handled(handler, types, args)


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register both layers, below autograd."""
    above = ("autograd", "autocast", "inference", "transform")
    registrar.layer(
        Layer("torch_dispatch_mode", generic=ModeEntry, below=(*above, "inference_mode"))
    )
    registrar.layer(
        Layer(
            "torch_dispatch",
            generic=SubclassEntry,
            below=(*above, "inference_mode", "torch_dispatch_mode"),
        )
    )
