"""The kernels that a layout has for operators, and the gradients through it (check 27).

The operator's own samples are brought into the layout, one argument at a time and together, by
every way that leads into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import Layout, from_raw, laid_out, to_raw
from coredispatch.registry import CoreDispatchError, fallback

from ..context import Context, NotRun, tensors_in
from ..reference import Reference
from ..subject import numpy_dtype
from ..tensor_layouts import conversions, dense, layouts, representable
from .decompositions import disagreement, weighted_sum

__all__ = [
    "JUDGED",
    "as_dense",
    "calls",
    "gradient",
    "kernel",
    "mixed",
    "result_of",
    "stored_zeros",
]

#: steps of a layout that rounds, as in QNNPACK's own tests for kernels
KERNEL_STEPS = 0.6
#: results of one operator that are judged for each case
JUDGED = 60


def _held(context: Context, layout: Layout, array: Any, form: str, rng: np.random.Generator) -> Any:
    """The array as the layout holds it, marked as such; None where it takes none like it."""
    array = representable(layout, array, rng)
    try:
        tensor = context.subject.tensor(laid_out(array, layout.name, form))
    except CoreDispatchError:
        return None
    if layout.step is not None:  # what it rounds to is what kernels see
        array = context.subject.array(tensor).astype(array.dtype)
    return laid_out(array, layout.name, form)


def _places(sample: Any) -> list[int]:
    """Positions of the arrays that might be brought into a layout."""
    return [i for i, a in enumerate(sample.args) if isinstance(a, np.ndarray) and a.size]


def _paired(samples: Iterator[Any], rng: np.random.Generator) -> Iterator[Any]:
    """The samples, and those of two arrays once more with two of one shape: none broadcasts."""
    for sample in samples:
        yield sample
        places = _places(sample)
        if len(places) == 2:
            first, second = (sample.args[i] for i in places)
            if first.ndim == 2 and first.shape != second.shape and first.dtype == second.dtype:
                args = [*sample.args]
                args[places[1]] = rng.choice(second.reshape(-1), first.shape)
                yield type(sample)(*args, **sample.kwargs)


def calls(context: Context, layout: Layout) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Samples with some of their arrays in the layout, one at a time and together, by every way."""
    rng = np.random.default_rng(context.case.seed + context.fresh)
    for form, sample in itertools.product(conversions(layout), [*_paired(context.samples(), rng)]):
        held = {
            i: marked
            for i in _places(sample)[:3]
            if sample.args[i].dtype == numpy_dtype(context.case.dtype)
            and (marked := _held(context, layout, sample.args[i], form, rng)) is not None
        }
        for n in range(1, len(held) + 1):
            for chosen in itertools.combinations(held, n):
                args = [held[i] if i in chosen else a for i, a in enumerate(sample.args)]
                yield context.placed(type(sample)(*args, **sample.kwargs)), chosen
                if n == 2 and layout.step is None:
                    alike = _alike(*(held[i] for i in chosen))
                    if alike is not None:
                        args[chosen[1]] = alike
                        yield context.placed(type(sample)(*args, **sample.kwargs)), chosen


