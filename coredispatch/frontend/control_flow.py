"""``cond`` and ``while_loop``: control flow as calls, for programs that want to be captured.

Run eagerly, they are Python's ``if`` and ``while``: whatever is computed is recorded,
differentiated and transformed as anywhere else. A program that is followed without data
(``graph.Builder``, ``export``) keeps both ways, as ``if`` and ``loop`` of its graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.registry.model.errors import ArgumentError

__all__ = ["cond", "while_loop"]


def _check_single(value: TensorBase, what: str) -> None:
    if math.prod(value.shape) != 1:
        raise ArgumentError(
            f"{what} has shape {tuple(value.shape)}", fix="give a tensor of one element"
        )


def _without_data(value: Any, what: str) -> bool:
    """Whether a condition belongs to a program that is followed without data."""
    from coredispatch.graph.abstract import Abstract

    if not isinstance(value, TensorBase) or Abstract.of(value) is None:
        return False
    _check_single(value, what)
    return True


def _truth(value: Any, what: str) -> bool:
    if isinstance(value, TensorBase):
        _check_single(value, what)
        return bool(value)
    if isinstance(value, (bool, int, float)):
        return bool(value)
    raise ArgumentError(
        f"Expected {what} to be bool or tensor, but got {type(value).__name__}",
        fix="compare, or use .any() or .all()",
    )


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """``true_fn(*operands)`` if ``pred``, else ``false_fn(*operands)``.

    ``pred`` is a bool or a tensor of one element. Raises :class:`ArgumentError`, a RuntimeError,
    for any other one, for branches that are no functions, and for operands that are no tuple.

    Example:
        >>> import coredispatch as cd
        >>> cd.cond(cd.tensor(3.0) > 2, lambda x: x + 1, lambda x: x - 1, (cd.zeros(1),))
        tensor([1.])
    """
    if not callable(true_fn) or not callable(false_fn):
        raise ArgumentError("Expect both branches to be callable", fix="give two functions")
    if not isinstance(operands, (tuple, list)):
        raise ArgumentError(
            f"Expect operands to be a tuple, but got {type(operands).__name__}",
            fix="write (x,) for one operand",
        )
    if _without_data(pred, "pred"):
        from coredispatch.graph.control import record_branch

        return record_branch(pred, true_fn, false_fn, operands)
    return (true_fn if _truth(pred, "pred") else false_fn)(*operands)


def while_loop(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    carried_inputs: tuple[Any, ...] | list[Any],
) -> tuple[Any, ...]:
    """``carried = body_fn(*carried)`` for as long as ``cond_fn(*carried)``; returns the last ones.

    ``body_fn`` returns as many values as it is given. Raises :class:`ArgumentError`, a
    RuntimeError, where it does not.

    Example:
        >>> import coredispatch as cd
        >>> cd.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, 2 * x), (0, cd.ones(1)))
        (3, tensor([8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise ArgumentError("Expect cond_fn and body_fn to be callable", fix="give two functions")
    if not isinstance(carried_inputs, (tuple, list)):
        raise ArgumentError(
            f"Expect carried_inputs to be a tuple, but got {type(carried_inputs).__name__}",
            fix="write (x,) for one input",
        )
    carried = tuple(carried_inputs)

    def turn(*values: Any) -> tuple[Any, ...]:
        found = body_fn(*values)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(values):
            raise ArgumentError(
                f"body_fn returned {len(found)} values for {len(values)} carried inputs",
                fix="return one value for each",
            )
        return found

    going = cond_fn(*carried)
    if _without_data(going, "the result of cond_fn"):
        from coredispatch.graph.control import record_loop

        return record_loop(going, cond_fn, turn, carried)
    while _truth(going, "the result of cond_fn"):
        carried = turn(*carried)
        going = cond_fn(*carried)
    return carried
