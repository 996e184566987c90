"""What the shape of a result depends on, beside the shapes of tensors: values, and numbers.

A capture goes on with the shapes of its one call. Where these follow from elements of tensors, or
from numbers that the program computes with, it has to say so.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.compiling.numbers import Sym, plain
from coredispatch.frontend.compiling.switches import capturing_nothing
from coredispatch.graph import map_aggregate
from coredispatch.graph.calls import abstract
from coredispatch.graph.values import ValueInfo, info_of
from coredispatch.ops.support.rules import broadcast, same_shape
from coredispatch.plugin import DataDependentError, Device, Value, dispatch
from coredispatch.registry.around.checks import came_by_signal

__all__ = ["ShapesOf", "has_sym", "shaped_by_numbers", "shaped_by_values"]

_META = Device("meta")
#: (operator, dtypes of its tensors) -> whether the shape of its result depends on their values
_OPEN: dict[Any, bool] = {}


def shaped_by_values(op: Any, args: tuple[Any, ...]) -> bool:
    """Whether elements of its arguments decide the shape of an operator's results."""
    dtypes: list[Any] = []

    def look(value: Any) -> Any:
        if isinstance(value, Value):
            dtypes.append(value.raw.dtype)
        return value

    map_aggregate(args, look)
    key = (op, tuple(dtypes))
    known = _OPEN.get(key)
    if known is None:
        known = False
        if dtypes and not op.mutates:
            try:
                with capturing_nothing():
                    dispatch(op, map_aggregate(args, _without_data))
            except DataDependentError:
                known = True
            except Exception as error:  # without data an operator may fail in many ways: no answer
                if came_by_signal(error):
                    raise
                known = False
        _OPEN[key] = known
    return known


class ShapesOf:
    """The shapes of what an operator returns, as a function of numbers among its arguments.

    Tensors among them have one shape: that is a guard. Equal ones are asked for the same thing.
    """

    def __init__(self, op: Any, args: tuple[Any, ...]) -> None:
        self.op = op
        self.numbers: list[Sym] = []
        self.args = map_aggregate(args, self._leaf)
        self.known: dict[Any, Any] = {}
        self.__name__ = f"shapes_of_{op.name}"

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, Sym):
            self.numbers.append(value)
            return _Number(len(self.numbers) - 1)
        if isinstance(value, Value):
            return info_of(value)
        return _META if isinstance(value, Device) else value

    def __call__(self, *numbers: Any) -> Any:
        """The shapes; None where the operator refuses the numbers, or no rule tells."""
        if numbers not in self.known:
            if len(self.known) > 1000:
                self.known.clear()
            self.known[numbers] = self._asked(numbers)
        return self.known[numbers]

    def _asked(self, numbers: tuple[Any, ...]) -> Any:
        def given(value: Any) -> Any:
            if isinstance(value, ValueInfo):
                return abstract(value)
            return numbers[value.place] if isinstance(value, _Number) else value

        args = list(map_aggregate(self.args, given))
        for place, param in enumerate(self.op.schema.params):
            if param.name == "device" and self.op.factory:
                args[place] = _META
        try:
            with capturing_nothing():
                out = dispatch(self.op, tuple(args))
        except Exception as error:  # the call itself says what is wrong with the numbers
            if came_by_signal(error):
                raise
            return None
        results = out if isinstance(out, (tuple, list)) else [out]
        return [tuple(item.shape) for item in results if isinstance(item, Value)]  # type: ignore[attr-defined]

    def _same(self) -> Any:
        return self.op, repr(self.args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapesOf) and self._same() == other._same()

    def __hash__(self) -> int:
        return hash(self._same())


class _Number:
    """The place of a number among those that come with the call."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __repr__(self) -> str:
        return f"number {self.place}"


def shaped_by_numbers(op: Any, args: tuple[Any, ...]) -> bool:
    """Whether numbers that the program computes with may say what shape the results have."""
    if op.mutates or op.out_rule in (broadcast, same_shape):
        return False
    return any(has_sym(argument) for argument in args)


def _without_data(value: Any) -> Any:
    if isinstance(value, Value):
        return value.detach().to("meta")  # type: ignore[attr-defined]
    return _META if isinstance(value, Device) else plain(value)


def has_sym(argument: Any) -> bool:
    """Whether a number that knows its node is among the parts of an argument."""
    if isinstance(argument, (tuple, list)):
        return any(map(has_sym, argument))
    if isinstance(argument, slice):
        return any(map(has_sym, (argument.start, argument.stop, argument.step)))
    return isinstance(argument, Sym)
