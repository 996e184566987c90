"""Sizes that differ from call to call: a captured program gets symbols in their place.

The program runs on tensors that hold the example's data and show it symbols for the open sizes
(:class:`Sized`). What it computes from a size is an expression over the symbols, what it asks of
one is a guard of the program, and a size that it needs as a number - for ``range``, as a key of a
dict - holds for that number only. Shapes of results come from the rules of the operators, and are
held to those of the example. Such a run leaves nothing behind: it is taken back, and the call is
served by the program that it gave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any
from weakref import ref

from coredispatch.frontend.compiling.arguments import Arguments, rebuilt
from coredispatch.frontend.compiling.numbers import Sym, plain
from coredispatch.frontend.compiling.recording import BY_GUARDS, Recorder, written_to
from coredispatch.frontend.compiling.replaced import SizeOf, grown, order_of
from coredispatch.frontend.compiling.result_shapes import shaped_by_numbers
from coredispatch.frontend.compiling.switches import capturing_nothing
from coredispatch.frontend.compiling.text import Text
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.graph import info_of, map_aggregate
from coredispatch.graph.calls import abstract
from coredispatch.graph.capture import source
from coredispatch.graph.symbols import Expression, Guard, Ratio, Size, SymbolTable
from coredispatch.graph.targets import spelled
from coredispatch.plugin import Device, Value, Wrapper, key_bit, link_results
from coredispatch.registry.wiring import HOOKS

__all__ = ["Length", "OpenSizes", "Sized", "mark", "opened", "questions", "shown", "tangent"]

_META = Device("meta")


class _Seen:
    """What both kinds of numbers show of themselves: their texts are those of numbers."""

    __slots__ = ()
    _forced: Callable[[], Any]

    def __repr__(self) -> str:
        return repr(self._forced())

    def __str__(self) -> str:
        return str(self._forced())

    def __format__(self, spec: str) -> str:
        return format(self._forced(), spec)


class Length(_Seen, Size):
    """An open size, as the program sees it: ``isinstance(n, int)`` is true."""

    __slots__ = ()
    __class__ = property(lambda self: int)


class Fraction(_Seen, Ratio):
    """A quotient of open sizes: ``isinstance(n, float)`` is true."""

    __slots__ = ()
    __class__ = property(lambda self: float)


class Sized(Wrapper):
    """A tensor of the example, ``value``, that shows ``sizes`` for a shape."""

    layer = "compile"
    sizes: tuple[Any, ...]

    @property
    def shape(self) -> Any:
        """The sizes: ints, and symbols."""
        return self.sizes

    def own_strides(self) -> tuple[Any, ...]:
        """Those of the dimensions in the order in which they lie in the example."""
        raw: Any = self.value.raw
        order = order_of(raw)
        if order is None:
            return super().own_strides()  # type: ignore[return-value]
        strides: list[Any] = [1] * len(order)
        step: Any = 1
        for dim in reversed(order):
            strides[dim] = step
            step = step * self.sizes[dim]
        return tuple(strides)

    def describe(self) -> str:
        """The tensor, and its sizes."""
        return f"{self.value!r} of open sizes"


# -- which sizes are open --------------------------------------------------------------------------

#: id(tensor) -> (the tensor, the dims that vary, whether it is an error where they do not, the
#: dims that do not vary)
_MARKS: dict[int, tuple[Any, set[int], bool, set[int]]] = {}


def mark(tensor: Any, index: Any, kind: str) -> None:
    """Note that dimensions vary (``kind`` "dynamic", or "maybe"), or do not ("static")."""
    dims = range(tensor.ndim) if index is None else index
    key = id(tensor)
    for dim in dims if isinstance(dims, (tuple, list, range)) else (dims,):
        if not -tensor.ndim <= dim < tensor.ndim:
            raise IndexError(f"a tensor of shape {tuple(tensor.shape)} has no dimension {dim}")
        known = _MARKS.get(key)
        if known is None:
            known = (ref(tensor, lambda _: _MARKS.pop(key, None)), set(), False, set())
        _, open_, strict, fixed = known
        dim %= tensor.ndim
        (fixed if kind == "static" else open_).add(dim)
        (open_ if kind == "static" else fixed).discard(dim)
        _MARKS[key] = (known[0], open_, strict or kind == "dynamic", fixed)


def dims_marked(tensor: Any) -> tuple[set[int], bool, set[int]]:
    """The dimensions of a tensor that vary, whether they must, and those that do not vary."""
    known = _MARKS.get(id(tensor))
    return (set(), False, set()) if known is None or known[0]() is not tensor else known[1:]


def wanted(given: Arguments, before: list[Any] | None, every: bool) -> set[tuple[int, int]]:
    """The ``(tensor, dim)`` among the arguments that are to be open.

    Args:
        given: the arguments.
        before: the shapes of the tensors in an earlier call, whose sizes may differ from these.
        every: whether all sizes are to be open.
    """
    found = set()
    tensors = given.tensors
    same = before is not None and len(before) == len(tensors)
    for place, tensor in enumerate(tensors):
        open_, _, fixed = dims_marked(tensor)
        found |= {(place, dim) for dim in open_}
        then = before[place] if same and before is not None else None
        for dim, n in enumerate(tensor.raw.shape):
            differs = then is not None and len(then) == len(tensor.raw.shape) and then[dim] != n
            if (every or differs) and dim not in fixed:
                found.add((place, dim))
    return found


class OpenSizes:
    """Which sizes of a function's arguments are open.

    Attributes:
        open: ``(tensor, dim)`` of those that are; ``("number", place)`` of numbers that decide any.
        fixed: those that the program needs as numbers -> the line that does, None if nobody knows.
        state: place in Python's state -> path of a tensor there -> the dimensions that differ.
        state_numbers: the places in Python's state of numbers that decide sizes.
        fixed_state: ``(place, path, dim)``, or the place of a number -> which size the program
            needs as a number, and where.
        problem: why no size is open any more, with the line; None while some may be.
    """

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self.open: set[tuple[Any, int]] = set()
        self.fixed: dict[tuple[Any, int], Any] = {}
        self.state: dict[Any, dict[Any, set[int]]] = {}
        self.state_numbers: set[Any] = set()
        self.fixed_state: dict[Any, tuple[str, Any]] = {}
        self.problem: tuple[str, Any] | None = None
        self.before: list[Any] | None = None

    def seen(self, given: Arguments) -> None:
        """Note the sizes of a call that was captured as it is."""
        self.before = [tensor.raw.shape for tensor in given.tensors]

    def extend(self, given: Arguments) -> bool:
        """Open what this call says is to be open; whether there is more than before."""
        if self.dynamic is False or self.problem is not None:
            return False
        found = wanted(given, self.before, self.dynamic is True) - set(self.fixed) - self.open
        self.open |= found
        return bool(found)

    def settled(self, capture: Any) -> bool:
        """Close the sizes that a captured program needs as numbers; whether there are any."""
        table, shapes = capture.recorder.table, capture.outside.open_shapes
        forced = {name: guard for guard in table.guards if guard.forced for name in guard.names()}
        for place, shape in shapes.items():
            for dim, n in enumerate(shape):
                if n in forced:
                    _check_mark(capture.outside.tensors[place], dim, forced[n])
                    self.open.discard((place, dim))
                    self.fixed[place, dim] = forced[n].where
        for number, name in capture.outside.open_numbers.items():
            if name in forced:
                self.open.discard(("number", number))
                self.fixed["number", number] = forced[name].where
        for name in capture.places.keys() & forced.keys():
            for size in capture.places[name]:
                self._fix(size, forced[name].where)
        return bool(forced)

    def _fix(self, size: Any, where: Any) -> None:
        if not isinstance(size, SizeOf):
            self.fixed_state[size.place] = size.how, where
            self.state_numbers.discard(size.place)
            return
        place, path = size.part.record.place, size.part.path
        self.fixed_state[place, path, size.dim] = size.how, where
        dims = self.state.get(place, {})
        dims.get(path, set()).discard(size.dim)
        if not any(dims.values()):
            self.state.pop(place, None)

    def differ(self, place: Any, now: Any, then: Any) -> bool:
        """Open the sizes in which tensors at a place of the state differ; whether there are any."""
        if self.dynamic is False or self.problem is not None:
            return False
        found = {
            path: {dim for dim in dims if (place, path, dim) not in self.fixed_state}
            for path, dims in grown(now, then).items()
        }
        known = self.state.get(place, {})
        if not found or not all(found.values()):  # a number remains, and differs
            return False
        if all(dims <= known.get(path, set()) for path, dims in found.items()):
            return True
        self.state[place] = {p: known.get(p, set()) | found.get(p, set()) for p in {*known, *found}}
        return True

    def close_state(self, capture: Any, where: Any) -> bool:
        """Take sizes of the state for numbers, where no program came of them."""
        for sizes in capture.places.values():
            for size in sizes:
                self._fix(size, where)
        return bool(capture.places)

    def extend_numbers(self, given: Arguments) -> bool:
        """Open the numbers that came as inputs and decide sizes; whether there are any."""
        if self.dynamic is False or self.problem is not None:
            return False
        found = {
            ("number", place)
            for place, value in enumerate(given.numbers)
            if place in given.moving and type(value) is int and value > 1
        }
        found -= set(self.fixed) | self.open
        self.open |= found
        return bool(found)

    def extend_state(self, numbers: Iterable[Any]) -> bool:
        """Open numbers of the state that decide sizes, by their records; whether there are any."""
        if self.dynamic is False or self.problem is not None:
            return False
        found = {
            record.place for record in numbers if type(record.now()) is int and record.now() > 1
        }
        found -= self.fixed_state.keys() | self.state_numbers
        self.state_numbers |= found
        return bool(found)

    def close_numbers(self, where: Any) -> bool:
        """Take numbers for numbers, where no program came of them; whether any were open."""
        found = [key for key in self.open if key[0] == "number"]
        self.open.difference_update(found)
        self.fixed.update(dict.fromkeys(found, where))
        return bool(found)

    def told(self) -> list[tuple[str, Any]]:
        """Which sizes are numbers that might be open, in words, and the line that needs them."""
        found = [
            (f"Size {dim} of tensor {place} is needed as a number", where)
            for (place, dim), where in self.fixed.items()
            if place != "number"
        ]
        found += [
            (f"{how[0].upper()}{how[1:]} is needed as a number", where)
            for how, where in self.fixed_state.values()
        ]
        if self.problem is not None:
            found.append((f"All sizes are numbers: {self.problem[0]}", self.problem[1]))
        return found

    def give_up(self, why: str, where: Any) -> None:
        """Take all sizes for numbers from now on."""
        self.open, self.state, self.state_numbers = set(), {}, set()
        self.problem = (why, where)

    @property
    def of_state(self) -> bool:
        """Whether sizes of Python's state are open, or numbers there that decide sizes."""
        return bool(self.state or self.state_numbers)


