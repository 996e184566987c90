"""Looking into wrappers, and a transform that is not there yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.frontend.transforms.levels import Leveled

__all__ = ["debug_unwrap", "functionalize"]


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


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Not available: a program without in-place writes is what capture will give.

    Raises :class:`NotImplementedError`.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): received invalid argument for remove=. Valid "
            "options are:\n     remove='mutations'\n     remove='mutations_and_views'"
        )
    raise NotImplementedError(
        "functionalize() is not implemented: it rewrites a captured program, and nothing here "
        "captures one yet. Calling the function itself gives the same results."
    )
