"""Proxies: values without data that record what is done with them."""

from __future__ import annotations

import dis
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

from coredispatch._version import __version__
from coredispatch.frontend.nn.legacy_arguments import FUNCTIONS
from coredispatch.frontend.programs import _assert
from coredispatch.graph import Graph, Node, map_aggregate
from coredispatch.graph.capture import source
from coredispatch.graph.targets import spelled
from coredispatch.plugin import Device, DType, Layer, Registrar, Value, dtypes, hookimpl, key_bit
from coredispatch.registry import plugins

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError"]
__all__ += ["TracerBase", "proxy_in"]


class TraceError(ValueError):
    """The program asked a proxy for something that only a value can answer."""


class _Unknown:
    """The data of a proxy: none. Whatever asks for its type is told the default one."""

    dtype = dtypes.float32
    shape = ()


def load() -> None:
    """Put the layer ``fx`` in the table, the first time it is needed."""
    if "fx" not in {plugin.name for plugin in plugins}:
        plugins.builtin("fx", sys.modules[__name__], __version__)


class TracerBase:
    """Makes nodes and proxies of one graph."""

    graph: Graph
    record_stack_traces: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """A node of the graph."""
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        node.meta["source"] = source()
        return node

    def proxy(self, node: Node) -> Proxy:
        """The proxy that stands for a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """A new node with these arguments, as a proxy."""
        given = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, *given, name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Any:
        """An argument as a node holds it. Raises ``NotImplementedError`` for what none can hold."""
        if isinstance(a, range):
            return range(*map(self.create_arg, (a.start, a.stop, a.step)))
        return map_aggregate(a, self._leaf)

    def _leaf(self, a: Any) -> Any:
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, (Node, DType, Device, int, float, complex, str, bytes)) or a is None:
            return a
        if a is ... or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        """``bool(proxy)``: refused, with the line that asks."""
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow "
            "(at {}:{} in {})".format(*source())
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """``iter(proxy)``: only where the program unpacks into a known number of names."""
        frame: Any = sys._getframe(2)
        code, at = frame.f_code, frame.f_lasti
        found = next((i for i in dis.get_instructions(code) if i.offset == at), None)
        if found is not None and found.opname == "UNPACK_SEQUENCE":
            count = found.argval
            parts: Any = obj
            return (parts[i] for i in range(count))
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a "
            "loop or as a *args or **kwargs function argument. See the documentation of torch.fx "
            "for a more detailed explanation of what types of control flow can be traced "
            "(at {}:{} in {})".format(*source())
        )

    def keys(self, obj: Proxy) -> Any:
        """``proxy.keys()``, as for ``**proxy``."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Appends to a graph that is there."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy(Value):
    """A value that is not known, in whose place a program is run.

    Operators meet it in the table, by the key ``fx`` that it carries; methods, attributes and
    Python's operators are its own. All give proxies again, and a node in the graph each.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        load()
        super().__init__(_UNKNOWN, key_bit("fx"))
        self._dtype = dtypes.float32
        self.node = node
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """A node that calls ``orig_method``, a function that asks its arguments for this."""
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Proxy) else a)
        return found[0].tracer.create_proxy("call_function", orig_method, args, kwargs or {})

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __getstate__(self) -> Any:
        return self.__dict__

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _asserts(inspect.currentframe()):
            told = "an assertion of the traced program, {}:{} in {}".format(*source())
            self.tracer.create_proxy("call_function", _assert, (self, told), {})
            return True
        return self.tracer.to_bool(self)

    def keys_(self) -> Any:
        """The proxy of ``keys()``; the name ``keys`` holds the key set of the table."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be "
            "recorded, please call torch.fx.wrap('len') at module scope "
            "(at {}:{} in {})".format(*source())
        )

    def __contains__(self, item: Any) -> bool:
        raise TraceError(
            "'in' cannot be recorded: its result must be a bool (at {}:{} in {})".format(*source())
        )

    def __index__(self) -> int:
        raise TraceError(
            f"{self!r} is not known, and no number can be made of it, for range(), int() or an "
            "index (at {}:{} in {})".format(*source())
        )

    __int__ = __float__ = __index__

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})

    __hash__ = object.__hash__

    # Values of the registry have these attributes; a program that reads them means the tensor's.
    @property
    def dtype(self) -> Any:
        """A proxy of the element type."""
        return Attribute(self, "dtype")

    @property
    def shape(self) -> Any:
        """A proxy of the sizes."""
        return Attribute(self, "shape")


