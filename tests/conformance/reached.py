"""Which operators the definition of another one names: its decomposition and its derivatives.

Read from the code, without a call: names of operators, of helpers that use some, and the operators
behind Python's own. It names rather too many than too few.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import coredispatch as cd
from coredispatch.registry import Operator

__all__ = ["EVERYWHERE", "users_of"]

#: what the framework itself may call for any operator: conversions, copies, writing, numbers
EVERYWHERE = frozenset(
    ("clone", "detach", "expand", "full", "ones", "to_dtype", "to_host", "view", "zeros")
)
#: properties of tensors that are operators of another name
_PROPERTIES = dict.fromkeys(("T", "mT", "H", "mH"), "transpose")

#: what Python's operators call
_SYMBOLS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "@": "matmul",
    "**": "pow",
    "%": "remainder",
    "//": "floor_divide",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "<<": "bitwise_left_shift",
    ">>": "bitwise_right_shift",
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
}
_OPCODES = {
    "UNARY_NEGATIVE": "neg",
    "UNARY_INVERT": "bitwise_not",
    "BINARY_SUBSCR": "getitem",
    "BINARY_SLICE": "getitem",
    "STORE_SUBSCR": "index_put",
    "STORE_SLICE": "index_put",
}


def users_of(changed: Iterable[str]) -> set[str]:
    """The operators whose definition reaches one of ``changed``, by however many steps."""
    users: dict[str, set[str]] = {}
    for name in dir(cd.ops):
        for used in _named(name):
            users.setdefault(used, set()).add(name)
    found: set[str] = set()
    waiting = list(changed)
    while waiting:
        further = users.get(waiting.pop(), set()) - found
        found |= further
        waiting += further
    return found


@cache
def _named(name: str) -> frozenset[str]:
    """The operators that the definition of one names."""
    op = getattr(cd.ops, name)
    seen: set[int] = set()
    found: set[str] = set()
    rule = op.vjp_rule
    parts = [] if rule is None else [getattr(rule, n, None) for n in _attributes(rule)]
    for function in _functions([op.decomposition, *parts]):
        found.update(_reads(function, seen))
    return frozenset(found & set(dir(cd.ops))) - {name}


def _attributes(value: Any) -> set[str]:
    slots = {n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ())}
    return slots | set(getattr(value, "__dict__", ()))


def _functions(value: Any) -> Iterator[FunctionType]:
    value = getattr(value, "__wrapped__", value)  # of functools.cache
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, dict):
        yield from _functions(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _functions(item)


def _reads(function: FunctionType, seen: set[int]) -> Iterator[str]:
    """The names in a function and in the helpers of coredispatch that it uses."""
    if id(function) in seen:
        return
    seen.add(id(function))
    names = set(_in_code(function.__code__))
    yield from names
    cells = [c.cell_contents for c in function.__closure__ or () if _filled(c)]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for value in [*(function.__globals__.get(n) for n in names), *cells, *defaults]:
        if isinstance(value, Operator):
            yield value.name
        elif not isinstance(value, ModuleType):
            for helper in _functions(value):
                if str(helper.__module__).startswith(cd.__name__):
                    yield from _reads(helper, seen)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # nothing was assigned to it
        return False


def _in_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from (_PROPERTIES[n] for n in code.co_names if n in _PROPERTIES)
    for step in dis.get_instructions(code):
        if step.opname in _OPCODES:
            yield _OPCODES[step.opname]
        elif step.opname in ("BINARY_OP", "COMPARE_OP"):
            symbol = str(step.argrepr).removeprefix("bool(").rstrip(")")
            yield _SYMBOLS.get(symbol if symbol in _SYMBOLS else symbol.rstrip("="), "")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _in_code(constant)
