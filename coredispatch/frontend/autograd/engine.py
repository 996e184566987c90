"""The backward pass: iterative, in order of decreasing sequence number.

A node's inputs were made before it, so their numbers are smaller: when a node is taken from
the heap, everything that feeds it has been through. No recursion, no dependency counts.

Leaves are no part of that order: a graph may use one that is younger than some of its nodes.
While no leaf has hooks, each takes a contribution as it comes. Otherwise contributions are
summed first, and a leaf's node runs right after the last of them (see :func:`survey`).

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Final

from coredispatch.frontend.autograd.accumulate import AccumulateGrad, accumulate, accumulator
from coredispatch.frontend.autograd.node import SEQUENCE, GraphTask, Node, OpNode, Output
from coredispatch.frontend.autograd.recording import node_of
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.dispatcher import Dispatcher, dispatch_two, invoke
from coredispatch.registry.dispatch.masks import call_masked, current_pass
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.value import dtype_of
from coredispatch.registry.wiring import ENGINE, GRAPH


def _op(name: str) -> Dispatcher:
    op: Dispatcher = TABLE.operator(name)
    return op


# What programs see of their own calls they do not see of the calls of a backward pass.
_SEEN: Final = TABLE.bit("torch_function") | TABLE.bit("torch_function_mode")
_add: Final = _op("add")
_clone: Final = _op("clone")
_ones_like: Final = _op("ones_like")
_NO_KEYWORDS: Final[dict[str, Any]] = {}


def gradient_node(value: TensorBase) -> Node:
    """The node that a gradient of ``value`` goes to: of the call that made it, or of the leaf."""
    made: Any = node_of(value)
    node: Node = accumulator(value) if made is None else made
    return node


def run(
    roots: list[Any],
    grads: list[Any],
    keep: bool,
    create: bool,
    capture: set[Any] | None = None,
    exec_info: set[int] | None = None,
) -> dict[Any, Any]:
    """Push ``grads`` back from ``roots``; a gradient of None is one, for a root of one element.

    Without ``capture`` and ``exec_info``, gradients are accumulated into the leaves. With them,
    only the nodes whose sequence number is in ``exec_info`` run, and what arrives at the outputs
    in ``capture``, ``(sequence number, output number)``, is returned under these keys.
    """
    task = BackwardPass(keep, create, capture, exec_info)
    exclude, restore = (_SEEN, AUTOGRAD) if create else (AUTOGRAD | _SEEN, 0)
    call_masked(_finish, (task, roots, grads), exclude, restore, task)
    return task.found


def _finish(task: BackwardPass, roots: list[Any], grads: list[Any]) -> None:
    task.start(roots, grads)
    task.finish()


def survey(nodes: list[Node]) -> dict[int, int]:
    """For each leaf that can be reached, by the number of its node: the oldest of its users.

    That one is the last to run, so the gradient is complete right after it.
    """
    oldest: dict[int, int] = {}
    seen: set[int] = set()
    stack: list[Node] = []
    for node in nodes:
        if node.sequence not in seen:
            seen.add(node.sequence)
            stack.append(node)
    while stack:
        node = stack.pop()
        sequence = node.sequence
        for edge in node.next_edges:
            if edge is None:
                continue
            if isinstance(edge, Node):
                if edge.sequence not in seen:
                    seen.add(edge.sequence)
                    stack.append(edge)
            else:
                leaf: TensorBase = edge
                key = accumulator(leaf).sequence
                known = oldest.get(key)
                if known is None or sequence < known:
                    oldest[key] = sequence
    return oldest


class BackwardPass(GraphTask):
    """One pass: the nodes that wait, what they have received, and what the caller asked for."""

    # Set where contributions to leaves are summed first.
    borrowed: set[int]  # leaf nodes whose gradient somebody else holds
    oldest: dict[int, int]  # node of a leaf: its oldest user

    def __init__(
        self, keep: bool, create: bool, capture: set[Any] | None, exec_info: set[int] | None
    ) -> None:
        super().__init__(keep, create)
        self.number: int = next(SEQUENCE)  # tells passes apart
        self.outer: Any = current_pass()  # the pass that this one is a part of, or None
        self.capture: set[Any] | None = capture
        self.exec_info: set[int] | None = exec_info
        self.heap: list[int] = []  # negative sequence numbers
        self.pending: dict[int, Node] = {}
        self.buffers: dict[int, list[Any]] = {}  # gradients collected so far, one per output
        self.sums_leaves: bool = False
        self.found: dict[Any, Any] = {}
        self.callbacks: list[Any] = []

    def start(self, roots: list[Any], grads: list[Any]) -> None:
        """Put the roots on the heap."""
        self.sums_leaves = GRAPH.leaf_hooks or self.exec_info is not None
        if self.sums_leaves:
            self.borrowed = set()
        nodes: list[Node] = []
        index = 0
        for root in roots:
            grad = grads[index]
            if grad is None:
                grad = invoke(_ones_like, (root,), _NO_KEYWORDS)
            node = gradient_node(root)
            if isinstance(node, AccumulateGrad):
                self.deliver(root, grad, False)
            else:
                nodes.append(node)
                self.push(node, root._output_nr, grad)
            index += 1
        if self.sums_leaves:
            self.oldest = survey(nodes)

    def finish(self) -> None:
        """Run nodes until none waits, then the callbacks."""
        heap, pending, buffers = self.heap, self.pending, self.buffers
        while heap:
            sequence = -(heappop(heap) if len(heap) > 1 else heap.pop())
            node = pending.pop(sequence)
            self.execute(node, buffers.pop(sequence))
            if self.sums_leaves:
                self.complete_leaves(node)
        # Leaves whose oldest user did not run, because nothing or nobody asked it to.
        while pending:
            _, node = pending.popitem()
            self.execute_leaf(node)
        while self.callbacks:
            self.callbacks.pop(0)()

    def push(self, node: Node, number: int, grad: Any) -> None:
        """Add ``grad`` to what ``node`` has received for its output ``number``."""
        sequence = node.sequence
        grads = self.buffers.get(sequence)
        if grads is None:
            grads = [None] * node.count
            self.buffers[sequence] = grads
            self.pending[sequence] = node
            if self.heap:
                heappush(self.heap, -sequence)
            else:
                self.heap.append(-sequence)
            grads[number] = grad
            return
        present = grads[number]
        grads[number] = grad if present is None else dispatch_two(_add, present, grad)

    def deliver(self, leaf: TensorBase, grad: Any, owned: bool) -> None:
        """Give a contribution to a leaf, or add it to those that came before."""
        if not self.sums_leaves:
            accumulate(leaf, grad, owned, self.create)
            return
        node = accumulator(leaf)
        sequence = node.sequence
        grads = self.buffers.get(sequence)
        if grads is None:
            self.buffers[sequence] = [grad]
            self.pending[sequence] = node
            if not owned:
                self.borrowed.add(sequence)
        else:
            grads[0] = dispatch_two(_add, grads[0], grad)
            self.borrowed.discard(sequence)

    def complete_leaves(self, node: Node) -> None:
        """Run the leaves that ``node`` was the last to send something to."""
        sequence = node.sequence
        for edge in node.next_edges:
            if isinstance(edge, TensorBase):
                leaf = accumulator(edge)
                if self.oldest.get(leaf.sequence) == sequence and leaf.sequence in self.pending:
                    del self.pending[leaf.sequence]
                    self.execute_leaf(leaf)

    def execute_leaf(self, node: Node) -> None:
        """Run the node of a leaf."""
        sequence = node.sequence
        self.owned = sequence not in self.borrowed
        self.execute(node, self.buffers.pop(sequence))

    def execute(self, node: Node, grads: list[Any]) -> None:
        """Run one node: its hooks, its backward, and the delivery of the results."""
        if node.tensor_hooks is not None:
            run_tensor_hooks(node, grads)
        mask: Any = None
        if self.exec_info is not None:
            self.take(node, grads)
            if node.sequence not in self.exec_info:
                return
            mask = self.output_mask(node, self.exec_info)
        if node.pre_hooks is not None:
            grads = run_pre_hooks(node, grads)
        if GRAPH.instrumented:
            results = ENGINE.instrumented(node, grads, mask, self)
        else:
            results = node.backward(grads, mask, self)
        if results is None or len(results) != len(node.next_edges):
            raise ENGINE.wrong_count(node, results)
        if node.post_hooks is not None:
            results = run_post_hooks(node, results, grads, mask)
        # Each gradient goes along its edge.
        numbers = node.edge_numbers
        index = -1
        for edge in node.next_edges:
            index += 1
            if edge is None:
                continue
            grad = results[index]
            if grad is None or (mask is not None and not mask[index]):
                continue
            if not isinstance(grad, TensorBase):
                raise ENGINE.wrong_type(node, index, grad)
            # The check of validated(), written out.
            if isinstance(edge, Node):
                number: int = 0 if numbers is None else numbers.get(index, 0)
                made = edge.output(number) if number else edge
                if grad.raw.shape != made.shape or dtype_of(grad) is not made.dtype:
                    grad = validated(node, index, grad, made)
                self.push(edge, number, grad)
            else:
                if grad.raw.shape != edge.raw.shape or dtype_of(grad) is not dtype_of(edge):
                    grad = validated(node, index, grad, accumulator(edge))
                self.deliver(edge, grad, is_owned(node, grad, grads, results))
        if not self.keep:
            node.release()

    def take(self, node: Node, grads: list[Any]) -> None:
        """Keep what the caller asked for. He may write to it, so it is nobody else's."""
        capture = self.capture
        if not capture:
            return
        number = 0
        for grad in grads:
            key = (node.sequence, number)
            if grad is not None and key in capture:
                if not isinstance(node, AccumulateGrad) or not self.owned or node.has_hooks():
                    made = grad._node
                    grad = invoke(_clone, (grad,), _NO_KEYWORDS)
                    if made is not None and grad.keys & AUTOGRAD:
                        # A printed gradient shows the node that computed it.
                        GRAPH.name_results(grad, -1, GRAPH.node_name(made))
                self.found[key] = grad
            number += 1

    def output_mask(self, node: Node, exec_info: set[int]) -> list[bool]:
        """Which gradients of ``node`` lead to what the caller asked for, one flag per edge."""
        mask: list[bool] = []
        index = 0
        for edge in node.next_edges:
            if edge is None:
                mask.append(False)
            else:
                number = 0
                if isinstance(edge, Node):
                    following = edge
                    number = node.edge_number(index)
                else:
                    following = accumulator(edge)
                mask.append(
                    following.sequence in exec_info
                    or (self.capture is not None and (following.sequence, number) in self.capture)
                )
            index += 1
        return mask


