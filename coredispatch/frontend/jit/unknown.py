"""Numbers of a compiled program that is followed without data: some are only known when it runs.

``int(x.sum())``, the turn of a loop, or a count that a branch changes: Python computes with numbers
there, and a graph without Python has tensors without dimensions in their place.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.graph.graph import GraphError
from coredispatch.graph.node import map_aggregate
from coredispatch.graph.symbols import EXTREMES, Expression
from coredispatch.graph.symbols import computed as computed_size
from coredispatch.plugin import Operator, default_dtype, dtypes
from coredispatch.registry import TABLE

__all__ = [
    "Maybe",
    "Range",
    "Unknown",
    "as_number",
    "as_tensor",
    "computed",
    "holds_unknown",
    "kind_of",
    "operands",
    "read",
    "there",
    "where",
    "write",
]

_DTYPES = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64}
_MIN, _MAX = EXTREMES  # Python's own: those of a program are others while it is exported
_ADVICE = "compute with tensors there, or make it a number that is known: an argument or a constant"


class Unknown:
    """A number that is only known when the program runs.

    Attributes:
        tensor: it as a tensor without dimensions: of bool, int64 or float64.
        kind: ``bool``, ``int`` or ``float``.
        natural: whether it is never negative.
        negated: what it is the opposite of, of a bool that ``not`` gave.
    """

    __slots__ = ("kind", "natural", "negated", "tensor")

    def __init__(self, tensor: Tensor, kind: type, natural: bool = False) -> None:
        self.tensor, self.kind, self.natural = tensor, kind, natural
        self.negated: Unknown | None = None

    def __repr__(self) -> str:
        return f"<{self.kind.__name__} that is computed when the program runs>"


class Maybe:
    """What may be None when the program runs.

    Attributes:
        present: whether it is not: a bool, an unknown one as a rule.
        value: what it is then.
    """

    __slots__ = ("present", "value")

    def __init__(self, present: Any, value: Any) -> None:
        self.present, self.value = present, value

    def __repr__(self) -> str:
        return "<a value that may be None when the program runs>"


def where(value: Any, condition: Unknown, holds: bool) -> Any:
    """``value`` where it is known whether a condition holds."""
    known = {id(condition): holds}
    if condition.negated is not None:
        known[id(condition.negated)] = not holds

    def leaf(item: Any) -> Any:
        if isinstance(item, Unknown):
            return known.get(id(item), item)
        if isinstance(item, Maybe):
            present = leaf(item.present)
            inside = map_aggregate(item.value, leaf)
            if isinstance(present, bool):
                return inside if present else None
            return Maybe(present, inside)
        return item

    return map_aggregate(value, leaf)


def there(value: Any) -> Any:
    """A value where it is used: a program asks for None before, which its types prove."""
    return map_aggregate(value, lambda leaf: there(leaf.value) if isinstance(leaf, Maybe) else leaf)


class Range:
    """``range`` with ends that are open or unknown."""

    def __init__(self, *ends: Any) -> None:
        start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1)[:3]
        if not isinstance(step, int) or step == 0:
            raise GraphError(f"range() has the step {step!r}", fix="write a step that is a number")
        self.start, self.stop, self.step = start, stop, step

    def count(self) -> Any:
        """The number of turns, which may come out negative for none."""
        across = computed(operator.sub, (self.stop, self.start))
        if self.step < 0:
            across = computed(operator.neg, (across,))
        return _divided_up(across, abs(self.step))

    def at(self, turn: Any) -> Any:
        """The number of a turn."""
        return computed(operator.add, (self.start, computed(operator.mul, (turn, self.step))))


def _divided_up(number: Any, by: int) -> Any:
    if by == 1:
        return number
    return computed(operator.floordiv, (computed(operator.add, (number, by - 1)), by))


def holds_unknown(value: Any) -> bool:
    """Whether an unknown number, or what may be None, is in a value, however deep."""
    found: list[bool] = []
    map_aggregate(value, lambda leaf: found.append(isinstance(leaf, (Unknown, Maybe))))
    return any(found)


def kind_of(value: Any) -> type | None:
    """``bool``, ``int`` or ``float`` of a number, open sizes and unknown ones too; else None."""
    if isinstance(value, Unknown):
        return value.kind
    if isinstance(value, Expression):
        return int
    return next((kind for kind in (bool, int, float) if isinstance(value, kind)), None)


def as_number(tensor: Tensor, kind: type | None = None) -> Unknown:
    """``bool(tensor)``, ``int``, ``float``, or ``tensor.item()``. Raises for several elements."""
    if math.prod(tensor.shape) != 1:
        raise GraphError(
            f"a tensor of shape {tuple(tensor.shape)} is read as one number",
            fix="reduce it: x.sum(), x.any(), x.all()",
        )
    dtype = tensor.dtype
    if dtype.is_complex:
        raise GraphError("a complex element is read as a number", fix="read its real part")
    own = bool if dtype is dtypes.bool_ else float if dtype.is_floating_point else int
    plain = tensor.detach() if dtype.is_floating_point else tensor
    plain = plain.reshape(()) if tensor.ndim else plain
    number = Unknown(_to(plain, own), own)
    return number if kind is None else computed(kind, (number,))


def as_tensor(value: Any, kind: type, device: Any = None) -> Tensor:
    """A number of this kind as a tensor without dimensions."""
    if isinstance(value, Unknown):
        return _to(value.tensor, kind)
    made: Tensor = TABLE.operator("full")((), value, dtype=_DTYPES[kind], device=device)
    return made


def _to(tensor: Tensor, kind: type) -> Tensor:
    dtype = _DTYPES[kind]
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def _beside(number: Unknown, dtype: Any) -> Tensor:
    """A number as an operand of a tensor of ``dtype``: it counts as little as Python's would."""
    if number.kind is float and not (dtype.is_floating_point or dtype.is_complex):
        dtype = default_dtype()
    elif number.kind is int and dtype is dtypes.bool_:
        dtype = dtypes.int64
    return number.tensor.to(dtype)


