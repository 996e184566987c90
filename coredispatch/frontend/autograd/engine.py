"""The backward pass: iterative, in order of decreasing sequence number.

A node's inputs were made before it, so their numbers are smaller: when a node is taken from
the heap, everything that feeds it has been through. No recursion, no dependency counts.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Final

from coredispatch.frontend.autograd.node import GRAPH, Node, OpNode, node_of
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.dispatcher import Dispatcher, dispatch_two, invoke
from coredispatch.registry.dispatch.masks import pop_masks, push_masks
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.value import Value, dtype_of


def _op(name: str) -> Dispatcher:
    op: Dispatcher = TABLE.operator(name)
    return op


_add: Final = _op("add")
_add_: Final = _op("add_")
_clone: Final = _op("clone")
_ones_like: Final = _op("ones_like")
_NO_KEYWORDS: Final[dict[str, Any]] = {}


class EngineHooks:
    """Slow paths that the modules above this one install."""

    def __init__(self) -> None:
        self.fit: Any = None  # (node, index, grad, shape, dtype) -> grad of the right form
        self.zeros: Any = None  # (shape, dtype, keys) -> Tensor
        self.anomaly: Any = None  # (node, result or exception) -> None or raises
        self.wrong_count: Any = None  # (node, result) -> exception
        self.wrong_type: Any = None  # (node, index, grad) -> exception


ENGINE: Final = EngineHooks()


def run(
    roots: list[Any],
    grads: list[Any],
    keep: bool,
    create: bool,
    capture: dict[int, Any] | None,
    needed: set[int] | None,
) -> dict[Any, Any]:
    """Push ``grads`` back from ``roots``.

    A gradient of None is one, for a root of one element.

    Without ``capture``, gradients are accumulated into the leaves. With it (id of a leaf, or
    ``(id of node, output number)`` as key), they are returned and nothing is accumulated; then
    only nodes whose id is in ``needed`` are visited.
    """
    token = push_masks(0, 0, AUTOGRAD) if create else push_masks(0, AUTOGRAD)
    try:
        return _run(roots, grads, keep, create, capture, needed)
    finally:
        pop_masks(token)


def _run(
    roots: list[Any],
    grads: list[Any],
    keep: bool,
    create: bool,
    capture: dict[int, Any] | None,
    needed: set[int] | None,
) -> dict[Any, Any]:
    heap: list[int] = []  # negative sequence numbers
    pending: dict[int, Node] = {}
    buffers: dict[int, list[Any]] = {}  # the gradients collected so far, one per output
    found: dict[Any, Any] = {}
    index = 0
    for root in roots:
        node = node_of(root)
        grad = grads[index]
        if grad is None:
            grad = invoke(_ones_like, (root,), _NO_KEYWORDS)
        if node is None:
            _deliver_leaf(root, grad, False, create, capture, found)
        else:
            _push(heap, pending, buffers, node, root._nr, grad)
        index += 1
    while heap:
        sequence = -heappop(heap)
        node = pending.pop(sequence)
        outputs = buffers.pop(sequence)
        step(node, outputs, heap, pending, buffers, keep, create, capture, needed, found)
    return found


def _push(
    heap: list[int],
    pending: dict[int, Node],
    buffers: dict[int, list[Any]],
    node: Node,
    number: int,
    grad: Any,
) -> None:
    sequence = node.sequence
    grads = buffers.get(sequence)
    if grads is None:
        count = node.count
        buffers[sequence] = [grad] if count == 1 else [None] * count
        pending[sequence] = node
        if heap:
            heappush(heap, -sequence)
        else:
            heap.append(-sequence)
        if count == 1:
            return
        grads = buffers[sequence]
    present = grads[number]
    grads[number] = grad if present is None else dispatch_two(_add, present, grad)


def step(
    node: Node,
    outputs: list[Any],
    heap: list[int],
    pending: dict[int, Node],
    buffers: dict[int, list[Any]],
    keep: bool,
    create: bool,
    capture: dict[int, Any] | None,
    needed: set[int] | None,
    found: dict[Any, Any],
) -> None:
    """Run one node: hooks, its backward, checks, and delivery of the results."""
    if node.tensor_hooks is not None:
        for number in node.tensor_hooks:
            if outputs[number] is not None:
                for hook in list(node.tensor_hooks[number]):
                    replaced = hook(outputs[number])
                    if replaced is not None:
                        outputs[number] = replaced
    if capture is not None:
        number = 0
        for grad in outputs:
            if grad is not None and (node.sequence, number) in capture:
                found[(node.sequence, number)] = grad
            number += 1
    if needed is not None and node.sequence not in needed:
        return
    if node.pre_hooks is not None:
        for hook in list(node.pre_hooks):
            replaced = hook(tuple(outputs))
            if replaced is not None:
                outputs = list(replaced)
    number = 0
    for grad in outputs:
        if grad is None:
            made = node.output(number)
            outputs[number] = ENGINE.zeros(made.shape, made.dtype, made.keys)
        number += 1
    targets = node.targets
    wanted = _wanted(targets, needed, capture, node)
    if GRAPH.anomaly:
        results = ENGINE.anomaly(node, outputs, wanted, keep)
    else:
        results = node.backward(outputs, wanted, keep)
    if results is None or len(results) != len(targets):
        raise ENGINE.wrong_count(node, results)
    if node.post_hooks is not None:
        evaluated = tuple([g() if callable(g) else g for g in results])
        for hook in list(node.post_hooks):
            replaced = hook(evaluated, tuple(outputs))
            if replaced is not None:
                evaluated = replaced
        results = evaluated
    index = 0
    for target in targets:
        if target is not None and wanted[index]:
            grad = results[index]
            if grad is not None:
                fresh = True
                if not isinstance(grad, Value):
                    if not callable(grad):
                        raise ENGINE.wrong_type(node, index, grad)
                    grad = grad()
                    if grad is None:
                        index += 1
                        continue
                    if not isinstance(grad, TensorBase):
                        raise ENGINE.wrong_type(node, index, grad)
                # A gradient that is somebody else's object must not become a leaf's .grad
                for other in outputs:
                    if grad is other:
                        fresh = False
                if isinstance(target, Node):
                    number = node.number_at(index)
                    made = target.output(number)
                    if grad.raw.shape != made.shape or dtype_of(grad) is not made.dtype:
                        grad = ENGINE.fit(node, index, grad, made.shape, made.dtype)
                    _push(heap, pending, buffers, target, number, grad)
                else:
                    leaf: TensorBase = target
                    dtype = dtype_of(leaf)
                    if grad.raw.shape != leaf.raw.shape or dtype_of(grad) is not dtype:
                        grad = ENGINE.fit(node, index, grad, leaf.raw.shape, dtype)
                        if grad._view is None:
                            fresh = True
                    elif fresh:
                        repeats = 0
                        for other in results:
                            if other is grad:
                                repeats += 1
                        if repeats > 1 or grad._storage is not None:
                            fresh = False
                        elif not create:
                            fresh = isinstance(node, OpNode)
                        else:
                            fresh = True
                    _deliver_leaf(leaf, grad, fresh, create, capture, found)
        index += 1


def _wanted(
    targets: list[Any], needed: set[int] | None, capture: dict[int, Any] | None, node: Node
) -> list[bool]:
    wanted: list[bool] = []
    index = 0
    for target in targets:
        if target is None:
            wanted.append(False)
        elif capture is None:
            wanted.append(True)
        elif isinstance(target, Node):
            number = node.number_at(index)
            wanted.append(
                needed is None or target.sequence in needed or (target.sequence, number) in capture
            )
        else:
            wanted.append(id(target) in capture)
        index += 1
    return wanted


def _deliver_leaf(
    leaf: TensorBase,
    grad: Any,
    fresh: bool,
    create: bool,
    capture: dict[int, Any] | None,
    found: dict[Any, Any],
) -> None:
    """Leaf hooks, then accumulation into ``.grad`` or into ``found``."""
    if leaf._hooks is not None:
        for hook in list(leaf._hooks):
            replaced = hook(grad)
            if replaced is not None:
                grad = replaced
                fresh = False
    if capture is not None:
        key = id(leaf)
        if key in capture:
            present = found.get(key)
            found[key] = grad if present is None else dispatch_two(_add, present, grad)
        return
    present = leaf._grad
    if present is None:
        if create:
            leaf._grad = grad
        elif fresh and grad._view is None and not (grad.keys & AUTOGRAD):
            leaf._grad = grad
        else:
            leaf._grad = invoke(_clone, (grad,), _NO_KEYWORDS)
    elif create or present.keys & AUTOGRAD:
        leaf._grad = dispatch_two(_add, present, grad)
    else:
        dispatch_two(_add_, present, grad)
    if leaf._post_hooks is not None:
        for hook in list(leaf._post_hooks):
            hook(leaf)
