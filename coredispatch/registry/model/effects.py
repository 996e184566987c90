"""What a call writes, and what its results share memory with: read from an operator's definition.

``mutates=`` names the parameters an operator writes to, ``view=`` the results that alias an
argument. A declaration that cannot be true is refused here, when the operator is declared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coredispatch.registry.model.errors import SchemaError

__all__ = ["Alias", "Mutation", "aliases_of", "mutations_of"]

#: what a definition may say in ``mutates=``: names, or names with the condition under which
Mutates = tuple[str, ...] | list[str] | Mapping[str, Any]
#: what a definition may say in ``view=``
View = bool | str | Mapping[int | None, str]


@dataclass(frozen=True)
class Mutation:
    """A parameter that is written to: always, or when ``when`` says so of the arguments."""

    name: str
    position: int
    when: Callable[..., bool] | None = None
    reads: tuple[int, ...] = ()  # the positions of the arguments that ``when`` is asked about

    def happens(self, args: tuple[Any, ...]) -> bool:
        """Whether a call with these complete arguments writes to the parameter."""
        return self.when is None or bool(self.when(*[args[i] for i in self.reads]))


@dataclass(frozen=True)
class Alias:
    """A result that shares memory with an argument.

    Attributes:
        result: the number of the result, or None: each of them.
        name, position: the parameter. Of a list parameter, result ``i`` aliases item ``i``.
        certain: False where the operator only *may* return a view.
        itself: the result is the argument itself, which the operator wrote to.
    """

    result: int | None
    name: str
    position: int
    certain: bool = True
    itself: bool = False


def mutations_of(op: str, params: tuple[Any, ...], declared: Mutates) -> tuple[Mutation, ...]:
    """What ``mutates=`` says. Raises :class:`SchemaError` where it does not fit the parameters."""
    if declared == ():  # most operators: an import reads a thousand of them
        return ()
    conditions = declared if isinstance(declared, Mapping) else dict.fromkeys(declared, True)
    if len(conditions) != len(declared):
        raise SchemaError(f"operator {op!r}: mutates={tuple(declared)} names a parameter twice")
    positions = {param.name: position for position, param in enumerate(params)}
    found = []
    when: Any
    for name, when in conditions.items():
        if name not in positions:
            raise SchemaError(
                f"operator {op!r} declares that it mutates {name!r}, "
                f"which is none of its parameters {list(positions)}",
                fix="name a tensor parameter in mutates=",
            )
        position = positions[name]
        kind = params[position].kind
        if kind not in ("Tensor", "list[Tensor]"):
            raise SchemaError(
                f"operator {op!r} declares that it mutates {name!r}, which is of type {kind}",
                fix="only a Tensor or a list[Tensor] can be written to",
            )
        if when is True:
            found.append(Mutation(name, position))
        else:
            found.append(Mutation(name, position, when, _reads(op, name, when, positions)))
    return tuple(found)


def _reads(op: str, name: str, when: Any, positions: dict[str, int]) -> tuple[int, ...]:
    if not callable(when):
        raise SchemaError(
            f"operator {op!r}: mutates={{{name!r}: {when!r}}}",
            fix="give True, or a function of the arguments that decide: lambda training: training",
        )
    asked = list(inspect.signature(when).parameters)
    for parameter in asked:
        if parameter not in positions:
            raise SchemaError(
                f"operator {op!r}: the condition under which it mutates {name!r} asks for "
                f"{parameter!r}, which is none of its parameters {list(positions)}",
                fix="name the parameters that decide: lambda training: training",
            )
    return tuple(positions[parameter] for parameter in asked)


def aliases_of(
    op: str,
    params: tuple[Any, ...],
    returns: str,
    view: View,
    mutations: tuple[Mutation, ...],
) -> tuple[Alias, ...]:
    """What ``view=`` says, and whether the result is the argument that was written to.

    As in PyTorch, an operator whose name ends in ``_`` returns what it wrote to. Raises
    :class:`SchemaError` for a declaration that does not fit the signature.
    """
    if view is False and not mutations:
        return ()
    if isinstance(view, Mapping):
        return tuple(
            _alias(op, params, returns, result, name, mutations) for result, name in view.items()
        )
    if view:
        if not params or not params[0].is_tensor:
            raise SchemaError(
                f"operator {op!r} is declared a view, but its first parameter is no tensor",
                fix="make the viewed tensor the first parameter, or name it: view={0: 'other'}",
            )
        if any(mutation.position == 0 for mutation in mutations):
            raise SchemaError(
                f"operator {op!r} is declared to view {params[0].name!r} and to mutate it",
                fix=f"say view={{0: {params[0].name!r}}} where it returns what it wrote to",
            )
        return (Alias(None, params[0].name, 0, view is True),)
    if returns == "Tensor" and op.endswith("_") and mutations and mutations[0].when is None:
        first = mutations[0]
        if params[first.position].is_tensor:
            return (Alias(0, first.name, first.position, itself=True),)
    return ()


def _alias(
    op: str,
    params: tuple[Any, ...],
    returns: str,
    result: Any,
    name: str,
    mutations: tuple[Mutation, ...],
) -> Alias:
    if not isinstance(name, str):
        raise SchemaError(
            f"operator {op!r}: view={{{result!r}: {name!r}}}",
            fix="say which result views which parameter: {0: 'self', 1: 'other?'}",
        )
    plain = name.removesuffix("?")
    positions = {param.name: i for i, param in enumerate(params)}
    position = positions.get(plain, -1)
    if position < 0 or params[position].kind not in ("Tensor", "list[Tensor]"):
        raise SchemaError(
            f"operator {op!r}: view= names {plain!r}, which is no tensor parameter of it",
            fix=f"name one of {[p.name for p in params if p.kind in ('Tensor', 'list[Tensor]')]}",
        )
    fixed = 1 if returns == "Tensor" else returns.count("Tensor") if "..." not in returns else 0
    fixed = 0 if returns == "None" else fixed
    many = returns == "list[Tensor]" or "..." in returns
    wrong = not (result is None or type(result) is int and 0 <= result and (many or result < fixed))
    if wrong or not (fixed or many):
        raise SchemaError(
            f"operator {op!r}: view= speaks of result {result!r}, but it returns {returns}",
            fix="give the number of a result, or None for each of them",
        )
    if params[position].kind == "list[Tensor]" and not (result is None and many):
        raise SchemaError(
            f"operator {op!r}: view={{{result!r}: {name!r}}}: {plain!r} is a list of tensors",
            fix=f"view={{None: {name!r}}} says that result i views item i",
        )
    itself = any(mutation.position == position for mutation in mutations)
    return Alias(result, plain, position, not name.endswith("?"), itself)
