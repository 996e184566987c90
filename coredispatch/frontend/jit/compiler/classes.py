"""Scripted classes: their fields, and objects of them."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from coredispatch.frontend.jit.compiler.annotations import annotation_type, evaluated, names_for
from coredispatch.frontend.jit.compiler.types import ANY, Type
from coredispatch.frontend.jit.compiler.values import Val
from coredispatch.graph.objects import ObjectType

__all__ = ["check_class", "fields_of", "forget", "new_object"]

_FIELDS: dict[type, dict[str, Type]] = {}
_OBJECTS: dict[type, ObjectType] = {}


def fields_of(cls: type) -> dict[str, Type]:
    """The fields of a class: what it annotates, and what its ``__init__`` assigns to ``self``."""
    found = _FIELDS.get(cls)
    if found is None:
        found = _FIELDS[cls] = {}
        for name, annotation in getattr(cls, "__annotations__", {}).items():
            found[name] = _annotated(cls, annotation)
        init = vars(cls).get("__init__")
        if inspect.isfunction(init) and not dataclasses.is_dataclass(cls):
            _from_init(cls, init, found)
    return found


def _annotated(cls: type, annotation: Any) -> Type:
    if not isinstance(annotation, str):
        return annotation_type(annotation)
    functions = [f for f in vars(cls).values() if inspect.isfunction(f)]
    scope = names_for(functions[0], cls) if functions else vars(inspect.getmodule(cls))
    try:
        return evaluated(annotation, dict(scope))
    except Exception:
        return ANY


def _from_init(cls: type, init: Any, found: dict[str, Type]) -> None:
    """Compile ``__init__`` on the side, and note the type of each first assignment."""
    from coredispatch.frontend.jit.compiler.programs import Program, parameter_values

    class Look(Program):
        def set_field(self, owner: Val, name: str, value: Any) -> None:
            if owner.type.python is cls and name not in found:
                found[name] = self.type_of(value)
            super().set_field(owner, name, value)

    program = Look(init, cls)
    owner = Val(program.block.place("self"), Type("Class", python=cls))
    given = parameter_values(program, init, 1, owner=cls)
    program.inline(init, [owner, *given], {}, owner=cls)


def check_class(program: Any, cls: type) -> None:
    """Refuse classes that cannot be compiled."""
    if any(base not in (object, cls) for base in cls.__mro__):
        raise program.unsupported(f"class {cls.__name__!r} inherits: scripted classes cannot", None)


def new_object(program: Any, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """``cls(*args)``: an empty object, then the body of ``__init__``."""
    if cls not in _OBJECTS:
        _OBJECTS[cls] = ObjectType(cls.__name__, cls)
    made = program.call(_OBJECTS[cls], kind=Type("Class", python=cls))
    if dataclasses.is_dataclass(cls):
        _fill(program, cls, made, args, kwargs)
        return made
    init = vars(cls).get("__init__")
    if init is None:
        if args or kwargs:
            raise program.error(f"{cls.__name__}() takes no arguments")
        return made
    program.inline(init, [made, *args], kwargs, owner=cls)
    return made


def _fill(program: Any, cls: Any, made: Val, args: list[Any], kwargs: dict[str, Any]) -> None:
    """What the generated ``__init__`` of a dataclass does."""
    try:
        bound = inspect.signature(cls).bind(*args, **kwargs)
    except TypeError as error:
        raise program.error(f"{cls.__name__}: {error}") from None
    for field in dataclasses.fields(cls):
        if field.name in bound.arguments:
            value = bound.arguments[field.name]
        elif field.default is not dataclasses.MISSING:
            value = program.from_python(field.default)
        elif field.default_factory in (list, dict):
            kind = fields_of(cls).get(field.name, ANY)
            value = program.call(field.default_factory, field.default_factory(), kind=kind)
        else:
            raise program.unsupported(f"the default_factory of {field.name!r} isn't supported")
        program.set_field(made, field.name, program.plain(value))
    post = vars(cls).get("__post_init__")
    if post is not None:
        program.inline(post, [made], {}, owner=cls)


def forget(cls: type) -> None:
    """Read a class anew: its fields were looked up before it was complete."""
    _FIELDS.pop(cls, None)
