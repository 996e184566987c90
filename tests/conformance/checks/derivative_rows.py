"""Check 12, derivatives at special inputs: zeros in a row, singular matrices, NaN, other options.

Formulas divide by what they multiplied before: by one element of a product, by a determinant. The
first zero is taken care of, and the second forgotten. What chooses among elements compares them,
and NaN is equal to nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.registry import AutogradError, CoreDispatchError

from ..case import Case
from ..context import Context, Failure, NotRun, elements, has_values, tensors_in
from ..options import PER_DIMENSION, levels
from ..options import _with as with_options
from ..subject import OpMetadata, Subject
from ..templates import DIMS, SIZES
from . import check
from .decompositions import public
from .derivative_places import STEP, sides
from .derivatives import _floating as floating_places
from .drawn import accepts
from .gradients import differentiates
from .recorded_calls import RecordedCall, recorded_calls
from .values import decomposes, in_domain

#: how many elements of a row are zero, and where they begin
ZEROS = ((2, 0), (2, 1), (3, 1))
#: elements of a sample whose options are varied, calls of an operator, and what is tried for them
LARGEST, CALLS, TRIES = 150, 10, 40
#: samples of which those are taken that have such rows or matrices
SAMPLES = 16
#: seconds of the processor after which no further call is begun
PATIENCE = 0.15
#: options whose gradient is no derivative, by definition
#: - and where a place is named along another dimension, two may be one
NO_DERIVATIVE = frozenset(
    "scale_grad_by_freq sparse inplace training dropout_p accumulate hermitian "
    "atol rtol rcond".split()
)


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.layouts:
        return
    op = metadata.op
    if op.samples is None or not op.differentiable or not has_values(op) or op.mutates:
        return
    if "float64" not in metadata.dtypes or "float64" not in subject.dtypes:
        return
    params = op.schema.params
    if any(p.kind in ("bool", "int", "float", "IntList", "str") for p in params):
        windows = any(p.name in PER_DIMENSION for p in params)
        own = op.kind == "primitive" or op.vjp_rule is not None
        if public(op) and (own or windows):  # of others the callers see to the options
            yield Case(12, op.name, "float64", variant="options")
    if op.kind != "primitive" and op.vjp_rule is None:
        return
    rule = getattr(op.out_rule, "__name__", "")
    if not (metadata.elementwise and rule in ("broadcast", "same_shape")):
        if not decomposes(op):  # such matrices have eigenvalues that are equal
            yield Case(12, op.name, "float64", variant="zeros")
        if not (decomposes(op) and op.schema.multi_output):  # factors are not unique
            yield Case(12, op.name, "float64", variant="singular")
        if in_domain(op, "special", "contiguous") or op.name.endswith("_backward"):
            yield Case(12, op.name, "float64", variant="chosen")


# ---- zeros in a row, and matrices without an inverse ---------------------------------------------


@check(12, plan=_plan, variant="zeros")
def zeros(context: Context) -> None:
    """With two and three zeros in a row a derivative is what it is beside them."""
    _beside(context, _with_zeros)


@check(12, plan=_plan, variant="singular")
def singular(context: Context) -> None:
    """At a matrix of lower rank a derivative is what it is at matrices of full rank beside it."""
    _beside(context, _of_lower_rank)


def _with_zeros(array: Any) -> Iterator[Any]:
    if array.ndim and array.shape[-1] > 2 and array.min() < 0 < array.max():
        for count, start in ZEROS:
            spoilt = np.array(array)
            spoilt[..., start : start + 2 * count : 2] = 0.0
            yield spoilt


def _of_lower_rank(array: Any) -> Iterator[Any]:
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] < 2:
        return
    for first, last in ((0, -1), (-1, 0)):
        spoilt = np.array(array)
        spoilt[..., last, :] = 0.5 * spoilt[..., first, :]
        yield spoilt


def _beside(context: Context, change: Any) -> None:
    rng, start = context.rng, time.process_time()
    ranks: dict[Any, Any] = {}
    for sample, call in recorded_calls(context, SAMPLES):  # one of each number of dimensions
        if any(True for p in floating_places(sample) for _ in change(sample.args[p])):
            dims = tuple(getattr(a, "ndim", -1) for a in sample.args)
            ranks.setdefault(dims, (sample, call))
    for sample, call in ranks.values():
        places = floating_places(sample)
        if len(places) != len(call.slots):
            continue
        incoming = [rng.normal(size=tuple(t.shape)) for t in call.results]
        for number, place in enumerate(places):
            for spoilt in change(sample.args[place]):
                step = STEP * rng.normal(size=spoilt.shape)
                moved = [_replaced(sample, place, spoilt + s * step) for s in (0.0, 1.0, -1.0)]
                with contextlib.suppress(np.linalg.LinAlgError):
                    sides(context, place, number, moved, incoming, LARGEST)
        if time.process_time() - start > PATIENCE:
            break
    if not context.asserted:
        raise NotRun("no sample has a derivative that goes on from side to side there")


def _replaced(sample: Any, place: int, array: Any) -> Any:
    args = [*sample.args]
    args[place] = np.asarray(array)
    return type(sample)(*args, **sample.kwargs)


# ---- what is chosen ------------------------------------------------------------------------------


@check(12, plan=_plan, variant="chosen")
def chosen(context: Context) -> None:
    """What chooses among elements gives each incoming gradient to those chosen, NaN among them.

    Whether an operator does, its gradients say: for other inputs they hold as much as what came
    in, however the results lie.
    """
    for sample, call in recorded_calls(context, 4):
        places = floating_places(sample)
        if not places or len(call.slots) > 1 or len(places) != 1:
            continue
        array = sample.args[places[0]]
        # Beyond bounds that cut numbers off, and with signs that a magnitude would not keep.
        others = [_replaced(sample, places[0], factor * array) for factor in (100.0, -1.0)]
        if not all(_conserves(context, s, places[0]) for s in (sample, *others)):
            continue
        for value in (np.nan, np.inf, -np.inf):
            for dense in (False, True):
                spoilt = np.array(array)
                flat = spoilt.reshape(-1)
                flat[:: 1 if dense and array.size < 9 else 2 if dense else 5] = value
                other = _replaced(sample, places[0], spoilt)
                found = _held(context, other)
                if found is None:
                    continue
                context.sample = other
                given, kept = found
                context.expect(
                    abs(given - kept) <= 1e-9 * (1 + abs(given)),
                    f"among {value} the gradients hold {kept:.6g} of {given:.6g} that came in",
                )
    if not context.asserted:
        raise NotRun("the operator does more than choose")


def _held(context: Context, sample: Any) -> tuple[float, float] | None:
    """The sum of what comes in, and that of the gradient of the input."""
    try:
        call = RecordedCall(context, context.placed(sample))
        incoming = call.incoming()
        gradients = call.gradients(incoming)
    except (CoreDispatchError, np.linalg.LinAlgError):
        return None
    if not call.results or any(not np.isfinite(g).all() for g in gradients):
        return None
    return float(sum(g.sum() for g in incoming)), float(sum(g.sum() for g in gradients))


def _conserves(context: Context, sample: Any, place: int) -> bool:
    """Whether each element of the results is one of the inputs', and gradients are kept."""
    try:
        call = RecordedCall(context, context.placed(sample))
    except CoreDispatchError:
        return False
    given = np.asarray(sample.args[place])
    for result in call.results:
        if not np.isin(context.subject.array(result.detach()), given).all():
            return False
    for seed in range(3):
        incoming = call.incoming(seed)
        kept = float(sum(g.sum() for g in call.gradients(incoming)))
        if abs(kept - float(sum(g.sum() for g in incoming))) > 1e-9 * (1 + abs(kept)):
            return False
    return True


