"""What a trace was given: the structure that the inputs of other calls must have, too.

A trace has one input for each argument of its example. How the program took an argument apart is
part of the graph, and so is each of its parts that is neither a tensor nor a number of its own.
Another structure would be taken apart like the example's, which gives wrong results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coredispatch.plugin import Value

__all__ = ["Example", "example_of", "read_example", "stored_example"]


@dataclass(frozen=True)
class Example:
    """What an argument, or a part of one, was in the example.

    Attributes:
        kind: "tensor", "number", "constant", "sequence" (a list or tuple), "record" (a named tuple)
            or "dict".
        keys: the keys of a dict in order, the fields of a record.
        parts: the examples of what a container holds.
        value: that of a constant.
    """

    kind: str
    keys: tuple[Any, ...] = ()
    parts: tuple[Example, ...] = ()
    value: Any = None

    def fault(self, value: Any, name: str) -> tuple[str, str, str] | None:
        """Where ``value`` differs, None where it does not: the place, the wanted and the found."""
        if self.kind == "tensor":
            return None if isinstance(value, Value) else (name, "a tensor", _told(value))
        if self.kind == "number":
            return None if _is_number(value) else (name, "a number", _told(value))
        if self.kind == "constant":
            return None if _same(value, self.value) else (name, _told(self.value), _told(value))
        return self._fault_of_parts(value, name)

    def _fault_of_parts(self, value: Any, name: str) -> tuple[str, str, str] | None:
        if self.kind == "dict":
            if not isinstance(value, dict):
                return name, "a dict", _told(value)
            if tuple(value) != self.keys:
                return name, f"a dict with the keys {list(self.keys)}", f"the keys {list(value)}"
            pairs = [(f"{name}[{key!r}]", value[key]) for key in self.keys]
        else:
            if not isinstance(value, (tuple, list)):
                return name, "a list or tuple", _told(value)
            if self.kind == "record" and getattr(value, "_fields", None) != self.keys:
                fields = ", ".join(self.keys)
                return name, f"a named tuple with the fields {fields}", _told(value)
            if len(value) != len(self.parts):
                found = f"a {type(value).__name__} of {len(value)}"
                return name, f"a list or tuple of {len(self.parts)} values", found
            pairs = [(f"{name}[{i}]", item) for i, item in enumerate(value)]
        for part, (place, item) in zip(self.parts, pairs):
            fault = part.fault(item, place)
            if fault is not None:
                return fault
        return None


def example_of(value: Any, open_numbers: bool = True) -> Example:
    """The example that an argument is; numbers inside of containers are constants of a trace."""
    if isinstance(value, Value):
        return Example("tensor")
    if open_numbers and type(value) in (int, float):
        return Example("number")
    if isinstance(value, dict):
        parts = tuple(example_of(item, False) for item in value.values())
        return Example("dict", tuple(value), parts)
    if isinstance(value, (tuple, list)):
        parts = tuple(example_of(item, False) for item in value)
        fields = getattr(value, "_fields", None)
        return Example("sequence" if fields is None else "record", fields or (), parts)
    return Example("constant", value=value)


def stored_example(example: Example, store: Callable[[Any], Any]) -> list[Any]:
    """The example as lists and text; ``store`` writes constants and keys."""
    parts = [stored_example(part, store) for part in example.parts]
    return [example.kind, [store(key) for key in example.keys], parts, store(example.value)]


def read_example(stored: Any, read: Callable[[Any], Any]) -> Example:
    """What :func:`stored_example` wrote. Raises ``ValueError`` for another kind."""
    kind, keys, parts, value = stored
    if kind not in ("tensor", "number", "constant", "sequence", "record", "dict"):
        raise ValueError(f"an example of the kind {kind!r}")
    if kind in ("record", "dict") and len(keys) != len(parts):
        raise ValueError(f"an example of {len(keys)} keys and {len(parts)} parts")
    inner = tuple(read_example(part, read) for part in parts)
    return Example(kind, tuple(read(key) for key in keys), inner, read(value))


def _is_number(value: Any) -> bool:
    if isinstance(value, (bool, str, Value)):
        return False
    return hasattr(value, "__index__") or hasattr(value, "__float__")


def _same(value: Any, wanted: Any) -> bool:
    if value is wanted:
        return True
    # True == 1 == 1.0, and a program may tell them apart
    if any(isinstance(value, kind) is not isinstance(wanted, kind) for kind in (bool, int, float)):
        return False
    if wanted != wanted and isinstance(value, float):
        return bool(value != value)  # nan
    try:
        return bool(value == wanted)
    except (TypeError, ValueError):  # an array has no one answer
        return False


def _told(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    if isinstance(value, Value):
        return "a tensor"
    text = repr(value)
    kind = type(value).__name__
    return f"a {kind}" if len(text) > 80 or "\n" in text else f"{text} (a {kind})"
