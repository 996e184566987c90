"""What a captured call returned or left behind, described so that later calls can build it."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.compiling.attributes import attributes_of
from coredispatch.frontend.compiling.checking import base_of
from coredispatch.frontend.compiling.classes import by_user, python_class
from coredispatch.frontend.compiling.numbers import Following, Sym, plain
from coredispatch.frontend.compiling.records import MISSING
from coredispatch.frontend.compiling.state import State
from coredispatch.frontend.modes import is_inference_mode_enabled
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.graph import Node, map_arg
from coredispatch.graph.symbols import Expression
from coredispatch.plugin import Device, DType, Operator, Value, dispatch

__all__ = ["CONTAINERS_GIVEN", "Builder", "Constant", "Describer", "Row", "Taken"]

#: the key of the arguments' containers among the values of the nodes
CONTAINERS_GIVEN = object()
#: builds a value from the values of the nodes
Builder = Callable[[Any], Any]


class Constant:
    """Builds the same in every call."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, env: Any) -> Any:
        return self.value


class Taken:
    """Builds what a node made, or another tensor over the same memory.

    Attributes:
        node: the node.
        alias: how that tensor is made of it, ``detach()`` or ``data``, once in a call.
    """

    alias = ""

    def __init__(self, node: Any) -> None:
        self.node = node

    def __call__(self, env: Any) -> Any:
        made = env[self.node]
        if not self.alias:
            return made
        found = env.get(self, MISSING)
        if found is MISSING:
            found = env[self] = made.detach() if self.alias == "detach()" else made.data
        return found


class Row:
    """Builds a tuple or a list, once in a call."""

    def __init__(self, kind: type, parts: list[Builder]) -> None:
        self.kind, self.parts = kind, parts

    def __call__(self, env: Any) -> Any:
        found = env.get(self, MISSING)
        if found is MISSING:
            found = env[self] = self.kind([part(env) for part in self.parts])
        return found


class Unknown(Exception):
    """A value that later calls cannot build."""