# ---- what Python computes with numbers -----------------------------------------------------------


def _compare(function: Any) -> Callable[..., Unknown]:
    def compare(one: Any, other: Any) -> Unknown:
        kind = _common(one, other)
        return Unknown(function(as_tensor(one, kind), as_tensor(other, kind)), bool)

    return compare


def _arithmetic(function: Any) -> Callable[..., Unknown]:
    def compute(one: Any, other: Any) -> Unknown:
        kind = int if _common(one, other) is not float else float
        natural = function in (operator.add, operator.mul) and _natural(one) and _natural(other)
        return Unknown(function(as_tensor(one, kind), as_tensor(other, kind)), kind, natural)

    return compute


def _logic(function: Any) -> Callable[..., Unknown]:
    def compute(one: Any, other: Any) -> Unknown:
        kind = _common(one, other)
        return Unknown(function(as_tensor(one, kind), as_tensor(other, kind)), kind)

    return compute


def _divided(one: Any, other: Any) -> Unknown:
    return Unknown(as_tensor(one, float) / as_tensor(other, float), float)


def _real(name: str, kind: type = float) -> Callable[..., Unknown]:
    op = TABLE.operator(name)

    def compute(*sides: Any) -> Unknown:
        return Unknown(_to(op(*(as_tensor(side, float) for side in sides)), kind), kind)

    return compute


def _extreme(name: str) -> Callable[..., Any]:
    op = TABLE.operator(name)

    def compute(*values: Any) -> Any:
        items = values[0] if len(values) == 1 else values
        best = items[0]
        for item in items[1:]:
            kind = _common(best, item)
            best = Unknown(op(as_tensor(best, kind), as_tensor(item, kind)), kind)
        return best

    return compute


def _signed(function: Any) -> Callable[[Any], Unknown]:
    def compute(value: Any) -> Unknown:
        kind = float if kind_of(value) is float else int
        return Unknown(function(as_tensor(value, kind)), kind, function is operator.abs)

    return compute


