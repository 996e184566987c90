"""Numbers that a captured program reads: what it computes from them becomes a part of the graph.

``loss.item()`` of a captured program is a :class:`SymFloat`. Arithmetic gives such numbers again,
with a node in the graph. Where Python needs to know the number - in a comparison, a conversion, an
index - the recorder is told, and the graph is split: what follows holds for this answer.

They are no subclasses of ``int`` and ``float``: functions written in C would take the value out of
those without asking. ``isinstance(x, float)`` is true nevertheless, through ``__class__``.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from coredispatch.graph import Node, map_aggregate
from coredispatch.graph.symbols import Expression
from coredispatch.plugin import Symbol, Value

__all__ = [
    "FOLLOWED",
    "OPEN",
    "Following",
    "Sym",
    "SymBool",
    "SymFloat",
    "SymInt",
    "computed",
    "is_open",
    "plain",
    "forget_numbers",
    "plain_keys",
    "scrubbed",
    "symbolic",
]


class Sym(Symbol):
    """A number of the example, with the node that stands for it."""

    __slots__ = ("node", "recorder", "value")

    def __init__(self, value: Any, node: Node, recorder: Any) -> None:
        self.value, self.node, self.recorder = value, node, recorder

    def forced(self, what: str) -> Any:
        """The number itself: what the program does from here on holds for this number."""
        self.recorder.decide(self.node, self.value, what)
        return self.value

    def __bool__(self) -> bool:
        recorder = self.recorder
        answer = bool(self.value)
        if recorder.alive:
            recorder.decide(recorder.function(operator.truth, (self.node,)), answer, "bool()")
        return answer

    def __int__(self) -> int:
        return int(self.forced("int()"))

    def __float__(self) -> float:
        return float(self.forced("float()"))

    def __complex__(self) -> complex:
        return complex(self.forced("complex()"))

    def __index__(self) -> int:
        return operator.index(self.forced("an index"))

    def __hash__(self) -> int:
        return hash(self.forced("hash()"))

    def __repr__(self) -> str:
        return repr(self.forced("repr()"))

    def __str__(self) -> str:
        return str(self.forced("str()"))

    def __format__(self, spec: str) -> str:
        return format(self.forced("format()"), spec)

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """``function(self)`` as a part of the graph; it depends on the number alone."""
        return computed(function, (self,))

    def __round__(self, *digits: Any) -> Any:
        return round(self.forced("round()"), *digits)

    def __trunc__(self) -> Any:
        return self.apply(math.trunc)

    def __floor__(self) -> Any:
        return self.apply(math.floor)

    def __ceil__(self) -> Any:
        return self.apply(math.ceil)

    def __reduce__(self) -> Any:
        return type(self.forced("pickle")), (self.value,)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy

        return numpy.asarray(self.forced("an array"), dtype)

    def is_integer(self) -> bool:
        """As of the number."""
        return float(self.forced("is_integer()")).is_integer()

    def item(self) -> Any:
        """Itself, as NumPy's numbers have it."""
        return self


class SymInt(Sym):
    """An integer of a captured program."""

    __slots__ = ()
    __class__ = property(lambda self: int)


class SymFloat(Sym):
    """A floating-point number of a captured program."""

    __slots__ = ()
    __class__ = property(lambda self: float)


class SymBool(Sym):
    """A truth value of a captured program."""

    __slots__ = ()
    __class__ = property(lambda self: bool)


def symbolic(value: Any, node: Node, recorder: Any) -> Any:
    """``value`` as a number that knows its node; what is no real number comes back as it is."""
    kind: Any = {bool: SymBool, int: SymInt, float: SymFloat}.get(type(value))
    return value if kind is None else kind(value, node, recorder)


def plain(value: Any) -> Any:
    """The number as an ordinary one, without the program depending on it."""
    if isinstance(value, Sym):
        return value.value
    if isinstance(value, Following):
        return value.function
    return value.example if isinstance(value, Expression) else value


def _number(value: Any) -> bool:
    return type(value) in (bool, int, float, SymBool, SymInt, SymFloat)


