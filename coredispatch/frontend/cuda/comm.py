"""Copies and sums over several devices of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import ArgumentError

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]


def _device(device: Any) -> Device:
    """``device``, which may be a number, as a device that is not the CPU."""
    found = Device("cuda", device) if isinstance(device, int) else Device(device)
    if found.type == "cpu":
        raise ValueError(f"Expected a non cpu device, but got: {found}")
    return found


def _one_of(devices: Any, out: Any) -> None:
    if (devices is None) == (out is None):
        raise RuntimeError(
            "Exactly one of 'devices' and 'out' must be specified, but got "
            f"devices={devices} and out={out}"
        )


def broadcast(tensor: Tensor, devices: Any = None, *, out: Any = None) -> Any:
    """``tensor`` on each of ``devices``, or written to each tensor of ``out``; a tuple of them.

    Raises ``ValueError`` for the CPU and ``RuntimeError`` unless one of the two is given.
    """
    _one_of(devices, out)
    if out is None:
        return tuple(tensor.to(_device(device)) for device in devices)
    for target in out:
        target.copy_(tensor)
    return out


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Any, buffer_size: int = 10485760
) -> Any:
    """For each of ``devices`` the list of all ``tensors`` there."""
    return [[tensor.to(_device(device)) for tensor in tensors] for device in devices]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """The sum of tensors of one shape, on ``destination``, by default the first one's device."""
    if len({tuple(x.shape) for x in inputs}) != 1:
        raise ArgumentError("reduce_add takes tensors of one shape", fix="give them one shape")
    target = inputs[0].device if destination is None else _device(destination)
    total = inputs[0].to(target)
    for tensor in inputs[1:]:
        total = total + tensor.to(target)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 10485760
) -> Any:
    """The sums of the first, the second, ... tensors of all lists."""
    return tuple(reduce_add(column, destination) for column in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Any = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> Any:
    """Parts of ``tensor`` along ``dim``, each on one of ``devices`` or written to ``out``.

    The parts have ``chunk_sizes``, or equal lengths. Raises as :func:`broadcast`.
    """
    _one_of(devices, out)
    if out is not None:
        parts = tensor.split([target.shape[dim] for target in out], dim)
        for target, part in zip(out, parts, strict=True):
            target.copy_(part)
        return out
    targets = [_device(device) for device in devices]
    if chunk_sizes is None:
        parts = tensor.chunk(len(targets), dim)
    else:
        parts = tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(target) for part, target in zip(parts, targets))


def gather(
    tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Any = None
) -> Tensor:
    """The tensors side by side along ``dim``, on ``destination`` (the first one's device)."""
    if out is not None:
        target = out.device
    elif destination is None:
        target = tensors[0].device
    else:
        is_host = not isinstance(destination, int) and Device(destination).type == "cpu"
        target = Device("cpu") if is_host else _device(destination)
    joined: Tensor = TABLE.operator("cat")([tensor.to(target) for tensor in tensors], dim)
    if out is None:
        return joined
    out.copy_(joined)
    result: Tensor = out
    return result
