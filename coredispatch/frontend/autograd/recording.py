"""The autograd layer: redispatch, then record the call as one node of the graph.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import Any, Final

from coredispatch.frontend.autograd.node import SEQUENCE, Node, OpNode, Output
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.boxed_kernels import LayerEntry
from coredispatch.registry.dispatch.dispatcher import Dispatcher
from coredispatch.registry.model.derivative import VjpRule, saved_argument
from coredispatch.registry.model.value import (
    FastAllocation,
    Value,
    dtype_of,
    storage_of,
    version_of,
)
from coredispatch.registry.wiring import GRAPH, HOOKS, SLOTS

_FLOATING: Final = 2  # the lowest dtype category that has gradients


def assign_sequence_number(node: Node) -> None:
    """Give ``node`` its place in the order, after every node it sends gradients to.

    Finding an edge may make nodes (a view whose base was written replays its view op), so this
    comes after all :func:`add_edge` calls.
    """
    node.sequence = next(SEQUENCE)


def node_of(value: TensorBase) -> Any:
    """The node that made ``value``, brought up to date if its base was written in place."""
    view = value._view
    if view is not None and view.version != version_of(value):
        SLOTS.refresh(value)
    return value._node


def add_edge(node: Node, argument: Any) -> bool:
    """Let the next gradient of ``node`` go where ``argument`` came from; False: nowhere."""
    if isinstance(argument, TensorBase) and argument.keys & AUTOGRAD:
        source = argument._node if argument._view is None else node_of(argument)
        next_edges = node.next_edges
        if source is None:
            next_edges.append(argument)
            return True
        if argument._output_nr:
            if node.edge_numbers is None:
                node.edge_numbers = {}
            node.edge_numbers[len(next_edges)] = argument._output_nr
        next_edges.append(source)
        return True
    if not isinstance(argument, Value) and not node.next_edges:
        node.number_first = True
    node.next_edges.append(None)
    return False


def add_edges(node: OpNode, items: Any) -> bool:
    """:func:`add_edge` for every tensor of a list; False: no gradient goes anywhere."""
    if node.list_lengths is None:
        node.list_lengths = []
    node.list_lengths.append(len(items))
    recorded = False
    for item in items:
        if add_edge(node, item):
            recorded = True
    return recorded


def alias_of(value: TensorBase) -> Any:
    """The same data and storage as a tensor of its own, without history."""
    alias: TensorBase = FastAllocation.__new__(HOOKS.value_type, value.raw, value.keys & ~AUTOGRAD)
    alias._storage = storage_of(value)
    return alias


def keep_history(out: TensorBase, args: tuple[Any, ...]) -> None:
    """Let a write to ``out``, which an operator made that is no view, continue its own history.

    Below autograd a decomposition may end in a view of what it made itself (``diag``). A write to
    such a view would be recorded on that base, which has no history: the operator's would be lost.
    """
    link = out._view
    assert link is not None
    base = link.base
    for argument in args:
        if base is argument:
            return
    while isinstance(base, TensorBase) and not base.keys & AUTOGRAD:
        link = base._view
        if link is None or not link.op.differentiable:
            out._storage, out._view = storage_of(out), None
            return
        base = link.base


def attach(node: Node, out: TensorBase) -> None:
    """Make ``out`` the next output of ``node``."""
    dtype = dtype_of(out)
    number = node.count
    made: Output = node
    if number:
        made = Output()
        if number == 1:
            node.others = []
        node.others.append(made)
    node.count = number + 1
    made.shape = out.raw.shape
    made.dtype = dtype
    keys = out.keys & ~AUTOGRAD
    made.keys = keys
    if dtype.category >= _FLOATING:
        out._node = node
        if out._output_nr != number:
            out._output_nr = number
        out.keys = keys | AUTOGRAD


class RecordEntry(LayerEntry):
    """The autograd layer: redispatch, then record the call as one node.

    A composite without a vjp is recorded through its decomposition; an operator that mutates goes
    to the in-place rules.
    """

    def __init__(
        self, op: Dispatcher, keys: int, mask: int, record: Any, fn: Any, generic: bool, bits: int
    ) -> None:
        super().__init__(op, keys, mask, record, fn, generic, bits)
        self.rule: VjpRule | None = record.vjp_rule
        self.mutates: bool = bool(record.mutates)
        self.is_view: bool = record.view is True
        self.name: str = op.name
        self.result_name: Any = GRAPH.result_name(op)  # None, or (args) -> name to show
        if GRAPH.specialize is not None:
            GRAPH.specialize(self)

    def call(self, args: tuple[Any, ...]) -> Any:
        rule = self.rule
        if self.mutates:
            return GRAPH.record_inplace(self, args, rule)
        if rule is None:
            return self.without_rule(args)
        return self.recorded(self.below(args), args, rule)

    def call_one(self, a: Value) -> Any:
        rule = self.rule
        entry = self.next
        if rule is None or entry is None or self.mutates:
            return self.call((a,))
        return self.recorded(entry.call_one(a), (a,), rule)

    def call_two(self, a: Value, b: Any) -> Any:
        rule = self.rule
        entry = self.next
        if rule is None or entry is None or self.mutates:
            return self.call((a, b))
        return self.recorded(entry.call_two(a, b), (a, b), rule)

    def recorded(self, out: Any, args: tuple[Any, ...], rule: VjpRule) -> Any:
        """``out`` as the output of a new node, where any of ``args`` requires grad."""
        node = OpNode(self.name, rule)
        next_edges = node.next_edges
        mask = 0  # a bit per differentiable parameter: it requires grad
        bit = 1
        for position in rule.tensors:
            argument = args[position]
            # The common case of add_edge(), written out.
            if (
                isinstance(argument, TensorBase)
                and argument._view is None
                and not argument._output_nr
            ):
                if argument.keys & AUTOGRAD:
                    source = argument._node
                    next_edges.append(argument if source is None else source)
                    mask |= bit
                else:
                    next_edges.append(None)
            elif rule.lists and position in rule.lists:
                if add_edges(node, argument):
                    mask |= bit
            elif add_edge(node, argument):
                mask |= bit
            bit += bit
        if not mask:
            return out
        plan = node.plan = rule.plan(mask)
        if out is args[0]:
            # A decomposition that hands its input on: the input must not become this node's output.
            out = alias_of(out)
        node.sequence = next(SEQUENCE)
        if plan.saves:
            saved = node.saved = []
            for position in plan.arguments:
                argument = args[position]
                if isinstance(argument, Value):
                    # Only who has a storage was ever written or viewed.
                    if argument._storage is not None or argument._view is not None:
                        node.note_version(argument)
                saved.append(argument)
            for source in plan.shapes:
                saved.append(saved_argument(args, source))
        if rule.multi_output:
            for item in out:
                if item._view is not None and not self.is_view:
                    keep_history(item, args)
                attach(node, item)
        else:
            if out._view is not None and not self.is_view:
                keep_history(out, args)
            attach(node, out)
        if plan.outs or plan.all_outs:
            node.save_outputs(out)
        if self.result_name is not None:
            node.shown = self.result_name(args)
        if GRAPH.watched:
            GRAPH.after_record(node)
        return out

    def through_body(self, args: tuple[Any, ...]) -> Any:
        """What the decomposition gives, under the name that PyTorch's node has."""
        if self.result_name is None:
            return self.decompose(args)
        first = next(SEQUENCE)
        out = self.decompose(args)
        GRAPH.name_results(out, first, self.result_name(args))
        return out

    def without_rule(self, args: tuple[Any, ...]) -> Any:
        """No vjp: not differentiable, recorded through its decomposition, or an error."""
        refuses = self.record.refuses_gradient
        if not self.record.differentiable and not refuses:
            return self.below(args)
        if self.record.decomposition is not None and not refuses:
            return self.through_body(args)
        out = self.below(args)
        for argument in args:
            if isinstance(argument, TensorBase) and argument.keys & AUTOGRAD:
                raise GRAPH.no_derivative(self.op, args)
        return out
