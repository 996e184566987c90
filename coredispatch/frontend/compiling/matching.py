"""The arguments of a call, compared with those of a program by a function that is written for it.

:class:`~.arguments.Arguments` takes any arguments apart and says what they have in common with
others. Where they are tensors, numbers and objects, in no containers, the same questions are asked
one after the other, without a key being made.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.frontend.compiling.arguments import CONSTANTS, Arguments
from coredispatch.frontend.compiling.attributes import OWN_ATTRIBUTES
from coredispatch.frontend.compiling.replaced import order_of
from coredispatch.frontend.compiling.text import Text
from coredispatch.plugin import Value

__all__ = ["matcher"]


def matcher(given: Arguments, args: tuple[Any, ...], kwargs: Any) -> types.FunctionType | None:
    """``match(args, kwargs)``: the leaves of arguments with the same key, else None.

    None instead of the function where the arguments have a structure, or share memory.
    """
    if given.views or given.containers or (len(given.leaves) > 1 and given.key[-1] is not None):
        return None
    found = _Matcher(given)
    text = found.text
    text.line(f"if len(args) != {len(args)}: return None")
    if kwargs:
        text.line(f"if [*kwargs] != {list(kwargs)!r}: return None")
    else:
        text.line("if kwargs: return None")
    values = [(f"args[{i}]", value) for i, value in enumerate(args)]
    values += [(f"kwargs[{name!r}]", value) for name, value in kwargs.items()]
    for k, (place, value) in enumerate(values):
        text.line(f"a{k} = {place}")
        if not found.one(f"a{k}", value):
            return None
    found.apart()
    found.open_sizes()
    text.line(f"return [{', '.join(found.leaves)}]")
    return text.function("match(args, kwargs)")


class _Matcher:
    def __init__(self, given: Arguments) -> None:
        self.text = Text()
        self.numbers: Iterator[int] = iter(range(1 << 30))
        self.moving = given.moving
        self.open = dict(given.open_shapes)
        self.open_numbers = given.open_numbers
        self.sizes: dict[str, str] = {}
        self.leaves: list[str] = []
        self.arrays: list[str] = []

    def one(self, name: str, value: Any) -> bool:
        """Compare an argument; False for one that is beyond this."""
        kind = type(value)
        if isinstance(value, Value):
            return self.tensor(name, value)
        text = self.text
        if kind is int or kind is float:
            place = next(self.numbers)
            text.line(f"if type({name}) is not {kind.__name__}: return None")
            if place in self.open_numbers:
                self.size(name, self.open_numbers[place])
            elif place in self.moving:
                self.leaves.append(name)
            else:  # 0.0 and -0.0 are equal
                text.line(f"if {name} != {text.name(value)}: return None")
                if not value:
                    text.line(f"if repr({name}) != {repr(value)!r}: return None")
        elif value is None or kind is bool:
            text.line(f"if {name} is not {value!r}: return None")
        elif kind in (str, bytes, complex) or kind in CONSTANTS:
            text.line(
                f"if type({name}) is not {text.name(kind)} or {name} != {text.name(value)}: "
                "return None"
            )
        elif isinstance(value, (tuple, list, dict)):
            return False
        else:
            text.line(f"if {name} is not {text.name(value)}: return None")
        return True

    def tensor(self, name: str, value: Any) -> bool:
        raw, text = value.raw, self.text
        if type(raw) is not np.ndarray or not value.__dict__.keys() <= OWN_ATTRIBUTES:
            return False
        array = f"{name}_raw"
        shape = self.open.get(len(self.arrays))
        self.leaves.append(name)
        self.arrays.append(array)
        text.line(
            f"if type({name}) is not {text.name(type(value))} or {name}.keys != {value.keys} "
            f"or {name}._view is not None or not {name}.__dict__.keys() <= "
            f"{text.name(OWN_ATTRIBUTES)}: return None"
        )
        text.line(f"{array} = {name}.raw")
        if shape is not None:
            return self.open_tensor(name, array, shape, raw)
        text.line(
            f"if {array}.dtype is not {text.name(raw.dtype)} or {array}.shape != {raw.shape!r} "
            f"or {array}.strides != {raw.strides!r}: return None"
        )
        return True

    def open_tensor(self, name: str, array: str, shape: tuple[Any, ...], raw: Any) -> bool:
        """Sizes that are symbols are numbers of the call."""
        text = self.text
        if order_of(raw) != tuple(range(raw.ndim)):
            return False
        text.line(
            f"if {array}.dtype is not {text.name(raw.dtype)} or {array}.ndim != {raw.ndim} "
            f"or not {array}.flags.c_contiguous or {name}._grad is not None: return None"
        )
        names = [f"{name}_{dim}" for dim in range(raw.ndim)]
        text.line(f"{', '.join(names)}, = {array}.shape")
        for size, n in zip(names, shape):
            if type(n) is int:
                text.line(f"if {size} != {n}: return None")
            else:
                self.size(size, n)
        return True

    def size(self, name: str, symbol: str) -> None:
        """A number of the call that is a symbol of the program; equal ones are one symbol."""
        known = self.sizes.setdefault(symbol, name)
        if known is not name:
            self.text.line(f"if {name} != {known}: return None")

    def open_sizes(self) -> None:
        """Symbols are at least 2, and different; they come after the other leaves."""
        found = list(self.sizes.values())
        if found:
            self.text.line(f"if {' or '.join(f'{size} < 2' for size in found)}: return None")
        if len(found) > 1:
            self.text.line(f"if len({{{', '.join(found)}}}) != {len(found)}: return None")
        self.leaves += found

    def apart(self) -> None:
        """No two tensors are the same, or were made of one array that owns its memory."""
        if len(self.arrays) < 2:
            return
        arrays = [f"{array}_owner" for array in self.arrays]
        for array, owner in zip(self.arrays, arrays):
            self.text.line(f"{owner} = {array} if {array}.base is None else {array}.base")
            # What another library made, or a view of it, is looked at more closely.
            self.text.line(f"if type({owner}) is not {self.text.name(np.ndarray)}: return None")
            self.text.line(f"if {owner}.base is not None: return None")
        if 2 <= len(arrays) <= 3:
            pairs = [f"{a} is {b}" for i, a in enumerate(arrays) for b in arrays[:i]]
            self.text.line(f"if {' or '.join(pairs)}: return None")
        elif arrays:
            same = f"len({{{', '.join(f'id({a})' for a in arrays)}}}) != {len(arrays)}"
            self.text.line(f"if {same}: return None")
