"""What a definition of an operator may state; each item is checked before it is used.

A wrong item that is found here names itself; one that was kept would surface as somebody else's
error, much later.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from coredispatch.registry.model.dtypes import DOMAINS, DType
from coredispatch.registry.model.errors import SchemaError, shown_value

__all__ = ["check_declaration", "check_derivative"]


def _is_name(x: Any) -> bool:
    return isinstance(x, str) and x.isidentifier() and not keyword.iskeyword(x)


def _is_operator_name(x: Any) -> bool:
    """``name``, or ``namespace::name.overload`` of an operator that a program defined."""
    if not isinstance(x, str):
        return False
    namespace, separator, rest = x.rpartition("::")
    parts = [*namespace.split("::"), *rest.split(".")] if separator else [x]
    return all(map(_is_name, parts))


def _are_names(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and all(_is_name(name) for name in x)


def _function(x: Any) -> bool:
    return x is None or callable(x)


def _dtype_rule(x: Any) -> bool:
    return (
        _function(x) or isinstance(x, DType) or (isinstance(x, tuple) and all(map(_dtype_rule, x)))
    )


def _flag(x: Any) -> bool:
    return x is True or x is False


def _flag_or_none(x: Any) -> bool:
    return x is None or _flag(x)


def _interval(x: Any) -> bool:
    return x is None or (
        isinstance(x, (tuple, list))
        and len(x) == 2
        and all(isinstance(end, (int, float)) for end in x)
    )


def _namespaces(x: Any) -> bool:
    names = (x,) if isinstance(x, str) else x
    return isinstance(names, (tuple, list)) and all(
        isinstance(name, str) and all(map(_is_name, name.split(".") if name else ()))
        for name in names
    )


def _mutated(x: Any) -> bool:
    return _are_names(list(x)) if isinstance(x, Mapping) else _are_names(x)


def _domain(x: Any) -> bool:
    if x is None:
        return True
    if isinstance(x, str):
        return x in DOMAINS
    return isinstance(x, (tuple, list, set, frozenset)) and all(isinstance(d, DType) for d in x)


_FUNCTIONS: Final = ("out", "reference", "samples", "errors", "gradcheck")
_FLAGS: Final = ("smooth", "inplace", "factory", "generic", "property")
#: name -> (whether a value is one, what it has to be)
_METADATA: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "name": (lambda x: x is None or _is_operator_name(x), "an identifier"),
    "mutates": (
        _mutated,
        "a tuple of parameter names, such as ('self',), or a dict",
    ),
    "view": (
        lambda x: _flag(x) or isinstance(x, Mapping) or x == "maybe",
        "True, False, 'maybe', or which result views which parameter: {0: 'self', 1: 'other?'}",
    ),
    "fields": (lambda x: _are_names(x) and len({*x}) == len(x), "a tuple of different names"),
    "alias": (_are_names, "a tuple of names, such as ('other_name',)"),
    "namespace": (_namespaces, "'', a module name such as 'linalg', or a tuple of them"),
    "dtypes": (_domain, "'all', 'real', 'float', 'float+complex', 'int', 'bool+int' or dtypes"),
    "takes": (_domain, "'real', 'float', 'float+complex', 'int', 'bool+int' or dtypes"),
    "values": (_interval, "a pair of numbers (low, high)"),
    "unbroadcast": (_flag_or_none, "True, False or None"),
    "dtype": (_dtype_rule, "a promotion rule, a dtype, or a function of the arguments"),
    "random": (
        lambda x: _flag(x) or callable(x),
        "True, False, or a function of the arguments that says whether a call draws",
    ),
    "method": (_flag_or_none, "True, False or None"),
    "differentiable": (_flag_or_none, "True, False, or None: a gradient is refused"),
    **dict.fromkeys(_FUNCTIONS, (_function, "a function")),
    **dict.fromkeys(_FLAGS, (_flag, "True or False")),
}


def check_declaration(function: Any, metadata: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a definition that is no plain function, or states metadata that cannot be true.

    Raises:
        SchemaError: names the item, its value and what it has to be.
    """
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise SchemaError(
            f"an operator cannot be declared with {shown_value(function)}",
            fix="write a plain function: def my_op(self: Tensor) -> Tensor",
        )
    name = metadata.get("name") or function.__name__
    for key, value in metadata.items():
        if key not in known:
            raise SchemaError(
                f"operator {shown_value(name)}: {key!r} is no metadata that a definition states",
                fix=f"use some of {', '.join(sorted(known))}",
            )
        accepts, wanted = _METADATA.get(key, (None, ""))
        if accepts is not None and not _holds(accepts, value):
            raise SchemaError(
                f"operator {shown_value(name)}: {key}={shown_value(value)}",
                fix=f"{key} has to be {wanted}",
            )


def check_derivative(op: str, function: Any) -> None:
    """Refuse a derivative or an overload that is no plain function; raises :class:`SchemaError`."""
    if not inspect.isfunction(function):
        raise SchemaError(
            f"operator {op!r}: {shown_value(function)} is not a plain function",
            fix="write it with def or lambda",
        )


def _holds(accepts: Callable[[Any], bool], value: Any) -> bool:
    try:
        return bool(accepts(value))
    except Exception:  # a value that cannot even be compared is none that is meant here
        return False
