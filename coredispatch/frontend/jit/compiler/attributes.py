"""``a.b``: members of modules, fields of objects, properties and methods of values."""

from __future__ import annotations

import ast
import enum
import inspect
from typing import Any

from coredispatch.frontend.jit.compiler.annotations import (
    annotation_type,
    evaluated,
    names_for,
    type_of_value,
)
from coredispatch.frontend.jit.compiler.expressions import Expressions
from coredispatch.frontend.jit.compiler.results import RESULT_FIELDS
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    DEVICE,
    DTYPE,
    FLOAT,
    INT,
    NONE,
    STR,
    TENSOR,
    Type,
    fits,
    list_of,
    optional,
)
from coredispatch.frontend.jit.compiler.values import Bound, Items, ModuleRef, Sizes, Static, Val
from coredispatch.frontend.jit.markers import Attribute
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.ownership import of_library
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph.objects import get_field, set_field
from coredispatch.plugin import Device, DType

__all__ = ["Attributes", "constant_names", "declared_types", "holds"]

#: properties of tensors and their types
_PROPERTIES: dict[str, Type] = {
    "shape": list_of(INT),
    "dtype": DTYPE,
    "device": DEVICE,
    "ndim": INT,
    "requires_grad": BOOL,
    "is_leaf": BOOL,
    "is_cuda": BOOL,
    "is_cpu": BOOL,
    "is_meta": BOOL,
    "is_sparse": BOOL,
    "is_quantized": BOOL,
    "itemsize": INT,
    "nbytes": INT,
    "grad": optional(TENSOR),
    "layout": ANY,
    **dict.fromkeys(("T", "mT", "H", "mH", "real", "imag", "data"), TENSOR),
}
_METHODS = {
    "str": str,
    "List": list,
    "Dict": dict,
    "int": int,
    "float": float,
    "complex": complex,
}
_OTHER = {"Device": {"type": STR, "index": optional(INT)}, "dtype": {}}


