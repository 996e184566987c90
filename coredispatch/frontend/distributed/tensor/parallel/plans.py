"""``parallelize_module``: styles for the layers of a model, by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fnmatch import fnmatch

from coredispatch.frontend.distributed.device_mesh import DeviceMesh
from coredispatch.frontend.distributed.tensor.mixing import implicit_replication
from coredispatch.frontend.distributed.tensor.parallel.styles import ParallelStyle
from coredispatch.frontend.nn.module import Module

__all__ = ["loss_parallel", "parallelize_module"]


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Divide layers of a module over a mesh of one dimension, in place; returns the module.

    Parameters become DTensors, so an optimizer is made afterwards. All ranks begin with the weights
    of the mesh's rank `src_data_rank`, and compute the same loss from the same batch.

    Args:
        device_mesh: such as ``init_device_mesh("cpu", (4,))`` or ``mesh["tp"]``.
        parallelize_plan: a style for the module, or names of layers (with ``*``) and their styles.
        src_data_rank: None lets each rank begin with its own.

    Raises:
        ValueError: the plan names a layer that is not there.

    Example::

        parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    """
    if device_mesh is None:
        from coredispatch.frontend.distributed.groups import get_world_size

        device_mesh = DeviceMesh("cpu", list(range(get_world_size())))
    if device_mesh.ndim != 1:
        raise ValueError(f"{device_mesh} has {device_mesh.ndim} dimensions\n  fix: mesh['tp']")
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, device_mesh)
    for pattern, style in (parallelize_plan or {}).items():
        chosen = [m for name, m in module.named_modules() if fnmatch(name, pattern)]
        if not chosen:
            names = ", ".join(name for name, _ in module.named_modules() if name)
            raise ValueError(f"the plan names {pattern!r}, which is no layer\n  fix: {names}")
        style.src_data_rank = src_data_rank
        for found in chosen:
            style._apply(found, device_mesh)
    return module


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """A block in which a loss takes logits that lie in parts, and targets that are plain tensors.

    ``cross_entropy`` gathers the logits for it; PyTorch's does not.
    """
    with implicit_replication():
        yield
