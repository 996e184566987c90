"""States of models and optimizers with their parts marked, and with names for parameters."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.distributed.checkpoint.parts import ShardedPart, part_of
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor

__all__ = [
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
]


def _parameters(model: Module) -> dict[str, Any]:
    """Parameters by the names that they have in any form of the model."""
    named = model.named_parameters(remove_duplicate=False)
    return {name.removeprefix("module."): p for name, p in named}


def get_model_state_dict(model: Module) -> dict[str, Any]:
    """The state of a model, parts as :class:`ShardedPart`, without the ``module.`` of DDP."""
    params = _parameters(model)
    state = {}
    for name, value in model.state_dict().items():
        short = name.removeprefix("module.")
        state[short] = part_of(params[short], value) if short in params else value
    return state


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any]) -> None:
    """Give a model what :func:`get_model_state_dict` gave, filled by ``checkpoint.load``."""
    names = {name.removeprefix("module."): name for name in model.state_dict()}
    plain = {
        names[name]: value.tensor if isinstance(value, ShardedPart) else value
        for name, value in model_state_dict.items()
    }
    model.load_state_dict(plain)


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
        p.grad = p.detach().new_zeros(p.shape)
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


def get_optimizer_state_dict(model: Module, optimizers: Any) -> dict[str, Any]:
    """The state of an optimizer by the names of the model's parameters, parts marked.

    Of an optimizer that has not stepped, the state that it will begin with, to be loaded into.
    """
    _ensure_state(optimizers)
    named = _by_name(model, optimizers)
    state = {
        name: {key: part_of(p, v) if isinstance(v, Tensor) else v
               for key, v in optimizers.state[p].items()}
        for name, p in named
    }  # fmt: skip
    options = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizers.param_groups
    ]
    groups = {str(i): group for i, group in enumerate(options)}
    return {"state": state, "param_groups": groups}


def set_optimizer_state_dict(
    model: Module, optimizers: Any, optim_state_dict: dict[str, Any]
) -> None:
    """Give an optimizer what :func:`get_optimizer_state_dict` gave, filled by a load."""
    for name, param in _by_name(model, optimizers):
        for key, value in optim_state_dict["state"].get(name, {}).items():
            optimizers.state[param][key] = value.tensor if isinstance(value, ShardedPart) else value
    for i, group in enumerate(optimizers.param_groups):
        group.update(optim_state_dict["param_groups"][str(i)])
