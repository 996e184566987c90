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
from coredispatch.registry.model.derivative import (
    GRAD,
    GRAD_AT,
    GRADS,
    KIND,
    NUMBER,
    OUT,
    SAVED,
    FormulaCall,
    SavePlan,
    VjpRule,
)
from coredispatch.registry.model.native import mypyc_attr
from coredispatch.registry.model.spelling import SPELLING
from coredispatch.registry.model.value import (
    FastAllocation,
    Storage,
    Value,
    storage_of,
    version_of,
)
from coredispatch.registry.wiring import GRAPH, HOOKS

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
    number_first: bool = False  # the first operand is a number: 1 - x
    kept: Any = None  # what it saved, of a node whose gradients are tensors of their own
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

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        """The gradients of the inputs, one per edge (tuple or list).

        ``grads`` has one gradient per output, None for an output that received none;
        ``output_mask`` says which gradients are wanted, None all that have an edge. The engine
        calls :meth:`release` afterwards, unless the graph is kept.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Free what was saved for the backward pass."""

    def name(self) -> str:
        """Name as PyTorch shows it, such as ``AddBackward0``."""
        return SPELLING.of_node(str(GRAPH.node_name(self)))

    def _sequence_nr(self) -> int:
        return self.sequence

    @property
    def _input_metadata(self) -> Any:
        return [self.output(number) for number in range(self.count)]

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
                pairs.append((GRAPH.as_named(edge), self.edge_number(index)))
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
        return f"<{self.name().rpartition('::')[2]} object at {hex(id(self))}>"


def materialized(node: Node, grads: list[Any]) -> list[Any]:
    """``grads`` with zeros for the outputs that received no gradient."""
    filled = grads
    number = 0
    for grad in grads:
        if grad is None:
            if filled is grads:
                filled = list(grads)
            made = node.output(number)
            filled[number] = zeros_of(made, grads)
        number += 1
    return filled


