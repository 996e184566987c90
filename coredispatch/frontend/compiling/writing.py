"""What a call of a program writes to its arguments, and to gradients."""

from __future__ import annotations

from typing import Any

__all__ = ["Contents", "Gradient"]


class Gradient:
    """Writes ``.grad`` of a tensor, or of the argument with this number."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def write(self, leaves: list[Any], containers: list[Any], value: Any) -> None:
        """Make it ``value``."""
        target = leaves[self.target] if isinstance(self.target, int) else self.target
        target._grad = value


class Contents:
    """Writes the contents of a list or dict among the arguments."""

    def __init__(self, number: int) -> None:
        self.number = number

    def write(self, leaves: list[Any], containers: list[Any], value: Any) -> None:
        """Make them ``value``."""
        self.fill(containers[self.number], value)

    @staticmethod
    def fill(target: Any, value: Any) -> None:
        """Make these the contents."""
        if isinstance(target, list):
            target[:] = value
        else:
            target.clear()
            target.update(value)
