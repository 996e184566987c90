"""Where a gradient ends: the node that adds it to the ``.grad`` of a leaf.

A leaf owns its node, which is made on first need and stays the same; the node knows its leaf
weakly. What keeps both alive in a graph is the edge, which holds the leaf.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

import weakref
from _thread import RLock, allocate_lock
from typing import Any, Final

from coredispatch.frontend.autograd.node import SEQUENCE, GraphTask, Node
from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.dispatcher import Dispatcher, dispatch_two, invoke
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.spelling import SPELLING
from coredispatch.registry.model.value import dtype_of
from coredispatch.registry.wiring import GRAPH


def _op(name: str) -> Dispatcher:
    op: Dispatcher = TABLE.operator(name)
    return op


_add: Final = _op("add")
_add_: Final = _op("add_")
_clone: Final = _op("clone")
_NO_KEYWORDS: Final[dict[str, Any]] = {}
_MAKING: Final = allocate_lock()  # a leaf has one node, also where two threads ask


class AccumulateGrad(Node):
    """Adds what a backward pass sends to the leaf ``variable`` to its ``.grad``.

    With hooks it runs once per pass, with the sum of all contributions, right after the last of
    them: hooks of the leaf (``register_hook``) and of the node see that sum and may replace it.
    """

    post_accumulate_hooks: Any = None

    def __init__(self, leaf: TensorBase) -> None:
        self.opname = "AccumulateGrad"
        self.multi_output = False
        self.next_edges = []
        self.count = 1
        self.sequence = next(SEQUENCE)
        self._leaf: Any = weakref.ref(leaf)
        self.lock: Any = RLock()

    @property
    def variable(self) -> Any:
        """The leaf; None once it is gone."""
        return self._leaf()

    def name(self) -> str:
        """Name of the node."""
        return SPELLING.of_node("AccumulateGrad")

    def has_hooks(self) -> bool:
        """Whether somebody besides the leaf gets to see the gradient."""
        return (
            self.tensor_hooks is not None
            or self.pre_hooks is not None
            or self.post_hooks is not None
        )

    def add_tensor_hook(self, number: int, hook: Any) -> Any:
        GRAPH.leaf_hooks = True
        return super().add_tensor_hook(number, hook)

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook((), (sum,))`` after each accumulation."""
        GRAPH.leaf_hooks = True
        return super().register_hook(hook)

    def register_prehook(self, hook: Any) -> Any:
        """Call ``hook((sum,))`` before each accumulation; it may return another tuple."""
        GRAPH.leaf_hooks = True
        return super().register_prehook(hook)

    def register_post_accumulate_hook(self, hook: Any) -> Any:
        """Call ``hook(leaf)`` after each accumulation; returns the handle."""
        GRAPH.leaf_hooks = True
        if self.post_accumulate_hooks is None:
            self.post_accumulate_hooks = []
        return RemovableHandle(self.post_accumulate_hooks, hook)

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        leaf: Any = self._leaf()
        if grads[0] is not None and leaf is not None:
            accumulate(leaf, grads[0], task.owned and not self.has_hooks(), task.create)
            if self.post_accumulate_hooks is not None:
                for hook in list(self.post_accumulate_hooks):
                    hook(leaf)
        return ()


def accumulate(leaf: TensorBase, grad: Any, owned: bool, create: bool) -> None:
    """Take ``grad`` over if nobody else holds it, copy it, or add it to what is there."""
    if not leaf.keys & AUTOGRAD:
        return
    if owned and leaf._grad is None:  # nothing is called in between: no other thread runs
        leaf._grad = grad
        return
    # Threads that run backward at once share their leaves. One lock for all leaves would not do:
    # the sum of a tensor in parts waits for other ranks, which may be threads.
    lock = accumulator(leaf).lock
    lock.acquire()
    try:
        present = leaf._grad
        if present is None:
            leaf._grad = grad if owned else invoke(_clone, (grad,), _NO_KEYWORDS)
        elif create:
            leaf._grad = dispatch_two(_add, present, grad)
        else:
            dispatch_two(_add_, present, grad)  # one with a history keeps it
    finally:
        lock.release()


def accumulator(leaf: TensorBase) -> AccumulateGrad:
    """The node of ``leaf``, with the form that a gradient must have."""
    found = leaf._accumulator
    if found is None:
        _MAKING.acquire()
        try:
            found = leaf._accumulator
            if found is None:
                found = AccumulateGrad(leaf)
                leaf._accumulator = found
        finally:
            _MAKING.release()
    node: AccumulateGrad = found
    node.shape = leaf.raw.shape
    node.dtype = dtype_of(leaf)
    node.keys = leaf.keys & ~AUTOGRAD
    return node


GRAPH.accumulator = accumulator