def _alike(first: Any, second: Any) -> Any:
    """The second array, zero where the first is and nowhere else; None for two shapes."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return None
    filled = np.where(second != 0, second, first)
    kept = np.where(first != 0, filled, np.zeros((), first.dtype))
    return laid_out(kept, second.layout, second.form)


def result_of(context: Context, layout: Layout, tensors: Any) -> Any:
    """The result of a call; None where the combination is refused, which it must be by name."""
    taken = sum(fallback.report().values())
    try:
        result = context.call(tensors)
    except CoreDispatchError as error:
        named = layout.name in str(error) or context.op.name in str(error)
        context.expect(named, f"refused, without naming the layout or the operator: {error}")
        return None
    context.expect(sum(fallback.report().values()) == taken, "a fallback was taken")
    return result


def kernel(context: Context, layout: Layout) -> None:
    """The kernel of a layout gives what the operator gives for the dense tensors, or refuses."""
    served = 0
    for sample, _ in calls(context, layout):
        result = result_of(context, layout, context.subject.tensors(sample))
        if result is None:
            continue
        plain = sample.map(np.asarray)
        unmarked = type(plain)(*map(_unmarked, plain.args), **plain.kwargs)
        context.placed(sample)
        if layout.step is None or context.op.schema.plain:
            context.close(
                _strided(context, result), unmarked, signs=False
            )  # a place not stored has no sign
        else:
            _within_steps(context, layout, tensors_in(result), unmarked)
        served += 1
        if served >= JUDGED:
            return
    context.expect(served, "the kernel of the layout served none of the operator's samples")


def as_dense(context: Context, result: Any, given: Any) -> None:
    """Assert that a result is that of the dense call."""
    plain = type(given)(*map(_unmarked, given.args), **given.kwargs)
    context.close(_strided(context, result), plain, signs=False)


def _strided(context: Context, result: Any) -> Any:
    """The tensors of a result as strided ones; a number as it is."""
    return result if context.op.schema.plain else [dense(t) for t in tensors_in(result)]


def mixed(context: Context, layout: Layout) -> None:
    """Tensors of two dtypes in a call give what the dense ones would, or are refused by name."""
    served = 0
    others = [d for d in layout.dtypes_checked if d != context.case.dtype]
    for sample, _ in calls(context, layout):
        places = _places(sample)
        if len(places) < 2:
            continue
        for place, name in itertools.product(places, others):
            other = numpy_dtype(name)
            if sample.args[place].dtype.kind != "f" or other.kind != "f":
                continue
            args = [*sample.args]
            args[place] = args[place].astype(other)
            given = context.placed(type(sample)(*args, **sample.kwargs))
            result = result_of(context, layout, context.subject.tensors(given))
            if result is None:
                continue
            as_dense(context, result, given)
            served += 1
        if served >= JUDGED:
            return
    if not served:
        raise NotRun("the kernel of the layout takes one dtype only")


def stored_zeros(context: Context, layout: Layout) -> None:
    """Elements that are stored and 0 count as 0: the data is packed, set to 0 here and there."""
    assert layout.pack is not None and layout.unpack is not None
    served = 0
    for sample, chosen in calls(context, layout):
        tensors = context.subject.tensors(sample)
        args, plain = [*tensors.args], [*sample.args]
        for place in chosen:
            parts = _with_zeros(layout.pack(to_raw(args[place])), sample.args[place].dtype)
            args[place] = from_raw(
                layout.unpack(parts), keys_like=dense(args[place]), layout=layout.name
            )
            array = context.subject.array(args[place])
            plain[place] = laid_out(array, layout.name, sample.args[place].form)
        given = type(sample)(*plain, **sample.kwargs)
        context.sample = given
        try:
            result = context.call(type(tensors)(*args, **tensors.kwargs))
        except CoreDispatchError:
            continue  # judged by the kernel's own case
        as_dense(context, result, given)
        served += 1
        if served >= JUDGED:
            return
    if not served:
        raise NotRun("the kernel of the layout served none of the operator's samples")


def _with_zeros(parts: Any, dtype: Any) -> dict[str, Any]:
    """Packed data with every second number of the tensor's own dtype set to 0."""
    found = dict(parts)
    for name, part in found.items():
        if isinstance(part, np.ndarray) and part.dtype == dtype and part.ndim:
            found[name] = np.array(part)
            found[name].reshape(-1)[::2] = 0
    return found


def _unmarked(value: Any) -> Any:
    return np.asarray(value).view(np.ndarray) if isinstance(value, np.ndarray) else value


def _within_steps(context: Context, layout: Layout, results: list[Any], sample: Any) -> None:
    """Results of a layout that rounds: within 0.6 of its steps, and still of the layout."""
    doubled = sample.map(lambda a: a.astype(np.float64) if a.dtype.kind in "fV" else a)
    wanted = Reference(context.op, doubled)()
    wanted = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    for output, r in zip(results, wanted, strict=True):
        found = context.subject.array(output)
        context.expect(found.shape == r.shape, f"shape {found.shape}, not {r.shape}")
        if r.dtype.kind != "f":
            context.expect(np.array_equal(found, r), "the values differ")
            continue
        context.expect(output.layout == layout.name, f"the result is {output.layout}")
        assert layout.step is not None
        if layout.limits is not None:
            r = np.clip(r, *layout.limits(output))
        error = (np.abs(found - r) / layout.step(output)).max(initial=0)
        context.expect(error <= KERNEL_STEPS, f"off by {error:.2f} output steps")


def gradient(context: Context, layout: Layout) -> None:
    """The gradient through the layout is that of the dense call, where the tensor is not zero.

    What a layout does not store is no parameter: there it may say nothing.
    """
    judged = 0
    for sample, chosen in itertools.islice(calls(context, layout), JUDGED):
        if result_of(context, layout, context.subject.tensors(sample)) is None:
            continue
        through = _leaf_gradients(context, sample, chosen, True)
        plain = _leaf_gradients(context, sample, chosen, False)
        if through is None or plain is None:
            continue
        for place, found, wanted in zip(chosen, through, plain, strict=True):
            stored = np.asarray(sample.args[place]) != 0
            error = disagreement(found * stored, wanted * stored)
            context.expect(
                error <= 1, f"the gradient of argument {place} is off {error:.3g} times too much"
            )
            judged += 1
    if not judged:
        raise NotRun("no result of the operator in the layout has a gradient")


def _leaf_gradients(
    context: Context, sample: Any, chosen: tuple[int, ...], through: bool
) -> list[Any] | None:
    """The gradients of the chosen arguments as dense leaves, through the layout or not."""
    args, leaves = [*sample.args], {}
    for i in chosen:
        leaves[i] = context.subject.tensor(_unmarked(args[i])).requires_grad_(True)
    tensors = context.subject.tensors(type(sample)(*args, **sample.kwargs))
    given = list(tensors.args)
    for i, leaf in leaves.items():
        marked = sample.args[i]
        given[i] = conversions(layouts()[marked.layout])[marked.form](leaf) if through else leaf
    results = [dense(t) for t in tensors_in(context.op(*given, **tensors.kwargs))]
    total = weighted_sum(context, results)
    if total is None:
        return None
    found = cd.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return [
        np.zeros(tuple(leaf.shape)) if g is None else context.subject.array(g)
        for g, leaf in zip(found, leaves.values(), strict=True)
    ]
