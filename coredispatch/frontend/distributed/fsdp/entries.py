"""The entries of a wrapped module's state: names of the original, whole tensors or parts."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.distributed.checkpoint.state_dict import (
    WRAPPED,
    as_held,
    original,
)
from coredispatch.frontend.distributed.fsdp.api import StateDictType
from coredispatch.frontend.distributed.groups import get_rank
from coredispatch.frontend.distributed.tensor.dtensor import DTensor
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor

__all__ = ["given_names", "taken_names", "wrapped_modules"]


def wrapped_modules(module: Module) -> list[Any]:
    """The FullyShardedDataParallel modules in `module`, itself included."""
    return [m for m in module.modules() if "_unit" in m.__dict__]


def given_names(module: Any, state: Any, prefix: str, metadata: Any) -> None:
    """Give the entries of a state the names of the original, and the form that is set."""
    settings, below = module._settings, prefix + WRAPPED
    config = settings.state_dict_config
    whole = settings.state_dict_type is StateDictType.FULL_STATE_DICT
    absent = whole and getattr(config, "rank0_only", False) and bool(get_rank(module._unit.group))
    shapes = _own_shapes(module)
    items = [*state.items()]
    state.clear()
    for name, value in items:
        if name.startswith(below):
            name = prefix + name[len(below) :]
            given = value
            if whole and isinstance(value, DTensor):
                given = value.full_tensor()
                given = given.reshape(shapes.get(name[len(prefix) :], given.shape))
            dtype = module._buffer_dtypes.get(name[len(prefix) :])
            given = given if dtype is None else given.to(dtype)
            if config.offload_to_cpu and isinstance(given, Tensor) and whole:
                given = given.cpu()
            if absent:
                continue
            value = given
        state[name] = value


def _own_shapes(module: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of the whole parameters by the names of the original."""
    known = {
        id(local): shape
        for part in wrapped_modules(module)
        for local, shape in zip(part._unit.locals, part._unit.own_shapes, strict=True)
    }
    return {
        original(name): known[id(param)]
        for name, param in module.module.named_parameters(remove_duplicate=False)
        if id(param) in known
    }


def taken_names(module: Any, state: Any, prefix: str, *rest: Any) -> None:
    """Give the entries of a state the names that they have here, and this rank's parts."""
    held = {
        original(name): param
        for name, param in module.module.named_parameters(remove_duplicate=False)
    }
    items = [*state.items()]
    state.clear()
    for name, value in items:
        if name.startswith(prefix) and not name.startswith(prefix + WRAPPED):
            short = name[len(prefix) :]
            param = held.get(original(short))
            if isinstance(param, DTensor) and isinstance(value, Tensor):
                value = as_held(value.reshape(1) if value.ndim == 0 else value, param)
            name = prefix + WRAPPED + short
        state[name] = value
