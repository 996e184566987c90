"""What the compiler knows by name: Python's functions, those of ``jit``, and classes."""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import typing
from typing import Any

from coredispatch.frontend.amp.autocast import autocast
from coredispatch.frontend.jit import markers, runtime
from coredispatch.frontend.jit.compiler.annotations import annotation_type, stored_type
from coredispatch.frontend.jit.compiler.classes import check_class, new_object
from coredispatch.frontend.jit.compiler.overloads import Overloads
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    NONE,
    STR,
    TENSOR,
    Type,
    fits,
    future,
    without_none,
)
from coredispatch.frontend.jit.compiler.values import (
    Bound,
    Items,
    ModuleRef,
    Sequence,
    Sizes,
    Static,
    Val,
)
from coredispatch.frontend.modes import enable_grad, no_grad, set_grad_enabled
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.ownership import of_library
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph.objects import NamedTupleType
from coredispatch.plugin import Device
from coredispatch.registry import TABLE

__all__ = ["Builtins"]


class Builtins(Overloads):
    """Calls that the compiler treats itself."""

    # -- calls whose arguments are no values ------------------------------------------------------

    def by_syntax(self, node: ast.Call, function: Any, hint: Type | None) -> Any:
        """``isinstance``, ``annotate``, ``super``, ``hasattr``: their arguments are no values."""
        fn = function.value if isinstance(function, Static) else None
        if fn is None:
            return NotImplemented
        if fn in (builtins.isinstance, markers.isinstance):
            return self._isinstance(node)
        if fn is markers.annotate or fn is typing.cast:
            return self._annotate(node)
        if fn is builtins.super:
            return self._super()
        if fn is builtins.hasattr:
            return self._hasattr(node)
        if fn is builtins.getattr:
            return self._getattr(node)
        if fn in (list, dict) and not node.args and not node.keywords:
            empty = ast.copy_location(
                ast.List([], ast.Load()) if fn is list else ast.Dict([], []), node
            )
            return self.hinted(empty, hint)
        if fn in (
            builtins.any,
            builtins.all,
            builtins.sum,
            builtins.min,
            builtins.max,
            list,
            tuple,
        ):
            generator = len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp)
            if generator and not self.library:
                raise self.unsupported("GeneratorExp aren't supported", node.args[0], kind=True)
        return NotImplemented

    def _isinstance(self, node: ast.Call) -> Any:
        if len(node.args) != 2:
            raise self.error("isinstance takes a value and a type")
        value = self.expr(node.args[0])
        wanted = self.class_types(node.args[1])
        self.at = node
        if isinstance(value, ModuleRef):
            classes = tuple(t.python for t in wanted if t.name == "Module")
            return Val(isinstance(value.module, classes), BOOL)
        if isinstance(value, Static):
            raise self.no_value(value)
        kind = self.type_of(value)
        if kind == ANY:
            return self._dynamic(value, wanted)
        parts = kind.args if kind.name == "Union" else (kind,)
        if kind.name == "Optional":
            inner = without_none(kind)
            parts = (*(inner.args if inner.name == "Union" else (inner,)), NONE)
        hits = [any(_instance(part, one) for one in wanted) for part in parts]
        if all(hits) or not any(hits):
            return Val(all(hits), BOOL)
        return self._dynamic(value, wanted)

    def _dynamic(self, value: Any, wanted: tuple[Type, ...]) -> Any:
        found: Any = None
        for one in wanted:
            if one.name in ("Class", "Enum", "Module", "NamedTuple"):
                raise self.unsupported(f"isinstance of {one} cannot be decided while compiling")
            test = self.call(runtime.is_of_type, value, stored_type(one), kind=BOOL)
            if found is None:
                found = test
            else:

                def last(test: Any = test) -> Any:
                    return test

                found = self.either(self.arg_of(found), lambda: Val(True, BOOL), last)
        return found

    def _annotate(self, node: ast.Call) -> Any:
        if len(node.args) != 2:
            raise self.error("annotate takes a type and a value")
        kind = self.annotation(node.args[0])
        value = self.hinted(node.args[1], kind)
        self.at = node
        return self.typed(value, kind)

    def _super(self) -> Any:
        fn = self.frame.function
        owner = self.frame.names.get("__class__")
        first = next(iter(inspect.signature(fn).parameters), None) if fn is not None else None
        receiver = self.frame.env.get(first) if first else None
        if owner is None or not isinstance(receiver, ModuleRef):
            raise self.unsupported("super() is supported in methods of modules only")
        return Static(_Super(owner, receiver))

    def _hasattr(self, node: ast.Call) -> Any:
        value, name = self.expr(node.args[0]), self.expr(node.args[1])
        self.at = node
        known = isinstance(name, Val) and name.constant
        if not known:
            raise self.error("hasattr's second argument must be a string literal")
        if isinstance(value, ModuleRef):
            return Val(hasattr(value.module, name.arg), BOOL)
        if isinstance(value, Static):
            return Val(hasattr(value.value, name.arg), BOOL)
        if isinstance(value, Val) and value.type.name == "Class":
            cls = value.type.python
            found = self.field_type(cls, name.arg) is not None or hasattr(cls, name.arg)
            return Val(found, BOOL)
        return Val(hasattr(Tensor, name.arg), BOOL)

    def _getattr(self, node: ast.Call) -> Any:
        value, name = self.expr(node.args[0]), self.expr(node.args[1])
        self.at = node
        if not (isinstance(name, Val) and name.constant and name.type == STR):
            raise self.error("getattr's second argument must be a string literal")
        if len(node.args) == 3 and isinstance(value, ModuleRef):
            if not hasattr(value.module, name.arg):
                return self.expr(node.args[2])
        return self.attribute(value, name.arg)

    # -- functions of Python ----------------------------------------------------------------------

    def builtin(self, fn: Any) -> Any:
        """How the compiler treats a call of ``fn`` itself, None where it does not."""
        try:
            name = _OWN.get(fn)
        except TypeError:  # not hashable
            return None
        return None if name is None else getattr(self, name)

    def len_(self, value: Any) -> Any:
        """``len``, known for tuples and containers of modules."""
        if isinstance(value, Items):
            return Val(len(value.items), INT)
        if isinstance(value, ModuleRef):
            return Val(len(value.module._modules) or len(value.module._parameters), INT)
        if isinstance(value, Sequence):
            assert value.length is not None
            return value.length()
        kind = self.type_of(value)
        if kind.name in ("Tuple", "NamedTuple"):
            return Val(len(kind.args), INT)
        if kind.name in ("int", "float", "bool", "NoneType", "Optional", "Class"):
            raise self.error(f"object of type '{kind}' has no len()")
        return self.call(len, value, kind=INT)

    def int_(self, value: Any = None, base: Any = None) -> Any:
        """``int``."""
        if base is not None:
            return self.call(int, value, base, kind=INT)
        return self._number(int, value, INT)

    def float_(self, value: Any = None) -> Any:
        """``float``."""
        if isinstance(value, Val) and value.constant and value.type == STR:
            return self.from_python(float(value.arg))
        return self._number(float, value, FLOAT)

    def type_(self, value: Any) -> Any:
        """``type(module)``."""
        if isinstance(value, ModuleRef):
            return Static(type(value.module))
        raise self.unsupported("type() isn't supported")

    def bool_(self, value: Any = None) -> Any:
        """``bool``."""
        value = self.condition_of(value)
        return self._number(bool, value, BOOL)

    def _number(self, fn: Any, value: Any, kind: Type) -> Any:
        if value is None:
            return self.from_python(fn())
        if self.type_of(value) == kind:
            return value
        if isinstance(value, Val) and value.constant and value.type in (INT, FLOAT, BOOL):
            return self.from_python(fn(value.arg))
        found = self.type_of(value)
        if found.name in ("Optional", "List", "Dict", "Class"):
            raise self.error(f"{fn.__name__}() cannot convert {found}")
        if found == TENSOR and kind in (INT, FLOAT):  # eager warns where the history is lost
            value = self.method("item", value)
        return self.call(fn, value, kind=kind)

    def list_(self, value: Any) -> Any:
        """``list(xs)``."""
        if isinstance(value, Sizes):
            return self.plain(value)
        sequence = value if isinstance(value, (Sequence, Items)) else None
        if sequence is None and isinstance(value, Val):
            kind = value.type
            inner = kind.args[0] if kind.name in ("List", "Dict") else STR if kind == STR else ANY
            if kind == TENSOR:
                inner = TENSOR
            if kind.name in ("Tuple", "NamedTuple"):
                inner = kind.args[0] if len(set(kind.args)) == 1 else ANY
            return self.call(list, value, kind=Type("List", (inner,)))
        parts = self.sequence(value)
        if parts.items is not None:
            return self.list_literal(list(parts.items))
        kinds: list[Type] = []
        made = self.call(list, [])

        def add(turn: Val) -> None:
            assert parts.element is not None
            item = self.plain(parts.element(turn))
            kinds.append(self.type_of(item))
            self.method("append", made, item, kind=NONE)

        self._repeat(parts, add)
        return Val(made.arg, Type("List", (kinds[0],)))

    def tuple_(self, value: Any) -> Any:
        """``tuple(xs)`` of something whose length is known."""
        parts = self.sequence(value)
        if parts.items is None:
            return self.call(tuple, value)
        return Items(parts.items)

    def dict_(self, *args: Any, **kwargs: Any) -> Any:
        """``dict(d)``, ``dict(a=1)``."""
        if kwargs:
            kinds = [self.type_of(v) for v in kwargs.values()]
            return self.call(dict, kwargs, kind=Type("Dict", (STR, kinds[0])))
        (value,) = args
        kind = self.type_of(value)
        inner = kind.args[0] if kind.name == "List" else ANY
        if inner.name == "Tuple" and len(inner.args) == 2:
            kind = Type("Dict", inner.args)
        return self.call(dict, value, kind=kind if kind.name == "Dict" else ANY)

    def min_(self, *values: Any, **kwargs: Any) -> Any:
        """``min``."""
        return self._extreme(min, values)

    def max_(self, *values: Any, **kwargs: Any) -> Any:
        """``max``."""
        return self._extreme(max, values)

    def _extreme(self, fn: Any, values: tuple[Any, ...]) -> Any:
        if len(values) == 2 and TENSOR in map(self.type_of, values):
            return self.method("minimum" if fn is min else "maximum", *values, kind=TENSOR)
        folded = self._folded(fn, *values) if len(values) > 1 else None
        if folded is not None:
            return folded
        if len(values) == 1 and isinstance(values[0], Items):
            values = values[0].items
        return self.call_plain(fn, list(values), {})

    def abs_(self, value: Any) -> Any:
        """``abs``."""
        return self._folded(abs, value) or self.call_plain(abs, [value], {})

    def str_(self, value: Any = None) -> Any:
        """``str``."""
        value = self.shown(value)
        if self.type_of(value) == STR:
            return value
        return self.call(str, self.plain(value), kind=STR)

    def print_(self, *values: Any, **kwargs: Any) -> Any:
        """``print``."""
        given = [self.plain(self.shown(value)) for value in values]
        return self.call(print, *given, kind=NONE, **kwargs)

    # -- functions of jit -------------------------------------------------------------------------

    def is_scripting_(self) -> Any:
        """``is_scripting``."""
        return Val(True, BOOL)

    def is_tracing_(self) -> Any:
        """``is_tracing``."""
        return Val(False, BOOL)

    def fork_(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """``fork``: done at once, as in eager programs."""
        value = self.plain(self.apply(function, list(args), kwargs))
        return self.call(runtime.finished, value, kind=future(self.type_of(value)))

    def wait_(self, value: Any) -> Any:
        """``wait``."""
        kind = self.type_of(value)
        inner = kind.args[0] if kind.name == "Future" else ANY
        return self.call(runtime.wait_for, value, kind=inner)

    def future_method(self, value: Val, name: str, args: list[Any]) -> Any:
        """``future.wait()``."""
        if name in ("wait", "value"):
            return self.wait_(value)
        raise self.unsupported(f"{name} of a future isn't supported")

    def unchecked_(self, value: Any) -> Any:
        """``torch.jit._unwrap_optional``."""
        kind = without_none(self.type_of(value))
        return Val(self.call(runtime.unwrap, value).arg, kind)

    def identity_(self, value: Any) -> Any:
        """What changes nothing."""
        return value

    def is_tensor_(self, value: Any) -> Any:
        """``torch.is_tensor``."""
        return Val(self.type_of(value) == TENSOR, BOOL)

    # -- classes and other objects ----------------------------------------------------------------

    def special(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Calls of programs that are compiled already, and of modules outside of this one."""
        from coredispatch.frontend.jit.script_module import ScriptFunction

        if isinstance(fn, ScriptFunction):
            original = fn._original
            if original is not None:
                return self.inline(original, args, kwargs)
            return self.adopt(fn, args, kwargs)
        if fn == TABLE.operator and args and isinstance(args[0], Val):
            return Static(TABLE.operator(args[0].arg))  # as this package writes it
        if isinstance(fn, Module):
            raise self.error(
                f"python value of type {type(fn).__name__!r} cannot be used as a value: a module "
                "that is called must be a submodule of the one that is compiled"
            )
        return NotImplemented

    adopt: Any  # of Program

    def construct(self, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call of a class."""
        if issubclass(cls, enum.Enum):
            return self._enum(cls, args)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return self._named(cls, args, kwargs)
        if issubclass(cls, Device):
            if all(isinstance(a, Val) and a.constant for a in args):
                return self.from_python(cls(*(a.arg for a in args)))
            return self.call(_device(), *args, kind=Type("Device"), **kwargs)
        if issubclass(cls, Module):
            raise self.error(f"class {cls.__name__!r} cannot be instantiated in a compiled program")
        if cls.__name__ == "Size" and of_library(cls) and args:
            return args[0]
        if issubclass(cls, BaseException):
            raise self.unsupported("exceptions are supported in raise only")
        if cls.__module__ == "builtins" or of_library(cls):
            raise self.error(
                f"Python class {cls.__name__!r} is not supported in a compiled program"
            )
        check_class(self, cls)
        return new_object(self, cls, args, kwargs)

    def _enum(self, cls: Any, args: list[Any]) -> Any:
        (value,) = args
        if isinstance(value, Val) and value.constant:
            return self.from_python(cls(value.arg))
        raise self.unsupported("an Enum is made of a constant only")

    def _named(self, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        kind = annotation_type(cls)
        try:
            bound = inspect.signature(cls.__new__).bind(cls, *args, **kwargs)
        except TypeError as error:
            raise self.error(f"{cls.__name__}: {error}") from None
        bound.apply_defaults()
        values = list(bound.arguments.values())[1:]
        given = []
        for name, wanted, value in zip(kind.fields, kind.args, values):
            if not isinstance(value, (Val, Items)):
                value = self.from_python(value)
            if not fits(self.type_of(value), wanted):
                raise self.error(
                    f"{cls.__name__}: Expected a value of type '{wanted}' for argument '{name}' "
                    f"but instead found type '{self.type_of(value)}'"
                )
            given.append(self.plain(value))
        return self.call(named_tuple_type(cls), *given, kind=kind)

    def call_static(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """See :class:`Calls`."""
        if isinstance(fn, _Super):
            raise self.error("super() cannot be called")
        return super().call_static(fn, args, kwargs)

    def _static(self, value: Any, name: str) -> Any:
        if isinstance(value, _Super):
            found = getattr(super(value.owner, value.receiver.module), name, None)
            function = getattr(found, "__func__", None)
            if function is None:
                raise self.error(f"super() has no method {name!r}")
            return Bound(_Inherited(value.receiver, function), name, function)
        return super()._static(value, name)

    def call_bound(self, method: Bound, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """See :class:`Calls`."""
        if isinstance(method.receiver, _Inherited):
            ref = method.receiver.ref
            return self.inline(method.function, [ref, *args], kwargs)
        return super().call_bound(method, args, kwargs)

    # -- with -------------------------------------------------------------------------------------

    def entered(self, node: ast.expr) -> tuple[Any, Any]:
        """The value of a context, entered, and what leaves it."""
        if isinstance(node, ast.Call):
            function = self.expr(node.func)
            found = function.value if isinstance(function, Static) else None
            if found in _GRADIENTS:
                given = [self.expr(arg) for arg in node.args]
                enabled = given[0] if found is set_grad_enabled else _GRADIENTS[found]
                return self._grad_mode(enabled)
            if isinstance(found, type) and issubclass(found, autocast):
                return self._autocast(found, node)
            if getattr(found, "__name__", "") == "record_function":
                return Val(None, NONE), lambda: None
        value = self.expr(node)
        if not (isinstance(value, Val) and value.type.name == "Class"):
            raise self.unsupported(
                "with takes no_grad(), enable_grad(), set_grad_enabled(), autocast(), "
                "record_function() and objects of scripted classes",
                node,
            )
        self.at = node
        inside = self.call_method_of(value, "__enter__", [], {})
        nothing = [Val(None, ANY)] * 3
        return inside, lambda: self.call_method_of(value, "__exit__", nothing, {})

    def _grad_mode(self, enabled: Any) -> tuple[Any, Any]:
        before = self.call(runtime.grad_mode, enabled, kind=BOOL)
        return before, lambda: self.call(runtime.grad_mode, before, kind=BOOL)

    def _autocast(self, cls: Any, node: ast.Call) -> tuple[Any, Any]:
        args = [self.expr(arg) for arg in node.args]
        kwargs = {word.arg or "": self.expr(word.value) for word in node.keywords}
        try:
            bound = inspect.signature(cls).bind(*args, **kwargs)
        except TypeError as error:
            raise self.error(f"autocast(): {error}") from None
        bound.apply_defaults()
        given = bound.arguments
        device = given.get("device_type", "cuda" if "cuda" in cls.__module__ else "cpu")
        rest = (given[name] for name in ("dtype", "enabled", "cache_enabled"))
        mode = self.call(runtime.begin_autocast, device, *rest)
        return Val(None, NONE), lambda: self.call(runtime.end_autocast, mode, kind=NONE)


#: contexts that switch the recording of gradients
_GRADIENTS: dict[Any, Any] = {no_grad: False, enable_grad: True, set_grad_enabled: None}


class _Super:
    def __init__(self, owner: type, receiver: ModuleRef) -> None:
        self.owner, self.receiver = owner, receiver


class _Inherited:
    def __init__(self, ref: ModuleRef, function: Any) -> None:
        self.ref, self.function = ref, function


_TUPLES: dict[Any, NamedTupleType] = {}


def named_tuple_type(cls: Any) -> NamedTupleType:
    """The function of a graph that makes tuples of this class."""
    if cls not in _TUPLES:
        _TUPLES[cls] = NamedTupleType(cls.__name__, tuple(cls._fields), cls)
    return _TUPLES[cls]


def _device() -> Any:
    import coredispatch

    return coredispatch.device


def _instance(kind: Type, wanted: Type) -> bool:
    """Whether every value of type ``kind`` is an instance of ``wanted``."""
    if wanted.name == "Class" and kind.name == "Class":
        return issubclass(kind.python, wanted.python)
    if wanted.name in ("List", "Dict") and ANY in wanted.args:
        return kind.name == wanted.name
    if wanted == ANY:  # a class that no value of a program has
        return False
    if wanted.name == "List" and wanted.args == (TENSOR,) and kind.name == "List":
        return kind.args[0] in (TENSOR, ANY) or kind == wanted
    return kind == wanted


#: functions that are compiled by a method of this class
_OWN: dict[Any, str] = {
    len: "len_",
    int: "int_",
    float: "float_",
    bool: "bool_",
    str: "str_",
    type: "type_",
    list: "list_",
    tuple: "tuple_",
    dict: "dict_",
    min: "min_",
    max: "max_",
    abs: "abs_",
    print: "print_",
    range: "range_",
    enumerate: "enumerate_",
    zip: "zip_",
    reversed: "reversed_",
    markers.is_scripting: "is_scripting_",
    markers.is_tracing: "is_tracing_",
    markers.fork: "fork_",
    markers.wait: "wait_",
}
