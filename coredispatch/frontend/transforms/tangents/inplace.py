"""Writes under forward mode: the value, and the tangent with it."""

from __future__ import annotations

import weakref
from typing import Any

from coredispatch.frontend.transforms.batching.inplace import as_it_was
from coredispatch.frontend.transforms.levels import (
    Dual,
    current,
    inside,
    level_of,
    retyped,
    wrapped,
)
from coredispatch.plugin import Value, check_write, dispatch, operator
from coredispatch.registry.dispatch.linking import complete_arguments

__all__ = ["derived", "with_tangent"]


def derived(op: Any, args: tuple[Any, ...], level: int) -> Any:
    """Any derived in-place form: compute the value and the tangent, then write both."""
    target = args[0]
    result = dispatch(op.inplace_of, as_it_was(args))
    check_write(target, result.raw)
    inside = _inside(result, level)
    value, tangent = (result, None) if inside is None else (inside.value, inside.tangent)
    own = _inside(target, level)
    if own is None and tangent is None:
        operator("copy_")(target, value)
        return target
    with_tangent(target, level)
    own = target.raw
    operator("copy_")(own.value, value)
    if tangent is None:
        tangent = operator("zeros_like")(own.tangent)
    if target._view is None and not _aliases(target):
        own.tangent = tangent  # replaced, not written: nobody else sees the old one
    else:
        _write(target, tangent, level)
    return target


def _write(target: Any, tangent: Any, level: int) -> None:
    """Write the tangent of a tensor with views, or of a view, so that all of them see it."""
    if not _levels(tangent) <= _levels(target.raw.tangent):
        root = _root(target)
        # A zero for each sample that the new tangent tells apart.
        zero = operator("sum")(operator("zeros_like")(tangent))
        root.raw.tangent = operator("add")(root.raw.tangent, zero)
        family = [a for a in _aliases(root) if _inside(a, level) is not None]
        for alias in (*family, target):
            if alias is not root:
                alias.raw.tangent = None
        for alias in (*family, target):
            _give_view(alias, level)
    operator("copy_")(target.raw.tangent, tangent)


def _levels(value: Any) -> set[int]:
    return {level_of(x) for x in inside(value)} - {0}


def _root(value: Any) -> Any:
    while value._view is not None:
        value = value._view.base
    return value


def _aliases(value: Any) -> list[Any]:
    """The living views that share the memory of ``value``."""
    storage = value._storage
    found = [] if storage is None else [reference() for reference in storage.aliases]
    return [alias for alias in found if alias is not None and alias is not value]


def _inside(value: Any, level: int) -> Dual | None:
    if isinstance(value, Value) and isinstance(value.raw, Dual) and value.raw.level == level:
        return value.raw
    return None


def with_tangent(target: Any, level: int) -> None:
    """Give ``target``, what it views and what views that a tangent of zeros to write to."""
    root = _root(target)
    _give(root, level, None)
    for alias in _aliases(root):
        _give_view(alias, level)
    _give_view(target, level)


def _give_view(value: Any, level: int) -> None:
    """A view's tangent is the same view of its base's tangent."""
    own = _inside(value, level)
    link = value._view
    if (own is not None and own.tangent is not None) or link is None:
        return
    _give_view(link.base, level)
    base = _inside(link.base, level)
    if base is None or base.tangent is None:
        return
    made = dispatch(link.op, complete_arguments(link, base.tangent))
    _give(value, level, made[link.args[-1]] if link.multi_output else made)


def _give(value: Any, level: int, tangent: Any) -> None:
    own = _inside(value, level)
    if own is not None:
        if own.tangent is None:
            own.tangent = operator("zeros_like")(own.value) if tangent is None else tangent
        return
    inner = retyped(value)
    if tangent is None:
        tangent = operator("zeros_like")(inner)
    dual = wrapped(Dual(inner, level, tangent))
    for active in current():
        if active.number == level:
            active.promoted.append((weakref.ref(value), inner))
    value.raw, value.keys = dual.raw, dual.keys
    value._node, value._output_nr = None, 0
