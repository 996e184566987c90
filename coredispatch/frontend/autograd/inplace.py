"""In-place writes under autograd: leaf and view rules, and rebasing history.

After ``view.mul_(w)`` the *base* gets a :class:`CopySlices` node (its gradient is cut out, sent
through the operator's vjp, and put back), and every view of it finds its new ``grad_fn`` by
replaying the view operators on the base, on first need. As in PyTorch.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.autograd.node import GraphTask, Node
from coredispatch.frontend.autograd.recording import (
    RecordEntry,
    add_edge,
    alias_of,
    assign_sequence_number,
    attach,
    node_of,
)
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.around.checks import check_write, describe_call
from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.dispatcher import dispatch, dispatch_below
from coredispatch.registry.dispatch.linking import complete_arguments
from coredispatch.registry.dispatch.masks import call_masked, masked
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.derivative import VjpRule
from coredispatch.registry.model.errors import AutogradError, CoreDispatchError
from coredispatch.registry.model.spelling import SPELLING
from coredispatch.registry.model.value import ViewLink, dtype_of, storage_of, version_of
from coredispatch.registry.wiring import GRAPH, HOOKS, SLOTS

__all__ = ["CopySlices", "check_in_place", "record_inplace", "refresh"]

_INFERENCE = TABLE.bit("inference")
_LONG = 8  # views of views: from more of them on, one strided view stands for all


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
        return SPELLING.of_node("CopySlices")

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        strided = any(link.op.name == "as_strided" for link in self.path)
        kept = "contiguous_format" if strided else None
        whole = TABLE.operator("clone")(grads[0], memory_format=kept)
        part = replay(whole, self.path)
        mask = None if output_mask is None else [True, *output_mask[1:]]
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
        made = dispatch(link.op, complete_arguments(link, base))
        base = made[link.args[-1]] if link.multi_output else made
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


def _in_one(root: TensorBase, value: TensorBase, path: list[ViewLink]) -> ViewLink | None:
    """One strided view that leads from ``root`` to ``value`` as ``path`` does, None without one.

    Many views of views, each of them written, would be replayed view by view at each write.
    """
    tensor: Any = value
    base: Any = root
    order = TABLE.snapshot.order
    if isinstance(root.raw, Wrapper) or (root.keys | value.keys) & order.layout_bits:
        return None
    if not base.backend.views or not base.is_contiguous():
        return None
    for link in path:
        if link.custom or not link.op.differentiable or dtype_of(link.base) is not tensor.dtype:
            return None
    strides = tensor.stride()
    if min(strides, default=0) < 0:
        return None
    arguments = tuple(tensor.shape), strides, tensor.storage_offset() - base.storage_offset()
    return ViewLink(root, TABLE.operator("as_strided"), arguments)


def check_view_write(target: TensorBase) -> None:
    """Refuse to write, while autograd records, to a view that was made while it did not.

    What such a view is a view of requires grad, the view itself does not: the write would change
    the base behind the back of its history.
    """
    if not masked(AUTOGRAD) & AUTOGRAD:
        return
    value = target
    while value._view is not None and value._view.op.differentiable:
        base = value._view.base
        assert isinstance(base, TensorBase)
        value = base
        if value.keys & AUTOGRAD:
            raise AutogradError(
                "A view was created in no_grad mode and is being modified inplace with grad mode "
                "enabled (or it was made in inference mode, or before its base required grad): its "
                "base requires grad, and the write would not be recorded",
                fix="make both the view and the write under cd.no_grad(), or both outside of it; "
                "use .detach() where no gradient is wanted",
            )


def check_dirty(name: str, target: TensorBase) -> None:
    """Refuse what a custom Function wrote to and marked, where no history could say so."""
    root, path = _differentiable_root(target)
    if root.keys & AUTOGRAD and root._node is None:
        what = "a view of a leaf" if path else "a leaf"
        raise AutogradError(
            f"{what} Variable that requires grad has been used in an in-place operation by {name}",
            fix="pass x.clone() to the Function",
        )
    if any(link.multi_output or link.custom for link in path):
        raise AutogradError(
            f"{name} wrote to a view that is one of several, or of a custom Function: the write "
            "cannot be recorded",
            fix="pass a .clone() to the Function",
        )


def rebase(node: Node, target: TensorBase) -> TensorBase:
    """``target``, a view that ``node`` wrote to, and what it is a view of, with that history."""
    attach(node, alias_of(target))
    _rebase(target, node, node.count - 1)
    return target


def custom_view(written: str) -> AutogradError:
    """The error of a write that would replay a view past the derivative of a custom Function."""
    return AutogradError(
        f"a view that a custom Function returned cannot be used after {written} was written in "
        "place: the Function's backward would be skipped",
        fix="return a .clone() from the Function's forward, or write to a .clone()",
    )


def check_history(target: TensorBase) -> None:
    """Refuse a change of ``target`` that its history cannot record.

    That is one of a leaf that requires grad, and one of a view that must not be replayed. Raises
    :class:`AutogradError`.
    """
    _, path = _differentiable_root(target)
    chain: list[Any] = [*[link.base for link in path], target]
    follows = False  # a view without a node, of what requires grad, has its history still to come
    leaf = False
    for value in chain:
        requires = bool(value.keys & AUTOGRAD)
        leaf |= requires and value._node is None and not follows
        follows = requires
    if leaf:
        what = "a view of a leaf tensor" if path else "a leaf tensor"
        raise AutogradError(
            f"{what} that requires grad is being written in place",
            fix="write under cd.no_grad(), or to x.detach(), or use the out-of-place form",
        )
    if any(link.custom for link in path):
        raise custom_view("it")
    if any(link.multi_output for link in path):
        raise AutogradError(
            f"this tensor is one of several views returned by {path[-1].op.name!r} and cannot "
            "be written in place while autograd records",
            fix="index the base instead, or use the out-of-place form",
        )


def check_in_place(target: TensorBase) -> None:
    """Refuse what a write to ``target`` would refuse now, before anything is written.

    Raises :class:`AutogradError`.
    """
    if masked(target.keys) & _INFERENCE:
        raise AutogradError(
            "an inference tensor cannot be written outside inference mode",
            fix="write to a .clone(), or under cd.inference_mode()",
        )
    if masked(target.keys) & AUTOGRAD:
        check_history(target)
    else:
        check_view_write(target)


def _check(op: Operator, target: TensorBase, args: tuple[Any, ...]) -> None:
    try:
        if not target.keys & AUTOGRAD:
            check_view_write(target)
        check_history(target)
        shape, strides = target.raw.shape, getattr(target.raw, "strides", ())
        shared = any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=False))
        is_view = target._view is not None and target._view.op.differentiable
        if is_view and shared and 0 not in shape:  # NumPy's strides of an empty array say nothing
            raise AutogradError(
                "elements of this tensor share memory (expand), so that it cannot be written in "
                "place while autograd records",
                fix="write to the tensor before it is expanded, or to a .clone()",
            )
    except AutogradError as refused:
        refused.call = describe_call(op, args)
        raise


def record_inplace(call: RecordEntry, args: tuple[Any, ...], rule: VjpRule | None) -> Any:
    """The autograd layer for operators that mutate.

    An in-place form is recorded as the operator that it was derived from, called with what self
    was before the write; self then has the history of the result. Other operators that write are
    recorded through their decompositions, or are not differentiable: then what they wrote has no
    history.
    """
    op: Operator = call.record
    functional = op.inplace_of
    if functional is None and op.decomposition is not None:
        return call.through_body(args)
    written = [tensor for tensor in op.schema.written(args) if isinstance(tensor, TensorBase)]
    for target in written:
        _check(op, target, args)
    if rule is None and functional is not None:
        # Comparisons have no derivative: the copy gives what self was a gradient of zeros.
        if functional.decomposition is not None or not functional.differentiable:
            return _through_body(call, functional, args)
    if rule is None:
        if op.differentiable or op.refuses_gradient:
            raise GRAPH.no_derivative(op, args)
        out = call.below(args)
        for target in written:
            _forget(op, target)
        return out
    target = written[0]
    position = op.schema.mutations[0].position
    saved = position in rule.plan_of(args, AUTOGRAD).arguments
    past = _as_they_were(args, target, position, saved)
    out = call.below(args)
    result = call.recorded(alias_of(target), past, rule)
    if result.keys & AUTOGRAD:
        _rebase(target, result._node, result._output_nr)
    return out


def _through_body(call: RecordEntry, functional: Operator, args: tuple[Any, ...]) -> Any:
    """A derived form of a composite that is recorded through its decomposition."""
    target = args[0]
    past = _as_they_were(args, target, 0, functional.differentiable)
    result = dispatch_below(functional, past, call.mask)
    try:
        check_write(target, result.raw)
    except CoreDispatchError as error:
        error.call = error.call or describe_call(call.op, args)
        raise
    written = TABLE.operator("copy_")(target, result)
    if result._node is not None:
        naming = GRAPH.result_name(functional)
        shown = None if naming is None else naming(past)
        GRAPH.name_results(written, -1, shown or GRAPH.node_name(result._node))
    return written


def _forget(op: Operator, target: TensorBase) -> None:
    """``target`` holds what no input has a gradient for."""
    root, _ = _differentiable_root(target)
    if root.keys & AUTOGRAD:
        node = _Cut(op.name, False)
        assign_sequence_number(node)
        attach(node, alias_of(target))
        _rebase(target, node, 0)


class _Cut(Node):
    """A write whose result does not depend on any input: no gradient goes further."""

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        return []


def _as_they_were(
    args: tuple[Any, ...], target: TensorBase, position: int, saved: bool
) -> tuple[Any, ...]:
    """``args`` with stand-ins for what the write to ``target`` changes.

    They have the history of before the write. They share the memory of what they stand for, but
    where the elements may be asked for later (``saved``, or under another name than self).
    """
    storage = storage_of(target)

    def past(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return type(argument)([past(item) for item in argument])
        if isinstance(argument, TensorBase) and storage_of(argument) is storage:
            return _past(argument, True)
        return argument

    return tuple([_past(target, saved) if i == position else past(a) for i, a in enumerate(args)])


def _past(value: TensorBase, copied: bool) -> TensorBase:
    """``value`` as it is now, with the history it has now."""
    node, output = node_of(value), value._output_nr
    past: TensorBase = alias_of(value)
    if copied:  # not recorded here; what a wrapper holds may have a history of its own
        past = TABLE.operator("clone")(past)
    if value.keys & AUTOGRAD:
        past.keys |= AUTOGRAD
        past._node, past._output_nr = node, output
    return past


def _rebase(target: TensorBase, node: Node, output: int) -> None:
    """Output ``output`` of ``node`` is what ``target`` holds now; its bases change with it."""
    root, path = _differentiable_root(target)
    required = bool(root.keys & AUTOGRAD)
    if not path:
        target._node, target._output_nr = node, output
        target.keys |= AUTOGRAD
    else:
        if len(path) > _LONG:
            direct = _in_one(root, target, path)
            path = path if direct is None else [direct]
        slices = CopySlices(node, path)
        add_edge(slices, root)
        slices.next_edges += node.next_edges[1:]
        if node.edge_numbers is not None:
            others = {i: number for i, number in node.edge_numbers.items() if i}
            slices.edge_numbers = {**others, **(slices.edge_numbers or {})}
        assign_sequence_number(slices)
        attach(slices, root)
        target.keys |= AUTOGRAD
        link = target._view
        assert link is not None
        link.version = -1
    _mark_aliases(root, required)
    _retain_anew(target)
    if root is not target:
        _retain_anew(root)


def _retain_anew(tensor: TensorBase) -> None:
    """``retain_grad()`` is about what the tensor holds now."""
    handle: Any = getattr(tensor, "_retains", None)
    node = None if handle is None else node_of(tensor)
    if node is not None:
        handle.remove()
        tensor._retains = node.add_tensor_hook(tensor._output_nr, handle._hook)  # type: ignore[attr-defined]


def _mark_aliases(root: TensorBase, required: bool) -> None:
    """Views of a base that now requires grad require grad too.

    Where the base required grad before (``required``), the views that the last write to it marked
    still do: only those made since then are looked at, so that writes to many views of one base
    cost linearly.
    """
    storage = root._storage
    if storage is None or not storage.aliases:
        return
    marked = storage.marked if required and storage.marked_for == id(root) else None
    storage.marked, storage.marked_for = storage.aliases[-1], id(root)
    follows = {id(root): True}  # whether a tensor's history follows that of root
    end = len(storage.aliases)
    while end:  # from the newest on, in slices: another thread may prune the list meanwhile
        start = max(0, end - 64)
        for reference in reversed(storage.aliases[start:end]):
            if reference is marked:
                return
            alias = reference()
            if alias is not None and _follows(alias, follows):
                alias.keys |= AUTOGRAD
        end = start


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
    if len(stale) > _LONG and value.keys & AUTOGRAD and _refresh_in_one(value, stale, version):
        return
    for view in reversed(stale):
        _refresh_one(view, version)


def _refresh_in_one(base: Any, stale: list[TensorBase], version: int) -> bool:
    """Refresh the first of ``stale``, of which the last is a view of ``base``, by a single view."""
    links = [view._view for view in stale if view._view is not None]
    direct = _in_one(base, stale[0], links)
    if direct is None:
        return False
    size, strides, offset = direct.args
    direct.args = size, strides, offset + base.storage_offset()
    _take_history(stale[0], base, direct)
    links[0].version = version
    return True


def _refresh_one(value: TensorBase, version: int) -> None:
    link = value._view
    assert link is not None
    base = link.base
    if link.op.differentiable and base.keys & AUTOGRAD:
        if link.custom:
            raise custom_view("its base")
        _take_history(value, base, link)
    link.version = version


def _take_history(value: TensorBase, base: Any, link: ViewLink) -> None:
    again = call_masked(replay, (base, [link]), 0, AUTOGRAD)
    value._node, value._output_nr = again._node, again._output_nr
    value.keys |= AUTOGRAD


SLOTS.refresh = refresh
GRAPH.record_inplace = record_inplace
GRAPH.check_dirty = check_dirty
GRAPH.rebase = rebase
HOOKS.recorded = AUTOGRAD
HOOKS.check_view_write = check_view_write
