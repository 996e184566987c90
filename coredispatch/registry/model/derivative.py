"""Derivative rules: formulas read once, so that recording a call is a few list accesses.

A rule has one formula per differentiable parameter, or one *joint* formula that returns the
gradients of all of them, as a fused backward kernel does. What a call saves follows from which of
its inputs require grad: for each combination there is a :class:`SavePlan`, made on first use.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import Any, Final

from coredispatch.registry.model.value import Value

# Where a parameter of a formula comes from: number << NUMBER | kind.
NUMBER: Final = 4
KIND: Final = 15  # as many bits
ARGUMENT: Final = 0  # the operator's own parameter of that number
SHAPE: Final = 1  # its shape (of each item, for a list)
GRAD: Final = 2  # the gradient; of several outputs a tuple, with zeros where none came
GRADS: Final = 3  # the gradients of several outputs, None where none came
GRAD_AT: Final = 4  # the gradient of the output of that number, zeros where none came
OUT: Final = 5  # the output; a tuple of all of them, where there are several
OUT_AT: Final = 6  # the output of that number
SAVED: Final = 7  # in a plan: what was saved at that place
DEVICE: Final = 8  # the device of the operator's own parameter of that number
STRIDES: Final = 9  # how it lies in its storage: (strides, offset), None where that is row-major


def saved_argument(args: tuple[Any, ...], source: int) -> Any:
    """What a node keeps for ``source``: an argument, or its shape, device or strides if they do.

    These are no tensors: they hold no memory, and later in-place writes do not invalidate them.
    """
    argument = args[source >> NUMBER]
    if source & KIND == ARGUMENT:
        return argument
    if source & KIND == DEVICE:
        return getattr(argument, "device", None)
    if source & KIND == STRIDES:
        return getattr(argument, "_placement", None)
    if isinstance(argument, Value):
        return argument.raw.shape
    if isinstance(argument, (list, tuple)):
        return [item.raw.shape for item in argument]
    return ()


class Formula:
    """``fn(...)`` with the source of each of its parameters, in order."""

    def __init__(self, fn: Any, sources: list[int]) -> None:
        self.fn: Any = fn
        self.sources: list[int] = sources


def sources_of(
    parameters: list[str], names: list[str], multi_output: bool
) -> tuple[list[int], str | None]:
    """The source of each parameter of a formula, and the first parameter that has none.

    ``names`` are the parameters of the operator.
    """
    sources: list[int] = []
    for parameter in parameters:
        word = parameter.rstrip("0123456789")
        number = parameter[len(word) :]
        shaped = parameter.removesuffix("_shape")
        placed = parameter.removesuffix("_device")
        laid = parameter.removesuffix("_strides")
        if parameter == "grad":
            sources.append(GRAD)
        elif parameter == "out":
            sources.append(OUT)
        elif parameter in names:
            sources.append(names.index(parameter) << NUMBER | ARGUMENT)
        elif parameter == "grads" and multi_output:
            sources.append(GRADS)
        elif word in ("grad", "out") and number and multi_output:
            sources.append(int(number) << NUMBER | (GRAD_AT if word == "grad" else OUT_AT))
        elif shaped != parameter and shaped in names:
            sources.append(names.index(shaped) << NUMBER | SHAPE)
        elif placed != parameter and placed in names:
            sources.append(names.index(placed) << NUMBER | DEVICE)
        elif laid != parameter and laid in names:
            sources.append(names.index(laid) << NUMBER | STRIDES)
        else:
            return sources, parameter
    return sources, None


class FormulaCall:
    """A formula as a plan calls it: ``takes`` are its sources, with places among what is saved."""

    def __init__(self, index: int, fn: Any, takes: list[int]) -> None:
        self.index: int = index  # which differentiable parameter its result is for; -1: all
        self.fn: Any = fn
        self.takes: list[int] = takes


class SavePlan:
    """What a call saves for a certain set of inputs that require grad, and what it then runs."""

    def __init__(self, rule: VjpRule, formulas: list[Any]) -> None:
        self.rule: VjpRule = rule
        self.saves: list[int] = []  # sources: arguments first, then shapes and devices
        self.outs: list[int] = []  # numbers of the outputs that are read
        self.all_outs: bool = False  # all of them, however many there are
        self.calls: list[FormulaCall] = []
        for formula in formulas:
            if formula is not None:
                for source in formula.sources:
                    if source & KIND == ARGUMENT and source not in self.saves:
                        self.saves.append(source)
        self.arguments: list[int] = [source >> NUMBER for source in self.saves]  # positions
        self.shapes: list[int] = []  # sources
        index = -1 if rule.joint is not None else 0
        for formula in formulas:
            if formula is not None:
                self.calls.append(self.call_of(index, formula))
            index += 1

    def saves_nothing(self) -> bool:
        """Whether no call has to keep anything."""
        return not self.saves and not self.outs and not self.all_outs

    def call_of(self, index: int, formula: Formula) -> FormulaCall:
        """``formula`` with places for what it reads."""
        takes: list[int] = []
        for source in formula.sources:
            kind = source & KIND
            if kind in (ARGUMENT, SHAPE, DEVICE, STRIDES):
                if source not in self.saves:
                    self.saves.append(source)
                    self.shapes.append(source)
                takes.append(self.saves.index(source) << NUMBER | SAVED)
                continue
            if kind == OUT and self.rule.multi_output:
                self.all_outs = True
            elif kind == OUT or kind == OUT_AT:
                number = source >> NUMBER
                if number not in self.outs:
                    self.outs.append(number)
            takes.append(source)
        return FormulaCall(index, formula.fn, takes)


class VjpRule:
    """The derivative of an operator.

    ``tensors`` are the positions of its differentiable parameters, in order, ``lists`` those of
    them that are lists of tensors. Either ``joint`` is a formula that returns one gradient for
    each of them, or ``formulas`` has one formula (or None: no gradient) per entry of ``tensors``.
    """

    def __init__(
        self,
        joint: Formula | None,
        formulas: list[Any],
        tensors: list[int],
        lists: list[int],
        multi_output: bool,
        unbroadcast: bool,
    ) -> None:
        self.joint: Formula | None = joint
        self.formulas: list[Any] = formulas
        self.tensors: list[int] = tensors
        self.lists: list[int] = lists
        self.multi_output: bool = multi_output
        self.unbroadcast: bool = unbroadcast  # gradients are summed to the input's shape
        # By the inputs that require grad, one bit per entry of tensors.
        self.plans: list[Any] = [None] * (1 << len(tensors))
        # The plan of every call, where it does not depend on what requires grad.
        self.only_plan: SavePlan | None = None
        everything = SavePlan(self, formulas if joint is None else [joint])
        # What a plan computes and nobody wants, the engine does not ask for.
        if joint is not None or len(tensors) == 1 or everything.saves_nothing():
            self.only_plan = everything

    def plan(self, mask: int) -> SavePlan:
        """The plan for the inputs whose bits are set in ``mask``."""
        only = self.only_plan
        if only is not None:
            return only
        found: Any = self.plans[mask]
        if found is None:
            wanted: list[Any] = []
            bit = 1
            for formula in self.formulas:
                wanted.append(formula if mask & bit else None)
                bit <<= 1
            found = SavePlan(self, wanted)
            self.plans[mask] = found
        plan: SavePlan = found
        return plan

    def plan_of(self, args: tuple[Any, ...], key: int) -> SavePlan:
        """The plan for a call in which the arguments that carry ``key`` require grad."""
        mask = 0
        bit = 1
        for position in self.tensors:
            argument = args[position]
            items = argument if isinstance(argument, (list, tuple)) else (argument,)
            for item in items:
                if isinstance(item, Value) and item.keys & key:
                    mask |= bit
            bit <<= 1
        return self.plan(mask)