_UNKNOWN = _Unknown()


class Attribute(Proxy):
    """An attribute of a proxy: a ``getattr`` where it is used, a method where it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr = root, attr
        self.made: Node | None = None
        Value.__init__(self, _UNKNOWN, key_bit("fx"))
        self._dtype = dtypes.float32
        self.tracer = root.tracer

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node of the attribute, made when it is first needed: most are methods."""
        if self.made is None:
            self.made = self.tracer.create_proxy(
                "call_function", getattr, (self.root, self.attr), {}
            ).node
        return self.made

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter, whose sizes and type are known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.name, self.param = name, param

    @property
    def shape(self) -> Any:
        """The sizes of the parameter."""
        return self.param.shape

    @property
    def dtype(self) -> Any:
        """The element type of the parameter."""
        return self.param.dtype

    @property
    def device(self) -> Any:
        """The device of the parameter."""
        return self.param.device

    @property
    def ndim(self) -> int:
        """The number of dimensions of the parameter."""
        return int(self.param.ndim)

    def __len__(self) -> int:
        return len(self.param)

    def size(self, *args: Any) -> Any:
        """The sizes of the parameter, or one of them."""
        return self.param.size(*args)

    def dim(self) -> int:
        """The number of dimensions of the parameter."""
        return int(self.param.dim())

    def numel(self) -> int:
        """The number of elements of the parameter."""
        return int(self.param.numel())


def proxy_in(values: Any) -> Proxy | None:
    """The first proxy among values, however deep; None where there is none."""
    found: list[Proxy] = []
    map_aggregate(values, lambda a: found.append(a) if isinstance(a, Proxy) else a)
    return found[0] if found else None


def _asserts(frame: Any) -> bool:
    """Whether the frame that called ``bool`` is in an ``assert``."""
    calling = frame.f_back
    instructions = list(dis.get_instructions(calling.f_code))
    here = next((n for n, i in enumerate(instructions) if i.offset == calling.f_lasti), None)
    if here is None:
        return False
    return any(i.opname == "LOAD_ASSERTION_ERROR" for i in instructions[here : here + 3])


def _method(fn: Any, reflected: bool) -> Callable[..., Any]:
    def method(self: Proxy, *others: Any) -> Any:
        args = (*others, self) if reflected else (self, *others)
        return self.tracer.create_proxy("call_function", fn, args, {})

    return method


for _name in "add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor".split():
    _fn, _plain = getattr(operator, _name), _name.strip("_")
    setattr(Proxy, f"__{_plain}__", _method(_fn, False))
    setattr(Proxy, f"__r{_plain}__", _method(_fn, True))
    setattr(Proxy, f"__i{_plain}__", _method(getattr(operator, f"i{_plain}"), False))
for _name in "lt le gt ge eq ne neg pos invert getitem".split():
    setattr(Proxy, f"__{_name}__", _method(getattr(operator, _name), False))


def _record(call: Any, args: tuple[Any, ...]) -> Any:
    """The kernel of the layer for every operator: a node."""
    proxy = proxy_in(args)
    if proxy is None:
        raise TraceError(f"{call.op.name} was called with a proxy that cannot be found")
    given, named = spelled(call.op, args)
    return _call(proxy.tracer, call.op, given, named)


def _written(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with keywords, or by another signature: a node as it is written."""
    proxy: Any = proxy_in((args, kwargs))
    return _call(proxy.tracer, op, args, kwargs)


def _call(tracer: TracerBase, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
    """A node that calls what the program names: ``nn.functional`` has functions over operators."""
    function = FUNCTIONS.get(op.name)
    if function is None or "" in op.namespaces:  # the other says itself that it was called
        return tracer.create_proxy("call_function", op, _in_a_row(op, args), kwargs)
    names = [p.name for p in op.schema.params]
    first = function.spelled_positions  # so many mean the same in both
    named = {**dict(zip(names[first:], args[first:])), **kwargs}
    return tracer.create_proxy("call_function", function, args[:first], named)


def _in_a_row(op: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``einsum(equation, [a, b])`` as ``einsum(equation, a, b)``: as PyTorch writes both."""
    if op.name == "einsum" and len(args) == 2 and isinstance(args[1], (list, tuple)):
        return (args[0], *args[1]) if isinstance(args[0], str) else args
    return args


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``fx``, above all others."""
    registrar.layer(Layer("fx", generic=_record, written=_written, above=("*",), alone=True))
