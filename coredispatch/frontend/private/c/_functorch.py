"""``cd._C._functorch``: questions about the wrappers of transforms, which libraries ask there.

Levels are the numbers of :mod:`coredispatch.frontend.transforms.levels`. A tensor of ``grad`` has
no wrapper here, so none is "grad tracking".
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.transforms.levels import Batched, Dual, Leveled, current
from coredispatch.frontend.transforms.mapping import add_batch_dim, remove_batch_dim

__all__ = [
    "current_level",
    "get_unwrapped",
    "is_batchedtensor",
    "is_functorch_wrapped_tensor",
    "is_gradtrackingtensor",
    "is_jvptrackingtensor",
    "maybe_current_level",
    "maybe_get_bdim",
    "maybe_get_level",
]


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a dimension of the tensor is hidden by the innermost ``vmap`` that it is in."""
    return isinstance(tensor.raw, Batched) and tensor.raw.batched


def is_jvptrackingtensor(tensor: Any) -> bool:
    """Whether the tensor carries a tangent."""
    return isinstance(tensor.raw, Dual)


def is_gradtrackingtensor(tensor: Any) -> bool:
    """False: ``grad`` records the tensors that it gets, without wrappers."""
    return False


def is_functorch_wrapped_tensor(tensor: Any) -> bool:
    """Whether the tensor is a wrapper of a transform."""
    return isinstance(tensor.raw, Leveled)


def get_unwrapped(tensor: Any) -> Any:
    """The tensor in the wrapper, the hidden dimension first. RuntimeError for no wrapper."""
    if not isinstance(tensor.raw, Leveled):
        raise RuntimeError("get_unwrapped: this tensor is no wrapper of a transform")
    return tensor.raw.value


def maybe_get_level(tensor: Any) -> int:
    """The level of the wrapper, -1 for a plain tensor."""
    return tensor.raw.level if isinstance(tensor.raw, Leveled) else -1


def maybe_get_bdim(tensor: Any) -> int:
    """Which dimension of the tensor in the wrapper is hidden: the first, or -1 for none."""
    return 0 if is_batchedtensor(tensor) else -1


def maybe_current_level() -> int | None:
    """The level of the innermost transform, None outside of all."""
    levels = current()
    return levels[-1].number if levels else None


def current_level() -> int:
    """The level of the innermost transform. Raises RuntimeError outside of all."""
    level = maybe_current_level()
    if level is None:
        raise RuntimeError("current_level: no transform is running")
    return level


def _add_batch_dim(tensor: Any, in_dim: int, level: int) -> Any:
    """``tensor`` with dimension ``in_dim`` hidden at ``level``."""
    return add_batch_dim(tensor, in_dim, level)


def _remove_batch_dim(tensor: Any, level: int, batch_size: int, out_dim: int) -> Any:
    """``tensor`` with the dimension that is hidden at ``level`` at ``out_dim``."""
    return remove_batch_dim(tensor, level, batch_size, out_dim)
