"""Writes through views: the new value of what is viewed, from the new value of the view.

A view operator picks elements of one tensor, its base. Where a program writes to the view, the base
has those elements anew: ``written(step, base, new)`` gives the nodes that compute it, without a
write. Most operators have a short rule; the others are asked where each element comes from, by
applying them to the numbers of the base's elements.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coredispatch.graph.calls import call, known
from coredispatch.graph.graph import Graph, GraphError
from coredispatch.graph.node import Node
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import DType, Operator, dtypes
from coredispatch.registry import TABLE

__all__ = ["ViewStep", "applied", "in_order", "of_any_strides", "part", "written"]


@dataclass(frozen=True, eq=False)
class ViewStep:
    """One view: operator ``op`` with complete arguments, ``None`` where its base stands.

    Attributes:
        position, member: where the base stands: the argument, and the place in the list there.
        part: the number of the result that the view is, None for the only one.
        siblings: the same object for all results of one call.
    """

    op: Operator
    args: tuple[Any, ...]
    position: int = 0
    member: int | None = None
    part: int | None = None
    siblings: object = None

    def around(self, base: Any) -> tuple[Any, ...]:
        """The complete arguments with this base."""
        args = list(self.args)
        if self.member is None:
            args[self.position] = base
        else:
            items = list(args[self.position])
            items[self.member] = base
            args[self.position] = type(args[self.position])(items)
        return tuple(args)


def applied(graph: Graph, step: ViewStep, base: Node, calls: dict[Any, Node] | None = None) -> Node:
    """The view of ``base``. Memory may lie otherwise than it did, so sizes are a ``reshape``.

    ``calls`` keeps the calls of operators with several results, so that each is called once.
    """
    key = (step.siblings, base)
    if calls is not None and step.part is not None and key in calls:
        return part(graph, calls[key], step.part)
    op = of_any_strides(step.op, step.args)
    made = call(graph, op or step.op, step.around(in_order(graph, base) if op is None else base))
    if step.part is None:
        return made
    if calls is not None:
        calls[key] = made
    return part(graph, made, step.part)


def of_any_strides(op: Operator, args: Sequence[Any]) -> Operator | None:
    """The operator that gives this view of a value, whatever the value's strides are.

    None where there is none: the view then needs the value in row-major order.
    """
    reads_as_dtype = op.name == "view" and len(args) > 1 and isinstance(args[1], DType)
    if reads_as_dtype or op.name in ("as_strided", "view_as_complex", "view_dtype"):
        return None
    if op.name == "view":
        return TABLE.operator("reshape")
    return TABLE.operator("reshape_as") if op.name == "view_as" else op


def in_order(graph: Graph, base: Node) -> Node:
    """``base`` in row-major order."""
    return call(graph, TABLE.operator("contiguous"), (base, None))


def part(graph: Graph, node: Node, number: int) -> Node:
    """Result ``number`` of a node that has several."""
    made = graph.call_function(operator.getitem, (node, number))
    info = known(node)
    if isinstance(info, (tuple, list)):
        made.meta["value"] = info[number]
    return made


def written(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    """``base`` after ``new`` was written to its view.

    Raises :class:`GraphError` where that depends on something that the graph does not tell.
    """
    rule = _RULES.get(step.op.name)
    made = rule(graph, step, base, new) if rule is not None else None
    return made if made is not None else _by_places(graph, step, base, new)


def _by_places(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    """Any operator that picks elements: number them, and see which numbers come out."""
    ones = _call(graph, "ones_like", base, dtype=dtypes.int64)
    numbers = _call(graph, "cumsum", _flat(graph, ones), 0)
    numbers = _call(graph, "reshape_as", _call(graph, "sub", numbers, 1), base)
    places = _flat(graph, applied(graph, step, numbers))
    values = _flat(graph, new)
    flat = _call(graph, "index_put", _flat(graph, base), (places,), values)
    return _call(graph, "reshape_as", flat, base)


def _flat(graph: Graph, node: Node) -> Node:
    return _call(graph, "reshape", node, (-1,))


def _call(graph: Graph, name: str, *args: Any, **named: Any) -> Node:
    """A call with the defaults of the schema."""
    op = TABLE.operator(name)
    free = [p.name for p in op.schema.params]
    given = {**dict(zip(free, args)), **named}
    return call(graph, op, tuple(given.get(p.name, p.default) for p in op.schema.params))


# ---- one rule for each family --------------------------------------------------------------------


def _in_the_shape_of_the_base(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    return _call(graph, "reshape_as", new, base)


def _view(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    if isinstance(step.args[1], DType):
        return _view_dtype(graph, step, base, new)
    return _in_the_shape_of_the_base(graph, step, base, new)


def _itself(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    return new


def _again(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    """The operator undoes itself."""
    return call(graph, step.op, step.around(new))


def _moved_back(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    _, source, destination = step.args
    return call(graph, step.op, (new, destination, source))


def _permuted_back(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    dims = [d % len(step.args[1]) for d in step.args[1]]
    return call(graph, step.op, (new, tuple(sorted(range(len(dims)), key=dims.__getitem__))))


def _indexed(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    return _call(graph, "index_put", base, step.args[1], new)


def _selected(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    _, dim, index = step.args
    return _call(graph, "select_scatter", base, new, dim, index)


def _unbound(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    return _call(graph, "select_scatter", base, new, step.args[1], step.part)


def _narrowed(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node | None:
    _, dim, start, length = step.args
    if not all(type(n) is int and n >= 0 for n in (start, length)):
        return None
    return _call(graph, "slice_scatter", base, new, dim, start, start + length)


def _diagonal(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    return _call(graph, "diagonal_scatter", base, new, *step.args[1:])


def _view_dtype(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    return _call(graph, "view_dtype", _call(graph, "contiguous", new), _info(step, base).dtype)


def _as_complex(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    return _call(graph, "view_as_complex", _call(graph, "contiguous", new))


def _as_real(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    return _call(graph, "view_as_real", new)


def _real(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    if not _info(step, base).dtype.is_complex:
        return new
    return _call(graph, "complex", new, _call(graph, "imag", base))


def _imag(graph: Graph, step: ViewStep, base: Node, new: Node) -> Node:
    return _call(graph, "complex", _call(graph, "real", base), new)


def _info(step: ViewStep, base: Node) -> ValueInfo:
    info = known(base)
    if isinstance(info, ValueInfo):
        return info
    raise GraphError(
        f"nothing is known of {base.name!r}, and a write through {step.op.name!r} depends on it",
        fix="trace the program: jit.trace notes shapes and dtypes",
    )


_Rule = Callable[[Graph, ViewStep, Node, Node], "Node | None"]
_RESHAPES = (
    "reshape view_as reshape_as flatten ravel unflatten squeeze unsqueeze atleast_1d atleast_2d "
    "atleast_3d"
)
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(_RESHAPES.split(), _in_the_shape_of_the_base),
    **dict.fromkeys("contiguous detach positive type_as resolve_conj conj".split(), _itself),
    **dict.fromkeys("transpose swapaxes t matrix_transpose adjoint".split(), _again),
    "diagonal": _diagonal,
    "getitem": _indexed,
    "imag": _imag,
    "movedim": _moved_back,
    "narrow": _narrowed,
    "permute": _permuted_back,
    "real": _real,
    "select": _selected,
    "unbind": _unbound,
    "view": _view,
    "view_as_complex": _as_real,
    "view_as_real": _as_complex,
    "view_dtype": _view_dtype,
}
