"""What programs set on tensors."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor import Tensor

__all__ = ["OWN_ATTRIBUTES", "attributes_of"]

#: what the ``__dict__`` of a tensor may have where its bases are not compiled
OWN_ATTRIBUTES = frozenset(
    ["raw", "keys", *(n for cls in Tensor.__mro__ for n in vars(cls) if n.startswith("_"))]
)


def attributes_of(tensor: Any) -> tuple[str, ...]:
    """The attributes that programs have set on a tensor."""
    members = tensor.__dict__
    if not members:
        return ()
    return tuple([n for n in members if not n.startswith("_") and n not in ("raw", "keys")])
