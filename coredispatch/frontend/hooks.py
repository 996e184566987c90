"""Handles of registered hooks."""

from __future__ import annotations

import itertools
from typing import Any

__all__ = ["RemovableHandle"]

_ids = itertools.count()
_NO_HOOK: Any = object()


class RemovableHandle:
    """Returned when a hook is registered; ``remove()`` or leaving a ``with`` block removes it.

    ``hooks_dict`` is the list (or ``{id: hook}`` dict) that the hook is added to; ``hook`` is a
    function or, where its owner also keeps how to call it, a tuple that begins with one. Without a
    hook nothing is added: the owner does so under ``id``. From ``extra_dict``, a dict or a list of
    them, what stands under ``id`` is removed as well.
    """

    __module__ = "coredispatch.utils.hooks"  # the public name

    def __init__(self, hooks_dict: Any, hook: Any = _NO_HOOK, *, extra_dict: Any = None) -> None:
        self.id = next(_ids)
        self._hooks = hooks_dict
        self._hook = hook
        self._extra = extra_dict if isinstance(extra_dict, list) else [extra_dict or {}]
        if hook is _NO_HOOK:
            return
        if isinstance(hooks_dict, dict):
            hooks_dict[self.id] = hook
        else:
            hooks_dict.append(hook)

    def remove(self) -> None:
        """Take the hook out; doing so twice is no error."""
        for more in self._extra:
            more.pop(self.id, None)
        if isinstance(self._hooks, dict):
            self._hooks.pop(self.id, None)
            return
        for position, hook in enumerate(self._hooks):
            if hook is self._hook:
                del self._hooks[position]
                return

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
