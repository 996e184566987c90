"""Where intermediate values lie: one block of memory, whose parts are used again and again."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node
from coredispatch.graph.passes.aliasing import Aliases, may_alias
from coredispatch.graph.passes.inference import tensor_info
from coredispatch.graph.values import ValueInfo

__all__ = ["Buffer", "plan"]

#: parts of the block begin at multiples of this many bytes, a line of the cache
ALIGNMENT = 64


class Buffer(NamedTuple):
    """A part of the block: ``size`` bytes from ``offset`` on."""

    offset: int
    size: int


def plan(graph: Graph, makes: Callable[[Node], bool] | None = None) -> Graph:
    """A copy whose nodes say in ``meta["buffer"]`` where their values lie in one block.

    ``graph.meta["block"]`` is the size of the block in bytes. Two values share a place where the
    one is not needed any more when the other is made. What comes from outside or is returned,
    and what a group of :func:`~coredispatch.graph.passes.fusion.fuse` keeps to itself, has no
    buffer; a view lies where its source does.

    Args:
        graph: a graph with values (:func:`~coredispatch.graph.passes.inference.infer_values`), and
            groups where it is to be fused.
        makes: whether a node's result is to be put into the block; without it every operator's is
            that gives one tensor and no view.
    """
    made = graph.copy()
    aliases = Aliases(made)
    time = _times(made)
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    owners: dict[Node, list[Node]] = {}
    for node in made.nodes:
        shared = aliases.of(node)
        first.setdefault(shared, time[node])
        for used in (node, *node.all_input_nodes):
            last[aliases.of(used)] = time[node]
        info = tensor_info(node)
        if info is None or may_alias(node) or (makes is not None and not makes(node)):
            continue
        if aliases.of(node) not in aliases.returned and not _inside(node, aliases):
            owners.setdefault(shared, []).append(node)
    wanted = []
    for shared, nodes in owners.items():
        for node in nodes:
            info = tensor_info(node)
            assert info is not None
            wanted.append((_bytes(info), first[shared], last[shared], node))
    made.meta["block"] = _place(wanted)
    return made


def _times(graph: Graph) -> dict[Node, int]:
    """When a node runs: nodes of one group at the same time."""
    times: dict[Node, int] = {}
    groups: dict[int, int] = {}
    for now, node in enumerate(graph.nodes):
        entry = node.meta.get("group")
        times[node] = now if entry is None else groups.setdefault(entry[0], now)
    return times


def _inside(node: Node, aliases: Aliases) -> bool:
    """Whether nobody but the node's own group sees its value."""
    entry = node.meta.get("group")
    if entry is None or not aliases.private(node):
        return False
    return all(user.meta.get("group", (None,))[0] == entry[0] for user in node.users)


def _bytes(info: ValueInfo) -> int:
    return prod(info.shape) * info.dtype.itemsize


def _place(wanted: list[tuple[int, int, int, Node]]) -> int:
    """Give each a place, the largest first, as low as what lives at the same time allows."""
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    total = 0
    for size, first, last, node in sorted(wanted, key=_largest_first):
        offset = 0
        for start, end, since, until in sorted(placed):
            if since > last or until < first:
                continue
            if start - offset >= size:
                break
            offset = max(offset, end)
        node.meta["buffer"] = Buffer(offset, size)
        end = offset + -(-size // ALIGNMENT) * ALIGNMENT
        placed.append((offset, end, first, last))
        total = max(total, end)
    return total


def _largest_first(entry: Any) -> tuple[int, int]:
    return (-entry[0], entry[1])
