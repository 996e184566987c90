"""``cd._tensor``: the class ``Tensor``, and what pickles of PyTorch's tensors call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.private.utils import _set_obj_state
from coredispatch.frontend.serialization.memory import instance
from coredispatch.frontend.tensor import Tensor

__all__ = ["Tensor"]


def _rebuild_from_type_v2(
    func: Callable[..., Any], new_type: type[Tensor], args: tuple[Any, ...], state: Any
) -> Any:
    """What a function makes, of another class and with attributes."""
    made = func(*args)
    if type(made) is not new_type:
        storage = made._storage
        made = instance(new_type, made.raw, made.keys)
        made._storage = storage
    own = getattr(new_type, "__setstate__", None)
    if own is not None and own is not getattr(Tensor, "__setstate__", None):
        own(made, state)
        return made
    return _set_obj_state(made, state)


def _rebuild_from_type(
    func: Callable[..., Any], type: type[Tensor], args: tuple[Any, ...], dict: dict[str, Any]
) -> Any:
    """:func:`_rebuild_from_type_v2` as it was called before."""
    return _rebuild_from_type_v2(func, type, args, dict)
