"""Looking into wrappers."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.frontend.transforms.levels import Leveled

__all__ = ["debug_unwrap"]


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """The tensor inside the wrappers of ``vmap`` and ``jvp``; of the outermost one alone with
    ``recurse=False``. To look at, inside a transformed function: what is computed with it is not
    seen by the transform.
    """
    if not isinstance(tensor, TensorBase):
        raise TypeError(f"debug_unwrap takes a tensor, not {type(tensor).__name__}")
    value: Any = tensor
    while isinstance(value.raw, Leveled):
        value = value.raw.value
        if not recurse:
            break
    return value