@mypyc_attr(allow_interpreted_subclasses=True)
class OpNode(Node):
    """A node whose backward are the formulas of an operator's derivative."""

    out_raw: Any = None  # saved outputs, parallel to plan.outs: raw data, storages and versions
    out_storage: Any = None
    out_versions: Any = None
    out_numbers: Any = None
    list_lengths: Any = None
    saved: Any = ()  # parallel to plan.saves; a list once something is
    versions: Any = None  # {place in saved: version it had}, where it is not 0
    freed: bool = False
    packed: bool = False  # by hooks: what is saved is to be unpacked first
    shown: Any = None  # the name, where it does not follow from the operator and what is saved
    plan: SavePlan  # known once the edges are

    def __init__(self, name: str, rule: VjpRule) -> None:
        # Not through super(): one call less per recorded operator.
        self.opname = name
        self.multi_output = rule.multi_output
        self.next_edges = []

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

    def save_outputs(self, out: Any) -> None:
        """Keep the outputs that the plan reads without owning them."""
        plan = self.plan
        if not self.multi_output:
            self.out_numbers = plan.outs
            self.out_raw = [out.raw]
            self.out_storage = [storage_of(out)]
            self.out_versions = [version_of(out)]
            return
        outs = list(out)
        numbers = list(range(len(outs))) if plan.all_outs else plan.outs
        self.out_numbers = numbers
        self.out_raw = [outs[i].raw for i in numbers]
        self.out_storage = [storage_of(outs[i]) for i in numbers]
        self.out_versions = [version_of(outs[i]) for i in numbers]

    def unpack_output(self, number: int) -> Any:
        """A saved output as a tensor made by this node."""
        place: int = self.out_numbers.index(number)
        if self.packed:
            return GRAPH.unpacked_output(self, place, number)
        storage: Storage = self.out_storage[place]
        if storage.version != self.out_versions[place]:
            raise GRAPH.version_error(self, -1, self.out_versions[place], storage.version)
        made = self.output(number)
        value: TensorBase = FastAllocation.__new__(HOOKS.value_type, self.out_raw[place], made.keys)
        value._storage = storage
        if made.dtype.is_floating_point or made.dtype.is_complex:
            value._node = self
            value._output_nr = number
            value.keys |= AUTOGRAD
        return value

    def arguments(
        self, call: FormulaCall, grads: list[Any], unpacked: dict[int, Any] | None
    ) -> list[Any]:
        """The arguments of a formula, with every saved tensor's version checked."""
        arguments: list[Any] = []
        versions = self.versions
        for source in call.takes:
            kind = source & KIND
            if kind == SAVED:
                place = source >> NUMBER
                value = self.saved[place]
                if unpacked is not None:
                    if place not in unpacked:
                        unpacked[place] = GRAPH.unpack(value)
                    value = unpacked[place]
                elif isinstance(value, Value):
                    version = version_of(value)
                    was: int = 0 if versions is None else versions.get(place, 0)
                    if version != was:
                        raise GRAPH.version_error(self, place, was, version)
                arguments.append(value)
            elif kind == GRAD:
                if self.multi_output or grads[0] is None:
                    grads = materialized(self, grads)
                arguments.append(tuple(grads) if self.multi_output else grads[0])
            elif kind == GRAD_AT:
                number = source >> NUMBER
                grad = grads[number]
                arguments.append(zeros_of(self.output(number), grads) if grad is None else grad)
            elif kind == GRADS:
                arguments.append(tuple(grads))
            elif kind == OUT and self.multi_output:
                arguments.append(tuple([self.unpack_output(i) for i in self.out_numbers]))
            else:
                arguments.append(self.unpack_output(source >> NUMBER))
        return arguments

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        if self.freed:
            raise GRAPH.freed_error(self)
        plan = self.plan
        rule = plan.rule
        # Several formulas may read one tensor, which is unpacked once.
        unpacked: dict[int, Any] | None = {} if self.packed else None
        if rule.joint is not None:
            call = plan.calls[0]
            return self.of_joint(call.fn(*self.arguments(call, grads, unpacked)), output_mask)
        results: list[Any] = [None] * len(rule.tensors)
        for call in plan.calls:
            index = call.index
            if not rule.lists:
                if self.next_edges[index] is None:
                    continue
                if output_mask is not None and not output_mask[index]:
                    continue
            results[index] = call.fn(*self.arguments(call, grads, unpacked))
        return self.flattened(results) if rule.lists else results

    def of_joint(self, result: Any, output_mask: Any) -> Any:
        """What a joint formula returned, with one gradient per edge, the wanted ones computed."""
        rule = self.plan.rule
        if len(rule.tensors) == 1 and not (isinstance(result, tuple) and not rule.lists):
            if not rule.lists and isinstance(result, Value):
                return (result,)
            result = (result,)
        if rule.lists:
            result = self.flattened(result)
        if result is None or len(result) != len(self.next_edges):
            return result
        results: list[Any] = []
        index = 0
        for grad in result:
            if grad is not None and not isinstance(grad, Value) and callable(grad):
                wanted = self.next_edges[index] is not None
                if output_mask is not None and not output_mask[index]:
                    wanted = False
                grad = grad() if wanted else None
            results.append(grad)
            index += 1
        return results

    def flattened(self, results: Any) -> list[Any]:
        """One gradient per edge from one per parameter, some of which are lists."""
        rule = self.plan.rule
        flat: list[Any] = []
        index = 0
        for position in rule.tensors:
            item = results[index]
            if position in rule.lists:
                if item is None:
                    flat.extend([None] * self.list_lengths[rule.lists.index(position)])
                else:
                    flat.extend(item)
            else:
                flat.append(item)
            index += 1
        return flat

    def release(self) -> None:
        # Sizes and numbers may stay: only a pass that needs a tensor must not come again.
        for value in self.saved:
            if isinstance(value, Value):
                self.freed = True
            elif isinstance(value, (list, tuple)):
                for item in value:
                    if isinstance(item, Value):
                        self.freed = True
        if self.packed:
            self.freed = True
        if self.out_raw is not None:
            self.freed = True
        if self.freed:
            self.saved = ()
            self.out_raw = None
            self.out_storage = None


def zeros_of(made: Output, grads: list[Any]) -> Any:
    """A zero gradient for an output that received none, on the device of one that did."""
    present: Any = None
    for grad in grads:
        if grad is not None:
            present = grad
    return GRAPH.zeros(made.shape, made.dtype, made.keys, present)