def _check_mark(tensor: Any, dim: int, guard: Guard) -> None:
    """Refuse a dimension that was marked dynamic and is needed as a number."""
    open_, strict, _ = dims_marked(tensor)
    if strict and dim in open_:
        where = "{}:{} in {}".format(*guard.where) if guard.where else "the program"
        raise RuntimeError(
            f"Constraints violated: dimension {dim} of an argument of shape {tuple(tensor.shape)} "
            f"was marked dynamic, and {where} needs it as a number. Use maybe_mark_dynamic, or "
            "compute with the size"
        )


# -- a run on symbols ------------------------------------------------------------------------------


def opened(
    given: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder
) -> tuple[Any, Any, Arguments]:
    """The arguments with tensors that show symbols, and what is known of them."""
    table = SymbolTable(source)
    table.size, table.ratio = Length, Fraction
    symbols = [table.symbol(f"s{k}", n, least=2) for k, n in enumerate(given.sizes)]
    stand_ins: dict[int, Any] = {}
    for place, shape in given.open_shapes.items():
        tensor = given.tensors[place]
        sizes = tuple([n if type(n) is int else symbols[int(n[1:])] for n in shape])
        stand_ins[id(tensor)] = shown(tensor, sizes)
    args, kwargs = _with(stand_ins, given.apart, args), _with(stand_ins, given.apart, kwargs)
    moving = given.moving - set(given.open_numbers)
    made_of = Arguments(args, kwargs, moving, apart=given.apart)
    made_of.leaves += given.sizes
    made_of.sizes = given.sizes
    recorder.table, recorder.symbols, recorder.whole = table, True, False
    recorder.sized = called
    return args, kwargs, made_of


