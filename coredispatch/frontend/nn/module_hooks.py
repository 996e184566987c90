"""The methods of ``Module`` that register hooks; :mod:`.calling` and :mod:`.state` call them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.frontend.nn.older_backward_hooks import CLASH

if TYPE_CHECKING:
    from coredispatch.frontend.nn.module import Module

__all__ = [
    "add_hook",
    "hooks_of",
    "is_full_backward_hook",
    "register_backward_hook",
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_load_pre_hook_without_module",
    "register_load_state_dict_post_hook",
    "register_load_state_dict_pre_hook",
    "register_state_dict_post_hook",
    "register_state_dict_pre_hook",
]


def hooks_of(self: Module, kind: str) -> OrderedDict[int, Any]:
    """The hooks of one kind by their ids, to read and to change."""
    if self._hooks is None:
        self.__dict__["_hooks"] = {}
    found: OrderedDict[int, Any] = self.__dict__["_hooks"].setdefault(kind, OrderedDict())
    return found


def add_hook(
    self: Module, kind: str, hook: Any, prepend: bool = False, options: Any = None
) -> RemovableHandle:
    hooks = self._hooks_of(kind)
    handle = RemovableHandle(hooks, hook)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    if options is not None:
        self._hooks_of("options")[handle.id] = options
    return handle


def register_forward_pre_hook(
    self: Module, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args)`` before ``forward``; what it returns replaces the arguments.

    With ``with_kwargs`` it is ``hook(module, args, kwargs)`` and returns both or None.
    """
    return self._add_hook("forward_pre", hook, prepend, (with_kwargs, False))


def register_forward_hook(
    self: Module,
    hook: Callable[..., Any],
    *,
    prepend: bool = False,
    with_kwargs: bool = False,
    always_call: bool = False,
) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after ``forward``; its result replaces the output.

    With ``with_kwargs`` it is ``hook(module, args, kwargs, output)``. With ``always_call`` it
    is called with output None when ``forward`` raises.
    """
    return self._add_hook("forward", hook, prepend, (with_kwargs, always_call))


def register_full_backward_pre_hook(
    self: Module, hook: Callable[..., Any], prepend: bool = False
) -> RemovableHandle:
    """Call ``hook(module, grad_output)`` when the outputs' gradients are known."""
    return self._add_hook("backward_pre", hook, prepend)


def register_full_backward_hook(
    self: Module, hook: Callable[..., Any], prepend: bool = False
) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` when the inputs' gradients are known.

    Both are tuples, with None for arguments that take no gradient; a returned tuple replaces
    ``grad_input``. Arguments of the module must not be written in place. Raises RuntimeError where
    the module has hooks of :meth:`register_backward_hook`.
    """
    if self._is_full_backward_hook is False:
        raise RuntimeError(CLASH)
    return self._add_hook("backward", hook, prepend)


def register_backward_hook(self: Module, hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, grad_input, grad_output)`` for the operator that makes the output.

    ``grad_input`` are the gradients of that operator's arguments, parameters among them, as in
    PyTorch, which warns where they are not those of the module's. Raises RuntimeError where the
    module has hooks of :meth:`register_full_backward_hook`, which newer programs use.
    """
    if self._is_full_backward_hook:
        raise RuntimeError(CLASH)
    return self._add_hook("backward_older", hook)


def is_full_backward_hook(self: Module) -> bool | None:
    """Which kind of backward hooks the module has or had, None for none."""
    kinds = self._hooks or {}
    if "backward_older" in kinds:
        return False
    return True if "backward" in kinds else None


def register_state_dict_pre_hook(self: Module, hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, prefix, keep_vars)`` before :meth:`state_dict`."""
    return self._add_hook("state_dict_pre", hook)


def register_state_dict_post_hook(self: Module, hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, state_dict, prefix, local_metadata)`` after :meth:`state_dict`."""
    return self._add_hook("state_dict", hook)


def register_load_state_dict_pre_hook(self: Module, hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
    unexpected_keys, error_msgs)`` before this module's part is loaded.
    """
    return self._add_hook("load_pre", hook)


def register_load_pre_hook_without_module(
    self: Module, hook: Callable[..., Any], with_module: bool = False
) -> RemovableHandle:
    if with_module:
        return self._add_hook("load_pre", hook)
    return self._add_hook("load_pre", lambda module, *args: hook(*args))


def register_load_state_dict_post_hook(self: Module, hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, incompatible_keys)`` after :meth:`load_state_dict`."""
    return self._add_hook("load", hook)