# ---- options -------------------------------------------------------------------------------------


@check(12, plan=_plan, variant="options")
def options(context: Context) -> None:
    """With options away from their defaults a gradient still says how the result moves."""
    samples = [s for s in context.op.samples(context.make()) if _plain(s)]
    samples = _by_rank(samples)
    space = levels(context.op, samples) if samples else {}
    kinds: set[str] = set()
    for sample in samples:
        sample.map(lambda a: kinds.add(a.dtype.kind) or a)
    fixed = NO_DERIVATIVE | SIZES | (DIMS if "i" in kinds else frozenset())
    space = {n: v for n, v in space.items() if n[0] != "#" and n not in fixed}
    rng, start, done = context.rng, time.process_time(), 0
    chosen = _combinations(space, rng) if space else []
    for turn, picked in enumerate(chosen):
        if done == CALLS or time.process_time() - start > PATIENCE:
            break
        base = samples[turn % len(samples)]
        if not picked or any(isinstance(v, np.dtype) for v in picked.values()):
            continue
        done += _differentiated(context, with_options(context.op, base, picked), picked)
    if not done:
        raise NotRun("no option of the operator has another value that it takes")


def _combinations(space: dict[str, list[Any]], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Values of all options together where those are few; else drawn ones of most options."""
    count = math.prod(map(len, space.values()))
    if count <= TRIES:
        every = [dict(zip(space, v, strict=True)) for v in itertools.product(*space.values())]
        return [every[i] for i in rng.permutation(count)]
    return [
        {n: v[int(rng.integers(len(v)))] for n, v in space.items() if rng.random() < 0.7}
        for _ in range(TRIES)
    ]


def _plain(sample: Any) -> bool:
    sizes: list[int] = []
    sample.map(lambda a: sizes.append(a.size) or a)
    return 0 not in sizes and 1 < elements(sample) <= LARGEST


def _by_rank(samples: list[Any]) -> list[Any]:
    """The samples by turns of each number of dimensions."""
    groups: dict[int, list[Any]] = {}
    for sample in samples:
        groups.setdefault(_dims(sample), []).append(sample)
    rounds = itertools.zip_longest(*(groups[n] for n in sorted(groups, reverse=True)))
    return [s for several in rounds for s in several if s is not None]


def _dims(sample: Any) -> int:
    found: list[int] = []
    sample.map(lambda a: found.append(a.ndim) or a)
    return max(found, default=0)


def _differentiated(context: Context, sample: Any, picked: dict[str, Any]) -> bool:
    try:
        if not context.declares(sample) or not accepts(context, context.placed(sample)):
            return False
        tensors = context.subject.tensors(context.placed(sample))
        results = tensors_in(context.op(*tensors.args, **tensors.kwargs))
        with np.errstate(all="ignore"):
            if not all(np.isfinite(context.subject.array(t)).all() for t in results):
                return False
        found = bool(differentiates(context, context.placed(sample)))
    except Failure as error:
        told = ", ".join(f"{n}={v!r}" for n, v in picked.items())
        raise Failure(f"{told}: {error}") from None
    except (AutogradError, CoreDispatchError):
        return False  # refused, or without a derivative
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return False  # the rules themselves cannot read such a call
    context.asserted += found
    return found
