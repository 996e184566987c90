"""``symbolic_trace``: a module as a graph, by running it with proxies."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from coredispatch.frontend.fx.graph_module import GraphModule
from coredispatch.frontend.fx.proxy import ParameterProxy, Proxy, TracerBase
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.container import Sequential
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Graph, map_aggregate

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "is_fx_symbolic_tracing", "is_fx_tracing"]
__all__ += ["symbolic_trace", "wrap"]

_LIBRARY = ("coredispatch.frontend.nn.", "coredispatch.nn.", "torch.nn.")
#: (globals of a module, name) of the functions that are recorded whole
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}


#: how many traces are under way in this thread or task
_TRACING: ContextVar[int] = ContextVar("coredispatch_fx_tracing", default=0)


def is_fx_tracing() -> bool:
    """Whether the code that asks is being traced with proxies."""
    return _TRACING.get() > 0


is_fx_symbolic_tracing = is_fx_tracing


class _Placeholder:
    def __repr__(self) -> str:
        return "PH"


#: in ``concrete_args``: an input after all
PH = _Placeholder()


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Have calls of a function recorded whole, instead of traced through.

    Called at the top of a module with the name of a function of that module (or of a builtin), or
    used as a decorator.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame: Any = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


#: what stands before the names of parameters that take the rest
_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
_TAKES_REST = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class _Rest(NamedTuple):
    """A proxy for all values of ``*args`` or ``**kwargs``: one input, however many they are."""

    proxy: Proxy


def _with_plain_parameters(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    """The function with ``args`` and ``kwargs`` as ordinary parameters, and what to call it with.

    Python would take a proxy apart to fill ``*args``, which needs its length. Raises
    NotImplementedError for what is no Python function.
    """
    if not isinstance(function, FunctionType) or not function.__code__.co_flags & _TAKES_REST:
        raise NotImplementedError(
            f"{function!r} takes any number of values and is not written in Python: give the "
            "program parameters with names, or the values in concrete_args"
        )
    code = function.__code__
    starred = [bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)]
    count = code.co_argcount + code.co_kwonlyargcount + sum(starred)
    names = code.co_varnames[:count]
    values = dict(zip(names[: code.co_argcount], args))
    values |= {k: v.proxy if isinstance(v, _Rest) else v for k, v in kwargs.items()}
    rest: Any = tuple(args[code.co_argcount :]) if starred[0] else {}  # values in concrete_args
    plain = code.replace(
        co_flags=code.co_flags & ~_TAKES_REST,
        co_argcount=count,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
    )
    made = FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)
    return made, [values.get(name, rest) for name in names], {}


class Tracer(TracerBase):
    """Runs a module with proxies in place of its inputs. Subclass it to change what is a leaf.

    Args:
        autowrap_modules: modules whose functions are recorded where they meet a proxy.
        autowrap_functions: functions likewise.
        param_shapes_constant: whether the shapes of parameters are read at once.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self.autowrap_modules = autowrap_modules
        self.autowrap_functions = autowrap_functions
        self.param_shapes_constant = param_shapes_constant
        self.root: Module = Module()
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs: dict[int, str] = {}
        self.submodule_paths: dict[Module, str] | None = None
        self._call: Callable[..., Any] = Module.__call__
        self._reads: dict[str, Proxy] = {}
        self._kept: list[Any] = []

    # -- what subclasses override ----------------------------------------------------------------

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of ``m`` is one node: modules of the library are, but ``Sequential``."""
        ours = f"{type(m).__module__}.".startswith(_LIBRARY)
        return ours and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted path of a submodule. Raises ``NameError`` where there is none."""
        for path, module in self.root.named_modules():
            if module is mod:
                return path
        raise NameError("module is not installed as a submodule")

    def call_module(
        self,
        m: Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """What a call of a submodule becomes: a node for a leaf, else its own calls."""
        path = self.path_of_module(m)
        if not self.is_leaf_module(m, path):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", path, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What reading a parameter of a module gives; the parameter itself unless shapes count."""
        if not isinstance(attr_val, Parameter):
            return attr_val
        for name, parameter in self.root.named_parameters():
            if parameter is attr_val:
                if name not in parameter_proxy_cache:
                    make = functools.partial(ParameterProxy, self, name=name, param=attr_val)
                    made = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=make)
                    parameter_proxy_cache[name] = made
                return parameter_proxy_cache[name]
        return attr_val

    def create_arg(self, a: Any) -> Any:
        """An argument as a node holds it; parameters and other tensors are read from the module."""
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super().create_arg(a)

    def _leaf(self, a: Any) -> Any:
        if not isinstance(a, Tensor):
            return super()._leaf(a)
        path = self.tensor_attrs.get(id(a))
        if path is None:
            number = 0
            while hasattr(self.root, f"_tensor_constant{number}"):
                number += 1
            path = self.tensor_attrs[id(a)] = f"_tensor_constant{number}"
            self._kept.append(a)
            self.root.__dict__[path] = a
        return self.create_node("get_attr", path, (), {})

    # -- tracing ---------------------------------------------------------------------------------

    def trace(
        self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
    ) -> Graph:
        """The graph of a module or function.

        ``concrete_args`` are values for some of the parameters, which are then no inputs.
        """
        function: Callable[..., Any]
        if isinstance(root, Module):
            self.root, function = root, type(root).forward
            self.submodule_paths = {module: path for path, module in root.named_modules()}
        else:
            self.root, function = Module(), root
        self.root_module_name = type(self.root).__name__
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {
            id(t): name for name, t in (*self.root.named_parameters(), *self.root.named_buffers())
        }
        for path, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    full = f"{path}.{name}" if path else name
                    self.tensor_attrs.setdefault(id(value), full)
        args, kwargs = self._inputs(function, isinstance(root, Module), concrete_args or {})
        call = function
        if any(isinstance(value, _Rest) for value in (*args, *kwargs.values())):
            call, args, kwargs = _with_plain_parameters(function, args, kwargs)
        with self._patched(function):
            result = call(*args, **kwargs)
        self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph

    def _inputs(
        self, function: Callable[..., Any], bound: bool, concrete: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        parameters = list(inspect.signature(function).parameters.values())
        args: list[Any] = [self.root] if bound else []
        kwargs: dict[str, Any] = {}
        for parameter in parameters[1:] if bound else parameters:
            name = parameter.name
            if name in concrete and concrete[name] is not PH:
                value: Any = concrete[name]
            else:
                value = self._placeholder(parameter)
            if isinstance(value, _Rest) or parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            elif parameter.kind is parameter.VAR_POSITIONAL:
                args.extend(value)
            else:
                args.append(value)
        return args, kwargs

    def _placeholder(self, parameter: inspect.Parameter) -> Any:
        name, stars = parameter.name, _STARS.get(parameter.kind, "")
        default = () if parameter.default is parameter.empty else (parameter.default,)
        kind = parameter.annotation
        kind = None if kind in (parameter.empty, Any, "Any") else kind
        proxy = self.create_proxy("placeholder", f"{stars}{name}", default, {}, name, kind)
        return _Rest(proxy) if stars else proxy

    @contextmanager
    def _patched(self, function: Callable[..., Any]) -> Iterator[None]:
        """Calls of modules, and functions to be recorded whole, come here while it lasts."""
        original, tracer = Module.__call__, self
        undo: list[tuple[Any, str, Any]] = []
        seen: dict[str, Any] = {}

        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            forward = functools.partial(original, module)
            return tracer.call_module(module, forward, args, kwargs)

        def put(owner: Any, name: str, value: Any) -> None:
            store = owner if isinstance(owner, dict) else vars(owner)
            undo.append((owner, name, store.get(name, undo)))
            if isinstance(owner, dict):
                owner[name] = value
            else:
                setattr(owner, name, value)

        put(Module, "__call__", call)
        if self.param_shapes_constant:
            put(Module, "__getattribute__", _reading(self, seen))
        for (_, name), space in _wrapped.items():
            found = space.get(name, getattr(sys.modules["builtins"], name, None))
            if found is not None:
                put(space, name, self._recording(found))
        for module in self.autowrap_modules:
            for name, value in list(vars(module).items()):
                if callable(value) and not name.startswith("_"):
                    put(module, name, self._recording(value))
        space = getattr(function, "__globals__", {})
        for name, value in list(space.items()):
            if any(value is wanted for wanted in self.autowrap_functions):
                put(space, name, self._recording(value))
        token = _TRACING.set(_TRACING.get() + 1)
        try:
            yield
        finally:
            _TRACING.reset(token)
            for owner, name, value in reversed(undo):
                if value is undo:
                    owner.pop(name) if isinstance(owner, dict) else delattr(owner, name)
                elif isinstance(owner, dict):
                    owner[name] = value
                else:
                    setattr(owner, name, value)

    def _recording(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if _has_proxy((args, kwargs)):
                return self.create_proxy("call_function", function, args, kwargs)
            return function(*args, **kwargs)

        return recorded


def _reading(tracer: Tracer, seen: dict[str, Any]) -> Callable[..., Any]:
    def read(module: Module, name: str) -> Any:
        value = object.__getattribute__(module, name)
        return tracer.getattr(name, value, seen) if isinstance(value, Parameter) else value

    return read


def _has_proxy(values: Any) -> bool:
    found: list[Any] = []
    map_aggregate(values, lambda a: found.append(a) if isinstance(a, Proxy) else a)
    return bool(found)


class ProxyableClassMeta(type):
    """Instances made from proxies while tracing are made by a call in the graph instead."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        found: list[Any] = []
        map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Proxy) else a)
        if found:
            return found[0].tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def symbolic_trace(
    root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """The :class:`GraphModule` of a module or function, traced with proxies.

    Raises :class:`TraceError` where the program asks a proxy for a value, with the line.

    Example:
        >>> traced = cd.fx.symbolic_trace(lambda x: (x + 1).relu())
        >>> [node.op for node in traced.graph.nodes]
        ['placeholder', 'call_function', 'call_method', 'output']
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "Traced")
    return GraphModule(tracer.root, graph, name)