def validated(node: Node, index: int, grad: Any, made: Output) -> Any:
    """``grad`` in the form of what ``made`` describes; raises where it cannot have it."""
    if not isinstance(grad, TensorBase):
        raise ENGINE.wrong_type(node, index, grad)
    if grad.raw.shape != made.shape or dtype_of(grad) is not made.dtype:
        return ENGINE.validate_outputs(node, index, grad, made.shape, made.dtype)
    return grad


def is_owned(node: Node, grad: TensorBase, grads: list[Any], results: Any) -> bool:
    """Whether ``grad`` is a fresh tensor that nobody else holds, so that a leaf may keep it.

    Not so: a view, a tensor that has been viewed (it has a storage) or saved, the gradient that
    came in, one that goes two ways, and what hooks and users' functions have seen.
    """
    if grad._view is not None or grad._storage is not None:
        return False
    if node.post_hooks is not None:
        return False
    if isinstance(node, OpNode):
        if node.packed:
            return False
        saved = node.saved
    else:
        saved = node.kept
        if saved is None:
            return False
    for other in saved:
        if other is grad:
            return False
    for other in grads:
        if other is grad:
            return False
    repeats = 0
    for other in results:
        if other is grad:
            repeats += 1
    return repeats < 2


def run_tensor_hooks(node: Node, grads: list[Any]) -> None:
    """The hooks of the tensors that ``node`` made, or of the leaf."""
    for number in node.tensor_hooks:
        if grads[number] is not None:
            for hook in list(node.tensor_hooks[number]):
                replaced = hook(grads[number])
                if replaced is not None:
                    error = ENGINE.wrong_hook(node, hook, replaced, grads[number])
                    if error is not None:
                        raise error
                    grads[number] = replaced


def run_pre_hooks(node: Node, grads: list[Any]) -> list[Any]:
    """Hooks of the node, before it runs."""
    for hook in list(node.pre_hooks):
        replaced = hook(tuple(grads))
        if replaced is not None:
            grads = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
    return grads


def run_post_hooks(node: Node, results: Any, grads: list[Any], mask: Any) -> Any:
    """Hooks of the node, after it ran. They see gradients in their final form."""
    seen: list[Any] = []
    index = 0
    for edge in node.next_edges:
        grad = results[index] if mask is None or mask[index] else None
        if grad is not None and edge is not None:
            following: Node = edge if isinstance(edge, Node) else accumulator(edge)
            made = following.output(node.edge_number(index))
            grad = validated(node, index, grad, made)
        seen.append(grad)
        index += 1
    results = tuple(seen)
    for hook in list(node.post_hooks):
        replaced = hook(results, tuple(grads))
        if replaced is not None:
            results = replaced if isinstance(replaced, (tuple, list)) else (replaced,)
    return results
