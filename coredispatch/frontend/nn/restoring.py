"""A module from the state that a pickle has: coredispatch's own, or that of PyTorch's module."""

from __future__ import annotations

from typing import Any

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
    if "_parameters" not in members:
        module.__dict__.update(members)
        return
    from coredispatch.frontend.nn.module import Module

    Module.__init__(module)
    for name, value in members.items():
        if name not in _TABLES and name not in _HOOKS:
            module.__dict__[name] = value
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
