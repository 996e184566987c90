"""The guards of a program as one Python function, written for it.

Most of what a program read is found again in the same place, so the function compares identities:
a read, a comparison and a jump for each record, and next to nothing is called. Only what is not
identical is asked whether it is equal.
"""

from __future__ import annotations

import collections
import operator
import types
from typing import Any

from coredispatch.frontend.compiling.records import LISTS, MISSING, Record
from coredispatch.frontend.compiling.replaced import CONTAINERS, fits
from coredispatch.frontend.compiling.text import Text
from coredispatch.frontend.nn.members import Namespace
from coredispatch.plugin import Value

__all__ = ["FAILED", "HELD", "MOVED", "base_of", "checker", "read"]

HELD, FAILED, MOVED = "held", "failed", "moved"
#: dicts that stay as they are where a key is not found
_LOOKED_UP = (dict, collections.OrderedDict, Namespace)
_BUILTIN = (list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict)


def base_of(tensor: Any) -> Any:
    """What a tensor is a view of, in the end; itself, where it is none."""
    while tensor._view is not None:
        tensor = tensor._view.base
    return tensor


def read(text: Text, record: Record) -> str:
    """The text of what stands in the place of a record; where nothing does, an error."""
    holder, key = record.holder, record.key
    if record.kind == "item":
        if type(holder) in _LOOKED_UP:
            return f"{text.name(holder)}[{text.key(key)}]"
        return f"{text.name(holder.get)}({text.key(key)}, {text.name(MISSING)})"
    if record.kind == "member":
        return f"{text.name(vars(holder))}[{text.key(key)}]"
    if record.kind == "cell":
        return f"{text.name(holder)}.cell_contents"
    if record.kind == "class":
        return f"type({text.name(holder)})"
    if record.kind == "attribute" and key.isidentifier():
        return f"{text.name(holder)}.{key}"
    return f"{text.name(record.now)}()"


def checker(
    records: list[Record],
    tensors: list[Any],
    grads: list[Any],
    leaves: dict[int, bool],
    shared: tuple[list[Any], frozenset[int]],
) -> types.FunctionType:
    """``check(leaves)``: ``HELD``, ``FAILED``, or ``MOVED`` where a tensor has another array.

    The arrays are the globals ``raw0``, ``raw1``... of the function, for those who move them.

    Args:
        records: what was read.
        tensors: ``(tensor, array, keys)``: what it must have.
        grads: ``(tensor, whether it has no gradient)``.
        leaves: number of an argument -> whether it has no gradient.
        shared: by argument the tensor that the records hold as well, which must be the same again,
            False for a tensor that they may not hold, None for a number; the ids of what they hold.
    """
    text = Text()
    lines = [f"if {_differs(text, record)}: return {FAILED!r}" for record in records]
    for k, (t, raw, keys) in enumerate(tensors):
        text.scope[f"raw{k}"] = raw
        name = text.name(t)
        lines.append(f"if {name}.raw is not raw{k} or {name}.keys != {keys}: return {MOVED!r}")
    given, own = shared
    for i, value in enumerate(given):
        if value is not None and own:
            place = f"leaves[{i}]"
            base = f"({place} if {place}._view is None else {text.name(base_of)}({place}))"
            asked = f"id({base}) in own"
            if value is not False:
                asked = f"{place} is not {text.name(value)}"
            text.scope["own"] = own
            lines.append(f"if {asked}: return {FAILED!r}")
    places = [(text.name(t), absent) for t, absent in grads]
    places += [(f"leaves[{i}]", absent) for i, absent in leaves.items()]
    for place, absent in places:
        lines.append(f"if {place}._grad is{' not' if absent else ''} None: return {FAILED!r}")
    text.line("try:")
    for line in (*lines, f"return {HELD!r}"):
        text.line(f"    {line}")
    text.line("except (LookupError, AttributeError, ValueError):")  # nothing stands there now
    text.line(f"    return {FAILED!r}")
    return text.function("check(leaves)")


def _differs(text: Text, record: Record) -> str:
    """The text of the question whether a record is not what it was."""
    value = record.value
    if record.dynamic and (type(value) in CONTAINERS or isinstance(value, Value)):
        return f"not {text.name(fits)}({text.name(record)})"
    if record.dynamic:
        return f"type({read(text, record)}) is not {text.name(type(value))}"
    held = f"{text.name(record.held)}()"
    if value is MISSING or record.moving or record.kind == "array":
        if value is MISSING and record.kind in ("item", "member"):
            holder = record.holder if record.kind == "item" else vars(record.holder)
            return f"{text.key(record.key)} in {text.name(holder)}"
        return f"not {held}"
    if record.kind in (*LISTS, "members"):
        return f"({_elements_differ(text, record)}) and not {held}"
    return f"{read(text, record)} is not {text.name(value)} and not {held}"


def _elements_differ(text: Text, record: Record) -> str:
    """The text of the question whether elements, keys or attributes are not those that were."""
    holder: Any = record.holder
    if record.kind == "members":
        holder = vars(holder)
    value, name = record.value, text.name(holder)
    count = len(value)
    if not count and type(holder) in _BUILTIN:
        return name
    if count == 1 and type(holder) is list:
        return f"len({name}) != 1 or {name}[0] is not {text.name(value[0])}"
    if record.kind != "list" and all(type(key) is str for key in value):
        return f"[*{name}] != {text.name(list(value))}"
    text.scope["is_"] = operator.is_
    return f"len({name}) != {count} or not all(map(is_, {name}, {text.name(value)}))"
