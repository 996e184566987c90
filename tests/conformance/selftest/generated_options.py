"""Generated mutants of options: one that is not seen, is mistaken, or is lost beside another.

As the others they are trigger x effect, derived from the operator's schema. The effect is what
becomes of an option; the trigger says in which calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coredispatch.registry import CoreDispatchError

from ..context import has_values
from ..options import NO_OPTIONS, NOT_VARIED, PER_DIMENSION
from ..subject import Subject
from .mutants import Mutant, Mutation, drawn
from .option_faults import CHECKS, options_of
from .size_faults import arrays_in

__all__ = ["OPERATORS", "generate_options"]

PER_OP = 2
#: operators whose options are mistaken unless others are asked for
OPERATORS = (
    "sum", "mean", "amax", "argmax", "prod", "var", "std", "cumsum", "sort", "topk", "softmax",
    "logsumexp", "layer_norm", "group_norm", "batch_norm_inference", "convolution", "conv2d",
    "conv_transpose2d", "max_pool2d", "avg_pool2d", "gelu", "leaky_relu", "hardtanh", "softplus",
    "clamp", "addmm", "baddbmm", "addcmul", "cross_entropy", "mse_loss",
    "huber_loss", "nll_loss", "binary_cross_entropy_with_logits", "roll", "tril", "diagonal",
    "linalg_vector_norm", "searchsorted", "nan_to_num", "isclose", "scatter_reduce", "index_add",
    "index_put", "embedding_bag", "cdist", "interpolate", "linalg_solve_triangular",
    "cholesky", "quantile", "std_mean", "grid_sample",
)  # fmt: skip
#: options that may not be negative, and options whose order says nothing
NEVER_NEGATIVE = (
    "eps",
    "delta",
    "beta",
    "p",
    "atol",
    "rtol",
    "correction",
    "lambd",
    "label_smoothing",
)
SETS = ("dim", "normalized_shape")
Options = dict[str, Any]
#: what becomes of the value of an option
Mistake = Callable[[Any], Any]
#: what a call may raise whose options do not fit any more
_MISFITS = (CoreDispatchError, ValueError, TypeError, IndexError, ArithmeticError)


def _away(value: Any, default: Any) -> bool:
    """Whether an option has another value than its default, in some dimension."""
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, (list, tuple)) and not isinstance(default, (list, tuple)):
        return any(v != default for v in value)
    return bool(value != default)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _each(change: Callable[[Any], Any]) -> Mistake:
    """A change of a number, and of each number of several."""

    def mistake(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(change(v) if _number(v) else v for v in value)
        return change(value) if _number(value) else value

    return mistake


def _of_all(choose: Callable[[Any], Any]) -> Mistake:
    """A change of an option that is given for each dimension."""
    return lambda v: choose(v) if isinstance(v, (list, tuple)) and len(v) > 1 else v


def _required(param: Any) -> bool:
    """Whether a parameter has no default."""
    default = param.default
    return not (default is None or isinstance(default, (bool, int, float, str, list, tuple)))


def _mistakes(param: Any) -> Iterator[tuple[str, Mistake]]:
    """What may become of one option, by its kind."""
    name, kind = param.name, param.kind
    if not _required(param):
        yield f"{name} is not seen", lambda v: param.default
    elif kind == "bool":
        yield f"{name} is not seen", lambda v: False
    if kind in ("int", "IntList"):
        yield f"a {name} above 1 counts as 1", _each(lambda v: min(v, 1))
        if name not in PER_DIMENSION:
            yield f"a {name} below 0 counts as 0", _each(lambda v: max(v, 0))
    if kind in ("float", "Scalar"):
        yield f"{name} is cut to an integer", _each(lambda v: int(v) if abs(v) < 1e9 else v)
        if name not in NEVER_NEGATIVE:
            yield f"{name} loses its sign", _each(abs)
    if kind == "IntList" and name in SETS:
        yield f"only the last {name} is seen", _of_all(lambda v: v[-1:])
        yield f"only the first {name} is seen", _of_all(lambda v: v[:1])
    elif kind == "IntList":
        yield f"the last {name} is taken for all", _of_all(lambda v: (v[-1],) * len(v))
        yield f"the first {name} is taken for all", _of_all(lambda v: (v[0],) * len(v))
        yield f"{name} is read backwards", _of_all(lambda v: tuple(v[::-1]))
    positive = name in ("delta", "ignore_index")
    if kind in ("int", "float", "Scalar") and param.default and not _required(param) | positive:
        yield f"a {name} of 0 counts as not given", lambda v: param.default if v == 0 else v


def _options(op: Any) -> list[Any]:
    """The parameters that are options: numbers, flags, names, and tensors that may be left out."""
    return [
        p
        for p in op.schema.params
        if p.name not in NOT_VARIED
        and (p.kind not in NO_OPTIONS or (p.kind == "Tensor" and p.default is None))
    ]


def _transposed(raws: Any, options: Options) -> bool:
    return any(a.ndim > 1 and not a.flags.c_contiguous for a in arrays_in(raws))


def _wide(raws: Any, options: Options) -> bool:
    return max((a.ndim for a in arrays_in(raws)), default=0) > 2


def _conditions(op: Any, name: str) -> Iterator[tuple[str, Callable[[Any, Options], bool]]]:
    """In which calls an option is mistaken."""
    yield "", lambda raws, options: True
    yield " for a transposed operand", _transposed
    yield " in three dimensions or more", _wide
    for other in _options(op):
        if other.name == name or _required(other):
            continue
        yield (
            f" where {other.name} is given",
            lambda raws, options, p=other: _away(options[p.name], p.default),
        )


def _bytes(result: Any) -> list[tuple[Any, ...]]:
    parts = result if isinstance(result, (list, tuple)) else [result]
    arrays = [np.asarray(part) for part in parts]
    return [(a.shape, a.dtype.str, a.tobytes()) for a in arrays]


def _mutation(
    mutant: Mutant, name: str, mistake: Mistake, when: Callable[[Any, Options], bool]
) -> Mutation:
    def mutation(correct: Any, raws: Any) -> Any:
        options = options_of(mutant.op, raws)
        value = options[name]
        wrong = mistake(value) if when(raws, options) else value
        if wrong is value or _same(wrong, value):
            return correct(*raws)
        right = correct(*raws)
        mutant.met = (mutant.met or 0) + 1
        try:
            found = correct(*{**options, name: wrong}.values())
        except _MISFITS:
            return right
        mutant.fired += _bytes(found) != _bytes(right)
        return found

    return mutation


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and not isinstance(a, np.ndarray) and bool(a == b)


def generate_options(subject: Subject, name: str, count: int = PER_OP) -> list[Mutant]:
    """``count`` mutants of one operator's options, or all of them for -1."""
    op = subject.metadata(name).op
    if op.samples is None or not has_values(op) or op.factory or op.mutates:
        return []
    faults = [
        (f"{what}{where}", (param.name, mistake, when))
        for param in _options(op)
        for what, mistake in _mistakes(param)
        for where, when in _conditions(op, param.name)
    ]
    made = []
    for what, (option, mistake, when) in drawn(name, faults, count):
        mutant = Mutant(f"{name}: {what}", name, ops=(name,), checks=CHECKS, met=0)
        mutant.mutation = _mutation(mutant, option, mistake, when)
        mutant.details.update(trigger=what, effect="options")
        made.append(mutant)
    return made
