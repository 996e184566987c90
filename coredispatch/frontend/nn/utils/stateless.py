"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.nn.module import Module

__all__ = ["functional_call"]


def _tied(module: Module, tie_weights: bool) -> dict[str, list[str]]:
    """All names of each tensor, by each of its names."""
    names: dict[int, list[str]] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        names.setdefault(id(tensor), []).append(name)
    if not tie_weights:
        return {name: [name] for group in names.values() for name in group}
    return {name: group for group in names.values() for name in group}


@contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, Any],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Iterator[None]:
    """The module with other tensors in the places of its own, for the time of the block."""
    tied = _tied(module, tie_weights)
    given: dict[str, Any] = {}
    for name, tensor in parameters_and_buffers.items():
        for other in tied.get(name, [name]):
            if other in given and given[other] is not tensor and other in parameters_and_buffers:
                raise ValueError(
                    f"functional_call got multiple values for keys {sorted(tied[name])}, "
                    "which are tied. Consider using tie_weights=False"
                )
            given[other] = tensor
    if strict:
        unexpected = [n for n in parameters_and_buffers if n not in tied]
        missing = [n for n in tied if n not in given]
        if unexpected or missing:
            lines = [f"Error(s) in loading state_dict for {module._get_name()}:"]
            if unexpected:
                lines.append(f"Unexpected key(s): {', '.join(unexpected)}.")
            if missing:
                lines.append(f"Missing key(s): {', '.join(missing)}.")
            raise RuntimeError("\n\t".join(lines))
    places = []
    for name, tensor in given.items():
        path, _, attribute = name.rpartition(".")
        owner = module.get_submodule(path).__dict__
        if attribute not in owner:
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        places.append((owner, attribute, owner[attribute], tensor, name))
    for owner, attribute, _, tensor, _ in places:
        owner[attribute] = tensor
    try:
        yield
    finally:
        for owner, attribute, before, tensor, name in places:
            # What the module put in its buffer's place is the caller's to see.
            if owner.get(attribute) is not tensor and name in parameters_and_buffers:
                parameters_and_buffers[name] = owner[attribute]
            owner[attribute] = before


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with the given tensors in the places of those of that name.

    The older name of ``func.functional_call``.
    """
    warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be "
        "removed in a future version of PyTorch. Please use `torch.func.functional_call` instead "
        "which is a drop-in replacement.",
        FutureWarning,
    )
    return _functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )


def _functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(
        module, parameters_and_buffers, tie_weights=tie_weights, strict=strict
    ):
        return module(*positional, **(kwargs or {}))
