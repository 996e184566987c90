"""``coredispatch.ops.namespace.name``: operators as PyTorch spells them, with their overloads."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.library.aten_forms import form
from coredispatch.frontend.library.definitions import DEFINED
from coredispatch.frontend.library.schema_text import Argument
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.registry.around.arguments import misfit
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.value import Value

__all__ = ["BUILTIN", "OpNamespace", "OpOverload", "OpOverloadPacket", "overload_of"]

#: the namespace of the operators that coredispatch itself brings
BUILTIN = "aten"
#: PyTorch's names for the overloads of those; here one operator serves all of them
_OVERLOADS = frozenset(
    "default Tensor Scalar int float dim out Dimname dim_IntList Tensor_Tensor Scalar_Tensor "
    "Tensor_Scalar Tensor_mode Scalar_mode correction self values ScalarSelf ScalarOther int_list "
    "dtype names memory_format reduce value vec using_ints Slice sizes sections stable two "
    "self_int self_Tensor low dtype_layout device other msg overload_names List ScalarList "
    "start start_step generator low_generator".split()
)


def _builtin(name: str) -> Any:
    """What serves ``aten.NAME``: the operator, or the function that has another form; else None."""
    return TABLE.snapshot.ops.get(name) or form(name)


class OpOverload:
    """One overload of an operator; calling it calls the operator."""

    def __init__(self, namespace: str, name: str, overload: str, op: Any) -> None:
        self.namespace = namespace
        self._opname = name
        self._overloadname = overload
        self._op = op
        self.__name__ = f"{name}.{overload}"
        self.__qualname__ = str(self)
        self.__module__ = f"coredispatch.ops.{namespace}"
        self.__doc__ = op.__doc__

    @property
    def _qualname(self) -> str:
        name = f"{self.namespace}::{self._opname}"
        return name if self._overloadname == "default" else f"{name}.{self._overloadname}"

    @property
    def _schema(self) -> Any:
        found = DEFINED.get(self._qualname)
        return found.schema if found is not None else getattr(self._op, "schema", None)

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """The operator whose overload it is."""
        return OpOverloadPacket(self.namespace, self._opname)

    @property
    def tags(self) -> list[Any]:
        """The tags that the operator was defined with."""
        found = DEFINED.get(self._qualname)
        return list(found.tags) if found is not None else []

    @property
    def is_view(self) -> bool:
        """Whether results alias arguments."""
        return bool(getattr(self._op, "view", False))

    def name(self) -> str:
        """``namespace::name``, with the overload unless it is the default one."""
        return self._qualname

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    # A graph holds the operator itself, and programs look there for the overload.
    def __eq__(self, other: object) -> bool:
        if isinstance(other, Operator):
            return self._op is other
        same = isinstance(other, OpOverload) and self._op is other._op
        return same and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self._op)

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def __repr__(self) -> str:
        return (
            f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.overloadpacket, self._overloadname)


class OpOverloadPacket:
    """An operator with all its overloads; calling it calls the one that takes the arguments."""

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace = namespace
        self.__name__ = self._opname = name
        self.__module__ = f"coredispatch.ops.{namespace}"
        overloads = self.overloads()
        if not overloads:
            raise AttributeError(f"'_OpNamespace' '{namespace}' object has no attribute '{name}'")
        self._first = getattr(self, overloads[0])._op

    @property
    def _qualified_op_name(self) -> str:
        return f"{self._namespace}::{self._opname}"

    _qualname = _qualified_op_name

    def overloads(self) -> list[str]:
        """The names of the overloads that are defined."""
        if self._namespace == BUILTIN:
            return [] if _builtin(self._opname) is None else ["default"]
        whole = self._qualified_op_name
        found = ["default"] if whole in DEFINED else []
        return found + [n.removeprefix(whole + ".") for n in DEFINED if n.startswith(whole + ".")]

    def __getattr__(self, name: str) -> OpOverload:
        if not name.startswith("_"):
            if self._namespace == BUILTIN and name in _OVERLOADS:
                return OpOverload(BUILTIN, self._opname, name, _builtin(self._opname))
            if name in self.overloads():
                whole = self._qualified_op_name
                op = DEFINED[whole if name == "default" else f"{whole}.{name}"].op
                return OpOverload(self._namespace, self._opname, name, op)
        raise AttributeError(
            f"The underlying op of '{self}' has no overload name '{name}'; there are "
            f"{', '.join(self.overloads())}"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._namespace == BUILTIN:
            return _builtin(self._opname)(*args, **kwargs)
        refusals = []
        for name in self._possible(args, kwargs):
            try:
                return getattr(self, name)(*args, **kwargs)
            except TypeError as error:
                refusals.append(error)
        raise refusals[0]

    def _possible(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """The overloads to try.

        One that gets a proxy records whatever it is called with, so a trace needs the right one.
        """
        names = self.overloads()
        given = (*args, *kwargs.values())
        if len(names) == 1 or not any(map(_is_proxy, given)):
            return names
        found = [name for name in names if _takes(getattr(self, name), args, kwargs)]
        if len(found) > 1:
            shown = ", ".join(found)
            raise ValueError(
                f"{self}(...): the overloads {shown} may all be meant, and what a traced argument "
                f"will be is not known\n  fix: name the overload, as {self}.{found[0]}(...)"
            )
        return found or names

    def __iter__(self) -> Any:
        return iter(self.overloads())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Operator):
            return self._first is other
        same = isinstance(other, OpOverloadPacket) and self._first is other._first
        return same and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self._first)

    def __str__(self) -> str:
        return f"{self._namespace}.{self._opname}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __reduce__(self) -> tuple[Any, ...]:
        return OpOverloadPacket, (self._namespace, self._opname)


_PYTHON: dict[str, Any] = {
    "Tensor": TensorBase,
    "int": int,
    "SymInt": int,
    "float": (int, float),
    "Scalar": (int, float, complex),
    "bool": bool,
    "str": str,
}


def _is_proxy(value: Any) -> bool:
    return isinstance(value, Value) and not isinstance(value, TensorBase)


def _takes(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the overload may be meant by these arguments, some of which are proxies."""
    if misfit(overload._op, len(args), tuple(kwargs)) is not None:
        return False
    places = DEFINED[overload.name()].schema.arguments
    named = [(place, kwargs[place.name]) for place in places if place.name in kwargs]
    return all(_may_be(value, place) for place, value in (*zip(places, args, strict=False), *named))


def _may_be(value: Any, place: Argument) -> bool:
    if _is_proxy(value):
        return True
    if value is None:
        return place.optional
    if place.is_list:
        return isinstance(value, (list, tuple))
    return isinstance(value, _PYTHON.get(place.base, object))


class OpNamespace:
    """``coredispatch.ops.namespace``: what was defined in it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__"):
            raise AttributeError(name)
        return OpOverloadPacket(self.name, name)

    def __dir__(self) -> list[str]:
        if self.name == BUILTIN:
            return sorted(TABLE.snapshot.ops)
        names = (n.partition("::") for n in DEFINED)
        return sorted({name.partition(".")[0] for space, _, name in names if space == self.name})

    def __repr__(self) -> str:
        return f"<OpNamespace '{self.name}'>"


def overload_of(qualname: str, op: Operator) -> OpOverload:
    """The overload object of a defined operator."""
    namespace, _, name = qualname.partition("::")
    name, _, overload = name.partition(".")
    return OpOverload(namespace, name, overload or "default", op)