def _round(value: Any, *digits: Any) -> Unknown:
    if digits:
        raise GraphError(f"round() of a {_what(value)} to {digits[0]!r} digits", fix=_ADVICE)
    return Unknown(_to(TABLE.operator("round")(as_tensor(value, float)), int), int)


def _truth(value: Unknown) -> Unknown:
    return value if value.kind is bool else Unknown(value.tensor != 0, bool)


def _not(value: Unknown) -> Unknown:
    truth = _truth(value)
    if truth.negated is not None:
        return truth.negated
    made = Unknown(TABLE.operator("logical_not")(truth.tensor), bool)
    made.negated = truth
    return made


def _common(one: Any, other: Any) -> type:
    kinds = kind_of(one), kind_of(other)
    return float if float in kinds else int if int in kinds else bool


def _natural(value: Any) -> bool:
    if isinstance(value, Unknown):
        return value.natural
    return isinstance(value, Expression) or isinstance(value, int) and value >= 0


def _functions() -> dict[Any, Callable[..., Any]]:
    made: dict[Any, Callable[..., Any]] = {
        operator.truediv: _divided,
        operator.itruediv: _divided,
        operator.not_: _not,
        operator.pos: lambda v: v,
        operator.neg: _signed(operator.neg),
        operator.abs: _signed(operator.abs),
        builtins.abs: _signed(operator.abs),
        _MIN: _extreme("minimum"),
        _MAX: _extreme("maximum"),
        builtins.round: _round,
        builtins.bool: _truth,
        builtins.int: lambda v: Unknown(as_tensor(v, int), int, _natural(v)),
        builtins.float: lambda v: Unknown(as_tensor(v, float), float),
        builtins.range: Range,
        operator.is_: lambda one, other: False,
        operator.is_not: lambda one, other: True,
        math.floor: _real("floor", int),
        math.ceil: _real("ceil", int),
        math.trunc: _real("trunc", int),
        math.fabs: _real("abs"),
        math.isnan: _real("isnan", bool),
        math.isinf: _real("isinf", bool),
        math.isfinite: _real("isfinite", bool),
        math.pow: _real("pow"),
    }
    for name in "add sub mul floordiv mod pow".split():
        made[getattr(operator, name)] = made[getattr(operator, f"i{name}")] = _arithmetic(
            getattr(operator, name)
        )
    for name in "and_ or_ xor".split():
        made[getattr(operator, name)] = _logic(getattr(operator, name))
    for name in "lt le gt ge eq ne".split():
        made[getattr(operator, name)] = _compare(getattr(operator, name))
    for name in (
        "acos acosh asin asinh atan atan2 atanh cos cosh erf erfc exp expm1 lgamma log log10 log1p "
        "log2 sin sinh sqrt tan tanh"
    ).split():
        made[getattr(math, name)] = _real(name)
    return made


_FUNCTIONS: dict[Any, Callable[..., Any]] = {}


def computed(function: Any, args: tuple[Any, ...]) -> Any:
    """What a function of Python gives for numbers, unknown ones among them or not.

    Raises :class:`GraphError` where it has no form as operators.
    """
    if not holds_unknown(args):
        if function is builtins.range:
            return Range(*args)
        if function in EXTREMES and len(args) == 2:
            return computed_size(function, *args)
        return function(*args)
    if not _FUNCTIONS:
        _FUNCTIONS.update(_functions())
    known = _FUNCTIONS.get(function)
    numbers = all(kind_of(a) is not None for a in _flat(args))
    if known is None or not numbers and function not in (operator.is_, operator.is_not):
        name = getattr(function, "__name__", function)
        raise GraphError(f"{name}() is called with a {_what(args)}", fix=_ADVICE)
    return known(*args)


