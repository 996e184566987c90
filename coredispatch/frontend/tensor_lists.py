"""Whether operators over lists of tensors may serve in the place of a call for each tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coredispatch.registry.dispatch.masks import MASKS, current_masks
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["are_alike", "plain_keys"]


class _Known:
    """What was found out, for one state of the table: by operator and keys."""

    def __init__(self) -> None:
        self.snapshot: Any = None
        self.keys: dict[tuple[str, int], int] = {}


_known = _Known()


def plain_keys(operator: Any, tensor: Any) -> int:
    """The keys of a plain tensor beside ``tensor``; 0 where a list of such is no gain.

    That is where the backend has no kernel for ``operator``, where ``tensor`` has another layout or
    belongs to a layer besides autograd, and where a mode sees the calls: it would see other ones.
    """
    if MASKS.active and current_masks()[0]:
        return 0
    snapshot = TABLE.snapshot
    if _known.snapshot is not snapshot:
        _known.snapshot, _known.keys = snapshot, {}
    asked = operator.name, tensor.keys
    found = _known.keys.get(asked)
    if found is None:
        order = snapshot.order
        found = tensor.keys & ~TABLE.bit("autograd")
        backend = found & order.backend_bits
        (name,) = order.names(backend)
        if found != backend or (operator.name, name, None) not in snapshot.registrations:
            found = 0
        _known.keys[asked] = found
    return found


def are_alike(operator: Any, tensors: Sequence[Any]) -> bool:
    """Whether ``tensors``, none of which autograd watches, may go to ``operator`` as one list.

    They lie on one device then.
    """
    keys = plain_keys(operator, tensors[0])
    if not keys:
        return False
    for x in tensors:
        if x.keys != keys:
            return False
    device = tensors[0].device
    return device.index is None or all(x.device == device for x in tensors)
