"""Which nodes can be computed in one loop nest.

The pass decides only what belongs together, from shapes and dependences; making a loop of a group
is the affair of a compiler. A compiler says which operators it can put into a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from typing import Any, NamedTuple

from coredispatch.graph.calls import draws
from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node
from coredispatch.graph.passes.aliasing import Aliases, operator_of, written_by
from coredispatch.graph.passes.inference import tensor_info
from coredispatch.graph.passes.spelling import name_operators
from coredispatch.graph.values import ValueInfo

__all__ = ["POINTWISE", "REDUCTIONS", "Group", "Step", "fuse", "groups", "step_of"]

#: nodes of a group; long chains are cut, where LLVM would take minutes
MOST = 64
#: operators whose element depends on the elements in the same place, after broadcasting
POINTWISE = frozenset(
    "abs neg exp log sqrt rsqrt reciprocal square sigmoid tanh erf relu silu gelu leaky_relu "
    "add sub mul div maximum minimum eq ne lt le gt ge logical_and logical_or logical_not "
    "bitwise_and bitwise_or bitwise_not where masked_fill clamp clamp_min clamp_max lerp pow "
    "addcmul addcdiv threshold_backward sigmoid_backward tanh_backward silu_backward gelu_backward "
    "to_dtype clone ones_like zeros_like full_like fill copy zero".split()
)
#: operators that reduce over dimensions, given as the second argument
REDUCTIONS = frozenset("sum mean amax amin".split())


class Step(NamedTuple):
    """How a node goes through its elements.

    Attributes:
        kind: ``"point"``; or a reduction over the last dimensions (``"row"``), over the first
            (``"column"``), or over all (``"full"``).
        shape: what is gone through: the shape of the result of a pointwise operator, of the
            argument of a reduction.
        inner: how many of the last dimensions belong to one row; of a column reduction, how many
            of the first are reduced. 0 for pointwise.
    """

    kind: str
    shape: tuple[int, ...]
    inner: int


class Group(NamedTuple):
    """Nodes for one loop nest, in order, and how it goes through its elements.

    In a group of kind ``"row"`` some nodes have one element per row, with size 1 in the last
    ``inner`` dimensions or without these.
    """

    kind: str
    shape: tuple[int, ...]
    inner: int
    nodes: list[Node]


def step_of(node: Node, pointwise: Collection[str] = POINTWISE) -> Step | None:
    """How ``node`` goes through its elements; None for what no loop of this kind computes."""
    op = operator_of(node)
    info = tensor_info(node)
    if op is None or node.op != "call_function" or info is None:
        return None
    name = op.name[:-1] if op.mutates and op.name.endswith("_") else op.name
    if name in pointwise:
        return Step("point", info.shape, 0)
    if name not in REDUCTIONS or op.mutates or not isinstance(node.args[0], Node):
        return None
    source = tensor_info(node.args[0])
    return None if source is None else _reduction(node, source)


def _reduction(node: Node, source: ValueInfo) -> Step | None:
    shape, ndim = source.shape, len(source.shape)
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or dims == () or dims == []:
        return Step("full", shape, ndim)
    dims = [dims] if isinstance(dims, int) else dims
    if not all(isinstance(dim, int) and -ndim <= dim < ndim for dim in dims):
        return None
    places = sorted({dim % ndim for dim in dims})
    count = len(places)
    if count == ndim:
        return Step("full", shape, ndim)
    if places == list(range(ndim - count, ndim)):
        return Step("row", shape, count)
    if places == list(range(count)):
        return Step("column", shape, count)
    return None


def fuse(
    graph: Graph,
    pointwise: Collection[str] = POINTWISE,
    accepts: Callable[[Node], bool] = lambda node: True,
    most: int = MOST,
) -> Graph:
    """A copy in which nodes that one loop nest can compute stand together.

    Fused are chains of pointwise operators, with their broadcasts; reductions with the pointwise
    operators that make their argument; and, where whole rows are reduced, everything that follows
    on the same rows: a softmax or a normalization is one group. :func:`groups` lists them. Order
    is kept wherever a value is written in place. Calls of methods and Python's operators become
    those of the operators that they are.

    Args:
        graph: a graph with values (:func:`infer_values`).
        pointwise: the names of the pointwise operators that the compiler can put into a loop.
        accepts: called with each node of a kind that can be fused; False keeps it out.
        most: how many nodes a group may have: compilers take more than twice as long for twice as
            many.
    """
    made = name_operators(graph)
    fusion = _Fusion(made, pointwise, accepts, most)
    for node in made.nodes:
        if node in fusion.step:
            fusion.place(node)
    fusion.reorder(made)
    made.lint()
    return made


def groups(graph: Graph) -> list[Group]:
    """The groups of a graph that :func:`fuse` made, in order."""
    found: dict[int, Group] = {}
    for node in graph.nodes:
        entry = node.meta.get("group")
        if entry is not None:
            index, step = entry
            found.setdefault(index, Group(*step, [])).nodes.append(node)
    return list(found.values())


class _Fusion:
    """Groups as they grow: ``leader`` names the group of a node, ``members`` its nodes."""

    def __init__(self, graph: Graph, pointwise: Collection[str], accepts: Any, most: int) -> None:
        self.most = most
        self.step: dict[Node, Step] = {}
        self.own: dict[Node, Step] = {}
        self.leader: dict[Node, Node] = {}
        self.members: dict[Node, list[Node]] = {}
        self.position: dict[Node, int] = {}
        self.aliases = Aliases(graph)
        self.before = _dependences(graph, self.aliases)
        self.after: dict[Node, list[Node]] = {}
        for position, node in enumerate(graph.nodes):
            self.position[node] = position
            self.leader[node] = node
            self.members[node] = [node]
            for earlier in self.before[node]:
                self.after.setdefault(earlier, []).append(node)
            step = step_of(node, pointwise)
            if step is not None and prod(step.shape) and accepts(node):
                self.step[node] = step
                self.own[node] = step

    def place(self, node: Node) -> None:
        """Join ``node`` with the groups of what it uses, then with those that use the same."""
        for used in node.all_input_nodes:
            self.join(used, node)
        for used in node.all_input_nodes:
            for sibling in used.users:
                if self.position[sibling] < self.position[node]:
                    self.join(sibling, node)

    def join(self, one: Node, other: Node) -> None:
        """Make one group of two, where shapes and dependences allow it."""
        a, b = self.leader[one], self.leader[other]
        if a is b or a not in self.step or b not in self.step:
            return
        if len(self.members[a]) + len(self.members[b]) > self.most:
            return
        step = _together(self.step[a], self.step[b])
        if step is None or not self._allowed(a, b, step):
            return
        for node in self.members[b]:
            self.leader[node] = a
        self.members[a] = sorted(self.members[a] + self.members.pop(b), key=self.position.get)  # type: ignore[arg-type]
        self.step[a] = step

    def _allowed(self, a: Node, b: Node, step: Step) -> bool:
        for first, second in ((a, b), (b, a)):
            inside = set(self.members[first])
            for node in self.members[second]:
                for earlier, conflict in self.before[node].items():
                    if earlier in inside and not self._in_one_loop(earlier, node, conflict, step):
                        return False
        return not self._path(a, b) and not self._path(b, a)

    def _in_one_loop(self, earlier: Node, node: Node, conflict: bool, step: Step) -> bool:
        """Whether ``node`` may follow ``earlier`` element by element, or row by row."""
        if self.own[earlier].kind in ("column", "full"):
            return False  # the result is there when the loop has ended
        if step.kind == "row" and self.own[node].shape == step.shape:
            info = tensor_info(earlier)
            keepdim, dropped = row_shapes(step)
            if info is not None and info.shape == dropped != keepdim and dropped != step.shape:
                return False  # its dimensions would line up with others
        return not conflict or (step.kind == "point" and self._same_place(earlier, node, step))

    def _same_place(self, earlier: Node, node: Node, step: Step) -> bool:
        """Whether what one of the two writes is, to the other, the same element."""
        of = self.aliases.of
        written = {of(used) for used in (*written_by(earlier), *written_by(node))}
        met: dict[Node, set[Node]] = {}
        for used in (*earlier.all_input_nodes, *node.all_input_nodes):
            if of(used) in written:
                met.setdefault(of(used), set()).add(_written_node(used))
        return all(
            len(nodes) == 1
            and (info := tensor_info(*nodes)) is not None
            and info.shape == step.shape
            for nodes in met.values()
        )

    def _path(self, start: Node, goal: Node) -> bool:
        """Whether something outside of both groups needs ``start`` and is needed by ``goal``."""
        seen: set[Node] = {start}
        work = [
            later
            for node in self.members[start]
            for later in self.after.get(node, ())
            if self.leader[later] not in (start, goal)
        ]
        while work:
            leader = self.leader[work.pop()]
            if leader is goal:
                return True
            if leader in seen:
                continue
            seen.add(leader)
            for node in self.members[leader]:
                work += self.after.get(node, ())
        return False

    def reorder(self, graph: Graph) -> None:
        """Put the nodes of each group together, and note the groups."""
        done: set[Node] = set()
        order: list[Node] = []

        def visit(leader: Node) -> None:
            if leader in done:
                return
            done.add(leader)
            members = self.members[leader]
            for node in members:
                for earlier in self.before[node]:
                    visit(self.leader[earlier])
            order.extend(members)

        for node in list(graph.nodes):
            visit(self.leader[node])
        end = graph._root
        for node in order:
            end.append(node)
            end = node
        index = 0
        for leader, members in self.members.items():
            if leader in self.step:
                for node in members:
                    node.meta["group"] = (index, self.step[leader])
                index += 1


def _together(a: Step, b: Step) -> Step | None:
    """The step of a group of both, None where they do not go through the same elements."""
    if a.kind == "point" and b.kind == "point":
        return a if a.shape == b.shape else None
    if a.kind == "point":
        a, b = b, a
    if b.kind == "point":
        if a.shape == b.shape:
            return a
        return a if a.kind == "row" and b.shape in row_shapes(a) else None
    return a if a == b else None


def row_shapes(step: Any) -> tuple[tuple[int, ...], ...]:
    """The shapes of values with one element for each row."""
    outer = step.shape[: len(step.shape) - step.inner]
    return (outer + (1,) * step.inner, outer)


def _written_node(node: Node) -> Node:
    """The value that an operator in place returns is the one that it wrote."""
    while (op := operator_of(node)) is not None and op.mutates and op.name.endswith("_"):
        node = node.all_input_nodes[0]
    return node


def _dependences(graph: Graph, aliases: Aliases) -> dict[Node, dict[Node, bool]]:
    """For each node those that have to come before it; True where one of the two writes."""
    before: dict[Node, dict[Node, bool]] = {}
    readers: dict[Node, list[Node]] = {}
    writer: dict[Node, Node] = {}
    barrier: Node | None = None  # the last node of which nothing is known
    for node in graph.nodes:
        needs = before[node] = dict.fromkeys(node.all_input_nodes, False)
        if barrier is not None:
            needs[barrier] = True
        classes = {aliases.of(used) for used in node.all_input_nodes}
        written = {aliases.of(used) for used in written_by(node)}
        for shared in classes:
            if shared in writer:
                needs[writer[shared]] = True
        for shared in written:
            needs.update(dict.fromkeys(readers.get(shared, ()), True))
            writer[shared] = node
            readers[shared] = []
        for shared in classes - written:
            readers.setdefault(shared, []).append(node)
        if _opaque(node):
            needs.update(dict.fromkeys(list(before)[:-1], True))
            barrier = node
    return before


def _opaque(node: Node) -> bool:
    """Whether a node may do more than an operator of the table: its place is kept."""
    if node.op in ("call_module", "if", "loop"):
        return True
    op = operator_of(node)
    if op is None:
        return node.op in ("call_function", "call_method") and node.is_impure()
    return draws(op, node)
