"""The layers of ``__torch_function__``: calls go to the class of an argument before any kernel.

``torch_function`` is carried by tensors of a subclass, and brought by foreign objects whose class
has the method: where neither is among the arguments, no call knows of it. ``torch_function_mode``
is switched on by :class:`~coredispatch.overrides.TorchFunctionMode`, and sees every call inside.
Both lie above all other layers, so that what they see is what the program wrote.
"""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import Any

from coredispatch.frontend.stacked_modes import ModeStack
from coredispatch.plugin import Layer, LayerEntry, Mode, Registrar, Switch, Value, hookimpl, key_bit
from coredispatch.registry.model.schema import REQUIRED
from coredispatch.registry.wiring import HOOKS

__all__ = [
    "MODE",
    "NOT_CONVERTED",
    "OVERRIDE",
    "FunctionModes",
    "called_by",
    "as_written",
    "become",
    "convert",
    "coredispatch_register",
    "default_torch_function",
    "disabled_torch_function",
    "flat",
    "is_default",
    "overridden",
    "public_function",
    "without_overrides",
]

OVERRIDE, MODE = key_bit("torch_function"), key_bit("torch_function_mode")


#: what a tensor is, besides its class and its attributes
_FIELDS = ("raw", "keys", "_dtype", "_storage", "_view", "_node", "_output_nr", "_grad")

#: getters whose results keep their class: a gradient, and what a view is a view of
NOT_CONVERTED: set[Any] = set()


class without_overrides(Mode):
    """``__torch_function__`` of classes is not asked inside; modes are."""

    switch = Switch(off=("torch_function",))


class FunctionModes(ModeStack):
    """The stack of :class:`TorchFunctionMode` that is in force, innermost last."""

    filled, empty = Switch(on=("torch_function_mode",)), Switch(released=("torch_function_mode",))


