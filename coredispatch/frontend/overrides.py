"""``coredispatch.overrides``: functions and modes of the ``__torch_function__`` protocol.

How the protocol meets the table is in :mod:`coredispatch.frontend.torch_function`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.frontend.operators import operators
from coredispatch.frontend.stacked_modes import StackedMode
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.torch_function import (
    NOT_CONVERTED,
    FunctionModes,
    called_by,
    disabled_torch_function,
    overridden,
    without_overrides,
)
from coredispatch.plugin import Mode, Operator, Switch, is_masked
from coredispatch.registry.model.spelling import SPELLING

__all__ = [
    "BaseTorchFunctionMode",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

_NAMESPACES = ("", "nn.functional", "linalg", "fft", "special")
#: attributes of a tensor that only Python or the framework asks for
_NOT_METHODS = {"as_subclass", "raw", "keys"}


# -- who takes part --------------------------------------------------------------------------


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments has a ``__torch_function__``, or a mode is in force.

    Exact tensors and parameters count as having none.
    """
    if FunctionModes.current():
        return True
    return not is_masked("torch_function") and bool(overridden(relevant_args))


def has_torch_function_unary(obj: Any) -> bool:
    """:func:`has_torch_function` of one argument."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """:func:`has_torch_function` of the arguments themselves."""
    return has_torch_function(args)


def is_tensor_like(inp: Any) -> bool:
    """Whether ``inp`` is a tensor, or its class has a ``__torch_function__``."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Let a mode, or the classes of ``relevant_args``, do ``public_api(*args, **kwargs)``.

    Raises TypeError where all of them return NotImplemented. To be called where
    :func:`has_torch_function` is true::

        def double(x):
            if has_torch_function_unary(x):
                return handle_torch_function(double, (x,), x)
            return x + x
    """
    objects = [] if is_masked("torch_function") else overridden(relevant_args)
    stack = FunctionModes.current()
    if stack:
        types = tuple([type(item) for item in objects])
        with FunctionModes(stack[:-1]):
            result = stack[-1].__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    return called_by(public_api, objects, args, kwargs, name)


def wrap_torch_function(
    dispatcher: Callable[..., Iterable[Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of functions that take part; ``dispatcher`` gives the arguments that may override.

    It is called with the same arguments as the function.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def redispatch_function(
    func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> Any:
    """Call ``func`` without asking the classes of its arguments about this one call.

    Functions that it calls are asked about. An operator has none that a program could see.
    """
    inner = inspect.unwrap(func) if not isinstance(func, Operator) else func
    if inner is func:
        with without_overrides():
            return func(*args, **(kwargs or {}))
    return inner(*args, **(kwargs or {}))


# -- modes -----------------------------------------------------------------------------------


class DisableTorchFunctionSubclass(without_overrides):
    """``__torch_function__`` of classes is not asked in the block; modes are."""


class DisableTorchFunction(Mode):
    """Neither classes nor modes are asked in the block."""

    switch = Switch(off=("torch_function", "torch_function_mode"))


class TorchFunctionMode(StackedMode):
    """Sees every operator called in its block, whatever the arguments.

    Subclasses define ``__torch_function__(self, func, types, args=(), kwargs=None)``. In it the
    mode itself is not in force; those around it are. ``func`` is the operator that a program calls
    by that name (``cd.add`` for ``a + b``), with the arguments that have not their default.
    """

    family = FunctionModes
    inner: TorchFunctionMode

    def __init__(self) -> None:
        pass

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        raise NotImplementedError


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> TorchFunctionMode | None:
    stack = FunctionModes.current()
    return stack[-1] if stack else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    return list(FunctionModes.current() or ())


class _Enabled(Mode):
    switch = Switch(released=("torch_function",))


@contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """Classes are asked again in the block, in a ``__torch_function__`` that switched it off."""
    with _Enabled():
        yield


# -- names -----------------------------------------------------------------------------------


def _public(namespace: str) -> Any:
    import coredispatch

    found: Any = coredispatch
    if SPELLING.package == "torch":  # whose top level is a module of its own
        found = sys.modules["torch"]
    for part in namespace.split(".") if namespace else ():
        found = getattr(found, part)
    return found


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that the protocol sees, by the module or class they are in."""
    return {namespace: list(names.values()) for namespace, names in _tables()[0].items()}


def _tables() -> tuple[dict[Any, dict[str, Any]], dict[Any, str]]:
    overridable: dict[Any, dict[str, Any]] = {}
    names: dict[Any, str] = {}
    for namespace in _NAMESPACES:
        module = _public(namespace)
        prefix = f"torch.{namespace}." if namespace else "torch."
        functions = {}
        for name, function in operators(namespace).items():
            if getattr(function, "operator", function).factory:
                continue
            function = getattr(module, name, function)
            functions[name] = function
            names.setdefault(function, prefix + name)
        overridable[module] = functions
    overridable[Tensor] = methods = {}
    for name in dir(Tensor):
        if name in _NOT_METHODS or (name.startswith("_") and name not in _operator_methods()):
            continue
        found = inspect.getattr_static(Tensor, name)
        if isinstance(found, (staticmethod, classmethod, type)):
            continue
        if callable(found):
            method = getattr(Tensor, name)
            methods[name] = method
            names.setdefault(method, f"torch.Tensor.{name}")
        elif hasattr(type(found), "__get__"):
            methods[name] = found.__get__
            names.setdefault(found.__get__, f"torch.Tensor.{name}.__get__")
            names.setdefault(found.__set__, f"torch.Tensor.{name}.__set__")
    return overridable, names


@functools.cache
def _operator_methods() -> frozenset[str]:
    from coredispatch.frontend.subclasses import PYTHON_METHODS

    return frozenset(PYTHON_METHODS)


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Public functions that the protocol does not see: factories, settings and queries."""
    module = _public("")
    seen = _tables()[0][module]
    return {
        function
        for name in module.__all__
        if callable(function := getattr(module, name))
        and not isinstance(function, type)
        and name not in seen
    }


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Attributes that ``Tensor.__torch_function__`` returns as they are."""
    return NOT_CONVERTED


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each overridable function one with the same signature that returns -1."""
    found: dict[Callable[..., Any], Callable[..., Any]] = {}
    for functions in get_overridable_functions().values():
        for function in functions:
            found[function] = _dummy(function)
    return found


def _dummy(function: Any) -> Callable[..., Any]:
    def dummy(*args: Any, **kwargs: Any) -> int:
        return -1

    try:
        dummy.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    except (TypeError, ValueError):  # a getter has none
        pass
    return dummy


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The name of an overridable function as PyTorch spells it, ``torch.Tensor.add``, or None."""
    return _tables()[1].get(f)


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether ``func`` is a method of ``Tensor``, or a getter of one of its attributes."""
    return func in _tables()[0][Tensor].values() or func.__name__ == "__get__"


_disabled_torch_function_impl = disabled_torch_function
NOT_CONVERTED.add(inspect.getattr_static(Tensor, "grad").__get__)
