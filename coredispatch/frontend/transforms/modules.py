"""Modules as functions of their parameters: ``functional_call``, ``stack_module_state``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.plugin import operator

__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]

_ABSENT = object()


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: dict[str, Any] | Sequence[dict[str, Any]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with other parameters and buffers, which the module forgets
    again.

    Args:
        parameter_and_buffer_dicts: tensors by name (``"layer.weight"``), or a tuple of such dicts
            with different names. What is not named stays as it is. A buffer that the call
            replaces is put into the dict.
        args: a tuple of arguments; anything else is the only argument.
        tie_weights: parameters that are one tensor in the module stay one: naming one is enough,
            and naming several with different values is a ``ValueError``.
        strict: raise ``RuntimeError`` unless exactly all parameters and buffers are named.

    Example::

        >>> model = cd.nn.Linear(3, 2)
        >>> params = {name: p.detach() for name, p in model.named_parameters()}
        >>> loss = lambda params, x: functional_call(model, params, (x,)).sum()
        >>> sorted(cd.func.grad(loss)(params, cd.ones(3)))
        ['bias', 'weight']
    """
    tensors = _merged(parameter_and_buffer_dicts)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with reparametrized(module, tensors, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))


def _merged(dicts: Any) -> dict[str, Any]:
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, Sequence) or isinstance(dicts, str):
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(dicts)}"
        )
    if not all(isinstance(d, dict) for d in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    names = [name for d in dicts for name in d]
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise ValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is "
            "ambiguous"
        )
    return {name: tensor for d in dicts for name, tensor in d.items()}


@contextlib.contextmanager
def reparametrized(
    module: Any, tensors: dict[str, Any], *, tie_weights: bool, strict: bool
) -> Iterator[None]:
    """A block in which ``module`` has these tensors."""
    named = _with_tied(module, tensors) if tie_weights else tensors
    if strict:
        _check_names(module, named)
    before: dict[str, Any] = {}
    try:
        for name, tensor in named.items():
            before[name] = _swap(module, name, tensor)
        yield
    finally:
        after = {name: _swap(module, name, tensor) for name, tensor in before.items()}
        # A module may have put another tensor in the place of a buffer.
        tensors.update({name: after[name] for name in tensors if name in after})


def _owner(module: Any, name: str) -> tuple[Any, str]:
    path, _, last = name.rpartition(".")
    for part in path.split(".") if path else ():
        found = getattr(module, part, None)
        if found is None or not hasattr(found, "_parameters"):
            raise AttributeError(f"{type(module).__name__} has no attribute `{part}`")
        module = found
    return module, last


def _swap(module: Any, name: str, tensor: Any) -> Any:
    """Put ``tensor`` in the place of ``name``; returns what was there."""
    owner, last = _owner(module, name)
    if tensor is not _ABSENT and tensor is not None and not isinstance(tensor, TensorBase):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    for place in (owner._parameters, owner._buffers):
        if last in place:
            before = place[last]
            if tensor is _ABSENT:
                del place[last]
            else:
                place[last] = tensor
            return before
    before = getattr(owner, last, _ABSENT)
    if tensor is _ABSENT:
        if before is not _ABSENT:
            delattr(owner, last)
    else:
        setattr(owner, last, tensor)
    return before


def _all_named(module: Any) -> dict[str, Any]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _with_tied(module: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """``tensors`` with the other names of those that are one tensor in the module."""
    groups: dict[int, list[str]] = {}
    for name, tensor in _all_named(module).items():
        groups.setdefault(id(tensor), []).append(name)
    complete = dict(tensors)
    for names in groups.values():
        given = [name for name in names if name in tensors]
        if len(names) < 2 or not given:
            continue
        if len({id(tensors[name]) for name in given}) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(names)}, which are tied. "
                "Consider using tie_weights=False"
            )
        complete.update(dict.fromkeys(names, tensors[given[0]]))
    return complete


def _check_names(module: Any, tensors: dict[str, Any]) -> None:
    known = _all_named(module)
    errors = []
    unexpected = [name for name in tensors if name not in known]
    missing = [name for name in known if name not in tensors]
    if unexpected:
        errors.append(f"Unexpected key(s): {', '.join(map(repr, unexpected))}.")
    if missing:
        errors.append(f"Missing key(s): {', '.join(map(repr, missing))}.")
    if errors:
        raise RuntimeError(
            "Error(s) in reparametrizing for {}:\n\t{}".format(
                type(module).__name__, "\n\t".join(errors)
            )
        )


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """``(params, buffers)``: the parameters and buffers of several modules, stacked by name.

    The modules are of one class and in one mode. Together with ``vmap`` and
    :func:`functional_call` they run at once, as an ensemble. Stacked parameters are leaves that
    require grad where the modules' do. Raises ``RuntimeError`` for modules that differ.
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(m.training != models[0].training for m in models):
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return (
        {name: _stacked([p[name] for p in params], name) for name in params[0]},
        {name: _stacked([b[name] for b in buffers], name) for name in buffers[0]},
    )


def _stacked(tensors: list[Any], name: str) -> Any:
    requires = [t.requires_grad for t in tensors]
    if any(requires) != all(requires):
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    return operator("stack")([t.detach() for t in tensors]).requires_grad_(all(requires))


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Take the running statistics from every ``nn.BatchNorm`` in ``root``, which is returned.

    Under ``vmap`` there is one tensor of statistics for all samples, which they cannot all write.
    """
    from coredispatch.frontend.nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = None
            module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return root