def _flat(args: tuple[Any, ...]) -> list[Any]:
    return list(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else list(args)


def _what(value: Any) -> str:
    found: list[str] = []

    def look(leaf: Any) -> None:
        if isinstance(leaf, Unknown):
            found.append(leaf.kind.__name__)

    map_aggregate(value, look)
    return f"{found[0] if found else 'number'} that is computed when the program runs"


# ---- operators -----------------------------------------------------------------------------------


def operands(op: Operator | None, name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of an operator with tensors in the place of unknown numbers.

    Raises :class:`GraphError` where the operator takes no tensor there.
    """
    given: list[tuple[Any, Any]] = []
    names = [param.name for param in op.schema.params] if op is not None else []
    params = {param.name: param for param in op.schema.params} if op is not None else {}
    given += list(zip((*names, *[None] * len(args)), args))
    given += list(kwargs.items())
    tensors = [value for _, value in given if isinstance(value, Tensor)]
    dtype = tensors[0].dtype if tensors else None
    for parameter, value in given:
        fits = isinstance(value, Unknown) and (op is None or params[parameter].is_tensor)
        if holds_unknown(value) and not fits:
            where = f" for {parameter}" if parameter else ""
            raise GraphError(f"{name}() takes no {_what(value)}{where}", fix=_ADVICE)

    def leaf(value: Any) -> Any:
        if not isinstance(value, Unknown):
            return value
        return value.tensor if dtype is None else _beside(value, dtype)

    return map_aggregate(args, leaf), map_aggregate(kwargs, leaf)


# ---- elements ------------------------------------------------------------------------------------


def read(tensor: Tensor, index: Any) -> Tensor:
    """``tensor[index]`` with unknown numbers in the index: the rows are copied."""
    before, numbers = _places(tensor, index)
    found = tensor[before]
    for dim in sorted(numbers, reverse=True):
        row = _row(numbers[dim], found.shape[dim])
        found = found.index_select(dim, row).squeeze(dim)
    return found


def write(tensor: Tensor, index: Any, value: Any) -> None:
    """``tensor[index] = value`` with one unknown number in the index."""
    before, numbers = _places(tensor, index)
    if len(numbers) != 1:
        raise GraphError(
            f"{len(numbers)} of the numbers in the index of an assignment are computed when the "
            "program runs",
            fix="assign to a view with one of them, or use masks and where()",
        )
    ((dim, number),) = numbers.items()
    target = tensor[before]
    shape = [*target.shape[:dim], 1, *target.shape[dim + 1 :]]
    if not isinstance(value, Tensor):
        kind = kind_of(value)
        assert kind is not None
        value = as_tensor(value, kind)
    value = value.to(tensor.dtype)
    if value.ndim > dim and value.ndim == target.ndim - 1:
        value = value.unsqueeze(dim)
    target.index_copy_(dim, _row(number, target.shape[dim]), value.expand(shape))


def _row(number: Unknown, size: Any) -> Tensor:
    """The index as a tensor of one element, counted from the front."""
    row = number.tensor
    if not number.natural:
        row = TABLE.operator("where")(row < 0, row + as_tensor(size, int), row)
    return row.reshape((1,))


def _places(tensor: Tensor, index: Any) -> tuple[Any, dict[int, Unknown]]:
    """The index with all of a dimension in the place of unknown numbers, and where those stand."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(item, (Tensor, list)) or holds_unknown_bound(item) for item in items):
        raise GraphError(
            f"the index {index!r} has a number that is computed when the program runs",
            fix="use index_select, masks or one row (y[i]); ends of slices must be known",
        )
    if Ellipsis in items:
        at = items.index(Ellipsis)
        missing = tensor.ndim - sum(item is not None and item is not Ellipsis for item in items)
        items[at : at + 1] = [slice(None)] * missing
    numbers: dict[int, Unknown] = {}
    dim = 0
    for place, item in enumerate(items):
        if isinstance(item, Unknown):
            numbers[dim] = item
            items[place] = slice(None)
        dim += not isinstance(item, int) or isinstance(item, bool)
    return tuple(items), numbers


def holds_unknown_bound(item: Any) -> bool:
    """Whether an end of a slice is unknown."""
    return isinstance(item, slice) and holds_unknown((item.start, item.stop, item.step))
