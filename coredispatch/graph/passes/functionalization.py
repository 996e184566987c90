"""Programs without writes: views and what is written through them become values.

The pass follows the program with a table of memories. Every tensor of the program is a memory and
the chain of views that leads from it (:class:`_Place`); a write gives the memory a new value, and a
view that is read afterwards is taken of that value anew.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from coredispatch.graph.calls import bound_arguments, call, known, operator_of
from coredispatch.graph.graph import Graph, GraphError
from coredispatch.graph.node import Node, map_aggregate, map_arg
from coredispatch.graph.passes.aliasing import Aliases, may_alias
from coredispatch.graph.passes.view_writes import (
    ViewStep,
    applied,
    in_order,
    of_any_strides,
    part,
    written,
)
from coredispatch.graph.targets import AUGMENTED
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import Operator, rules
from coredispatch.registry import TABLE

__all__ = ["Written", "functionalize"]


class Written(NamedTuple):
    """What a program writes to: ``kind`` is "input" or "attribute", ``name`` its name or path."""

    kind: str
    name: str


def functionalize(graph: Graph, *, write_back: bool = False) -> Graph:
    """A graph of the same meaning in which no operator writes.

    In-place operators become the operators that give the new value, writes through views a new
    value of what is viewed, and operators such as ``batch_norm`` that write beside what they return
    their functional forms. What was written to inputs and attributes comes back: the output is
    ``(result, (new value, ...))``, and ``made.meta["written"]`` names them in that order, a tuple
    of :class:`Written`. It is ``()``, and the output ``(result, ())``, where nothing is written.

    With ``write_back`` the result alone is returned, as before; the new values are copied to where
    they belong by the last nodes, the only ones that write, and results that were views of what
    was written are views of it still.

    Inputs are taken to have memories of their own: who calls the program with two that share one
    has to make a graph for that case. Modules are called as they are, so inline those that write
    first (:func:`~coredispatch.graph.passes.inlining.inline_modules`).

    Raises :class:`GraphError` where it cannot be told what a write changes: a value that a module,
    a control node or an unknown function may alias.

    Example:
        >>> def program(x):
        ...     y = x.view(-1)
        ...     y[0] = 1.0
        ...     return y + 1
        >>> graph = cd.jit.trace(program, cd.zeros(2, 2)).graph
        >>> print(functionalize(graph))  # doctest: +SKIP
    """
    made = _Functionalization(graph).run(write_back)
    made.eliminate_dead_code()
    made.lint()
    return made


class _Memory:
    """Elements that several tensors share: their value, and the views taken of it."""

    def __init__(self, value: Node, origin: Written | None = None) -> None:
        self.value = value
        self.first = value
        self.origin = origin
        self.taken: dict[tuple[ViewStep, ...], Node] = {}
        self.calls: dict[Any, Node] = {}

    @property
    def changed(self) -> bool:
        return self.value is not self.first

    def write(self, value: Node) -> None:
        self.value = value
        self.taken = {}


class _Place(NamedTuple):
    """A tensor of the program: a memory, and the views that lead from it."""

    memory: _Memory
    steps: tuple[ViewStep, ...] = ()


class _Parts(NamedTuple):
    """Several views that one operator gave, or several results of their own."""

    node: Node
    places: tuple[_Place, ...]
    kind: type = list


class _Functionalization:
    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.new = Graph(graph.owning_module)
        self.aliases = Aliases(graph)
        self.env: dict[Node, Any] = {}  # _Place, _Parts, or what stands for the node
        self.attributes: dict[str, _Memory] = {}
        self.memories: list[_Memory] = []

    def run(self, write_back: bool) -> Graph:
        for node in self.old.nodes:
            if node.op == "output":
                self.finish(node, write_back)
                break
            self.at = node
            before = self.new._insert_after
            self.env[node] = self.step(node)
            self.noted(before)
        else:
            raise GraphError("the graph has no output", fix="call graph.output(...)")
        return self.new

    def noted(self, before: Node) -> None:
        """What was made for a node comes from its line."""
        made = before.next
        while made is not self.new._root:
            for key in ("source", "scope"):
                if key in self.at.meta:
                    made.meta.setdefault(key, self.at.meta[key])
            made = made.next

    # -- reading ---------------------------------------------------------------------------------

    def read(self, value: Any) -> Any:
        """Arguments of a call, with the nodes of the new graph."""
        return map_arg(value, lambda node: self.current(self.env[node]))

    def current(self, held: Any) -> Any:
        if isinstance(held, _Parts):
            # Code that takes them together takes them as they are now.
            return held.kind([self.current(place) for place in held.places])
        if not isinstance(held, _Place):
            return held
        memory, steps = held
        at = memory.value
        for count in range(1, len(steps) + 1):
            chain = steps[:count]
            if chain not in memory.taken:
                memory.taken[chain] = applied(self.new, chain[-1], at, memory.calls)
            at = memory.taken[chain]
        return at

    # -- steps -----------------------------------------------------------------------------------

    def step(self, node: Node) -> Any:
        if node.op == "placeholder":
            made = self.new.node_copy(node)
            return self.memory(made, Written("input", node.target))
        if node.op == "get_attr":
            known_memory = self.attributes.get(node.target)
            if known_memory is None:
                made = self.new.node_copy(node)
                place = self.memory(made, Written("attribute", node.target))
                self.attributes[node.target] = place.memory
                return place
            return _Place(known_memory)
        if node.target is operator.getitem and isinstance(self.held(node.args[0]), _Parts):
            return self.held(node.args[0]).places[node.args[1]]
        op, args = self.operator(node)
        if op is not None and args is not None:
            if op.mutates:
                return self.write(node, op, args)
            if op.view and may_alias(node):
                return self.view(node, op, args)
            if op.schema.multi_output and self.aliases.of(node) in self.aliases.written:
                made = self.same(node).memory.value
                count = range(self.count(node))
                places = tuple(self.memory(part(self.new, made, number)) for number in count)
                return _Parts(made, places, tuple)
        elif self.aliases.of(node) in self.aliases.written:
            self.plain_function(node)
        return self.same(node)

    def held(self, argument: Any) -> Any:
        return self.env.get(argument) if isinstance(argument, Node) else None

    def memory(self, made: Node, origin: Written | None = None) -> _Place:
        memory = _Memory(made, origin)
        self.memories.append(memory)
        return _Place(memory)

    def same(self, node: Node) -> Any:
        """The call as it stands, on the values of now; its result has a memory of its own."""
        args, kwargs = self.read((node.args, node.kwargs))
        made = self.new.create_node(
            node.op,
            node.target,
            args,
            kwargs,
            node.name,
            node.type,
            tuple(self.inner(node, inner) for inner in node.graphs),
        )
        made.meta = dict(node.meta)
        return self.memory(made)

    def inner(self, node: Node, graph: Graph) -> Graph:
        """A graph of a control node, which may write to what it made itself only."""
        made = functionalize(graph, write_back=True)
        if made.meta["written"]:
            names = ", ".join(repr(written.name) for written in made.meta["written"])
            raise GraphError(
                f"a graph of {node.name!r} writes to {names}, which it was given",
                fix="return the new value from the branch, or from the body of the loop",
            )
        return made

    def operator(self, node: Node) -> tuple[Operator | None, tuple[Any, ...] | None]:
        """The operator of the table that a node comes to, with complete arguments."""
        if node.op == "call_function" and self.tensor(node):
            name = _SPELLED.get(node.target)
            if name is not None:
                op = TABLE.operator(name)
                index = node.args[1]
                if name in ("getitem", "index_put_") and not isinstance(index, tuple):
                    index = (index,)
                given = (node.args[0], index, *node.args[2:])
                defaults = tuple(p.default for p in op.schema.params[len(given) :])
                return op, (*given, *defaults)
        op = operator_of(node)
        if op is None:
            return None, None
        args = bound_arguments(op, node)
        if args is None and (op.mutates or op.view):
            raise GraphError(
                f"{node.name!r} calls {op.name!r} in a way that its schema does not tell: "
                f"{op.schema}",
                fix="trace the program, which completes arguments",
            )
        return op, args

    def tensor(self, node: Node) -> bool:
        """Whether what a function of Python is called with is known to be a tensor."""
        return bool(node.args) and isinstance(known(node.args[0]), ValueInfo)

    def plain_function(self, node: Node) -> None:
        if node.op in ("call_function", "call_method") and not may_alias_memory(node):
            return
        raise GraphError(
            f"the program writes to something that {node.format_node()} may share memory with, and "
            "nothing tells whether it does",
            fix="inline modules first (passes.inlining), or trace through the function",
        )

    # -- views and writes ------------------------------------------------------------------------

    def view(self, node: Node, op: Operator, args: tuple[Any, ...]) -> Any:
        alias = op.schema.aliases[0]
        position = alias.position
        several = op.schema.multi_output
        listed = isinstance(args[position], (tuple, list))
        rest = self.read((*args[:position], None, *args[position + 1 :]))
        if listed:
            rest = (*rest[:position], self.read(args[position]), *rest[position + 1 :])
        count = self.count(node) if several else 1
        places: list[_Place] = []
        siblings = object()
        for number in range(count):
            target = args[position][number] if listed else args[position]
            base = self.held(target)
            if not isinstance(base, _Place):
                return self.same(node)
            if op.name == "as_strided":
                self.check_strided(node, target, base)
            member, own = number if listed else None, number if several else None
            step = ViewStep(op, rest, position, member, own, siblings)
            places.append(_Place(base.memory, (*base.steps, step)))
        if not several:
            self.take(node, places[0], self.new_view(node))
            return places[0]
        made = self.new_view(node)
        for number, place in enumerate(places):
            self.take(node, place, part(self.new, made, number))
        return _Parts(made, tuple(places))

    def check_strided(self, node: Node, target: Node, base: _Place) -> None:
        """Such a view means memory as it lies; that of a new value is in row-major order."""
        info = known(target)
        if self.aliases.of(node) not in self.aliases.written:
            return
        if base.steps or not (isinstance(info, ValueInfo) and info.contiguous):
            raise GraphError(
                f"{node.name!r} is a strided view of memory that is written to, and "
                f"{target.name!r} is not known to be all of it in row-major order",
                fix="use indices, narrow() or unfold(), which do not depend on how memory lies",
            )

    def new_view(self, node: Node) -> Node:
        """The view as the program takes it, of the value of now."""
        values = {n: self.current(self.env[n]) for n in node.all_input_nodes}
        op = node.target
        if isinstance(op, Operator) and self.moved(node):
            op = of_any_strides(op, node.args)
            if op is None:
                values[node.args[0]] = in_order(self.new, values[node.args[0]])
        made = self.new.node_copy(node, values.__getitem__)
        made.target = op or node.target
        return made

    def moved(self, node: Node) -> bool:
        """Whether the memory that a node views was written: the new value may lie otherwise."""
        held = self.held(node.args[0])
        return isinstance(held, _Place) and held.memory.changed

    def take(self, node: Node, place: _Place, made: Node) -> None:
        place.memory.taken[place.steps] = made

    def count(self, node: Node) -> int:
        info = known(node)
        if isinstance(info, (tuple, list)):
            return len(info)
        parts = [n.args[1] for n in node.users if n.target is operator.getitem]
        if len(parts) == len(node.users) and all(type(p) is int and p >= 0 for p in parts):
            return max(parts, default=-1) + 1
        raise GraphError(
            f"nothing tells how many results {node.name!r} has",
            fix="trace the program: jit.trace notes it",
        )

    def write(self, node: Node, op: Operator, args: tuple[Any, ...]) -> Any:
        """The functional form, and its results as the new values of what was written."""
        given = self.read(args)
        targets: list[Node] = []
        for mutation in op.schema.mutations:
            if mutation.happens(given):
                map_arg(args[mutation.position], targets.append)
        if not targets:
            return self.same(node)
        functional = op.functional
        assert functional is not None  # every operator that writes has one
        made = call(self.new, functional, given)
        if functional.schema.multi_output:
            own = 0 if op.schema.returns == "None" else self.own_results(op, node)
            results = [part(self.new, made, i) for i in range(own + len(targets))]
        else:
            own, results = 0, [made]
        for target, value in zip(targets, results[own:], strict=True):
            self.assign(node, target, value, may_promote(op))
        if op.schema.returns == "None":
            return None
        outputs: list[Any] = [self.memory(value) for value in results[:own]]
        for alias in sorted((a for a in op.schema.aliases if a.itself), key=_result):
            outputs.insert(alias.result or 0, self.env[args[alias.position]])
        return _Parts(made, tuple(outputs)) if op.schema.multi_output else outputs[0]

    def own_results(self, op: Operator, node: Node) -> int:
        """How many results an operator returns that are not what it wrote to."""
        itself = sum(1 for alias in op.schema.aliases if alias.itself)
        return (self.count(node) if op.schema.multi_output else 1) - itself

    def assign(self, node: Node, target: Node, value: Node, promotes: bool) -> None:
        """``value`` is what ``target`` has from now on; it keeps its dtype."""
        place = self.env[target]
        if not isinstance(place, _Place):
            raise GraphError(f"{node.name!r} writes to {target.name!r}, which is no tensor")
        memory, steps = place
        before = self.current(place)
        if promotes and not _same_dtype(before, value):
            value = call(self.new, TABLE.operator("type_as"), (value, before))
        bases = [self.current(_Place(memory, steps[:count])) for count in range(len(steps))]
        new = value
        for step, base in zip(reversed(steps), reversed(bases)):
            new = written(self.new, step, base, new)
        memory.write(new)

    # -- the end ---------------------------------------------------------------------------------

    def finish(self, node: Node, write_back: bool) -> None:
        changed = [m for m in self.memories if m.origin is not None and m.changed]
        if not write_back:
            result = self.read(node.args[0])
            self.new.output((result, tuple(m.value for m in changed)), node.type)
        else:
            copy = TABLE.operator("copy_")
            finals = [(memory, memory.value) for memory in changed]
            # Views that are returned are to be views of what was written; all else is read before.
            own = {m for m, _ in finals}
            place = lambda n: isinstance(self.env[n], _Place) and self.env[n].memory in own  # noqa: E731
            early: dict[Node, Any] = {}
            map_arg(node.args[0], lambda n: None if place(n) else early.setdefault(n, self.read(n)))
            for memory, value in finals:
                call(self.new, copy, (memory.first, value, False), info=False)
                memory.write(memory.first)
            result = map_arg(node.args[0], lambda n: early[n] if n in early else self.read(n))
            self.new.output(result, node.type)
        self.new.meta = {**self.old.meta, "written": tuple(m.origin for m in changed)}


def may_alias_memory(node: Node) -> bool:
    """Whether a function of Python may return memory of its arguments: a number is none."""
    info = known(node)
    if info is None:
        return True
    found: list[Any] = []
    map_aggregate(info, found.append)
    return any(isinstance(item, ValueInfo) for item in found)


def may_promote(op: Operator) -> bool:
    """Whether the functional form may give another dtype than the tensor written to has."""
    return op.inplace_of is not None and op.dtype_rule is not rules.same


def _same_dtype(a: Node, b: Node) -> bool:
    one, other = known(a), known(b)
    both = isinstance(one, ValueInfo) and isinstance(other, ValueInfo)
    return both and one.dtype is other.dtype


def _result(alias: Any) -> int:
    return alias.result or 0


#: functions of Python that are operators where they are called with a tensor
_SPELLED: dict[Any, str] = {
    operator.getitem: "getitem",
    operator.setitem: "index_put_",
    **{fn: f"{fn.__name__[1:]}_" for fn in AUGMENTED},
}
