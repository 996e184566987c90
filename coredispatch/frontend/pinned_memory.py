"""Page-locked main memory, which a device copies from and to while the program goes on.

The accelerator's backend brings it, with two methods over NumPy arrays: ``pin(array)`` gives the
array in such memory, ``is_pinned(array)`` says whether it lies there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.accelerator import current_accelerator
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import OpError

__all__ = ["can_pin", "is_pinned", "pinned", "pinned_array", "refuse_pinning", "where_possible"]


def _backend() -> Any:
    """The backend of the accelerator, if it page-locks memory, else None."""
    device = current_accelerator()
    found = None if device is None else TABLE.snapshot.backends[device.type][0]
    return found if hasattr(found, "pin") else None


def can_pin() -> bool:
    """Whether there is a device whose backend page-locks memory."""
    return _backend() is not None


def refuse_pinning(what: str) -> Any:
    """Page-locked memory belongs to a device that copies from it by itself."""
    raise OpError(
        f"{what}: cannot access an accelerator: no backend here page-locks host memory",
        fix="leave it out: on the CPU it has no effect; DataLoader(pin_memory=True) is accepted",
    )


def pinned_array(array: Any, what: str) -> Any:
    """A NumPy array in page-locked memory; :class:`OpError` where there is no device for it."""
    backend = _backend()
    return refuse_pinning(what) if backend is None else backend.pin(array)


def pinned(tensor: Tensor) -> Tensor:
    """What ``tensor.pin_memory()`` gives: itself where it is pinned, else a copy without history.

    Raises :class:`OpError` for a tensor that is not dense or not on the CPU, and where there is no
    device.
    """
    if _backend() is None:
        refuse_pinning("pin_memory()")
    if tensor.device.type != "cpu" or not isinstance(tensor.raw, np.ndarray):
        raise OpError(
            f"cannot pin a {tensor.layout} tensor on {tensor.device}: only dense CPU tensors can "
            "be pinned",
            fix="call x.cpu() first",
        )
    array = pinned_array(tensor.raw, "pin_memory()")
    return tensor if array is tensor.raw else Tensor(array, tensor.keys & ~AUTOGRAD)


def is_pinned(array: Any) -> bool:
    """Whether an array lies in page-locked memory."""
    if not isinstance(array, np.ndarray):
        return False
    backend = _backend()
    return backend is not None and bool(backend.is_pinned(array))


def where_possible(tensor: Tensor, asked: Any) -> Tensor:
    """A new tensor on the CPU, in page-locked memory if ``asked`` and there is a device.

    Raises :class:`OpError` for one that was made on a device, but for meta tensors.
    """
    return pinned(tensor) if asked and not tensor.is_meta and can_pin() else tensor
