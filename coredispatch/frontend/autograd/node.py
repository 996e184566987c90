"""Nodes of the autograd graph.

A node holds what its ``vjp`` named (with the version of each saved tensor), and an edge for each
gradient: to the node that made the input, or to a leaf, whose node is its
:class:`~coredispatch.frontend.autograd.accumulate.AccumulateGrad`. It never owns a strong
reference to its own output: a saved output is kept as raw data and rewrapped.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.model.derivative import FROM_GRAD, FROM_OUT, VjpRule
from coredispatch.registry.model.native import mypyc_attr
from coredispatch.registry.model.value import Storage, Value, storage_of, version_of
from coredispatch.registry.wiring import HOOKS


class GraphState:
    """Process-wide state of recording."""

    def __init__(self) -> None:
        self.anomaly: bool = False
        self.leaf_hooks: bool = False  # whether any leaf of the process ever had a hook
        self.traceback: Any = None  # () -> str, the forward line (anomaly mode)
        self.record_inplace: Any = None  # installed by .inplace
        self.zeros: Any = None  # (shape, dtype, keys) -> Tensor
        self.node_name: Any = None  # (name of the operator) -> name as PyTorch shows it
        self.no_derivative: Any = None  # (op, args) -> exception
        self.version_error: Any = None  # (node, position, saved, current) -> exception
        self.freed_error: Any = None  # (node) -> exception
        self.specialize: Any = None  # (entry) -> None, where recording runs interpreted
        self.accumulator: Any = None  # (leaf) -> its AccumulateGrad


GRAPH: Final = GraphState()
# A node's inputs always have smaller numbers; next() on a count is atomic under threads.
SEQUENCE: Final = itertools.count()


class GraphTask:
    """What a node may know of the backward pass that runs it."""

    def __init__(self, keep: bool, create: bool) -> None:
        self.keep: bool = keep  # keep saved tensors for another pass
        self.create: bool = create  # record the pass itself
        self.owned: bool = False  # nobody else holds the gradient that is delivered


@mypyc_attr(allow_interpreted_subclasses=True)
class Output:
    """What a node remembers of one of its outputs."""

    shape: Any = ()
    dtype: Any = None
    keys: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Node(Output):
    """One recorded call. ``next_edges[i]`` receives the i-th gradient: a Node, a leaf, or None.

    Most calls have one output: the node is the record of its first one itself, ``others`` are
    those of the rest.
    """

    # Class-level defaults: interpreted, a node then only pays for what differs from them.
    sequence: int = 0  # assigned once the edges are known
    count: int = 0  # of the outputs
    others: Any = None
    tensor_hooks: Any = None  # output number -> list of hooks
    pre_hooks: Any = None
    post_hooks: Any = None
    forward_trace: Any = None
    _metadata: Any = None
    edge_numbers: Any = None  # {position of an edge: output number there}, where it is not 0

    def __init__(self, name: str, multi_output: bool) -> None:
        self.opname: str = name
        self.multi_output: bool = multi_output
        self.next_edges: list[Any] = []

    def output(self, number: int) -> Output:
        """The record of output ``number``."""
        if number == 0:
            return self
        made: Output = self.others[number - 1]
        return made

    def edge_number(self, position: int) -> int:
        """Which output of ``next_edges[position]`` the gradient belongs to."""
        numbers = self.edge_numbers
        if numbers is None:
            return 0
        found: int = numbers.get(position, 0)
        return found

    def backward(self, grads: list[Any], output_mask: list[bool], task: GraphTask) -> Any:
        """The gradients of the inputs, one per edge (tuple or list).

        ``grads`` has one gradient per output, None for an output that received none;
        ``output_mask`` says which gradients are wanted.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Free what was saved for the backward pass."""

    def name(self) -> str:
        """Name as PyTorch shows it, such as ``AddBackward0``."""
        return str(GRAPH.node_name(self.opname))

    @property
    def metadata(self) -> Any:
        """A dict for the user's own use."""
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    @property
    def next_functions(self) -> Any:
        """``((node or None, output number), ...)``, one per input."""
        pairs: list[Any] = []
        index = 0
        for edge in self.next_edges:
            if isinstance(edge, TensorBase):
                pairs.append((GRAPH.accumulator(edge), 0))
            else:
                pairs.append((edge, self.edge_number(index)))
            index += 1
        return tuple(pairs)

    def add_tensor_hook(self, number: int, hook: Any) -> Any:
        """Call ``hook(grad)`` with the gradient of output ``number``, which it may replace."""
        if self.tensor_hooks is None:
            self.tensor_hooks = {}
        hooks = self.tensor_hooks.setdefault(number, [])
        handle = RemovableHandle(hooks, hook)
        if len(hooks) > 1 and getattr(hooks[-2], "retains", False):
            # What retain_grad() keeps is what the hooks made of it.
            hooks[-2], hooks[-1] = hooks[-1], hooks[-2]
        return handle

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node ran.

        What it returns, unless None, takes the place of ``grad_inputs``.
        """
        if self.post_hooks is None:
            self.post_hooks = []
        return RemovableHandle(self.post_hooks, hook)

    def register_prehook(self, hook: Any) -> Any:
        """Call ``hook(grad_outputs)`` before this node runs.

        What it returns, unless None, takes the place of ``grad_outputs``.
        """
        if self.pre_hooks is None:
            self.pre_hooks = []
        return RemovableHandle(self.pre_hooks, hook)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"


def materialized(node: Node, grads: list[Any]) -> list[Any]:
    """``grads`` with zeros for the outputs that received no gradient."""
    filled = grads
    number = 0
    for grad in grads:
        if grad is None:
            if filled is grads:
                filled = list(grads)
            made = node.output(number)
            filled[number] = GRAPH.zeros(made.shape, made.dtype, made.keys)
        number += 1
    return filled


class OpNode(Node):
    """A node whose backward is the ``vjp`` of an operator."""

    out_raw: Any = None  # saved outputs: raw data, storages and versions
    out_storage: Any = None
    out_versions: Any = None
    list_lengths: Any = None
    saved: Any = ()  # parallel to rule.saves; a list once something is
    versions: Any = None  # {position in saved: version it had}, where it is not 0
    freed: bool = False

    def __init__(self, name: str, rule: VjpRule) -> None:
        # Not through super(): one call less per recorded operator.
        self.opname = name
        self.multi_output = rule.several
        self.next_edges = []
        self.rule: VjpRule = rule

    def note_version(self, value: Value) -> None:
        """Remember the version of the argument that is saved next."""
        version = version_of(value)
        if version:
            if self.versions is None:
                self.versions = {}
            self.versions[len(self.saved)] = version

    def save(self, value: Any) -> None:
        """Keep one more argument, with its version."""
        if not self.saved:
            self.saved = []
        if isinstance(value, Value):
            self.note_version(value)
        self.saved.append(value)

    def save_out(self, out: Any) -> None:
        """Keep the output(s) without owning them."""
        outs = list(out) if self.multi_output else [out]
        self.out_raw = [o.raw for o in outs]
        self.out_storage = [storage_of(o) for o in outs]
        self.out_versions = [version_of(o) for o in outs]

    def unpack_out(self, index: int) -> Any:
        """The saved output as a tensor made by this node."""
        storage: Storage = self.out_storage[index]
        if storage.version != self.out_versions[index]:
            raise GRAPH.version_error(self, -1, self.out_versions[index], storage.version)
        made = self.output(index)
        value: TensorBase = HOOKS.value_type(self.out_raw[index], made.keys)
        value._storage = storage
        if made.dtype.is_floating_point or made.dtype.is_complex:
            value._node = self
            value._nr = index
            value.keys |= AUTOGRAD
        return value

    def arguments(self, grads: list[Any]) -> list[Any]:
        """The arguments of the vjp, with every saved tensor's version checked."""
        if self.freed:
            raise GRAPH.freed_error(self)
        arguments: list[Any] = []
        position = 0
        for source in self.rule.sources:
            if source == FROM_GRAD:
                arguments.append(tuple(grads) if self.multi_output else grads[0])
            elif source == FROM_OUT:
                if self.multi_output:
                    arguments.append(tuple([self.unpack_out(i) for i in range(self.count)]))
                else:
                    arguments.append(self.unpack_out(0))
            else:
                value = self.saved[position]
                if isinstance(value, Value):
                    version = version_of(value)
                    versions = self.versions
                    was: int = 0 if versions is None else versions.get(position, 0)
                    if version != was:
                        raise GRAPH.version_error(self, position, was, version)
                arguments.append(value)
                position += 1
        return arguments

    def backward(self, grads: list[Any], output_mask: list[bool], task: GraphTask) -> Any:
        arguments = self.arguments(materialized(self, grads))
        results = self.in_order(self.rule.fn(*arguments))
        if not task.keep:
            self.release()
        if len(results) != len(self.next_edges):
            return results
        evaluated: list[Any] = []
        index = 0
        for grad in results:
            if grad is not None:
                if not isinstance(grad, Value) and callable(grad):
                    grad = grad() if output_mask[index] else None
                for argument in arguments:
                    if argument is grad and isinstance(grad, Value):
                        storage_of(grad)  # a saved tensor: nobody may take it for his own
            evaluated.append(grad)
            index += 1
        return evaluated

    def in_order(self, result: Any) -> Any:
        """What the rule returned, with one gradient per edge."""
        if len(self.rule.tensors) == 1 and not (isinstance(result, tuple) and not self.rule.lists):
            result = (result,)
        if self.rule.lists:
            flat: list[Any] = []
            index = 0
            for position in self.rule.tensors:
                item = result[index]
                if position in self.rule.lists:
                    if item is None:
                        count = self.list_lengths[self.rule.lists.index(position)]
                        flat.extend([None] * count)
                    else:
                        flat.extend(item)
                else:
                    flat.append(item)
                index += 1
            return flat
        return result

    def release(self) -> None:
        self.saved = ()
        self.out_raw = None
        self.out_storage = None
        self.freed = bool(self.rule.saves) or self.rule.saves_out