class Describer:
    """Turns values into builders.

    Args:
        recorder: knows the nodes of tensors and numbers.
        state: knows what was there before.
        leaves: objects among the arguments.
        containers: those of the arguments, which each call has of its own.

    Attributes:
        wanted: the nodes whose values the builders need.
        tensors: the tensors among the values that a node made.
    """

    def __init__(
        self, recorder: Any, state: State, leaves: list[Any], containers: list[Any]
    ) -> None:
        self.recorder, self.state = recorder, state
        self.wanted: dict[Any, None] = {}
        self.tensors: list[tuple[Any, Any]] = []
        self.memo: dict[int, Builder] = {}
        self.describing: set[int] = set()
        self.several: dict[Any, Builder] = {}  # views that one call makes
        self.over: dict[Any, list[tuple[Any, Builder]]] = {}  # tensors over a node's memory
        self.outside = {id(leaf) for leaf in leaves}
        self.containers = {id(container): i for i, container in enumerate(containers)}
        self.own = {id(value): node for node, value, _ in recorder.inputs}

    def describe(self, value: Any) -> Builder:
        """The builder of ``value``; :class:`Unknown` where there is none."""
        if value is MISSING or value is None or isinstance(value, (str, bytes)):
            return Constant(value)
        if isinstance(value, Sym):
            return self._node(value.node)
        if isinstance(value, Expression):
            return self._node(self.recorder.size(value))
        if isinstance(value, (bool, int, float, complex, Following)):
            return Constant(plain(value))
        if isinstance(value, Value):
            return self._tensor(value)
        known = self.memo.get(id(value))
        if known is not None:
            return known
        if id(value) in self.describing:
            raise Unknown(f"a {type(value).__name__} that holds itself leaves the program")
        self.describing.add(id(value))
        made = self._object(value)
        self.describing.discard(id(value))
        self.memo[id(value)] = made
        return made

    def _node(self, node: Any) -> Builder:
        self.wanted.setdefault(node)
        return Taken(node)

    def _tensor(self, tensor: Any) -> Builder:
        node = self.own.get(id(tensor))
        if node is not None:
            return self._node(node)
        if id(tensor) in self.state.seen:
            node = self.recorder.node_of(tensor)
            if node is None or self.recorder.examples.get(node) is tensor:
                return self._node(node)
            where = self.state.homes[id(tensor)]  # another one stands for both: they share memory
            if where is None or not where.dynamic:
                return Constant(tensor)
            return lambda env: where.now()
        names = attributes_of(tensor)
        if not names:
            return self._made(tensor)
        known = self.memo.get(id(tensor))
        if known is None:
            known = self.memo[id(tensor)] = self._with_attributes(tensor, names)
        return known

    def _with_attributes(self, tensor: Any, names: tuple[str, ...]) -> Builder:
        """What the program made and gave attributes."""
        made = self._made(tensor)
        parts = {name: self.describe(vars(tensor)[name]) for name in names}

        def build(env: Any) -> Any:
            found = made(env)
            found.__dict__.update({name: part(env) for name, part in parts.items()})
            return found

        return _shared(build)

    def _made(self, tensor: Any) -> Builder:
        if type(tensor) is not Tensor:
            raise Unknown(f"a new {type(tensor).__name__} leaves the program")
        chain = self._views(tensor)
        if chain is not None:
            return chain
        node = self.recorder.known.get(id(tensor.raw))
        if node is None:
            raise Unknown(f"a tensor of shape {tuple(tensor.shape)} that no operator made")
        if node.op == "placeholder":  # an alias of an input, detached
            self.wanted.setdefault(node)
            if tensor.keys & AUTOGRAD:
                raise Unknown("an alias of an input that requires grad leaves the program")
            if tensor._view is None:
                return _shared(lambda env: env[node].data)
            return _shared(lambda env: env[node].detach())
        self.tensors.append((tensor, node))
        self.wanted.setdefault(node)
        if any(id(base.raw) in self.recorder.borrowed for base in (tensor, base_of(tensor))):
            raise Unknown("a tensor over the memory of a NumPy array leaves the program")
        if tensor.is_inference() and not is_inference_mode_enabled():
            raise Unknown("an inference tensor leaves the program")
        return self._taken(tensor, node)

    def _taken(self, tensor: Any, node: Any) -> Builder:
        """What a node made; it is one of the tensors over that memory, the others are aliases."""
        over = self.over.setdefault(node, [])
        for other, builder in over:
            if other is tensor:
                return builder
        leaf = bool(tensor.keys & AUTOGRAD) and tensor._node is None
        made: Builder
        if tensor._grad is not None:
            made = _with_gradient(node, leaf, self.describe(tensor._grad))
        else:
            made = _leaf(node) if leaf else Taken(node)
        over.append((tensor, made))
        if len(over) > 1:
            if not all(isinstance(builder, Taken) for _, builder in over):
                raise Unknown("tensors over one memory leave the program, one of them a leaf")
            self._share(over)
        return made

    def _share(self, over: list[tuple[Any, Any]]) -> None:
        """One of these tensors is what the node made: the one that the others were detached from.

        Where that one stays inside, a detached one is: they all count the same versions.
        """
        given = [tensor for tensor, _ in over]
        own = [tensor for tensor in given if tensor.keys & AUTOGRAD]
        if len(own) > 1:
            raise Unknown("tensors over one memory leave the program, with gradients each")
        detached = [tensor for tensor in given if _is_detached(tensor)]
        own += [tensor for tensor in given if any(d._view.base is tensor for d in detached)]
        owner = (own or detached or given)[0]
        for tensor, taken in over:
            how = "detach()" if _is_detached(tensor) else "data"
            taken.alias = "" if tensor is owner else how

    def _views(self, tensor: Any) -> Builder | None:
        """A view of an input is made anew, by the operators that made it."""
        links: list[Any] = []
        at = tensor
        while at._view is not None and id(at) not in self.own:
            links.append(at._view)
            at = at._view.base
        if not links or id(at) not in self.own:
            return None
        for link in links:
            if link.position or link.member >= 0 or link.renamed:
                raise Unknown("a view of an input leaves the program, made in a way of its own")
            if link.custom or any(isinstance(item, Value) for item in link.args):
                raise Unknown("a view of an input leaves the program, made by tensors")
        node = self.recorder.known.get(id(tensor.raw))
        if node is not None and _counts(node):  # the links have the numbers of this call alone
            return self._recorded(node)
        return self._view(tensor)

    def _recorded(self, node: Any) -> Builder:
        """The builder of a view of an input by the operators that were recorded."""
        if node.op == "placeholder":
            return self._node(node)
        known = self.several.get(node)
        if known is not None:
            return known
        target, base = node.target, node.args[0]
        if target is not operator.getitem and not (isinstance(target, Operator) and target.view):
            raise Unknown("a view of an input leaves the program, made by what is no view")
        inner, rest = self._recorded(base), (node.args[1:], node.kwargs)
        map_arg(rest, self.wanted.setdefault)

        def build(env: Any) -> Any:
            args, named = map_arg(rest, env.__getitem__)
            return target(inner(env), *args, **named)

        made = self.several[node] = _shared(build)
        return made

    def _view(self, tensor: Any) -> Builder:
        """The builder of an input, or of a view of one: views of one call come from one call."""
        node = self.own.get(id(tensor))
        if node is not None:
            return self._node(node)
        known = self.memo.get(id(tensor))
        if known is not None:
            return known
        link = tensor._view
        base, op = self._view(link.base), link.op
        place = link.args[-1] if link.multi_output else None
        args = self.recorder.argument(link.args if place is None else link.args[:-1])
        map_arg(args, self.wanted.setdefault)  # sizes that are open
        made: Builder = _shared(
            lambda env: dispatch(op, (base(env), *map_arg(args, env.__getitem__)))
        )
        if place is not None:
            several = self.several.setdefault((id(link.base), op, repr(args)), made)
            made = _shared(lambda env: several(env)[place])
        self.memo[id(tensor)] = made
        return made

    def _object(self, value: Any) -> Builder:
        kind = type(value)
        if id(value) in self.state.shown and kind is not tuple:
            raise Unknown("a container that is replaced in each call is kept elsewhere, too")
        if id(value) in self.state.seen or id(value) in self.outside:
            return Constant(value)
        place = self.containers.get(id(value))
        if place is not None:
            return lambda env: env[CONTAINERS_GIVEN][place]
        if kind is collections.deque and value.maxlen is not None:
            parts, most = [self.describe(item) for item in value], value.maxlen
            return _shared(lambda env: collections.deque([part(env) for part in parts], most))
        if kind is slice:
            limits = [self.describe(item) for item in (value.start, value.stop, value.step)]
            return _shared(lambda env: slice(*[limit(env) for limit in limits]))
        if kind in (tuple, list, set, frozenset, collections.deque):
            return Row(kind, [self.describe(item) for item in value])
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = [self.describe(item) for item in value]
            return _shared(lambda env: kind(*[part(env) for part in fields]))
        if kind in (dict, collections.OrderedDict):
            pairs = [(self.describe(k), self.describe(v)) for k, v in value.items()]
            return _shared(lambda env: kind([(k(env), v(env)) for k, v in pairs]))
        if kind is collections.defaultdict:
            pairs = [(self.describe(k), self.describe(v)) for k, v in value.items()]
            factory = value.default_factory
            return _shared(lambda env: kind(factory, [(k(env), v(env)) for k, v in pairs]))
        if kind.__module__.startswith("coredispatch.return_types") or (isinstance(value, tuple)):
            return Row(kind, [self.describe(item) for item in value])
        if isinstance(value, _FIXED):
            return Constant(value)
        if by_user(kind) and python_class(kind) and not hasattr(kind, "__slots__"):
            members = {name: self.describe(item) for name, item in vars(value).items()}
            cls: Any = kind

            def build(env: Any) -> Any:
                made = cls.__new__(cls)
                made.__dict__.update({name: part(env) for name, part in members.items()})
                return made

            return _shared(build)
        raise Unknown(f"a new {kind.__module__}.{kind.__name__} leaves the program")


def _is_detached(tensor: Any) -> bool:
    return tensor._view is not None and tensor._view.op.name == "detach"


def _counts(node: Any) -> bool:
    """Whether numbers that differ from call to call decide what a view of an input shows."""
    while node.op != "placeholder":
        if not (node.args and isinstance(node.args[0], Node)):
            return False
        if len(node.all_input_nodes) > 1:
            return True
        node = node.args[0]
    return False


_FIXED = (
    range,
    type,
    frozenset,
    DType,
    Device,
    types.BuiltinFunctionType,
    types.ModuleType,
)


def _leaf(node: Any) -> Builder:
    """A tensor of the program that gradients end at."""
    return lambda env: env[node].requires_grad_()


def _with_gradient(node: Any, leaf: bool, gradient: Builder) -> Builder:
    """A tensor of the program that the program computed a gradient of."""

    def build(env: Any) -> Any:
        tensor = env[node].requires_grad_() if leaf else env[node]
        tensor._grad = gradient(env)
        return tensor

    return build


def _shared(build: Builder) -> Builder:
    """What stands in several places is built once in a call."""
    key = object()

    def once(env: Any) -> Any:
        found = env.get(key, MISSING)
        if found is MISSING:
            found = env[key] = build(env)
        return found

    return once