def shown(tensor: Any, sizes: tuple[Any, ...]) -> Any:
    """A tensor from outside that shows symbols for its sizes."""
    inner = HOOKS.value_type(tensor.raw, tensor.keys & ~AUTOGRAD)
    made = Sized.wrap(inner, sizes=sizes)
    made.keys |= tensor.keys & ~key_bit("wrapped")
    if tensor._node is None:
        made._grad = tensor._grad
    return made


def _with(stand_ins: dict[int, Any], apart: Collection[type], value: Any) -> Any:
    """``value`` with other tensors, in containers of its own; new objects are stand-ins, too."""

    def part(value: Any) -> Any:
        if isinstance(value, Value):
            return stand_ins.get(id(value), value)
        if type(value) in (tuple, list):
            return type(value)([part(item) for item in value])
        if type(value) is dict:
            return {k: part(v) for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*[part(item) for item in value])
        return rebuilt(value, part, stand_ins) if type(value) in apart else value

    return part(value)


def called(recorder: Recorder, call: Any, args: tuple[Any, ...]) -> Any:
    """An operator is called with open sizes among its arguments.

    The operator runs on the example; what its result shows for a shape is what its rule says.
    """
    op = call.op
    found: list[tuple[Any, Any]] = []
    inside = map_aggregate(args, lambda value: _inside(value, found))
    if op.name == "to_host" or op.schema.plain and op.name not in BY_GUARDS:
        recorder.refuse("the program reads the elements of a tensor whose sizes are open")
    if shaped_by_numbers(op, args):
        recorder.refuse("a size depends on a number that comes with the call")
    recorder.busy += 1
    try:
        if op.mutates:
            recorder.about_to_write(written_to(op, inside))
        rule = list(map_aggregate(args, _without_data))
        for place, param in enumerate(op.schema.params):
            if param.name == "device" and op.factory:
                rule[place] = _META
        shown = call.redispatch(*rule)
        out = call.redispatch(*inside)
    finally:
        recorder.busy -= 1
    given, named = spelled(op, args)
    given, named = recorder.argument(given), recorder.argument(named)
    recorder.draws = recorder.draws or op.draws(args)
    node = recorder.function(op, given, named)
    own = {id(inner): outer for inner, outer in found}
    made = _shown(recorder, op, out, shown, own)
    if op.view and made is not None:
        views = {id(m): o for m, o in zip(_values(made), _values(out))}
        made = link_results(op, args, made, lambda item, of: _is_view(views.get(id(item), item)))
    if isinstance(made, Value):
        recorder.made(made, node)
    elif isinstance(made, (tuple, list)):
        for i, item in enumerate(made):
            if isinstance(item, Value) and id(item.raw) not in recorder.known:
                recorder.made(item, recorder.getitem(node, i))
    return made


