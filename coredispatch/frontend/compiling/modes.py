"""What is in force around a call, as a value to be compared with that of the captured call."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.amp.autocast import AutocastState
from coredispatch.frontend.autograd.anomaly import is_anomaly_enabled
from coredispatch.frontend.autograd.saved_tensors import current_hooks
from coredispatch.frontend.modes import Recording
from coredispatch.frontend.nn import calling
from coredispatch.plugin import default_dtype
from coredispatch.registry.dispatch.masks import _CURRENT
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import default_device
from coredispatch.registry.wiring import HOOKS

__all__ = ["modes_in_force"]


def modes_in_force() -> tuple[Any, ...] | None:
    """The modes and settings that operators obey; None where one of them is unknown here."""
    masks = _CURRENT.get()
    included, excluded, states = masks[0], masks[1], masks[3]
    if HOOKS.observe is not None or is_anomaly_enabled() or current_hooks() is not None:
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
        tuple(calling.GLOBAL),
    )
