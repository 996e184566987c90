"""What a call of a program writes to its arguments, and to gradients."""

from __future__ import annotations

from collections import deque
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


def contents(container: Any) -> Any:
    """The list or dict in which a container holds what it holds; of an object its attributes."""
    return container if isinstance(container, (list, dict, deque)) else vars(container)


class Contents:
    """Writes the contents of a list, dict or object among the arguments."""

    def __init__(self, number: int) -> None:
        self.number = number

    def write(self, leaves: list[Any], containers: list[Any], value: Any) -> None:
        """Make them ``value``."""
        self.fill(containers[self.number], value)

    @staticmethod
    def fill(target: Any, value: Any) -> None:
        """Make these the contents."""
        target = contents(target)
        if isinstance(target, list):
            target[:] = value
        else:
            target.clear()
            target.update(value)
