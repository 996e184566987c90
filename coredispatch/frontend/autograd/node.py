"""Nodes of the autograd graph, and the layer kernel that records them.

A node holds what its ``vjp`` named (with the version of each saved tensor), and where each
gradient goes: to the node that made the input, or into a leaf. It never owns a strong
reference to its own output: a saved output is kept as raw data and rewrapped.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.frontend.tensor_base import AUTOGRAD, SLOTS, TensorBase
from coredispatch.registry.dispatch.boxed_kernels import LayerEntry
from coredispatch.registry.dispatch.dispatcher import Dispatcher
from coredispatch.registry.model.derivative import FROM_GRAD, FROM_OUT, VjpRule, saved_argument
from coredispatch.registry.model.native import mypyc_attr
from coredispatch.registry.model.value import Storage, Value, dtype_of, storage_of, version_of
from coredispatch.registry.wiring import HOOKS


class GraphState:
    """Process-wide state of recording."""

    def __init__(self) -> None:
        self.anomaly: bool = False
        self.traceback: Any = None  # () -> str, the forward line (anomaly mode)
        self.record_inplace: Any = None  # installed by .inplace
        self.no_derivative: Any = None  # (op, args) -> exception
        self.version_error: Any = None  # (node, position, saved, current) -> exception
        self.freed_error: Any = None  # (node) -> exception
        self.specialize: Any = None  # (entry) -> None, where this module runs interpreted


GRAPH: Final = GraphState()
_FLOATING: Final = 2  # the lowest dtype category that has gradients
# A node's inputs always have smaller numbers; next() on a count is atomic under threads.
SEQUENCE: Final = itertools.count()


@mypyc_attr(allow_interpreted_subclasses=True)
class Output:
    """What a node remembers of one of its outputs."""

    shape: Any = ()
    dtype: Any = None
    keys: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Node(Output):
    """One recorded call. ``targets[i]`` receives the i-th gradient: a Node, a leaf, or None.

    Most calls have one output: the node is the record of its first one itself, ``others`` are
    those of the rest.
    """

    # Class-level defaults: interpreted, a node then only pays for what differs from them.
    sequence: int = 0  # given by number() once the targets are known
    count: int = 0  # of the outputs
    others: Any = None
    tensor_hooks: Any = None  # output number -> list of hooks
    pre_hooks: Any = None
    post_hooks: Any = None
    forward_trace: Any = None
    metadata: Any = None
    numbers: Any = None  # {position of a target: output number there}, where it is not 0

    def __init__(self, name: str, several: bool) -> None:
        self.opname: str = name
        self.several: bool = several
        self.targets: list[Any] = []

    def output(self, number: int) -> Output:
        """The record of output ``number``."""
        if number == 0:
            return self
        made: Output = self.others[number - 1]
        return made

    def number_at(self, position: int) -> int:
        """Which output of ``targets[position]`` the gradient belongs to."""
        numbers = self.numbers
        if numbers is None:
            return 0
        found: int = numbers.get(position, 0)
        return found

    def backward(self, grads: list[Any], wanted: list[bool], keep: bool) -> Any:
        """The gradients of the inputs, one per target (tuple or list)."""
        raise NotImplementedError

    def release(self) -> None:
        """Free what was saved for the backward pass."""

    def describe(self) -> str:
        """Name as PyTorch shows it, such as ``AddBackward``."""
        return "".join([p.capitalize() for p in self.opname.split("_")]) + "Backward"

    def name(self) -> str:
        """Name of the node."""
        return self.describe()

    @property
    def next_functions(self) -> Any:
        """``((node or AccumulateGrad or None, output number), ...)``, one per input."""
        pairs: list[Any] = []
        index = 0
        for target in self.targets:
            if isinstance(target, TensorBase):
                pairs.append((AccumulateGrad(target), 0))
            else:
                pairs.append((target, self.number_at(index)))
            index += 1
        return tuple(pairs)

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node ran."""
        if self.post_hooks is None:
            self.post_hooks = []
        return RemovableHandle(self.post_hooks, hook)

    def register_prehook(self, hook: Any) -> Any:
        """Call ``hook(grad_outputs)`` before this node runs."""
        if self.pre_hooks is None:
            self.pre_hooks = []
        return RemovableHandle(self.pre_hooks, hook)

    def __repr__(self) -> str:
        return f"<{self.describe()}>"


