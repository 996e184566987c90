"""NumPy kernels of the family ``nn``: affine maps, embedding, optimizer steps, lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.backends.numpy.nn import embedding, linear, optim_steps, recurrent, tensor_lists

__all__ = ["KERNELS"]

KERNELS: dict[str, Callable[..., Any]] = {
    **embedding.KERNELS,
    **linear.KERNELS,
    **optim_steps.KERNELS,
    **recurrent.KERNELS,
    **tensor_lists.KERNELS,
}
