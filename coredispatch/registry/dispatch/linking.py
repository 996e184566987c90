"""Results that share memory with arguments, linked as the operator's schema declares them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.registry.dispatch.raw_kernels import link_view
from coredispatch.registry.model.value import Value, ViewLink

__all__ = ["complete_arguments", "link_results"]


def link_results(
    op: Any,
    args: tuple[Any, ...],
    result: Any,
    shares: Callable[[Value, Value], bool] | None = None,
) -> Any:
    """``result`` of ``op(*args)`` with its views linked to what they view.

    A result that is declared to be the argument that was written to is replaced by the argument.
    ``shares(result, argument)`` is asked of results that only may be views; without it they are.
    """
    multi_output = isinstance(result, (list, tuple))
    items = list(result) if multi_output else [result]
    for alias in op.schema.aliases:
        for number in range(len(items)) if alias.result is None else (alias.result,):
            argument, position, member = args[alias.position], alias.position, -1
            if isinstance(argument, (list, tuple)):
                argument, member = argument[number], number
            item = items[number]
            if not isinstance(argument, Value) or item is argument:
                continue
            if alias.itself:
                items[number] = argument
            elif shares is None or shares(item, argument):
                rest = args if member >= 0 else (*args[:position], *args[position + 1 :])
                rest = (*rest, number) if multi_output else rest
                link_view(op, argument, item, rest, multi_output)
                if position or member >= 0:
                    item._view.position, item._view.member = position, member
    return op.result_type(items) if multi_output else items[0]


def complete_arguments(link: ViewLink, base: Value) -> tuple[Any, ...]:
    """The arguments of the call that made a view, with ``base`` in the place of what it views."""
    rest = link.args[:-1] if link.multi_output else link.args
    position, member = link.position, link.member
    if member < 0:
        return (*rest[:position], base, *rest[position:])
    items = list(rest[position])
    items[member] = base
    return (*rest[:position], items, *rest[position + 1 :])
