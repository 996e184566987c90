"""Making DTensors: from whole tensors, of values, and modules whose parameters are DTensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.autograd.function import Function
from coredispatch.frontend.distributed.coalesced import broadcast_all
from coredispatch.frontend.distributed.device_mesh import DeviceMesh, current_mesh
from coredispatch.frontend.distributed.tensor.dtensor import DTensor, normalized, wrapped
from coredispatch.frontend.distributed.tensor.generators import agreed_generator
from coredispatch.frontend.distributed.tensor.placements import (
    Partial,
    Placement,
    Replicate,
    local_layout,
)
from coredispatch.frontend.distributed.tensor.transfers import moved
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.device import current_device

__all__ = [
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "ones",
    "rand",
    "randn",
    "zeros",
]


class _Distribute(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, mesh: Any, placements: Any) -> Any:
        ctx.mesh = mesh
        return _cut(tensor, mesh, placements)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        whole = tuple(Replicate() for _ in range(ctx.mesh.ndim))
        return moved(grad._local_tensor, grad.shape, ctx.mesh, grad.placements, whole), None, None


def _cut(tensor: Tensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> Any:
    whole = tuple(Replicate() for _ in range(mesh.ndim))
    local = moved(tensor.detach(), tensor.shape, mesh, whole, placements)
    if local.data_ptr() == tensor.data_ptr():
        local = local.clone()
    return wrapped(local, mesh, placements, tensor.shape)


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Divide a tensor that all ranks have over a mesh; all of its ranks call it.

    Args:
        placements: one for each dimension of the mesh; ``Replicate()`` by default.
        src_data_rank: the rank along each mesh dimension whose values count; None takes each
            rank's own, and sends nothing.

    A leaf stays a leaf: the result then requires grad itself. Raises RuntimeError for
    ``Partial()``.

    Example::

        mesh = init_device_mesh("cpu", (4,))
        rows = distribute_tensor(cd.randn(8, 3), mesh, [Shard(0)])    # 2 x 3 on each rank
    """
    mesh = current_mesh() if device_mesh is None else device_mesh
    found = normalized(placements, mesh, tensor.ndim)
    if any(isinstance(p, Partial) for p in found):
        raise RuntimeError(
            "distribute_tensor: Partial() has no whole tensor to divide\n"
            "  fix: DTensor.from_local(tensor, mesh, [Partial()])"
        )
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh or tensor.placements != found:
            raise ValueError(
                f"distribute_tensor: the tensor lies on {tensor.device_mesh} as "
                f"{tensor.placements} already\n  fix: redistribute"
            )
        return tensor
    if src_data_rank is not None:
        with no_grad():
            for dim in range(mesh.ndim):
                broadcast_all([tensor], mesh.get_group(dim), src_data_rank)
    if tensor.requires_grad and tensor.grad_fn is not None:
        return _Distribute.apply(tensor, mesh, found)  # type: ignore[no-any-return]
    made: DTensor = _cut(tensor, mesh, found)
    return made.requires_grad_(tensor.requires_grad)  # type: ignore[return-value]


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None,
    output_fn: Callable[[Module, Any, DeviceMesh], Any] | None = None,
) -> Module:
    """Make the parameters and buffers of a module DTensors, in place; returns the module.

    Args:
        partition_fn: ``partition_fn(name, submodule, mesh)`` divides parameters; those it leaves
            alone are replicated.
        input_fn, output_fn: ``input_fn(module, inputs, mesh)`` before forward and
            ``output_fn(module, outputs, mesh)`` after it.
    """
    mesh = current_mesh() if device_mesh is None else device_mesh
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        replicate(part, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, out: output_fn(m, out, mesh))
    return module


def replicate(module: Module, mesh: DeviceMesh) -> None:
    """Replicate what is no DTensor yet of a module's own parameters and buffers."""
    whole = [Replicate()] * mesh.ndim
    for name, param in module._parameters.items():
        if param is not None and not isinstance(param, DTensor):
            made = distribute_tensor(param.detach(), mesh, whole)
            module._parameters[name] = Parameter(made, requires_grad=param.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None and not isinstance(buffer, DTensor):
            module._buffers[name] = distribute_tensor(buffer, mesh, whole)


def _asked(size: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, bool]:
    """Shape, mesh, placements and whether a gradient is wanted; the rest stays in `options`."""
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size)
    mesh = options.pop("device_mesh", None)
    mesh = current_mesh() if mesh is None else mesh
    placements = normalized(options.pop("placements", None), mesh, len(shape))
    return shape, mesh, placements, options.pop("requires_grad", False)


def _made(make: Any, size: Any, options: dict[str, Any]) -> DTensor:
    """A DTensor whose parts are made where they lie."""
    shape, mesh, placements, grad = _asked(size, options)
    local, _ = local_layout(shape, mesh, placements)
    made: DTensor = wrapped(make(local, **options), mesh, placements, shape, grad)
    return made


def zeros(*size: Any, **options: Any) -> DTensor:
    """Zeros. ``device_mesh``, ``placements``, ``dtype``, ``requires_grad`` by name."""
    return _made(cd.zeros, size, options)


def ones(*size: Any, **options: Any) -> DTensor:
    """Ones; arguments as in :func:`zeros`."""
    return _made(cd.ones, size, options)


def empty(*size: Any, **options: Any) -> DTensor:
    """Any values; arguments as in :func:`zeros`."""
    return _made(cd.empty, size, options)


def full(size: Any, fill_value: float, **options: Any) -> DTensor:
    """One value; arguments as in :func:`zeros`."""
    return _made(lambda shape, **rest: cd.full(shape, fill_value, **rest), (size,), options)


def _random(make: Any, size: Any, options: dict[str, Any]) -> DTensor:
    """All ranks draw the whole and keep their parts: the values do not depend on the layout."""
    shape, mesh, placements, grad = _asked(size, options)
    given = options.pop("generator", None)
    with agreed_generator(given, current_device(options.get("device")), mesh) as agreed:
        whole = make(shape, generator=agreed or given, **options)
    source = None if agreed else 0
    made = distribute_tensor(whole, mesh, placements, src_data_rank=source)
    return made.requires_grad_(grad)  # type: ignore[return-value]


def rand(*size: Any, **options: Any) -> DTensor:
    """Uniform numbers, the same for every layout; arguments as in :func:`zeros`."""
    return _random(cd.rand, size, options)


def randn(*size: Any, **options: Any) -> DTensor:
    """Normal numbers, the same for every layout; arguments as in :func:`zeros`."""
    return _random(cd.randn, size, options)
