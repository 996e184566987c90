"""``Stateful``: what ``checkpoint.save`` asks for its state."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["Stateful"]


@runtime_checkable
class Stateful(Protocol):
    """An object with a state, such as a program's own class around a model and its optimizer."""

    def state_dict(self) -> dict[str, Any]:
        """What is to be saved; and, before a load, what is to be filled."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what was read."""
        ...
