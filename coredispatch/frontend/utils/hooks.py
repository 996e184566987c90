"""Handles of hooks, and hooks that tensors are saved without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from coredispatch._warnings import warn
from coredispatch.frontend.hooks import RemovableHandle

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]

F = TypeVar("F", bound=Callable[..., Any])


def unserializable_hook(f: F) -> F:
    """Mark a hook that need not be saved; :func:`warn_if_has_hooks` is silent about it."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warn about hooks in ``tensor._backward_hooks``: they are not saved with the tensor."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, "
                "you can decorate the function with @torch.utils.hooks.unserializable_hook to "
                "suppress this warning"
            )
