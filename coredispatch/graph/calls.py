"""Calls of operators in a graph: complete arguments out of a node, and a node out of them."""

from __future__ import annotations

from typing import Any

from coredispatch.graph.graph import Graph
from coredispatch.graph.kinds import arithmetic
from coredispatch.graph.node import Node, map_arg
from coredispatch.graph.targets import spelled
from coredispatch.graph.values import ValueInfo, info_of
from coredispatch.plugin import CoreDispatchError, Operator, Symbol, Value, dispatch, from_raw
from coredispatch.registry import TABLE
from coredispatch.registry.model.schema import REQUIRED
from coredispatch.registry.model.sizes import is_int

__all__ = ["abstract", "bound_arguments", "call", "known", "operator_of", "outcome"]


def operator_of(node: Node) -> Operator | None:
    """The operator that a node calls; None where it calls none.

    It is called as a function, as a method, or by Python's arithmetic, where that has a tensor.
    """
    if isinstance(node.target, Operator):
        return node.target
    spells = getattr(node.target, "spells", None)  # a function of nn.functional over an operator
    if spells is not None and len(node.args) <= node.target.spelled_positions:
        if set(node.kwargs) <= {p.name for p in spells.schema.params}:
            return spells
    if node.op == "call_method":
        return TABLE.snapshot.ops.get(node.target)
    return arithmetic(node)


def bound_arguments(op: Operator, node: Node) -> tuple[Any, ...] | None:
    """The arguments of a node in the order of the schema, with defaults; None if they do not fit.

    A method may have its sizes one by one, ``x.view(2, 3)``.
    """
    params = op.schema.params
    given = list(node.args)
    free = [p for p in params if not p.keyword_only]
    if len(given) > len(free) or (len(given) > 1 and len(given) == len(free) == 2):
        tail = given[1:]
        if len(free) == 2 and free[1].kind == "IntList" and all(map(_number, tail)):
            given = [given[0], tuple(tail)]
    if len(given) > len(free):
        return None
    named = dict(zip((p.name for p in free), given))
    if set(named) & set(node.kwargs):
        return None
    named |= node.kwargs
    if set(named) - {p.name for p in params}:
        return None
    complete = []
    for p in params:
        value = named.get(p.name, p.default)
        if value is REQUIRED:
            return None
        complete.append(value)
    return tuple(complete)


def draws(op: Operator, node: Node) -> bool:
    """Whether the call draws random numbers; it may where its arguments leave that open."""
    if op.draws_where is None:
        return bool(op.random)
    args = bound_arguments(op, node)
    return args is None or bool(op.draws(args))


def _number(value: Any) -> bool:
    return is_int(value) or isinstance(value, Node)


def call(graph: Graph, op: Operator, args: tuple[Any, ...], *, info: bool = True) -> Node:
    """A new node that calls ``op`` with complete arguments; what is known of its result is noted.

    Nothing is known where an argument has no info, or the operator looks at values.
    """
    given, named = spelled(op, args)
    node = graph.call_function(op, given, named)
    if info:
        found = outcome(op, args)
        if found is not None:
            node.meta["value"] = found
    return node


def known(value: Any) -> Any:
    """The :class:`ValueInfo` of a node, None where there is none."""
    return value.meta.get("value") if isinstance(value, Node) else None


def abstract(info: ValueInfo) -> Value:
    """A tensor on the device ``meta`` of this shape and dtype."""
    array = TABLE.snapshot.backends["meta"][0].array_type
    return from_raw(array(tuple(info.shape), info.dtype), backend="meta")


def outcome(op: Operator, args: tuple[Any, ...]) -> Any:
    """What is known of ``op(*args)``, by its shape and dtype rules; None where they do not tell.

    A result is on the device of the first tensor argument.
    """
    first: list[ValueInfo] = []
    unknown: list[Node] = []

    def tensor(node: Node) -> Any:
        info = known(node)
        if isinstance(info, ValueInfo):
            first.append(info)
            return abstract(info)
        if info is None or isinstance(info, (tuple, list, dict)):
            unknown.append(node)
        return info

    given = map_arg(args, tensor)
    if unknown or not first or any(isinstance(v, Value) for v in _flat(args)):
        return None
    try:
        result = info_of(dispatch(op, given))
    except (CoreDispatchError, TypeError, ValueError, AttributeError):
        return None
    device, grad = first[0].device, any(info.requires_grad for info in first)
    return _placed(result, device, grad)


def _placed(result: Any, device: Any, grad: bool) -> Any:
    if isinstance(result, ValueInfo):
        return ValueInfo(result.shape, result.dtype, device, None, result.layout, grad)
    if isinstance(result, (tuple, list)):
        return tuple(_placed(part, device, grad) for part in result)
    return result if isinstance(result, (int, float, Symbol)) else None


def _flat(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _flat(item)
    else:
        yield value
