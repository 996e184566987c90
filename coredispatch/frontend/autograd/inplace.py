"""In-place writes under autograd: leaf and view rules, and rebasing history.

After ``view.mul_(w)`` the *base* gets a :class:`CopySlices` node (its gradient is cut out, sent
through the operator's vjp, and put back), and every view of it finds its new ``grad_fn`` by
replaying the view operators on the base, on first need. As in PyTorch.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.autograd.node import GRAPH, GraphTask, Node, OpNode
from coredispatch.frontend.autograd.recording import (
    add_edge,
    add_edges,
    assign_sequence_number,
    attach,
    node_of,
)
from coredispatch.frontend.tensor_base import AUTOGRAD, SLOTS, TensorBase
from coredispatch.registry.around.checks import describe_call
from coredispatch.registry.dispatch.boxed_kernels import LayerEntry
from coredispatch.registry.dispatch.dispatcher import dispatch
from coredispatch.registry.dispatch.masks import pop_masks, push_masks
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.derivative import VjpRule, saved_argument
from coredispatch.registry.model.errors import AutogradError
from coredispatch.registry.model.value import ViewLink, version_of

__all__ = ["CopySlices", "record_inplace", "refresh"]


class CopySlices(Node):
    """The node of a base one of whose views was written by ``inner``.

    Edge 0 leads to the base's old history; the rest are ``inner``'s edges without self.
    """

    def __init__(self, inner: Node, path: list[ViewLink]) -> None:
        super().__init__("copy_slices", False)
        self.inner = inner
        self.path = path

    def name(self) -> str:
        """Name of the node."""
        return "CopySlices"

    def backward(self, grads: list[Any], output_mask: list[bool], task: GraphTask) -> Any:
        whole = TABLE.operator("clone")(grads[0])
        part = replay(whole, self.path)
        mask = [True, *output_mask[1:]]
        results = self.inner.backward([TABLE.operator("clone")(part)], mask, task)
        first, *rest = results or (None,)  # a write that depends on no input has no edges
        if first is None:
            TABLE.operator("zero_")(part)
        else:
            TABLE.operator("copy_")(part, first)
        return [whole, *rest]

    def release(self) -> None:
        self.inner.release()


def replay(base: Any, path: list[ViewLink]) -> Any:
    """Apply the view operators of ``path`` (outermost first) to ``base``."""
    for link in path:
        if link.several:
            base = dispatch(link.op, (base, *link.args[:-1]))[link.args[-1]]
        else:
            base = dispatch(link.op, (base, *link.args))
    return base


def _differentiable_root(value: TensorBase) -> tuple[TensorBase, list[ViewLink]]:
    """The base whose history a write to ``value`` changes, and the way from it to ``value``."""
    path: list[ViewLink] = []
    root = value
    while root._view is not None and root._view.op.differentiable:
        path.append(root._view)
        base = root._view.base
        assert isinstance(base, TensorBase)
        root = base
    return root, path[::-1]


def _check(op: Operator, target: TensorBase, args: tuple[Any, ...]) -> None:
    root, path = _differentiable_root(target)
    if root.keys & AUTOGRAD and root._node is None:
        what = "a view of a leaf tensor" if path else "a leaf tensor"
        error = AutogradError(
            f"{what} that requires grad is being written in place",
            fix="write under cd.no_grad(), or to x.detach(), or use the out-of-place form",
        )
        error.call = describe_call(op, args)
        raise error
    if any(link.several for link in path):
        error = AutogradError(
            f"this tensor is one of several views returned by {path[-1].op.name!r} and cannot "
            "be written in place while autograd records",
            fix="index the base instead, or use the out-of-place form",
        )
        error.call = describe_call(op, args)
        raise error


def record_inplace(call: LayerEntry, args: tuple[Any, ...], rule: VjpRule | None) -> Any:
    """The autograd layer for operators that mutate."""
    op: Operator = call.record
    functional = op.functional
    if functional is None and op.body is not None:
        return call.decompose(args)
    for name in op.mutates:
        target = args[op.schema.position(name)]
        if isinstance(target, TensorBase):
            _check(op, target, args)
    target = args[op.schema.position(op.mutates[0])]
    if rule is None and functional is not None and functional.body is not None:
        result = functional(*args)
        return TABLE.operator("copy_")(target, result)
    if rule is None and op.differentiable:
        raise GRAPH.no_derivative(op, args)
    node: Node = OpNode(op.name, rule) if rule is not None else _Cut(op.name, False)
    original = target
    if isinstance(node, OpNode) and rule is not None:
        if 0 in rule.saves:
            original = _copy_of(target)
        for position in rule.tensors:
            argument = args[position]
            if position in rule.lists:
                add_edges(node, argument)
            else:
                add_edge(node, argument)
        for position in rule.saves:
            node.save(original if position == 0 else saved_argument(args, position))
    root, path = _differentiable_root(target)
    base_target: tuple[Any, int] | None = None
    if path:
        probe = Node("probe", False)
        add_edge(probe, root)
        base_target = (probe.next_edges[0], probe.edge_number(0))
    assign_sequence_number(node)
    out = call.below(args)
    if not path:
        attach(node, target)
    else:
        assert base_target is not None
        _rebase(node, root, path, base_target, target)
    if isinstance(node, OpNode) and rule is not None and rule.saves_out:
        if path:
            node.shape, node.dtype = target.raw.shape, target.dtype
            node.keys = target.keys & ~AUTOGRAD
        node.save_out(target)
    _mark_aliases(root)
    if GRAPH.anomaly:
        node.forward_trace = GRAPH.traceback()
    return out


class _Cut(Node):
    """A write whose result does not depend on any input: no gradient goes further."""

    def backward(self, grads: list[Any], output_mask: list[bool], task: GraphTask) -> Any:
        return []


def _copy_of(target: TensorBase) -> TensorBase:
    """The value before the write, with the history it had."""
    node, number = node_of(target), target._nr
    token = push_masks(0, AUTOGRAD)
    try:
        copy: TensorBase = TABLE.operator("clone")(target)
    finally:
        pop_masks(token)
    if target.keys & AUTOGRAD:
        copy.keys |= AUTOGRAD
        copy._node, copy._nr = node, number
    return copy


def _rebase(
    node: Node,
    root: TensorBase,
    path: list[ViewLink],
    base_target: tuple[Any, int],
    target: TensorBase,
) -> None:
    slices = CopySlices(node, path)
    slices.next_edges = [base_target[0], *node.next_edges[1:]]
    slices.edge_numbers = {**(node.edge_numbers or {}), 0: base_target[1]}
    assign_sequence_number(slices)
    attach(slices, root)
    target.keys |= AUTOGRAD
    link = target._view
    assert link is not None
    link.version = -1


def _mark_aliases(root: TensorBase) -> None:
    """Views of a base that now requires grad require grad too."""
    storage = root._storage
    if storage is None:
        return
    follows = {id(root): True}  # whether a tensor's history follows that of root
    for reference in list(storage.aliases):
        alias = reference()
        if alias is not None and _follows(alias, follows):
            alias.keys |= AUTOGRAD


def _follows(value: Any, known: dict[int, bool]) -> bool:
    """Whether differentiable views lead from ``value`` to a tensor of which ``known`` says so.

    What is found on the way is noted, so that many views of one chain are looked at once each.
    """
    passed: list[int] = []
    while id(value) not in known:
        passed.append(id(value))
        link = value._view
        if link is None or not link.op.differentiable:
            break
        value = link.base
    found = known.get(id(value), False)
    known.update(dict.fromkeys(passed, found))
    return found


def refresh(value: TensorBase) -> None:
    """Give a view whose base was written its new ``grad_fn``, and its bases theirs first."""
    version = version_of(value)
    stale: list[TensorBase] = []
    link = value._view
    while link is not None and link.version != version:
        stale.append(value)
        if not link.op.differentiable:
            break
        base = link.base
        assert isinstance(base, TensorBase)
        value, link = base, base._view
    for view in reversed(stale):
        _refresh_one(view, version)


def _refresh_one(value: TensorBase, version: int) -> None:
    link = value._view
    assert link is not None
    base = link.base
    if link.op.differentiable and base.keys & AUTOGRAD:
        token = push_masks(0, 0, AUTOGRAD)
        try:
            again = replay(base, [link])
        finally:
            pop_masks(token)
        value._node, value._nr = again._node, again._nr
        value.keys |= AUTOGRAD
    link.version = version


SLOTS.refresh = refresh
GRAPH.record_inplace = record_inplace