def _is_view(value: Any) -> bool:
    return isinstance(value, Value) and value._view is not None


def _values(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _inside(value: Any, found: list[tuple[Any, Any]]) -> Any:
    """An argument with the example's data."""
    opened = Sized.of(value)
    if opened is not None:
        found.append((opened.value, value))
        return opened.value
    if isinstance(value, Value):
        found.append((value, value))
    return plain(value)


def _without_data(value: Any) -> Any:
    """An argument of which the rule sees shape and dtype."""
    if isinstance(value, Value):
        return abstract(info_of(value))
    if isinstance(value, Sym):
        return value.value
    return _META if isinstance(value, Device) else value


def _shown(recorder: Recorder, op: Any, out: Any, shown: Any, own: dict[int, Any]) -> Any:
    """What the program gets for a result of the example."""
    if isinstance(out, (tuple, list)):
        items = [_shown(recorder, op, *pair, own) for pair in zip(out, shown, strict=True)]
        return type(out)(*items) if hasattr(out, "_fields") else type(out)(items)
    if not isinstance(out, Value):
        return shown if isinstance(shown, Expression) else out
    if id(out) in own:  # written in place
        return own[id(out)]
    sizes = tuple(shown.raw.shape)
    if tuple([plain(n) for n in sizes]) != tuple(out.raw.shape):
        recorder.refuse(f"the rule of {op.name!r} does not tell the shape of its result")
    if not op.view and not any(isinstance(n, Expression) for n in sizes):
        return out
    return Sized.wrap(out, sizes=sizes)


def tangent(out: Any) -> Any:
    """A gradient for a result, of ones."""
    opened = Sized.of(out)
    with capturing_nothing():
        if opened is None:
            return out.detach().new_ones(out.shape)
        inner: Any = opened.value
        return Sized.wrap(inner.new_ones(inner.shape), sizes=opened.sizes)


# -- what was asked --------------------------------------------------------------------------------


def questions(
    table: SymbolTable, count: int, first: int, places: dict[str, list[Any]]
) -> Callable[[list[Any]], bool]:
    """``hold(leaves)``: whether sizes answer what was asked of them as those of the example did.

    Args:
        table: the symbols, and what was asked of them.
        count, first: how many sizes of arguments there are; they are the leaves from ``first`` on.
        places: a symbol of Python's state -> where it stands; what stands there is equal.
    """
    text = Text()
    text.line("try:")
    names = [name for name in table.variables if name not in places]
    if names:
        text.line(f"    {', '.join(names[:count])}, = leaves[{first}:]")
    for name, sizes in places.items():
        text.line(f"    {name} = {text.name(sizes[0].now)}()")
        for size in sizes[1:]:
            text.line(f"    if {text.name(size.now)}() != {name}: return False")
        text.line(f"    if {name} < 2: return False")
    asked = " and ".join([f"({guard})" for guard in table.guards]) or "True"
    text.line(f"    return {asked}")
    text.line("except (ZeroDivisionError, LookupError, AttributeError, TypeError):")
    text.line("    return False")
    hold: Callable[[list[Any]], bool] = text.function("hold(leaves)")
    return hold
