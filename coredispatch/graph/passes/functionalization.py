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
from coredispatch.graph.kinds import INPLACE, is_number, is_tensor
from coredispatch.graph.node import Node, map_aggregate, map_arg
from coredispatch.graph.passes.aliasing import Aliases, may_alias, written_by
from coredispatch.graph.passes.control_flow import Flow, lift_attributes, operands_of, places_of
from coredispatch.graph.passes.view_writes import (
    ViewStep,
    applied,
    in_order,
    of_any_strides,
    part,
    written,
)
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
    has to make a graph for that case. Inputs of which nothing is known are taken for tensors.
    Branches and loops give back what they write to. Modules are called as they are, so inline those
    that write first (:func:`~coredispatch.graph.passes.inlining.inline_modules`).

    Raises :class:`GraphError` where it cannot be told what a write changes: a value that a module
    or an unknown function may alias, or that one of two branches returns and the other does not.

    Example:
        >>> def program(x):
        ...     y = x.view(-1)
        ...     y[0] = 1.0
        ...     return y + 1
        >>> graph = cd.jit.trace(program, cd.zeros(2, 2)).graph
        >>> print(functionalize(graph))  # doctest: +SKIP
    """
    old = graph.copy()
    for place in old.placeholders:
        if "value" not in place.meta and place.type is None:
            place.meta.setdefault("type", "Tensor")
    lift_attributes(old)
    made = _Functionalization(old).run(write_back)
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
        self.order = {node: number for number, node in enumerate(graph.nodes)}

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
        if node.op == "set_attr":
            self.check_attribute(node)
        if node.graphs:
            return self.control(node)
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

    def same(self, node: Node, graphs: tuple[Graph, ...] = ()) -> Any:
        """The call as it stands, on the values of now; its result has a memory of its own."""
        args, kwargs = self.read((node.args, node.kwargs))
        made = self.new.create_node(
            node.op, node.target, args, kwargs, node.name, node.type, graphs
        )
        made.meta = dict(node.meta)
        return self.memory(made)

    def operator(self, node: Node) -> tuple[Operator | None, tuple[Any, ...] | None]:
        """The operator of the table that a node comes to, with complete arguments."""
        if node.op == "call_function" and node.args and is_tensor(node.args[0]):
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

    def plain_function(self, node: Node) -> None:
        if node.op in ("call_function", "call_method") and not may_alias_memory(node):
            return
        raise GraphError(
            f"the program writes to something that {node.format_node()} may share memory with, and "
            "nothing tells whether it does",
            fix="inline modules first (passes.inlining), say what values are "
            "(passes.inference.infer_values), or trace through the function",
        )

    # -- branches and loops ----------------------------------------------------------------------

    def control(self, node: Node) -> Any:
        """A branch or loop whose graphs write nothing; what they wrote to is among its results."""
        operands, looped = operands_of(node), node.op == "loop"
        inner = [self.inner(node, graph) for graph in node.graphs]
        held = [work.operands(node) for work in inner]
        wrote = sorted({n for each in held for n, m in enumerate(each) if m and m.changed})
        if not wrote and self.aliases.of(node) not in self.aliases.written:
            return self.same(node, tuple(work.ended(()) for work in inner))
        flow = Flow(node)
        passed = [_passed(inner, held, flow, n, looped) for n in range(len(flow.aliased))]
        self.check_flow(node, flow, passed, wrote)
        further = [] if looped else wrote
        ends = [
            work.ended(tuple(each[n].value if each[n] else work.read(places[n]) for n in further))
            for work, each, places in zip(
                inner, held, [places_of(node, graph) for graph in node.graphs]
            )
        ]
        infos = known(node)
        made = self.same(node, tuple(ends)).memory.value
        made.meta.pop("value", None)
        count = made.meta.pop("results", None)
        values = [made]
        if flow.several or further:
            values = [part(self.new, made, n) for n in range(len(passed) + len(further))]
        for number, value in enumerate(values[: len(passed)]):
            info = infos[number] if flow.several and infos is not None else infos
            if info is not None:
                value.meta["value"] = info
        for number, position in enumerate(wrote):
            if not looped:
                self.assign(node, operands[position], values[len(passed) + number], False)
            elif passed[position] is not None:  # else nobody looks at it after the loop
                self.assign(node, operands[position], values[position], False)
        places = [
            self.memory(value) if number is None else self.env[operands[number]]
            for value, number in zip(values, passed)
        ]
        return _Parts(made, tuple(places[:count]), tuple) if flow.several else places[0]

    def inner(self, node: Node, graph: Graph) -> _Functionalization:
        """A graph of a control node, followed to its end."""
        for place, operand in zip(places_of(node, graph), operands_of(node)):
            if is_tensor(operand):
                place.meta.setdefault("type", "Tensor")
        work = _Functionalization(graph)
        work.run(False)
        return work

    def operands(self, node: Node) -> list[_Memory | None]:
        """Of a graph of a control node: the memories of its operands."""
        held = [self.env[place] for place in places_of(node, self.old)]
        return [place.memory if isinstance(place, _Place) else None for place in held]

    def ended(self, further: tuple[Any, ...]) -> Graph:
        """The graph, with its result and ``further`` values behind it as what it returns."""
        last = self.new.output_node()
        assert last is not None
        result = last.args[0][0]
        if further:
            result = (*(result if isinstance(result, tuple) else (result,)), *further)
        last.args = (result,)
        self.new.meta = dict(self.old.meta)
        return self.new

    def check_flow(
        self, node: Node, flow: Flow, passed: list[int | None], wrote: list[int]
    ) -> None:
        """Refuse where a write depends on the way that was taken, or on the turn."""
        operands = operands_of(node)
        memories = [getattr(self.held(operand), "memory", None) for operand in operands]
        for n in wrote:
            if memories[n] is None or memories.count(memories[n]) > 1:
                raise GraphError(
                    f"a graph of {node.name!r} writes to {operands[n]!r}, which shares memory with "
                    "another value that it was given, or is no tensor",
                    fix="take the view inside of the branch or loop, or clone() one of the two",
                )
        later = any(
            self.order[n] > self.order[node] and self.aliases.of(used) is self.aliases.of(node)
            for n in self.old.nodes
            for used in written_by(n)
        )
        turns = node.op == "loop" and bool(wrote)
        if flow.shared and (later or turns):
            raise GraphError(
                f"two results of {node.name!r} may share memory that is written to",
                fix="clone() one of them where the branch or the turn ends",
            )
        moved = {p for own, kept in zip(flow.aliased, passed) if kept is None for p in own}
        if turns:
            moved |= {n for n in wrote if passed[n] is None}
        for position in moved if later or turns else ():
            if not self.dead(node, operands[position]):
                raise GraphError(
                    f"a result of {node.name!r} may be {operands[position]!r} or another value, as "
                    "the way or the number of turns has it, and it is written to",
                    fix="clone() the value in front of the branch or loop",
                )

    def dead(self, node: Node, operand: Any) -> bool:
        """Whether nobody looks at the memory of ``operand`` after ``node``."""
        held = self.held(operand)
        if not isinstance(held, _Place):
            return not isinstance(operand, Node)
        for other, place in self.env.items():
            places = place.places if isinstance(place, _Parts) else (place,)
            if any(isinstance(p, _Place) and p.memory is held.memory for p in places):
                if any(self.order[user] > self.order[node] for user in other.users):
                    return False
        return held.memory.origin is None

    def check_attribute(self, node: Node) -> None:
        """An attribute that is assigned is read anew afterwards."""
        self.attributes.pop(node.target, None)
        value = node.args[0]
        if isinstance(value, Node) and self.aliases.of(value) in self.aliases.written:
            shared = self.aliases.of(value)
            for later in self.old.nodes:
                if self.order[later] > self.order[node]:
                    if any(self.aliases.of(used) is shared for used in written_by(later)):
                        raise GraphError(
                            f"{later.name!r} writes to {value.name!r}, which {node.target!r} was "
                            "set to before",
                            fix="write first, and set the attribute afterwards",
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


def _passed(
    inner: list[_Functionalization],
    held: list[list[_Memory | None]],
    flow: Flow,
    number: int,
    looped: bool,
) -> int | None:
    """The number of the operand that this result is in every graph, None where it is none."""
    found: set[int | None] = set()
    for work, memories, results in zip(inner, held, flow.results):
        place = work.held(results[number])
        whole = isinstance(place, _Place) and not place.steps and place.memory in memories
        found.add(memories.index(place.memory) if whole else None)
    (operand,) = found if len(found) == 1 else (None,)
    return None if looped and operand != number else operand


def may_alias_memory(node: Node) -> bool:
    """Whether a function of Python may return memory of its arguments: a number is none."""
    if getattr(node.target, "gives_new_memory", False):  # one of nn.functional
        return False
    info = known(node)
    if info is None:
        return not is_number(node)
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
    **INPLACE,
}
