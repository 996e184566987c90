"""``symbolic_trace``: a module as a graph, by running it with proxies."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from coredispatch.frontend.fx.graph_module import GENERATED, GraphModule
from coredispatch.frontend.fx.node import has_side_effect
from coredispatch.frontend.fx.proxy import ParameterProxy, Proxy, TracerBase, proxy_in
from coredispatch.frontend.nn import calling
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.container import Sequential
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.programs import _assert
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils._pytree import (
    GetAttrKey,
    SequenceKey,
    tree_is_leaf,
    tree_map_with_path,
)
from coredispatch.graph import Graph
from coredispatch.plugin import Device, DType, Layout

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


class PHBase:
    """In ``concrete_args``: an input after all. What is set on it is set on the input's node."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """An input whose node can be told by ``ph_key``."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key


def _assert_is_none(value: Any, message: str) -> None:
    """The check of an input that was None. Raises AssertionError."""
    assert value is None, message


for _check in (_assert, _assert_is_none):
    has_side_effect(_check)
#: values of these types are compared with what an input is
_COMPARED = (str, int, float, bool, complex, DType, Device, Layout)


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
        param_shapes_constant: as in PyTorch; the shapes of parameters are always read at once.
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
        known = (self.submodule_paths or {}).get(mod)
        if known is not None:
            return known
        for path, module in self.root.named_modules():  # one that came while it was traced
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
        """What reading a parameter of a module gives: a proxy, whose sizes and type are known."""
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
        self,
        root: Module | Callable[..., Any],
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> Graph:
        """The graph of a module or function.

        Args:
            root: the module or function.
            concrete_args: values for some of the parameters by name, or for all of them in a tuple;
                see :func:`symbolic_trace`.

        Raises RuntimeError for a tuple of another length.
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
        self, function: Callable[..., Any], bound: bool, concrete: Any
    ) -> tuple[list[Any], dict[str, Any]]:
        parameters = list(inspect.signature(function).parameters.values())[bound:]
        args: list[Any] = [self.root] if bound else []
        kwargs: dict[str, Any] = {}
        if isinstance(concrete, tuple):
            own = [p for p in parameters if p.kind not in _STARS]
            if concrete and not own and parameters:  # all of them go into *args
                for k, given in enumerate(concrete):
                    proxy = self.create_proxy("placeholder", f"input_{k}", (), {})
                    args.append(_marked(proxy, given))
                return args, kwargs
            if len(concrete) != len(own):
                raise RuntimeError(
                    f"Tracing expected {len(own)} arguments but got {len(concrete)} concrete "
                    "arguments"
                )
            concrete = {p.name: given for p, given in zip(own, concrete)}
        structured = any(map(_is_structured, concrete.values()))
        for parameter in parameters:
            name = parameter.name
            if name in concrete and parameter.kind in _STARS:
                value: Any = concrete[name]
            elif name in concrete:
                value = self._specialized(parameter, concrete[name], structured)
            else:
                value = self._placeholder(parameter)
            if isinstance(value, _Rest) or parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            elif parameter.kind is parameter.VAR_POSITIONAL:
                args.extend(value)
            else:
                args.append(value)
        return args, kwargs

    def _specialized(self, parameter: inspect.Parameter, given: Any, structured: bool) -> Any:
        """An input with some parts known: the known ones are checked when the graph runs."""
        name = parameter.name
        default = () if parameter.default is parameter.empty else (parameter.default,)
        place = name if structured else f"{name}_1"
        whole = self.create_proxy("placeholder", place, default, {})
        numbers = iter(range(1, 1 << 30))

        def part(path: Any, value: Any) -> Any:
            proxy, own = whole, f"{name}_{next(numbers)}"
            for depth, at in enumerate(path, 1):
                proxy = self._part_of(proxy, at, own if depth == len(path) else None)
            if isinstance(value, PHBase):
                return _marked(proxy, value)
            self._check(name, proxy, value)
            return value

        return tree_map_with_path(part, given)

    def _part_of(self, proxy: Proxy, at: Any, name: str | None) -> Proxy:
        """What stands at a key, an index or a field."""
        if isinstance(at, GetAttrKey):
            return self.create_proxy("call_function", getattr, (proxy, at.name), {}, name)
        key = at.idx if isinstance(at, SequenceKey) else at.key
        return self.create_proxy("call_function", operator.getitem, (proxy, key), {}, name)

    def _check(self, name: str, proxy: Proxy, value: Any) -> None:
        """A node that refuses another value than the one that was traced with."""
        but = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (proxy, but), {})
        elif type(value) in _COMPARED:
            self.create_proxy("call_function", _assert, (proxy == value, but), {})
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized "
                "function. It is up to the user to make sure that your inputs match the inputs you "
                "specialized the function with.",
                stacklevel=2,
            )

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
        recorders: dict[int, Any] = {}  # by the function that is to be recorded whole

        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            plain = module._hooks is None and not calling.GLOBAL
            forward = module.forward if plain else functools.partial(original, module)
            return tracer.call_module(module, forward, args, kwargs)

        def put(owner: Any, name: str, value: Any) -> None:
            store = owner if isinstance(owner, dict) else vars(owner)
            undo.append((owner, name, store.get(name, undo)))
            if isinstance(owner, dict):
                owner[name] = value
            else:
                setattr(owner, name, value)

        def put_recorder(owner: Any, name: str, function: Any) -> None:
            put(owner, name, recorders.setdefault(id(function), self._recording(function)))

        put(Module, "__call__", call)
        put(Module, "__getattribute__", _reading(self, seen))
        for (_, name), space in _wrapped.items():
            found = space.get(name, getattr(sys.modules["builtins"], name, None))
            if found is not None:
                put_recorder(space, name, found)
        for module in self.autowrap_modules:
            for name, value in list(vars(module).items()):
                if callable(value) and not name.startswith("_"):
                    put(module, name, self._recording(value))
        space = getattr(function, "__globals__", {})
        for name, value in list(space.items()):
            if any(value is wanted for wanted in self.autowrap_functions):
                put_recorder(space, name, value)
        for generated in list(GENERATED):
            for name, value in list(generated.__globals__.items()):
                if id(value) in recorders:
                    put_recorder(generated.__globals__, name, value)
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
            if proxy_in((args, kwargs)) is not None:
                return self.create_proxy("call_function", function, args, kwargs)
            return function(*args, **kwargs)

        return recorded


def _reading(tracer: Tracer, seen: dict[str, Any]) -> Callable[..., Any]:
    def read(module: Module, name: str) -> Any:
        value = object.__getattribute__(module, name)
        return tracer.getattr(name, value, seen) if isinstance(value, Parameter) else value

    return read


def _is_structured(value: Any) -> bool:
    """Whether a value in ``concrete_args`` has parts."""
    return not tree_is_leaf(value)


def _marked(proxy: Proxy, value: Any) -> Proxy:
    """What a program set on a placeholder of its own goes to the node."""
    if isinstance(value, PHBase):
        for name, item in vars(value).items():
            if not callable(item) and not hasattr(proxy.node, name):
                setattr(proxy.node, name, item)
    return proxy


class ProxyableClassMeta(type):
    """Instances made from proxies while tracing are made by a call in the graph instead."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxy = proxy_in((args, kwargs))
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def symbolic_trace(
    root: Module | Callable[..., Any],
    concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
) -> GraphModule:
    """The :class:`GraphModule` of a module or function, traced with proxies.

    Args:
        root: the module or function.
        concrete_args: values for some of the parameters by name, or for all in a tuple. The program
            is traced with them. The parameter stays an input, and another value is refused by an
            AssertionError when the graph runs; where a value cannot be compared, as a tensor, a
            warning says so. ``PH`` stands for an input that is not known, also inside of lists,
            tuples and dicts.

    Raises :class:`TraceError` where the program asks a proxy for a value, with the line.

    Example:
        >>> traced = cd.fx.symbolic_trace(lambda x: (x + 1).relu())
        >>> [node.op for node in traced.graph.nodes]
        ['placeholder', 'call_function', 'call_method', 'output']
        >>> known = {"x": {"a": cd.fx.PH, "b": cd.fx.PH}}
        >>> cd.fx.symbolic_trace(lambda x: sum(x.values()), known)({"a": 1, "b": 2})
        3
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "Traced")
    return GraphModule(tracer.root, graph, name)
