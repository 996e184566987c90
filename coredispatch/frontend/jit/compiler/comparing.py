"""What Python does with the operators of elements, as programs that are compiled where they count.

A loaded program has objects without methods, so that Python's own ``in`` or ``sorted`` would not
find ``__eq__`` and ``__lt__``. These take elements of scripted classes, whose methods they call.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "all_of",
    "any_of",
    "contains",
    "count",
    "equal_lists",
    "equal_or_none",
    "index",
    "largest",
    "ordered",
    "remove",
    "smallest",
]


def equal_or_none(a: Any, b: Any) -> Any:
    """``a == b`` of values that may be None."""
    if a is None or b is None:
        return a is None and b is None
    return a == b


def equal_lists(a: Any, b: Any) -> bool:
    """``a == b`` of lists."""
    if len(a) != len(b):
        return False
    for i in range(len(a)):
        if a[i] is not b[i] and not (a[i] == b[i]):
            return False
    return True


def contains(items: Any, item: Any) -> bool:
    """``item in items``."""
    for one in items:
        if one is item or one == item:
            return True
    return False


def count(items: Any, item: Any) -> int:
    """``items.count(item)``."""
    found = 0
    for one in items:
        if one is item or one == item:
            found += 1
    return found


def index(items: Any, item: Any) -> int:
    """``items.index(item)``."""
    for i in range(len(items)):
        if items[i] is item or items[i] == item:
            return i
    raise ValueError("the element is not in the list")


def remove(items: Any, item: Any) -> None:
    """``items.remove(item)``."""
    del items[index(items, item)]


def any_of(items: Any) -> bool:
    """``any(items)``."""
    for one in items:
        if one:
            return True
    return False


def all_of(items: Any) -> bool:
    """``all(items)``."""
    for one in items:
        if not one:
            return False
    return True


def smallest(items: Any) -> Any:
    """``min(items)``."""
    best = items[0]
    for one in items:
        if one < best:
            best = one
    return best


def largest(items: Any) -> Any:
    """``max(items)``."""
    best = items[0]
    for one in items:
        if one > best:
            best = one
    return best


def ordered(items: Any, reverse: Any = False) -> Any:
    """``sorted(items)``: each element goes behind the equal ones before it."""
    made = items[:0]
    for one in items:
        low = 0
        high = len(made)
        while low < high:
            middle = (low + high) // 2
            before = made[middle] < one if reverse else one < made[middle]
            if before:
                high = middle
            else:
                low = middle + 1
        made.insert(low, one)
    return made
