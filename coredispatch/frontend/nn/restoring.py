"""A module from the state that a pickle has: coredispatch's own, or that of PyTorch's module."""

from __future__ import annotations

import inspect
from typing import Any

from coredispatch.frontend.nn.members import Namespace
from coredispatch.frontend.random import fork_rng
from coredispatch.registry.model.spelling import SPELLING

__all__ = ["restore"]

#: PyTorch's tables of hooks, and the method that takes one in here
_HOOKS = {
    "_forward_hooks": "register_forward_hook",
    "_forward_pre_hooks": "register_forward_pre_hook",
    "_backward_hooks": "register_full_backward_hook",
    "_backward_pre_hooks": "register_full_backward_pre_hook",
    "_state_dict_hooks": "_register_state_dict_hook",
    "_state_dict_pre_hooks": "register_state_dict_pre_hook",
    "_load_state_dict_post_hooks": "register_load_state_dict_post_hook",
}
#: options of hooks and the like, which are empty where there are no hooks
_TABLES = {
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_is_full_backward_hook",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "_load_state_dict_pre_hooks",
}


def restore(module: Any, members: dict[str, Any]) -> None:
    """Give a module that has no state yet the members of a pickle.

    Members of PyTorch's module come into their tables by name; other attributes are taken over as
    they are.
    """
    if "_parameter_names" in members:  # coredispatch's own
        module.__dict__ = Namespace(module.__dict__)
        module.__dict__.update(members)
        return
    if "_parameters" not in members:
        module.__dict__.update(members)
        return
    _initialize(module, members)
    for name, value in members.items():
        if name in _TABLES or name in _HOOKS:
            continue
        # What the class has worked out itself, in a form of its own, stays.
        if name not in module.__dict__ or type(module.__dict__[name]) is type(value):
            module.__dict__[name] = value
    module.training = bool(members.get("training", True))
    for name, parameter in members["_parameters"].items():
        module.register_parameter(name, parameter)
    transient = members.get("_non_persistent_buffers_set", ())
    for name, buffer in members.get("_buffers", {}).items():
        module.register_buffer(name, buffer, persistent=name not in transient)
    for name, child in members.get("_modules", {}).items():
        module.add_module(name, child)
    for table, method in _HOOKS.items():
        for hook in (members.get(table) or {}).values():
            getattr(module, method)(hook)


def _initialize(module: Any, members: dict[str, Any]) -> None:
    """Make a module of coredispatch's class with the options that the members say.

    What the class works out of its options is then there, whatever PyTorch calls it.
    """
    from coredispatch.frontend.nn.module import Module

    for cls in type(module).__mro__:
        if SPELLING.module_of(cls).startswith("coredispatch.") and cls is not Module:
            options = _options(cls, members)
            if options is not None:
                with fork_rng():  # loading draws no numbers
                    cls.__init__(module, **options)  # type: ignore[misc]
                for table in ("_parameter_names", "_buffer_names", "_module_names"):
                    for name in [*module.__dict__.get(table, ())]:
                        delattr(module, name)
                return
            break
    Module.__init__(module)


def _options(cls: type, members: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments of the class, by the attributes of the same names; None where one is missing."""
    known = {**members.get("_buffers", {}), **members}
    weights = members["_parameters"]
    options = {}
    for name, parameter in _parameters(cls).items():
        if name == "bias" and "bias" not in members:
            found = [value for key, value in weights.items() if "bias" in key]
            options[name] = any(value is not None for value in found)
        elif name in known:
            options[name] = known[name]
        elif parameter.default is parameter.empty:
            return None
    return options


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    """The parameters of a class by name, with those of the class that it hands ``**kwargs`` to."""
    found = inspect.signature(cls.__init__).parameters  # type: ignore[misc]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = {n: p for n, p in found.items() if p.kind not in variable and n not in ("self", "mode")}
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found.values()):
        base = cls.__mro__[1]
        if base is not object:
            own = {**_parameters(base), **own}
    return own
