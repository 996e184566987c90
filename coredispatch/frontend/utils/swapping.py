"""``swap_tensors``: two tensors exchange what they are."""

from __future__ import annotations

import weakref

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.value import storage_of

__all__ = ["swap_tensors"]

#: what a tensor is, besides its class and the attributes a program set on it
_SLOTS = ("raw", "keys", "_dtype", "_storage", "_view", "_node", "_output_nr", "_grad")


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange data, class, attributes and history of two tensors: each name means the other.

    Raises RuntimeError for tensors that have views or are views, and for leaves with hooks: those
    would go on with what is no longer there. Raises TypeError for anything but tensors.
    """
    for tensor, name in ((t1, "t1"), (t2, "t2")):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"swap_tensors(): {name} must be a tensor, not {type(tensor).__name__}")
        storage = storage_of(tensor)
        others = [ref() for ref in storage.aliases]
        if tensor._view is not None or any(o is not None and o is not tensor for o in others):
            raise RuntimeError(f"Cannot swap {name} because it shares memory with a view of it")
        if tensor._accumulator is not None and tensor._accumulator.has_hooks():
            raise RuntimeError(f"Cannot swap {name} because it has hooks for its gradient")
        if weakref.getweakrefcount(tensor) > (tensor._accumulator is not None):  # which has one
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    slots = {name: (getattr(t1, name), getattr(t2, name)) for name in _SLOTS}
    own = {*slots, "_accumulator"}
    attributes = [{k: v for k, v in t.__dict__.items() if k not in own} for t in (t1, t2)]
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    for tensor, other in ((t1, 1), (t2, 0)):
        for name in attributes[1 - other]:
            del tensor.__dict__[name]
        tensor.__dict__.update(attributes[other])
        for name, both in slots.items():
            setattr(tensor, name, both[other])
