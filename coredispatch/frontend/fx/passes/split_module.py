"""``split_module``: one graph as several modules, called one after the other."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.fx.graph_module import GraphModule
from coredispatch.frontend.nn.module import Module
from coredispatch.graph import Graph, Node, map_arg

__all__ = ["Partition", "split_module"]


class Partition:
    """A part in the making.

    Attributes:
        name: what the callback gave, as text.
        nodes: its nodes, in the order of the graph.
        inputs: the nodes of elsewhere that it uses, in the order of their first use.
        outputs: its nodes that are used elsewhere.
        dependencies: the names of the parts that make its inputs.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.dependencies: dict[str, None] = {}


def split_module(
    m: GraphModule,
    root_m: Module,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module that calls ``submod_0``, ``submod_1`` ..., into which the graph of ``m`` is split.

    Args:
        m: the module whose graph is split; parameters and submodules are shared with it.
        root_m: not used; PyTorch has it.
        split_callback: gives each node, but inputs, attributes and the output, the name of its
            part: a number or a text.
        qualname_map: gets, for each submodule that a part calls, its new path and its old one.
        keep_original_order: whether parts run in the order of their first nodes, where that is
            possible, and not in the order in which they depend on one another.
        keep_original_node_name: nodes of the parts keep their names in any case.
        keep_original_input_name: whether the inputs of a part have the names of what they are.
        partition_affix: stands in the names of the parts: ``submod_AFFIX_0``.
        tuple_return: whether a part that gives one value gives a tuple of it.

    Raises ``RuntimeError`` where two parts need each other's results.

    Example:
        >>> import coredispatch as cd
        >>> from coredispatch.fx.passes.split_module import split_module
        >>> traced = cd.fx.symbolic_trace(lambda x: (x + 1).relu() * 2)
        >>> parts = split_module(traced, traced, lambda node: int(node.name.startswith("mul")))
        >>> [name for name, _ in parts.named_children()], parts(cd.tensor([-3.0, 1.0]))
        (['submod_0', 'submod_1'], tensor([0., 4.]))
    """
    parts = _parts(m.graph, split_callback)
    names = _names(parts, keep_original_order)
    prefix = "submod_" if partition_affix is None else f"submod_{partition_affix}_"
    made: dict[str, Any] = {}
    base = Graph()
    env: dict[Node, Any] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            env[node] = base.node_copy(node, env.__getitem__)
            if node.op == "get_attr":
                made[str(node.target)] = _attribute(m, str(node.target))
    for name in names:
        part, path = parts[name], f"{prefix}{name}"
        made[path] = _module(m, part, path, qualname_map, keep_original_input_name, tuple_return)
        call = base.call_module(path, tuple(env[node] for node in part.inputs))
        if len(part.outputs) == 1 and not tuple_return:
            env[next(iter(part.outputs))] = call
            continue
        for place, node in enumerate(part.outputs):
            env[node] = base.call_function(operator.getitem, (call, place))
    for node in m.graph.nodes:
        if node.op == "output":
            base.output(map_arg(node.args[0], env.__getitem__)).meta.update(node.meta)
    return GraphModule(made, base, type(m).__name__)


def _parts(graph: Graph, split_callback: Callable[[Node], Any]) -> dict[str, Partition]:
    """The parts by name, in the order of their first nodes."""
    parts: dict[str, Partition] = {}
    of_node: dict[Node, str] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        name = str(split_callback(node))
        of_node[node] = name
        parts.setdefault(name, Partition(name)).nodes.append(node)
    for node in graph.nodes:
        own = of_node.get(node)
        for used in node.all_input_nodes:
            home = of_node.get(used)
            if home is not None and home != own:
                parts[home].outputs.setdefault(used)
            if own is not None and home != own:
                parts[own].inputs.setdefault(used)
                if home is not None:
                    parts[own].dependencies.setdefault(home)
    return parts


def _names(parts: dict[str, Partition], keep_original_order: bool | None) -> list[str]:
    """The parts in an order in which each comes after those that it depends on."""
    found: list[str] = []
    open_ = dict(parts)
    while open_:
        ready = [
            name for name, part in open_.items() if not part.dependencies.keys() & open_.keys()
        ]
        if not ready:
            raise RuntimeError(f"cycle exists between partitions! ({', '.join(open_)})")
        for name in ready[:1] if keep_original_order else ready:
            found.append(name)
            del open_[name]
    return found


def _module(
    m: GraphModule,
    part: Partition,
    path: str,
    qualname_map: dict[str, str] | None,
    keep_original_input_name: bool,
    tuple_return: bool,
) -> GraphModule:
    """A part as a module of its own."""
    graph = Graph()
    env: dict[Node, Any] = {}
    targets: dict[str, Any] = {}
    for place, node in enumerate(part.inputs):
        env[node] = graph.placeholder(node.name if keep_original_input_name else f"arg_{place}")
        env[node].meta = dict(node.meta)
    for node in part.nodes:
        env[node] = made = graph.node_copy(node, env.__getitem__)
        if node.op == "call_module":
            made.target = str(node.target).replace(".", "_")
            targets[made.target] = _attribute(m, str(node.target))
            if qualname_map is not None:
                qualname_map[f"{path}.{made.target}"] = str(node.target)
    results = tuple(env[node] for node in part.outputs)
    graph.output(results[0] if len(results) == 1 and not tuple_return else results)
    return GraphModule(targets, graph)


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module
