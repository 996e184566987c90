"""What is done to a module before it is wrapped: its ranks, its values, what stays whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from coredispatch.frontend.distributed.device_mesh import DeviceMesh, init_device_mesh
from coredispatch.frontend.distributed.fsdp.api import ShardingStrategy
from coredispatch.frontend.distributed.groups import get_world_size, resolved
from coredispatch.frontend.nn.module import Module

__all__ = ["materialize", "mesh_of", "modules_among", "parameters_among"]

_S = ShardingStrategy


def modules_among(states: Iterable[Any] | None) -> list[Module]:
    """The modules in a list that may have parameters as well."""
    return [state for state in states or () if isinstance(state, Module)]


def parameters_among(states: Iterable[Any] | None) -> list[Any]:
    """The parameters in a list that may have modules as well."""
    return [state for state in states or () if not isinstance(state, Module)]


def mesh_of(strategy: ShardingStrategy, process_group: Any) -> DeviceMesh:
    """The ranks in the form that a strategy wants: copies first, parts second."""
    if strategy in (_S.FULL_SHARD, _S.SHARD_GRAD_OP):
        return DeviceMesh.from_group(resolved(process_group), "cpu")
    if process_group is not None:
        raise NotImplementedError(
            f"{strategy} with process_group= is not there\n  fix: device_mesh= of two dimensions"
        )
    size = get_world_size()
    if strategy is _S.NO_SHARD:
        return init_device_mesh("cpu", (size, 1))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if size % local:
        raise ValueError(f"{strategy}: {size} ranks are no multiple of {local} on a machine")
    return init_device_mesh("cpu", (size // local, local))


def materialize(module: Module, init: Callable[[Module], None] | None) -> None:
    """Let `init` give the modules on the meta device their values. ValueError where it is None."""
    for part in module.modules():
        own = [*part._parameters.values(), *part._buffers.values()]
        if any(t is not None and t.is_meta for t in own):
            if init is None:
                raise ValueError(
                    f"FullyShardedDataParallel: {type(part).__name__} is on the meta device\n"
                    "  fix: param_init_fn=lambda module: module.to_empty(device='cpu', "
                    "recurse=False)"
                )
            init(part)
