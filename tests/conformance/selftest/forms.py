"""Curated faults of kernels beside their decomposition, of in-place forms beside plain ones.

Each shows only for calls that no sample of the operator makes, or only in gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import ArgumentError

from .framework import module, replaced

__all__ = ["INPLACE", "KERNELS"]


def negative_as_positive(correct: Any, raws: Any) -> Any:
    """A negative option below -2 is read without its sign."""
    x, *options = raws
    return correct(x, *[-n if type(n) is int and n < -2 else n for n in options])


def dimension_for_a_scalar(correct: Any, raws: Any) -> Any:
    """A 0-dimensional input comes back with a dimension."""
    result = correct(*raws)
    return tuple(np.atleast_1d(r) for r in result) if raws[0].ndim == 0 else result


def nothing_of_nothing(correct: Any, raws: Any) -> Any:
    """What is summed over no elements is NaN."""
    result = np.asarray(correct(*raws))
    if raws[0].size == 0 and result.dtype.kind == "f":
        result = np.full_like(result, np.nan)
    return result


def default_for_a_negative(correct: Any, raws: Any) -> Any:
    """A slope below zero is replaced by the default."""
    x, slope, *rest = raws
    return correct(x, 0.01 if slope < 0 else slope, *rest)


def gradient_of_the_default(correct: Any, raws: Any) -> Any:
    """The backward kernel knows one slope below zero only."""
    grad, x, slope, *rest = raws
    return correct(grad, x, 0.01 if slope < 0 else slope, *rest)


def nothing_refused(correct: Any, raws: Any) -> Any:
    """A tensor without elements is refused."""
    if any(isinstance(a, np.ndarray) and a.size == 0 for a in raws):
        raise ArgumentError("there is nothing to compute")
    return correct(*raws)


def statistics_of_evaluation(correct: Any, raws: Any) -> Any:
    """Running statistics are written to although the call is no training."""
    result = correct(*raws)
    mean, training = raws[1], raws[5]
    if mean is not None and not training and mean.size:
        mean += 1
    return result


_SEEN = {"checks": (24,), "cases": "decomposition"}
#: name -> (mutation, fields of the mutant)
KERNELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a negative option is read without its sign": (
        negative_as_positive,
        {"op": "tril", "ops": ("tril",), **_SEEN, "says": "diagonal=-"},
    ),
    "a 0-dim input gets a dimension (cummax)": (
        dimension_for_a_scalar,
        {"op": "cummax", "ops": ("cummax",), **_SEEN, "says": "kernel gives"},
    ),
    "a sum over nothing is NaN (dot)": (
        nothing_of_nothing,
        {"op": "dot", "ops": ("dot",), **_SEEN, "says": "0 in the place of|as it stands"},
    ),
    "a negative option gives way to the default (leaky_relu)": (
        default_for_a_negative,
        {"op": "leaky_relu", "ops": ("leaky_relu",), **_SEEN, "says": "negative_slope=-"},
    ),
    "a backward kernel that knows the default only (leaky_relu)": (
        gradient_of_the_default,
        {
            "op": "leaky_relu_backward",
            "ops": ("leaky_relu",),
            **_SEEN,
            "says": "negative_slope=-.*gradient",
        },
    ),
    "a conditional write that always happens (batch_norm)": (
        statistics_of_evaluation,
        {
            "op": "batch_norm",
            "ops": ("batch_norm",),
            "checks": (7,),
            "cases": "mutates",
            "says": "written to that is not declared",
        },
    ),
    "an empty tensor is refused (bmm)": (
        nothing_refused,
        {"op": "bmm", "ops": ("bmm",), **_SEEN, "says": "kernel refuses what the decomposition"},
    ),
}


def _rule_of(name: str, other: str) -> Any:
    """The in-place form ``name`` with the derivative of another operator."""
    return replaced((getattr(cd.ops, name), "vjp_rule", getattr(cd.ops, other).vjp_rule))


def _without_the_base() -> Any:
    """A write to a view stays out of the history of its base."""
    inplace = module("frontend.autograd.inplace")

    def rebase(target: Any, node: Any, output: int) -> None:
        target._node, target._output_nr = node, output
        target.keys |= inplace.AUTOGRAD

    return replaced((inplace, "_rebase", rebase))


def _always_written() -> Any:
    """A conditional write is taken for one that always happens."""
    mutation = module("registry.model.effects").Mutation
    return replaced((mutation, "happens", lambda self, args: True))


_FORM = {"checks": (12,), "cases": "in-place-form"}
#: name -> fields of the mutant
INPLACE: dict[str, dict[str, Any]] = {
    "the in-place form has another derivative (mul_)": {
        "patch": lambda: _rule_of("mul_", "add"),
        "ops": ("mul",),
        **_FORM,
        "says": "mul_ on a tensor.*gradient",
    },
    "the in-place form has another derivative (add_)": {
        "patch": lambda: _rule_of("add_", "mul"),
        "ops": ("add",),
        **_FORM,
        "says": "add_ on a tensor.*gradient",
    },
    "a conditional write is taken for one that always happens": {
        "patch": _always_written,
        "ops": ("batch_norm", "embedding"),
        "checks": (7,),
        "cases": "mutates",
        "says": "InferenceError|cannot be written|inference|not bumped|never is",
    },
    "a write to a view stays out of the history of its base": {
        "patch": _without_the_base,
        "ops": ("mul", "add"),
        **_FORM,
        "says": "on a view",
    },
}