class Attributes(Expressions):
    """What stands behind a dot."""

    inline: Any  # of Calls
    library: bool  # whether the program is the forward of a library module
    own: Any  # of the program: notes that a module has an attribute of a type

    def expr_Attribute(self, node: ast.Attribute) -> Any:
        """``value.name``."""
        value = self.expr(node.value)
        self.at = node
        return self.attribute(value, node.attr)

    def attribute(self, value: Any, name: str, default: Any = None) -> Any:
        """The attribute of anything."""
        if isinstance(value, ModuleRef):
            return self.member(value, name)
        if isinstance(value, Static):
            return self._static(value.value, name)
        if isinstance(value, Items):
            raise self.error(f"'{self.type_of(value)}' object has no attribute or method '{name}'")
        if not isinstance(value, Val):
            raise self.no_value(value)
        return self._of_value(value, name)

    def _static(self, value: Any, name: str) -> Any:
        if isinstance(value, type) and issubclass(value, enum.Enum) and name in value.__members__:
            return self.from_python(value.__members__[name])
        try:
            found = getattr(value, name)
        except AttributeError:
            shown = getattr(value, "__name__", type(value).__name__)
            raise self.error(f"{shown!r} has no attribute {name!r}") from None
        if isinstance(found, Tensor):
            raise self.no_value(Static(found))
        return self.from_python(found)

    # -- values ----------------------------------------------------------------------------------

    def _of_value(self, value: Val, name: str) -> Any:
        kind = value.type
        if kind == TENSOR:
            if name == "shape":
                return Sizes(self.call(getattr, value, name).arg, list_of(INT))
            if name in _PROPERTIES:
                return self.call(getattr, value, name, kind=_PROPERTIES[name])
            if callable(getattr(Tensor, name, None)) and not name.startswith("__"):
                return Bound(value, name)
        elif kind == ANY:
            return Bound(value, name)
        elif kind.name == "Tuple" and name in RESULT_FIELDS:
            return self.call(getattr, value, name, kind=TENSOR)
        elif kind.name == "NamedTuple":
            if name in kind.fields:
                inner = kind.args[kind.fields.index(name)]
                return self.element(value, kind.fields.index(name), inner)
            if name in ("_asdict", "_replace"):
                raise self.unsupported(f"{name} of a named tuple isn't supported")
        elif kind.name == "Class":
            return self._of_object(value, name)
        elif kind.name == "Enum" and name in ("value", "name"):
            if value.constant:
                return self.from_python(getattr(value.arg, name))
            inner = STR if name == "name" else type_of_value(next(iter(kind.python)).value)
            return self.call(getattr, value, name, kind=inner)
        elif kind.name == "Future" and name in ("wait", "then", "done", "value"):
            return Bound(value, name)
        elif kind in (INT, FLOAT) and name in ("real", "imag"):
            return self.call(getattr, value, name, kind=kind)
        elif name in _OTHER.get(kind.name, {}):
            if value.constant:
                return self.from_python(getattr(value.arg, name))
            return self.call(getattr, value, name, kind=_OTHER[kind.name][name])
        elif kind == DTYPE and hasattr(DType, name):
            return (
                Bound(value, name)
                if callable(getattr(DType, name))
                else self.call(getattr, value, name, kind=ANY)
            )
        elif callable(getattr(_METHODS.get(kind.name), name, None)) and not name.startswith("__"):
            return Bound(value, name)
        raise self.error(
            f"'{kind}' object has no attribute or method '{name}'",
            fix="check for None first: 'if x is not None'" if kind.name == "Optional" else "",
        )

    def _of_object(self, value: Val, name: str) -> Any:
        cls = value.type.python
        found = inspect.getattr_static(cls, name, None)
        if isinstance(found, property):
            return self.inline(found.fget, [value], {}, owner=cls)
        if isinstance(found, staticmethod):
            return Static(found.__func__)
        if inspect.isfunction(found):
            return Bound(value, name, found)
        kind = self.field_type(cls, name)
        if kind is None:
            if found is not None:
                return self.from_python(found)
            raise self.error(f"'{cls.__name__}' object has no attribute or method '{name}'")
        return self.call(get_field, value, name, kind=kind)

    def field_type(self, cls: type, name: str) -> Type | None:
        """The type of a field of a scripted class, None where it has none of this name."""
        from coredispatch.frontend.jit.compiler.classes import fields_of

        return fields_of(cls).get(name)

    def set_field(self, owner: Val, name: str, value: Any) -> None:
        """``object.name = value``."""
        if owner.type.name == "Class":
            cls = owner.type.python
            found = inspect.getattr_static(cls, name, None)
            if isinstance(found, property):
                self.inline(found.fset, [owner, value], {}, owner=cls)
                return
            kind = self.field_type(cls, name)
            if kind is None:
                raise self.error(
                    f"Tried to set nonexistent attribute: {name}. Did you forget to initialize it "
                    "in __init__()?"
                )
            if not fits(self.type_of(value), kind):
                raise self.error(
                    f"Wrong type for attribute assignment. Expected {kind} but got "
                    f"{self.type_of(value)}"
                )
        self.call(set_field, owner, name, value, kind=NONE)

    # -- modules ---------------------------------------------------------------------------------

    def member(self, ref: ModuleRef, name: str) -> Any:
        """An attribute of a module: parameter, buffer, submodule, constant, attribute, method."""
        module = ref.module
        members = vars(module)
        if name in module._parameters or name in module._buffers:
            if members.get(name) is None:
                return Val(None, NONE)
            return self.emit("get_attr", ref.below(name), kind=TENSOR)
        if name in module._modules:
            child = members.get(name)
            return Val(None, NONE) if child is None else ModuleRef(ref.below(name), child)
        if name == "training":
            if self.library:
                return Val(module.training, BOOL)
            return self.emit("get_attr", ref.below(name), kind=BOOL)
        if name in members.get("_methods", ()):
            return Bound(ref, name)
        if name in members:
            return self._stored(ref, name, members[name])
        return self._of_class(ref, name)

    def _stored(self, ref: ModuleRef, name: str, value: Any) -> Any:
        module = ref.module
        if isinstance(value, Attribute):
            value = value.value
        if name in constant_names(type(module)):
            return self._constant(value)
        if self.library:
            return self._library_constant(value)
        kind = self.attribute_type(module, name)
        if kind is None:
            if callable(value) or inspect.ismodule(value):
                return Static(value)
            raise self.error(
                f"Module '{type(module).__name__}' has no attribute '{name}' (This attribute "
                f"exists on the Python module, but we failed to convert Python type: "
                f"'{type(value).__name__}' to a TorchScript type.)"
            )
        if kind == NONE:
            return Val(None, NONE)
        self.own(ref, name, kind)
        return self.emit("get_attr", ref.below(name), kind=kind)

    def _library_constant(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return Items(tuple(map(self._library_constant, value)))
        return self.from_python(value)

    def _constant(self, value: Any) -> Any:
        if isinstance(value, list):
            return self.as_list(list(value), type_of_value(value).args[0])
        if isinstance(value, (dict, Tensor)):
            raise self.error(f"{type(value).__name__} cannot be a Final constant")
        return self.from_python(value)

    def attribute_type(self, module: Module, name: str) -> Type | None:
        """The type of a plain attribute, None for what a program cannot have."""
        declared = declared_types(type(module)).get(name)
        value = vars(module).get(name)
        if isinstance(value, Attribute):
            return annotation_type(value.type)
        if value is None and declared is not None and "Module" in str(declared):
            return NONE  # a submodule that is not there
        if declared is not None and declared != ANY:
            return declared
        return type_of_value(value) if holds(value) else None

    def _of_class(self, ref: ModuleRef, name: str) -> Any:
        cls = type(ref.module)
        found = inspect.getattr_static(cls, name, None)
        if isinstance(found, property):
            return self.inline(found.fget, [ref], {}, owner=cls)
        if isinstance(found, staticmethod):
            return Static(found.__func__)
        if isinstance(found, classmethod):
            raise self.unsupported("class methods of modules aren't supported")
        if inspect.isfunction(found) or hasattr(found, "__wrapped__"):
            return Bound(ref, name, found)
        if name in ("items", "values", "keys", "forward"):
            return Bound(ref, name, found)
        if callable(found):
            return Static(found)
        if hasattr(cls, name):
            return self.from_python(getattr(cls, name))
        raise self.error(f"Module '{cls.__name__}' has no attribute '{name}'")

    def set_member(self, ref: ModuleRef, name: str, value: Any) -> None:
        """``self.name = value``: the module has to have the attribute."""
        module = ref.module
        if name in module._parameters or name in module._buffers:
            kind: Type | None = TENSOR
        elif name == "training":
            kind = BOOL
        elif name in constant_names(type(module)):
            raise self.error(f"Can't set attribute: {name!r} is Final")
        elif name in module._modules:
            raise self.error(f"Can't set attribute: {name!r} is a module")
        elif name in vars(module):
            kind = self.attribute_type(module, name)
        else:
            setter = inspect.getattr_static(type(module), name, None)
            if isinstance(setter, property):
                self.inline(setter.fset, [ref, value], {}, owner=type(module))
                return
            raise self.error(
                f"Tried to set nonexistent attribute: {name}. Did you forget to initialize it in "
                "__init__()?"
            )
        if kind is None or not fits(self.type_of(value), kind):
            raise self.error(
                f"Wrong type for attribute assignment. Expected {kind} but got "
                f"{self.type_of(value)}"
            )
        if name in vars(module) and name not in module._parameters and name not in module._buffers:
            self.own(ref, name, kind)
        self.emit("set_attr", ref.below(name), (value,), kind=NONE)


def holds(value: Any) -> bool:
    """Whether a program can have this Python value as an attribute."""
    if value is None or isinstance(
        value, (bool, int, float, str, complex, Tensor, Device, DType, enum.Enum)
    ):
        return True
    if isinstance(value, (tuple, list)):
        return all(map(holds, value))
    if isinstance(value, dict):
        return all(isinstance(k, (str, int, float, bool)) and holds(v) for k, v in value.items())
    return False


def constant_names(cls: type) -> set[str]:
    """The attributes that a module class declares as constants: ``Final``, ``__constants__``."""
    found = set(getattr(cls, "__constants__", ()))
    for base in cls.__mro__:
        for name, annotation in vars(base).get("__annotations__", {}).items():
            text = annotation if isinstance(annotation, str) else repr(annotation)
            if text.rpartition("Final")[0][-1:] in ("", ".") and "Final" in text:
                found.add(name)
    return found


def declared_types(cls: type) -> dict[str, Type]:
    """The annotated attributes of a module class, and of its ``__init__``'s ``self.x: T = ...``."""
    cached: dict[str, Type] | None = _DECLARED.get(cls)
    if cached is not None:
        return cached
    found: dict[str, Type] = {}
    for base in reversed(cls.__mro__):
        if of_library(base) or base is object:
            continue
        names = vars(inspect.getmodule(base) or object())
        init = vars(base).get("__init__")
        scope = names_for(init, base) if inspect.isfunction(init) else dict(names)
        for name, annotation in vars(base).get("__annotations__", {}).items():
            try:
                found[name] = (
                    evaluated(annotation, scope)
                    if isinstance(annotation, str)
                    else annotation_type(annotation)
                )
            except Exception:  # not a type of a program; the value tells
                continue
        if inspect.isfunction(init):
            found.update(_init_annotations(init, scope))
    _DECLARED[cls] = found
    return found


_DECLARED: dict[type, dict[str, Type]] = {}


def _init_annotations(init: Any, scope: dict[str, Any]) -> dict[str, Type]:
    from coredispatch.frontend.jit.compiler.source import source_of

    found = {}
    try:
        tree = source_of(init).tree
    except Exception:  # no source: no annotations
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            try:
                found[node.target.attr] = evaluated(node.annotation, scope)
            except Exception:
                continue
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func)
            target = node.targets[0]
            if called.endswith("jit.annotate") or called == "annotate":
                if isinstance(target, ast.Attribute):
                    found[target.attr] = evaluated(node.value.args[0], scope)
    return found
