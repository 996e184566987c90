"""What is in force around a call, as a value to be compared with that of the captured call."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.amp.autocast import AutocastState
from coredispatch.frontend.autograd.saved_tensors import current_hooks
from coredispatch.frontend.changes import CHANGES
from coredispatch.frontend.modes import Recording
from coredispatch.frontend.nn import calling
from coredispatch.frontend.nn.utils import parametrize
from coredispatch.frontend.optim import optimizer
from coredispatch.plugin import default_dtype
from coredispatch.registry.dispatch.masks import _CURRENT
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import default_device
from coredispatch.registry.wiring import GRAPH, HOOKS

__all__ = ["hooks_of_all", "modes_in_force"]


_GLOBAL, _REGISTRATION = calling.GLOBAL, calling.REGISTRATION


def modes_in_force() -> tuple[Any, ...] | None:
    """The modes and settings that operators obey; None where one of them is unknown here."""
    masks = _CURRENT.get()
    included, excluded, states = masks[0], masks[1], masks[3]
    if HOOKS.observe is not None or GRAPH.anomaly or current_hooks() is not None:
        return None
    if parametrize._cache_enabled:  # it keeps what a program computes, beyond the call
        return None
    known: list[Any] = []
    for family, state in states.items():
        if state is None or state == ():
            continue
        if isinstance(state, AutocastState):
            known.append((family, state.enabled, state.dtype))
        elif family is Recording._family:
            known.append((family, state))
        else:
            return None
    return (
        included,
        excluded,
        tuple(known),
        default_dtype(),
        default_device(),
        TABLE.snapshot.generation,
        tuple(_GLOBAL) if _GLOBAL else (),
        # What the library keeps for itself, where a program has changed that.
        _settings()
        if CHANGES or _REGISTRATION or optimizer._GLOBAL_PRE or optimizer._GLOBAL_POST
        else None,
    )


def hooks_of_all() -> list[Any]:
    """The hooks of every module and of every optimizer."""
    kinds = (*calling.GLOBAL.values(), *calling.REGISTRATION.values())
    tables = (*kinds, optimizer._GLOBAL_PRE, optimizer._GLOBAL_POST)
    return [hook for table in tables for hook in table.values()]


def _settings() -> tuple[Any, ...]:
    registered = tuple(tuple(kind) for kind in _REGISTRATION.values())
    steps = tuple(optimizer._GLOBAL_PRE), tuple(optimizer._GLOBAL_POST)
    return registered, steps, tuple(CHANGES.items())