def computed(fn: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """``fn(*given)`` as a part of the graph; one of the numbers at least is the program's."""
    numbers = [item for item in given if isinstance(item, Sym)]
    try:
        value = fn(*map(plain, given))
    except (ArithmeticError, ValueError):  # a caller that catches it goes on for these numbers
        for item in numbers:
            item.forced("an error")
        raise
    recorder = numbers[0].recorder
    if not recorder.alive:
        return value
    nodes = tuple(item.node if isinstance(item, Sym) else item for item in given)
    return symbolic(value, recorder.function(fn, nodes), recorder)


def _arithmetic(fn: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        if not all(map(_number, others)):
            return NotImplemented
        given = (self, *others)
        return computed(fn, given[::-1] if reflected else given)

    return method


_TWO = "add sub mul truediv floordiv mod pow".split()
_COMPARED = "eq ne lt le gt ge".split()
for _name in _TWO:
    _fn = getattr(operator, _name)
    setattr(Sym, f"__{_name}__", _arithmetic(_fn, False))
    setattr(Sym, f"__r{_name}__", _arithmetic(_fn, True))
for _name in (*_COMPARED, "neg", "pos", "abs"):
    setattr(Sym, f"__{_name}__", _arithmetic(getattr(operator, _name), False))
for _fn in (round, math.floor, math.ceil, math.trunc):
    setattr(Sym, f"__{_fn.__name__}__", _arithmetic(_fn, False))
Sym.__hash__ = lambda self: hash(self.forced("hash()"))  # type: ignore[method-assign]

_MATH = (
    "acos acosh asin asinh atan atan2 atanh copysign cos cosh degrees erf erfc exp expm1 fabs fmod "
    "gamma hypot isclose isfinite isinf isnan lgamma log log10 log1p log2 pow radians remainder "
    "sin sinh sqrt tan tanh"
)


class Following:
    """A function of ``math`` as a captured program calls it: of its numbers it makes a number.

    The function itself is written in C, and asks a number for its value, which makes a graph for
    each. Both are equal: a program may look either up.
    """

    __slots__ = ("function",)

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and any(isinstance(a, Sym) and a.recorder.alive for a in args):
            return computed(self.function, args)
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __eq__(self, other: object) -> bool:
        return bool(self.function == plain(other))

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return repr(self.function)

    def __reduce__(self) -> Any:
        return getattr, (math, self.function.__name__)


#: a function of ``math``, or what stands for it -> what a captured program is to call
FOLLOWED: dict[Any, Following] = {
    function: Following(function) for function in (getattr(math, name) for name in _MATH.split())
}

#: what only stands for something while a program is captured
OPEN = (Sym, Expression, Following)


def is_open(key: Any) -> bool:
    """Whether a key or member has a number of a program in it, or shows its open sizes."""
    if isinstance(key, tuple):
        return any(map(is_open, key))
    if isinstance(key, Value):
        return getattr(key.raw, "layer", None) == "compile"
    return isinstance(key, OPEN)


def plain_keys(container: Any) -> None:
    """Ordinary numbers for the keys of a dict, or the members of a set, that are a program's.

    They were found by the hash of the number, which is not theirs any more.
    """
    # As a dict alone: an OrderedDict looks up what it gives.
    keys = dict.keys(container) if isinstance(container, dict) else container
    if not any(map(is_open, keys)):
        return
    if isinstance(container, dict):
        pairs = [(_plain_key(key), item) for key, item in dict.items(container)]
        container.clear()
        container.update(dict(pairs))  # a Counter adds up what it is given
    else:
        members = list(map(_plain_key, container))
        container.clear()
        container.update(members)


def _plain_key(key: Any) -> Any:
    if isinstance(key, tuple):
        items = list(map(_plain_key, key))
        return type(key)(*items) if hasattr(key, "_fields") else type(key)(items)
    return plain(key)


def scrubbed(value: Any, seen: set[int] | None = None) -> Any:
    """``value`` with ordinary numbers; containers are changed where they are."""
    if isinstance(value, OPEN):
        return plain(value)
    seen = set() if seen is None else seen
    if id(value) in seen:
        return value
    kind = type(value)
    if kind is list or kind is deque:
        seen.add(id(value))
        for i, item in enumerate(value):
            new = scrubbed(item, seen)
            if new is not item:
                value[i] = new
    elif isinstance(value, dict):
        seen.add(id(value))
        plain_keys(value)
        for key, item in list(value.items()):
            new = scrubbed(item, seen)
            if new is not item:
                value[key] = new
    elif isinstance(value, tuple):
        items = [scrubbed(item, seen) for item in value]
        if any(a is not b for a, b in zip(items, value)):
            return kind(*items) if hasattr(value, "_fields") else kind(items)
    elif kind is set:
        plain_keys(value)
    elif kind is frozenset:
        if any(map(is_open, value)):
            return frozenset(map(_plain_key, value))
    elif kind is slice:
        limits = (value.start, value.stop, value.step)
        if any(isinstance(limit, OPEN) for limit in limits):
            return slice(*map(plain, limits))
    elif kind is FunctionType:
        seen.add(id(value))
        scrubbed(vars(value), seen)
        for cell in value.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:  # nothing yet
                continue
            new = scrubbed(held, seen)
            if new is not held:
                cell.cell_contents = new
    elif hasattr(value, "__dict__") and not isinstance(value, (type, Value)):
        if kind.__module__ not in ("builtins", "types") and not callable(value):
            seen.add(id(value))
            scrubbed(vars(value), seen) if isinstance(vars(value), dict) else None
    return value


def forget_numbers(tensors: Iterable[Any]) -> None:
    """Ordinary numbers in what autograd saved for these tensors."""
    open_ = [tensor._node for tensor in tensors if tensor._node is not None]
    seen: set[int] = set()
    while open_:
        node = open_.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        saved = getattr(node, "saved", None)
        if isinstance(saved, list):
            saved[:] = [map_aggregate(item, plain) for item in saved]
        context = getattr(node, "ctx", None)
        if context is not None:
            scrubbed(vars(context))
        open_ += [edge for edge in node.next_edges if hasattr(edge, "next_edges")]
