"""``cd._jit_internal``: the marks of ``cd.jit`` under the name that libraries import."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Dict, Final, List, Optional, Tuple, TypeVar, Union  # noqa: UP035

from coredispatch.frontend.jit import (
    _overload,
    _overload_method,
    annotate,
    export,
    ignore,
    interface,
    is_scripting,
    is_tracing,
    unused,
)

__all__ = [
    "Dict",
    "List",
    "Optional",
    "Tuple",
    "Union",
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "Final",
    "_overload",
    "_overload_method",
    "annotate",
    "boolean_dispatch",
    "export",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "unused",
]

_F = TypeVar("_F", bound=Callable[..., Any])


class BroadcastingListCls:
    """For annotations: a list, or a number that stands for each of its elements."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingListCls()
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = BroadcastingListCls()


def _copy_to_script_wrapper(fn: _F) -> _F:
    """A mark: a method that a compiled module keeps as Python. Returns the function."""
    return fn


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Callable[..., Any],
    if_false: Callable[..., Any],
    module_name: str,
    func_name: str,
) -> Callable[..., Any]:
    """A function that calls one of two, as its boolean argument says."""

    def function(*args: Any, **kwargs: Any) -> Any:
        chosen = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    function.__name__, function.__module__ = func_name, module_name
    function.__doc__ = inspect.getdoc(if_false) or inspect.getdoc(if_true)
    return function
