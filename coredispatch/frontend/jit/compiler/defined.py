"""Operators that libraries define, as a compiled program calls them: ``ops.namespace.name``."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    NUMBER,
    STR,
    TENSOR,
    Type,
    fits,
    list_of,
    optional,
)
from coredispatch.frontend.library.custom_ops import CustomOpDef
from coredispatch.frontend.library.definitions import DEFINED
from coredispatch.frontend.library.overloads import BUILTIN, OpOverload, OpOverloadPacket
from coredispatch.plugin import Operator
from coredispatch.registry.around.arguments import misfit

__all__ = ["defined_operator"]

_TYPES = {
    "Tensor": TENSOR,
    "int": INT,
    "SymInt": INT,
    "float": FLOAT,
    "bool": BOOL,
    "str": STR,
    "Scalar": NUMBER,
}


def defined_operator(fn: Any, kinds: list[Type], kwargs: dict[str, Any]) -> Any:
    """The operator that a call of ``fn`` with such arguments means; another function as it is.

    Of several overloads the first that takes the arguments, as at a call from Python.
    """
    if isinstance(fn, CustomOpDef):
        fn = fn._opoverload
    if isinstance(fn, OpOverloadPacket):
        overloads = [getattr(fn, name) for name in fn.overloads()]
        fits_all = (o for o in overloads if _takes(o, kinds, kwargs))
        fn = next(fits_all, overloads[0])
    return fn._op if isinstance(fn, OpOverload) else fn


def _takes(overload: OpOverload, kinds: list[Type], kwargs: dict[str, Any]) -> bool:
    if overload.namespace == BUILTIN or not isinstance(overload._op, Operator):
        return True
    if misfit(overload._op, len(kinds), tuple(kwargs)) is not None:
        return False
    places = DEFINED[overload.name()].schema.arguments
    for place, given in zip(places, kinds, strict=False):
        wanted = _TYPES.get(place.base, ANY)
        wanted = list_of(wanted) if place.is_list else wanted
        if not fits(given, optional(wanted) if place.optional else wanted):
            return False
    return True