def disabled_torch_function(
    func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """The ``__torch_function__`` of classes that take no part: results are plain tensors."""
    with without_overrides():
        return func(*args, **(kwargs or {}))


def default_torch_function(
    cls: type,
    func: Any,
    types: Any,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """What ``Tensor.__torch_function__`` does: the call, and its results in the subclass."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with without_overrides():
        result = func(*args, **(kwargs or {}))
    return result if func in NOT_CONVERTED else convert(result, cls)


def convert(result: Any, cls: type) -> Any:
    """``result`` with its tensors in class ``cls``; what is of that class already stays."""
    if cls is HOOKS.value_type:
        return result
    if isinstance(result, Value):
        return result if isinstance(result, cls) else result.as_subclass(cls)  # type: ignore[attr-defined]
    if isinstance(result, (tuple, list)):
        items = [convert(item, cls) for item in result]
        make = getattr(type(result), "_make", type(result))
        return make(items)
    return result


def overridden(items: Any) -> list[Any]:
    """The arguments whose class takes part, one of each class, subclasses before their bases."""
    found: list[Any] = []
    for item in items:
        kind = type(item)
        method = getattr(kind, "__torch_function__", None)
        if method is None or kind is HOOKS.value_type or method is disabled_torch_function:
            continue
        if any(type(other) is kind for other in found):
            continue
        place = len(found)
        for index, other in enumerate(found):
            if issubclass(kind, type(other)):
                place = index
                break
        found.insert(place, item)
    return found


def flat(args: Any) -> list[Any]:
    """The arguments, and what lists and tuples among them hold."""
    found: list[Any] = []
    for argument in args:
        if isinstance(argument, (list, tuple)):
            found += flat(argument)
        else:
            found.append(argument)
    return found


def called_by(
    func: Any, objects: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> Any:
    """The first answer of the classes of ``objects`` to ``func(*args, **kwargs)``.

    Raises TypeError where all reject.
    """
    types = tuple([type(item) for item in objects])
    for item in objects:
        result = type(item).__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"no implementation found for {name!r} on types that implement __torch_function__: "
        f"{list(types)}"
    )


def as_written(
    op: Any, args: tuple[Any, ...], function: Any = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Complete arguments without those that have their default, as a user would write them.

    A ``function`` in front of the operator may have its parameters in another order: what has a
    default is then given by name.
    """
    # Compiled, some functions in front of operators are objects of another type.
    in_front = isinstance(function, FunctionType) or hasattr(function, "spells")
    named = in_front and not hasattr(function, "operator")
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    skipped = False
    for param, argument in zip(op.schema.params, args, strict=True):
        default = param.default
        plain = type(argument) in (int, float, bool, str, tuple)
        if argument is default or (
            plain and type(argument) is type(default) and argument == default
        ):
            skipped = True
        elif skipped or param.keyword_only or (named and default is not REQUIRED):
            keywords[param.name] = argument
        else:
            positional.append(argument)
    return tuple(positional), keywords


#: operators behind methods of another name, which take the same arguments
_METHODS = {
    "getitem": "__getitem__",
    "index_put_": "__setitem__",
    "to_dtype": "to",
    "to_device": "to",
}


def public_function(op: Any) -> Any:
    """What a program calls to come to operator ``op``: ``cd.add`` for ``add``."""
    import coredispatch

    name = op.name.removesuffix("_dim")  # an overload of its own, called by the shorter name
    if op.name in _METHODS:
        return getattr(HOOKS.value_type, _METHODS[op.name])
    found = vars(coredispatch).get(name)
    if found is None and "nn.functional" in op.namespaces:
        from coredispatch.frontend.nn import functional

        return vars(functional).get(name, op)  # where arguments of older spellings are read
    if found is op or getattr(found, "operator", None) is op:
        return found
    if found is not None and name != op.name:
        return found
    return getattr(HOOKS.value_type, op.name, op)  # only tensors have it: ``Tensor.add_``


class OverrideEntry(LayerEntry):
    """Asks the classes of the arguments."""

    def __init__(self, op: Any, *rest: Any) -> None:
        super().__init__(op, *rest)
        self.function = public_function(op)

    def call(self, args: tuple[Any, ...]) -> Any:
        objects = overridden(flat(args))
        if not objects:  # a plain tensor that was made from one of a subclass
            return self.below(args)
        if all(is_default(type(item)) for item in objects):
            cls = type(objects[0])
            if all(issubclass(cls, type(item)) for item in objects):
                return self._kept(self.below(args), args, cls)
        return called_by(
            self.function, objects, *as_written(self.op, args, self.function), self.op.name
        )

    def _kept(self, result: Any, args: tuple[Any, ...], cls: type) -> Any:
        """:func:`convert`, in place where the result is a new tensor: no history is added."""
        if isinstance(result, Value):
            if type(result) is HOOKS.value_type and all(result is not item for item in flat(args)):
                return become(result, cls)
            return convert(result, cls)
        if isinstance(result, (tuple, list)):
            for item in result:
                if isinstance(item, Value):
                    self._kept(item, args, cls)
            return convert(result, cls)
        return result


def is_default(kind: type) -> bool:
    method = getattr(kind, "__torch_function__", None)
    return getattr(method, "__func__", None) is default_torch_function


def become(tensor: Any, cls: Any) -> Any:
    """Give a tensor that nobody else holds the class ``cls``, and the keys of its instances."""
    try:
        tensor.__class__ = cls
        made = tensor
    except TypeError:  # the class has __slots__: what the tensor is goes to a new object
        made = cls.__mro__[cls.__mro__.index(HOOKS.value_type) + 1].__new__(cls)
        for name in _FIELDS:
            setattr(made, name, getattr(tensor, name))
        if made._view is not None:
            made._storage.aliases.append(weakref.ref(made))
    made.keys |= cls._class_keys
    return made


def overload(op: Any, keys: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that only an overload of ``op`` takes, whose keys are ``keys``, as it was written.

    NotImplemented where nobody overrides it.
    """
    function = public_function(op)
    stack = FunctionModes.current() if keys & MODE else ()
    objects = overridden(flat((*args, *kwargs.values()))) if keys & OVERRIDE else []
    if stack:
        types = tuple([type(item) for item in objects])
        with FunctionModes(stack[:-1]):
            return stack[-1].__torch_function__(function, types, args, kwargs)
    if not objects:
        return NotImplemented
    return called_by(function, objects, args, kwargs, op.name)


class ModeEntry(LayerEntry):
    """Hands the call to the innermost mode, which runs without itself."""

    def __init__(self, op: Any, *rest: Any) -> None:
        super().__init__(op, *rest)
        self.function = public_function(op)

    def call(self, args: tuple[Any, ...]) -> Any:
        stack = FunctionModes.current()
        if not stack:
            return self.below(args)
        types = tuple([type(item) for item in overridden(flat(args))])
        given, keywords = as_written(self.op, args, self.function)
        with FunctionModes(stack[:-1]):
            result = stack[-1].__torch_function__(self.function, types, given, keywords)
        if result is NotImplemented:
            raise TypeError(
                f"no implementation found for {self.op.name!r}: the mode "
                f"{type(stack[-1]).__name__} returned NotImplemented"
            )
        return result


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register both layers."""
    registrar.layer(Layer("torch_function", generic=OverrideEntry, alone=True, above=("*",)))
    registrar.layer(
        Layer("torch_function_mode", generic=ModeEntry, alone=True, above=("*", "torch_function"))
    )


HOOKS.foreign = lambda kind: OVERRIDE if hasattr(kind, "__torch_function__") else 0
HOOKS.override = overload
HOOKS.overriding = OVERRIDE | MODE
