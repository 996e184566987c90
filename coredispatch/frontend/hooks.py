"""Handles of registered hooks."""

from __future__ import annotations

import itertools
from typing import Any

__all__ = ["RemovableHandle"]

_ids = itertools.count()


class RemovableHandle:
    """Returned when a hook is registered; ``remove()`` or leaving a ``with`` block removes it.

    ``hooks`` is the list (or ``{id: hook}`` dict) that the hook is added to; ``hook`` is a function
    or, where its owner also keeps how to call it, a tuple that begins with one.
    """

    def __init__(self, hooks: Any, hook: Any) -> None:
        self.id = next(_ids)
        self._hooks = hooks
        self._hook = hook
        if isinstance(hooks, dict):
            hooks[self.id] = hook
        else:
            hooks.append(hook)

    def remove(self) -> None:
        """Take the hook out; doing so twice is no error."""
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
