"""Check 24, against the decomposition: a kernel of one's own and the op's decomposition agree.

The decomposition of a composite is its definition. A kernel that serves the operator promises the
same for every call: for options that no sample has, for arrays of no elements and of no
dimensions, and for the gradients. Here the samples are varied, and the two are
compared. Rounding is the business of check 1; what differs here is a difference in meaning.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import TABLE, AutogradError, CoreDispatchError, plugins
from coredispatch.registry.around.observe import observe

from ..case import Case
from ..context import (
    Context,
    Failure,
    NotRun,
    has_values,
    poison,
    sample_tensors,
    snapshot,
    tensors_in,
)
from ..reference import positional, written_to
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from ..variations import Variation, variations, variations_of_two
from . import check
from .kernels import grown_trials
from .values import choose_dtypes

#: calls that are compared for each case, fewer of large arrays, and for how many gradients are
LIMIT, LARGE_LIMIT = 600, 60
GRADIENTS = 40
#: calls of a backend that compiles: a decomposition is ten programs for each shape
COMPILED_LIMIT = 4
#: elements of a result: an option may ask for very many
LARGEST = 20_000

Call = Callable[[Any], Any]


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.op.samples is None or not has_values(metadata.op):
        return
    rows = TABLE.snapshot.registrations.get((metadata.op.name, subject.name, None), ())
    if metadata.op.decomposition is None or not rows:
        return
    precise = "float64" if "float64" in subject.dtypes else "float32"
    for dtype in choose_dtypes(metadata, (precise, "int64", "bool", "complex128"), 4):
        if dtype in subject.dtypes:
            mandatory = dtype in MANDATORY_DTYPES
            yield Case(24, metadata.op.name, dtype, variant="decomposition", mandatory=mandatory)
    packs = dict.fromkeys(k.plugin for k in rows[:-1] if plugins[k.plugin].distribution)
    for dtype, plugin in itertools.product(choose_dtypes(metadata, ("float32", precise), 2), packs):
        if dtype in subject.dtypes:
            yield Case(24, metadata.op.name, dtype, variant=f"decomposition+{plugin}")


@check(24, plan=_plan, variant="decomposition")
def decomposition(context: Context) -> None:
    """A kernel gives what the decomposition gives for every option and shape, gradients
    included.
    """
    plugin = context.case.variant.partition("+")[2]
    calls = _grown(context, plugin) if plugin else _varied(context)
    calls = (v for v in calls if "sparse=" not in v.what)  # its gradients are a plugin's affair
    judged = 0
    chosen = itertools.islice(calls, LARGE_LIMIT if plugin else LIMIT)
    if context.subject.expectations.policies.compiles:
        drawn = [*chosen]  # of all samples, not of the first alone
        chosen = iter(drawn[:: -(-len(drawn) // COMPILED_LIMIT) or 1])
    for variation in chosen:
        judged += _agree(context, variation, plugin, gradients=judged < GRADIENTS)
    if not judged:
        raise NotRun("no call is served by both the kernel and the decomposition")


def public(op: Any) -> bool:
    """Whether users call the operator by name: as a function or as a method."""
    return bool(op.namespaces) or bool(op.method)


def _varied(context: Context) -> Iterator[Variation]:
    """Variations of all samples; of an operator that nobody calls by name, the samples alone.

    Its callers check the options, and pass shapes that belong together.
    """
    drawn = [*context.samples()]
    if not public(context.op):
        yield from (Variation(sample, "as it stands") for sample in drawn)
        return
    for vary in (variations, variations_of_two):
        for sample in drawn:
            yield from vary(context.op, sample)


def _grown(context: Context, plugin: str) -> Iterator[Variation]:
    """Variations of samples that are large enough for the kernels of ``plugin``."""
    for sample in [*context.samples(limit=6)]:
        for trial in grown_trials(context, sample):
            if plugin in _servers(context, trial):
                named = public(context.op)
                found = variations(context.op, trial)
                yield from found if named else itertools.islice(found, 1)
                break


def _servers(context: Context, sample: Any) -> set[str]:
    tensors = context.subject.tensors(sample)
    with observe() as log:
        context.call(tensors)
    return {o.plugin for o in log if o.op == context.op.name and o.kind == "kernel"}


def _by_kernel(context: Context, tensors: Any) -> Any:
    return _written(context, tensors, context.op(*tensors.args, **tensors.kwargs))


def _by_definition(context: Context, tensors: Any) -> Any:
    full = positional(context.op, list(tensors.args), tensors.kwargs)
    return _written(context, tensors, context.op.decomposition(*full))


def _written(context: Context, tensors: Any, result: Any) -> Any:
    """The result, and what was written to beside it: running statistics, the state of a step."""
    if result is None:
        return written_to(context.op, tensors.args, tensors.kwargs)
    if not context.op.mutates:
        return result
    known = {id(t) for t in tensors_in(result)}
    full = positional(context.op, list(tensors.args), tensors.kwargs)
    beside = [t for t in context.op.schema.written(tuple(full)) if id(t) not in known]
    return [*tensors_in(result), *beside] if beside else result


def _outcome(
    context: Context, sample: Any, call: Callable[[Context, Any], Any]
) -> tuple[list[Any] | None, str]:
    """The results as arrays, or None and what was raised."""
    tensors = context.subject.tensors(sample)
    try:
        found = tensors_in(call(context, tensors))
        context.subject.synchronize()  # a device that computes later raises then
    except CoreDispatchError as error:
        _settled(context)
        return None, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if call is _by_kernel:
            raise
        return (
            None,
            f"{type(error).__name__}: {error}",
        )  # a decomposition is not called through the table
    arrays = [context.subject.array(t) for t in found]
    if call is _by_kernel and not (context.op.view or context.op.mutates):
        _of_its_own(context, tensors, found)
    return arrays, ""


def _settled(context: Context) -> None:
    """Wait for what a call that was refused had begun, whatever is wrong with that."""
    with contextlib.suppress(CoreDispatchError):
        context.subject.synchronize()


def _of_its_own(context: Context, tensors: Any, results: list[Any]) -> None:
    """Assert that a write to a result reaches no input."""
    inputs = sample_tensors(tensors)
    before = snapshot(context, tensors)
    for result in results:
        if result.numel() and all(result is not i for i in inputs):
            try:
                poison(result)
            except CoreDispatchError:  # without strided views, a result with an alias
                continue
            context.expect(
                snapshot(context, tensors) == before, "the result shares memory with an input"
            )


def _agree(context: Context, variation: Variation, plugin: str, *, gradients: bool) -> bool:
    """Compare one call; False where it says nothing: refused by both, drawn, served by another."""
    sample = context.placed(variation.sample)
    state = cd.get_rng_state()
    by_definition, definition_error = _outcome(context, sample, _by_definition)
    if not cd.equal(state, cd.get_rng_state()):
        return False  # an option such as dropout_p makes the operator random
    by_kernel, kernel_error = _outcome(context, sample, _by_kernel)
    if by_definition is None and by_kernel is None:
        return False
    if by_definition is None or by_kernel is None:
        if plugin:
            return False  # not the pack alone: what it rejects is served by others
        refused, served = (
            ("kernel", "decomposition") if by_definition else ("decomposition", "kernel")
        )
        context.expect(
            False,
            f"{variation.what}: the {refused} refuses what the {served} serves "
            f"({kernel_error or definition_error})",
        )
        return True
    if sum(a.size for a in by_definition) > LARGEST and not plugin:
        return False
    if plugin and plugin not in _servers(context, sample):
        return False
    _same(context, by_kernel, by_definition, variation.what)
    if gradients and context.op.differentiable and context.op.gradcheck is None:
        _gradients_agree(context, sample, variation.what)
    return True


def _same(context: Context, kernel: list[Any], definition: list[Any], what: str) -> None:
    context.expect(
        len(kernel) == len(definition),
        f"{what}: kernel gives {len(kernel)} results, the decomposition {len(definition)}",
    )
    for k, b in zip(kernel, definition, strict=True):
        context.expect(
            k.dtype == b.dtype, f"{what}: kernel gives {k.dtype}, the decomposition {b.dtype}"
        )
        context.expect(
            k.shape == b.shape, f"{what}: kernel gives {k.shape}, the decomposition {b.shape}"
        )
        error = disagreement(k, b)
        context.expect(
            error <= 1, f"{what}: kernel and decomposition differ {error:.3g} times too much"
        )


def disagreement(found: Any, wanted: Any) -> float:
    """How far two results lie apart, 1 being what rounding in another order explains."""
    if wanted.size == 0:
        return 0.0
    if wanted.dtype.kind in "biu":
        return float("inf") if not np.array_equal(found, wanted) else 0.0
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    precise = wanted.dtype in (np.float64, np.complex128)
    allowed = 1e-7 if precise else 2e-3 if wanted.dtype.itemsize >= 4 else 6e-2
    found, wanted = found.astype(wide), wanted.astype(wide)
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(found)):
        return float("inf")
    if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return float("inf")
    scale = 1.0 + np.abs(wanted[finite]).max(initial=0.0)
    return float(np.abs(found[finite] - wanted[finite]).max(initial=0.0) / (allowed * scale))


# ---- gradients --------------------------------------------------------------------------------


def _leaves(tensors: Any) -> list[Any]:
    found = tensors_in([list(tensors.args), tensors.kwargs])
    return [t for t in found if t.dtype.is_floating_point or t.dtype.is_complex]


def weighted_gradients(
    context: Context, sample: Any, call: Callable[[Context, Any], Any]
) -> list[Any] | None:
    """The gradients of a weighted sum of the results; None where there is none or it is refused."""
    tensors = context.subject.tensors(sample)
    leaves = [t.requires_grad_(True) for t in _leaves(tensors)]
    try:
        total = weighted_sum(context, tensors_in(call(context, tensors)))
        if not leaves or total is None:
            return None
        found = cd.autograd.grad(total, leaves, allow_unused=True)
    except AutogradError:
        return None  # a documented refusal
    except CoreDispatchError as error:
        raise Failure(f"the gradient: {error} [{context.shown()}]") from None
    return [None if g is None else context.subject.array(g) for g in found]


def weighted_sum(context: Context, results: list[Any]) -> Any:
    """The differentiable results times fixed weights, summed; None where there are none."""
    total = None
    for result in results:
        if not result.requires_grad or not result.numel():
            continue
        numbers = np.cos(np.arange(result.numel())).reshape(tuple(result.shape))
        product = result * context.subject.tensor(np.asarray(numbers)).to(result.dtype)
        term = (product.real if result.dtype.is_complex else product).sum()
        total = term if total is None else total + term
    return total


def _gradients_agree(context: Context, sample: Any, what: str) -> None:
    by_definition = weighted_gradients(context, sample, _by_definition)
    by_kernel = weighted_gradients(context, sample, _by_kernel)
    if by_definition is None or by_kernel is None:
        return
    for number, (k, b) in enumerate(zip(by_kernel, by_definition, strict=True)):
        if k is None and b is None:
            continue
        k, b = (np.zeros_like(b) if k is None else k), (np.zeros_like(k) if b is None else b)
        context.expect(
            k.shape == b.shape,
            f"{what}: gradient {number} is {k.shape}, by the decomposition {b.shape}",
        )
        known = np.isfinite(b)  # where the decomposition has no derivative, a kernel may choose one
        error = disagreement(k[known], b[known])
        context.expect(
            error <= 1,
            f"{what}: gradient {number} and the decomposition's differ {error:.3g} times too much",
        )