class AccumulateGrad:
    """Stands in ``next_functions`` for the leaf ``variable`` that a gradient ends in."""

    def __init__(self, variable: TensorBase) -> None:
        self.variable: TensorBase = variable
        self.next_functions: Any = ()

    def name(self) -> str:
        """Name of the node."""
        return "AccumulateGrad"

    def __repr__(self) -> str:
        return "<AccumulateGrad>"


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
        self.several = rule.several
        self.targets = []
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
        outs = list(out) if self.several else [out]
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
                arguments.append(tuple(grads) if self.several else grads[0])
            elif source == FROM_OUT:
                if self.several:
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

    def backward(self, grads: list[Any], wanted: list[bool], keep: bool) -> Any:
        result = self.rule.fn(*self.arguments(grads))
        if not keep:
            self.release()
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


def number(node: Node) -> None:
    """Give ``node`` its place in the order, after every node it sends gradients to.

    Finding a target may make nodes (a view whose base was written replays its view op), so this
    comes after all :func:`add_target` calls.
    """
    node.sequence = next(SEQUENCE)


def node_of(value: TensorBase) -> Any:
    """The node that made ``value``, brought up to date if its base was written in place."""
    view = value._view
    if view is not None and view.version != version_of(value):
        SLOTS.refresh(value)
    return value._node


def add_target(node: Node, argument: Any) -> bool:
    """Let the next gradient of ``node`` go where ``argument`` came from; False: nowhere."""
    if isinstance(argument, TensorBase) and argument.keys & AUTOGRAD:
        source = argument._node if argument._view is None else node_of(argument)
        targets = node.targets
        if source is None:
            targets.append(argument)
            return True
        if argument._nr:
            if node.numbers is None:
                node.numbers = {}
            node.numbers[len(targets)] = argument._nr
        targets.append(source)
        return True
    node.targets.append(None)
    return False


def add_list(node: OpNode, items: Any) -> bool:
    """:func:`add_target` for every tensor of a list; False: no gradient goes anywhere."""
    if node.list_lengths is None:
        node.list_lengths = []
    node.list_lengths.append(len(items))
    recorded = False
    for item in items:
        if add_target(node, item):
            recorded = True
    return recorded


def alias_of(value: TensorBase) -> Any:
    """The same data and storage as a tensor of its own, without history."""
    alias = HOOKS.value_type(value.raw, value.keys & ~AUTOGRAD)
    alias._storage = storage_of(value)
    return alias


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
        if out._nr != number:
            out._nr = number
        out.keys = keys | AUTOGRAD


class RecordEntry(LayerEntry):
    """The autograd layer: redispatch, then record the call as one node.

    A composite without a vjp is recorded through its body; an operator that mutates goes to
    the in-place rules.
    """

    def __init__(
        self, op: Dispatcher, keys: int, mask: int, record: Any, fn: Any, generic: bool, bits: int
    ) -> None:
        super().__init__(op, keys, mask, record, fn, generic, bits)
        self.rule: VjpRule | None = record.vjp_rule
        self.mutates: bool = bool(record.mutates)
        self.name: str = op.name
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
        targets = node.targets
        recorded = False
        for position in rule.tensors:
            argument = args[position]
            # The common case of add_target(), written out.
            if isinstance(argument, TensorBase) and argument._view is None and not argument._nr:
                if argument.keys & AUTOGRAD:
                    source = argument._node
                    targets.append(argument if source is None else source)
                    recorded = True
                else:
                    targets.append(None)
            elif rule.lists and position in rule.lists:
                if add_list(node, argument):
                    recorded = True
            elif add_target(node, argument):
                recorded = True
        if not recorded:
            return out
        if out is args[0]:
            # A body that hands its input on: the input must not become this node's output.
            out = alias_of(out)
        node.sequence = next(SEQUENCE)
        if rule.saves:
            saved = node.saved = []
            for position in rule.saves:
                argument = args[position] if position >= 0 else saved_argument(args, position)
                if isinstance(argument, Value):
                    # Only who has a storage was ever written or viewed.
                    if argument._storage is not None or argument._view is not None:
                        node.note_version(argument)
                saved.append(argument)
        if rule.several:
            for item in out:
                attach(node, item)
        else:
            attach(node, out)
        if rule.saves_out:
            node.save_out(out)
        if GRAPH.anomaly:
            node.forward_trace = GRAPH.traceback()
        return out

    def without_rule(self, args: tuple[Any, ...]) -> Any:
        """No vjp: not differentiable, recorded through its body, or an error."""
        if not self.record.differentiable:
            return self.below(args)
        if self.record.body is not None:
            return self.body(args)
        out = self.below(args)
        for argument in args:
            if isinstance(argument, TensorBase) and argument.keys & AUTOGRAD:
                raise GRAPH.no_derivative(self.op, args)
        return out
