"""The interpreted form of recording: closures over what is known of an operator's rule.

What :class:`RecordEntry` does, for operators of one output and without lists of tensors, with
everything constant bound and no call that can be saved (see ``registry/dispatch/interpreted.py``).
Measured on ``a + b`` with gradients: 1.7 us with them, 2.1 us without.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from coredispatch.frontend.autograd.node import SEQUENCE, OpNode
from coredispatch.frontend.autograd.recording import RecordEntry, add_edge, alias_of, keep_history
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.model.derivative import saved_argument
from coredispatch.registry.model.value import Value, dtype_of
from coredispatch.registry.wiring import GRAPH

__all__: list[str] = []

_new = object.__new__


def specialize(entry: RecordEntry) -> None:
    """Give ``entry`` closures where its rule is of the common kind."""
    rule = entry.rule
    if rule is None or entry.mutates or rule.lists or rule.multi_output:
        return
    recorded = _recorder(entry)
    one, two = RecordEntry.call_one, RecordEntry.call_two

    def call_one(a: Value) -> Any:
        below = entry.next
        return one(entry, a) if below is None else recorded(below.call_one(a), (a,), rule)

    def call_two(a: Value, b: Any) -> Any:
        below = entry.next
        return two(entry, a, b) if below is None else recorded(below.call_two(a, b), (a, b), rule)

    entry.call_one, entry.call_two = call_one, call_two  # type: ignore[method-assign]
    entry.recorded = recorded  # type: ignore[method-assign]


def _recorder(entry: RecordEntry) -> Callable[..., Any]:
    name, rule, result_name, is_view = entry.name, entry.rule, entry.result_name, entry.is_view
    assert rule is not None
    # (bit in the mask of inputs that require grad, position of the argument)
    parameters = [(1 << i, position) for i, position in enumerate(rule.tensors)]
    # By the mask: what a call reads of the plan, in one step.
    recipes: list[Any] = [None] * (1 << len(parameters))

    def recipe(mask: int) -> tuple[Any, ...]:
        plan = rule.only_plan or rule.plans[mask] or rule.plan(mask)
        recipes[mask] = made = (plan, bool(plan.saves), plan.arguments, plan.shapes, plan.outs)
        return made

    def recorded(out: Any, args: tuple[Any, ...], _: Any) -> Any:
        node = _new(OpNode)
        node.next_edges = next_edges = []
        mask = 0
        for bit, position in parameters:
            argument = args[position]
            if isinstance(argument, TensorBase) and argument.keys & AUTOGRAD:
                mask |= bit
                source = argument._node
                if argument._view is not None or argument._output_nr:
                    add_edge(node, argument)
                else:
                    next_edges.append(argument if source is None else source)
            else:
                if not next_edges and not isinstance(argument, Value):
                    node.number_first = True
                next_edges.append(None)
        if not mask:
            return out
        if out is args[0]:
            out = alias_of(out)
        if out._view is not None and not is_view:
            keep_history(out, args)
        plan, saves, positions, shapes, outs = recipes[mask] or recipe(mask)
        node.opname, node.multi_output, node.plan, node.count = name, False, plan, 1
        node.sequence = next(SEQUENCE)
        if saves:
            node.saved = saved = []
            for position in positions:
                argument = args[position]
                if isinstance(argument, Value) and (
                    argument._storage is not None or argument._view is not None
                ):
                    node.note_version(argument)
                saved.append(argument)
            for source in shapes:
                saved.append(saved_argument(args, source))
        dtype = dtype_of(out)
        keys = out.keys & ~AUTOGRAD
        node.shape, node.dtype, node.keys = out.raw.shape, dtype, keys
        if dtype.category >= 2:
            out._node = node
            out._output_nr = 0
            out.keys = keys | AUTOGRAD
        if outs:
            node.save_outputs(out)
        if result_name is not None:
            node.shown = result_name(args)
        if GRAPH.watched:
            GRAPH.after_record(node)
        return out

    return recorded


if isinstance(RecordEntry.call_two, FunctionType):
    GRAPH.specialize = specialize
