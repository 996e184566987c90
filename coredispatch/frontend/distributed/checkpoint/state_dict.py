"""States of models and optimizers by the names of parameters, whatever form the model has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coredispatch.frontend.distributed.groups import get_rank, is_initialized
from coredispatch.frontend.distributed.objects import broadcast_object_list
from coredispatch.frontend.distributed.tensor.dtensor import DTensor
from coredispatch.frontend.distributed.tensor.making import distribute_tensor
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor

#: what FullyShardedDataParallel adds to the names of what it wraps
WRAPPED = "_fsdp_wrapped_module."
#: and the wrappers for activations
CHECKPOINTED = "_checkpoint_wrapped_module."

__all__ = [
    "CHECKPOINTED",
    "WRAPPED",
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "original",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]


@dataclass
class StateDictOptions:
    """How states are given and taken.

    Attributes:
        full_state_dict: whole tensors rather than DTensors; with `cpu_offload` on rank 0 only, as
            PyTorch's.
        cpu_offload: on the CPU.
        ignore_frozen_params: leave out parameters that do not require grad.
        strict: of ``load_state_dict``.
        broadcast_from_rank0: whole tensors that rank 0 has are sent to all.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False

    def __post_init__(self) -> None:
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
        if self.flatten_optimizer_state_dict:
            raise NotImplementedError(
                "StateDictOptions(flatten_optimizer_state_dict=True) is not there\n"
                "  fix: leave it out"
            )


def original(name: str) -> str:
    """The name without what wrappers inside the model add."""
    return name.replace(WRAPPED, "").replace(CHECKPOINTED, "")


def _short(name: str) -> str:
    """The name without what wrappers add, DistributedDataParallel's included."""
    return original(name).removeprefix("module.")


def _parameters(model: Module) -> dict[str, Any]:
    """Parameters by the names that they have in any form of the model."""
    return {_short(name): p for name, p in model.named_parameters(remove_duplicate=False)}


def _given(state: Any, options: StateDictOptions | None) -> Any:
    """A state as `options` ask for it."""
    if options is None:
        return state
    if isinstance(state, dict):
        return {key: _given(value, options) for key, value in state.items()}
    if not isinstance(state, Tensor):
        return state
    if options.full_state_dict and isinstance(state, DTensor):
        sharded: Any = state.detach()
        state = sharded.full_tensor()
    return state.cpu() if options.cpu_offload and not isinstance(state, DTensor) else state


def _on_rank_0(state: dict[str, Any], options: StateDictOptions | None) -> dict[str, Any]:
    """Nothing on the other ranks, where whole tensors go to the memory of the CPU."""
    alone = options is not None and options.full_state_dict and options.cpu_offload
    return {} if alone and is_initialized() and get_rank() else state


def get_model_state_dict(
    model: Module, *, submodules: Any = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The state of a model, sharded parameters as DTensors, without the ``module.`` of DDP."""
    _no_submodules(submodules)
    params = _parameters(model)
    state = {}
    for name, value in model.state_dict().items():
        short = _short(name)
        frozen = short in params and not params[short].requires_grad
        if not (options is not None and options.ignore_frozen_params and frozen):
            state[short] = _given(value, options)
    return _on_rank_0(state, options)


def _no_submodules(submodules: Any) -> None:
    if submodules is not None:
        raise NotImplementedError(
            "submodules= is not there\n  fix: pass the submodule as the model"
        )


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Give a model what :func:`get_model_state_dict` gave, filled by ``checkpoint.load``.

    Whole tensors are divided as the model's parameters are.
    """
    chosen = options or StateDictOptions()
    if chosen.broadcast_from_rank0:
        model_state_dict = _from_rank_0(model_state_dict)
    own = {_short(name): (name, value) for name, value in model.state_dict().items()}
    plain = {}
    for short, value in model_state_dict.items():
        name, held = own.get(short, (short, None))
        plain[name] = as_held(value, held)
    return model.load_state_dict(plain, strict=chosen.strict)


def _from_rank_0(state: dict[str, Any]) -> dict[str, Any]:
    box = [state]
    broadcast_object_list(box, src=0)
    return box[0]


def as_held(value: Any, held: Any) -> Any:
    """A whole tensor in the layout of the one that is there."""
    if isinstance(held, DTensor) and isinstance(value, Tensor) and not isinstance(value, DTensor):
        return distribute_tensor(value, held.device_mesh, held.placements, src_data_rank=None)
    return value


def _by_name(model: Module, optimizer: Any) -> list[tuple[str, Any]]:
    """Names of the optimizer's parameters, in its order."""
    names = {id(p): name for name, p in reversed(_parameters(model).items())}
    return [(names[id(p)], p) for group in optimizer.param_groups for p in group["params"]]


def _ensure_state(optimizer: Any) -> None:
    """Let the optimizer have its state, with a step that changes nothing."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    if any(p in optimizer.state for p in params):
        return
    grads = [p.grad for p in params]
    rates = [(group, group["lr"], group.get("weight_decay")) for group in optimizer.param_groups]
    kept = [p.detach().clone() for p in params]
    for p in params:
        p.grad = p.detach().clone().zero_()
    for group, _, decay in rates:
        group["lr"] = group["lr"] * 0 if isinstance(group["lr"], Tensor) else 0.0
        if decay is not None:
            group["weight_decay"] = 0.0
    optimizer.step()
    for group, rate, decay in rates:
        group["lr"] = rate
        if decay is not None:
            group["weight_decay"] = decay
    for p, grad, value in zip(params, grads, kept, strict=True):
        p.grad = grad
        p.detach().copy_(value)


def _several(optimizers: Any) -> list[Any]:
    return list(optimizers) if isinstance(optimizers, Iterable) else [optimizers]


def get_optimizer_state_dict(
    model: Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The state of an optimizer, or of several, by the names of the model's parameters.

    Of an optimizer that has not stepped, the state that it will begin with, to be loaded into.
    """
    _no_submodules(submodules)
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _several(optimizers):
        _ensure_state(optimizer)
        named = _by_name(model, optimizer)
        names = {id(p): name for name, p in named}
        state |= {name: _given(dict(optimizer.state[p]), options) for name, p in named}
        for group in optimizer.param_groups:
            shown = {key: value for key, value in group.items() if key != "params"}
            groups.append(shown | {"params": [names[id(p)] for p in group["params"]]})
    return _on_rank_0({"state": state, "param_groups": groups}, options)


def set_optimizer_state_dict(
    model: Module,
    optimizers: Any,
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Give an optimizer what :func:`get_optimizer_state_dict` gave, filled by a load."""
    if options is not None and options.broadcast_from_rank0:
        optim_state_dict = _from_rank_0(optim_state_dict)
    groups = iter(optim_state_dict["param_groups"])
    for optimizer in _several(optimizers):
        _ensure_state(optimizer)
        for name, param in _by_name(model, optimizer):
            held = optimizer.state[param]
            for key, value in optim_state_dict["state"].get(name, {}).items():
                held[key] = as_held(value, held.get(key))
        for group, given in zip(optimizer.param_groups, groups, strict=False):
            group.update({key: value for key, value in given.items() if key != "params"})


def get_state_dict(
    model: Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of a model and of its optimizers."""
    optimizer = get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options)
    return get_model_state_dict(model, submodules=submodules, options=options), optimizer


def set_state_dict(
    model: Module,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Give a model and its optimizers what :func:`get_state_dict` gave."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)
