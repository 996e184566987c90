"""From the arguments that a user wrote to the complete tuple in the order of the schema."""

from __future__ import annotations

from typing import Any

from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.schema import REQUIRED

__all__ = ["complete", "completed", "misfit", "mismatch"]

#: other spellings that PyTorch accepts: NumPy's, those of methods beside functions', and names
#: that are no Python identifiers. The first that the operator has is meant.
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "axis": ("dim",),
    "keepdims": ("keepdim",),
    "input": ("self",),
    "x": ("self",),
    "tensor": ("self",),
    "logits": ("self",),
    "from": ("low",),
    "to": ("high",),
    "split_size": ("split_size_or_sections",),
    "sections": ("indices_or_sections",),
    "indices": ("indices_or_sections",),
    "element": ("elements",),
    "test_element": ("test_elements",),
    "A": ("self",),
    "a": ("self",),
    "b": ("other", "B"),
    "other": ("B",),
    "dim0": ("axis0",),
    "dim1": ("axis1",),
    "train": ("training",),
    "size": ("shape",),
}
#: the ``inside`` of an error whose own text names the call
_IN_TEXT = ""
#: calls with more positional arguments are planned anew each time: x.view(1, 2, ...), cat(*many)
_PLANNED = 16


class _Plan:
    """Where each argument comes from in calls with so many positions and these keywords.

    Attributes:
        spread: position from which on the positional arguments are one list, or None.
        rest: for each parameter after the positional arguments the keyword that gives it, or
            None where it has its default.
        defaults: parallel to ``rest``.
    """

    __slots__ = ("defaults", "rest", "spread")

    def __init__(
        self, spread: int | None, rest: tuple[str | None, ...], defaults: tuple[Any, ...]
    ) -> None:
        self.spread = spread
        self.rest = rest
        self.defaults = defaults


#: what the last positional parameter may be to take all arguments that are left
_SPREAD = frozenset(("IntList", "list[Tensor]", "Index"))


def _plan(op: Operator, count: int, keywords: tuple[str, ...]) -> _Plan | str:
    """The plan for such calls, or why they do not fit the signature."""
    params, positional, spread = op.schema.params, op.positional, None
    if count > positional:
        # x.view(2, 3), meshgrid(x, y): the last positional list takes all that is left
        last = positional - 1
        if last < 0 or params[last].kind not in _SPREAD:
            plural = "" if positional == 1 else "s"
            return f"takes {positional} positional argument{plural}, got {count}"
        spread, count = last, positional
    given: dict[str, str] = {}
    names = {p.name for p in params}
    for name in keywords:
        target = name
        if name not in names:
            spellings = _SPELLINGS.get(name, (name,))
            target = next((s for s in spellings if s in names), spellings[0])
            if target == "self" and target not in names and params and params[0].is_tensor:
                target = params[0].name
        if target not in names:
            return f"got an unexpected keyword argument {name!r}"
        if target in given or any(p.name == target for p in params[:count]):
            return f"got several values for argument {target!r}"
        given[target] = name
    for param in params[count:]:
        if param.name not in given and param.default is REQUIRED:
            return f"missing the argument {param.name!r}"
    rest = params[count:]
    return _Plan(spread, tuple(given.get(p.name) for p in rest), tuple(p.default for p in rest))


def completed(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | str:
    """The full positional argument tuple in schema order, or why there is none."""
    key: tuple[Any, ...]
    if len(kwargs) == 1:  # the commonest case, without a list in between
        for name in kwargs:
            key = (len(args), name)
    else:
        key = (len(args), *kwargs)
    plan = op.plans.get(key)
    if plan is None:
        plan = _plan(op, len(args), tuple(kwargs))
        if len(args) <= _PLANNED:
            op.plans[key] = plan
    if isinstance(plan, str):
        return plan
    if plan.spread is not None:
        if any(isinstance(a, bool) for a in args[plan.spread :]):  # a flag of another signature
            return f"got a bool among the {op.schema.params[plan.spread].name!r}"
        args = (*args[: plan.spread], tuple(args[plan.spread :]))
    if not plan.rest:
        return args
    full = list(args)
    index = 0
    for keyword in plan.rest:
        full.append(plan.defaults[index] if keyword is None else kwargs[keyword])
        index += 1
    return tuple(full)


def misfit(op: Operator, count: int, keywords: tuple[str, ...]) -> str | None:
    """Why calls with ``count`` positional arguments and these keywords fit no signature of ``op``.

    None where they fit one, of its overloads or with ``out=``.
    """
    keywords = tuple([name for name in keywords if name != "out"])
    overloads = op.overloads if op.inplace_of is None else op.inplace_of.overloads
    found: str | None = None
    for form in (op, *overloads):
        plan = _plan(form, count, keywords)
        if not isinstance(plan, str):
            return None
        found = found or plan
    return found


def complete(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The full positional argument tuple in schema order; raises where it does not fit."""
    full = completed(op, args, kwargs)
    if isinstance(full, str):
        raise mismatch(op, full)
    return full


def mismatch(op: Operator, problem: str) -> DTypeError:
    """The error of arguments that do not fit the signature of ``op``."""
    error = DTypeError(f"{op.name}() {problem}", fix=f"the signature is {op.signature}")
    error.inside = _IN_TEXT
    return error
