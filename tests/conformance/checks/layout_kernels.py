"""Check 27 for every kernel that a layout plugin has for an operator of coredispatch.

The operator's own samples are brought into the layout, argument by argument and together. What is
served must agree with the dense reference; what is refused must be refused by name; a kernel that
serves nothing of it is a row that only looks like one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import TABLE, CoreDispatchError
from coredispatch.registry.around import fallback

from ..case import Case
from ..context import Context, NotRun, has_values, tensors_in
from ..reference import Reference
from ..subject import OpFacts, Subject
from . import check
from .values import choose_dtypes

LAYOUTS = {"sparse": "sparse_csr", "quant": "quantized"}
DTYPES = {"sparse": ("float32", "float64", "complex64", "bfloat16"), "quant": ("float32",)}
SCALE = 0.04


def _plan(subject: Subject, facts: OpFacts | None) -> Iterator[Case]:
    if facts is None or facts.op.samples is None or not has_values(facts.op) or facts.op.mutates:
        return
    name, rows = facts.op.name, TABLE.snapshot.rows
    for profile, layout in LAYOUTS.items():
        if (name, layout, subject.name) not in rows and (name, layout, None) not in rows:
            continue
        for dtype in choose_dtypes(facts, DTYPES[profile], 4):
            if dtype in subject.dtypes and dtype in DTYPES[profile]:
                yield Case(27, name, dtype, variant=f"{profile}-kernel")
                if profile == "sparse" and dtype == "float64" and facts.op.differentiable:
                    yield Case(27, name, dtype, variant="sparse-gradient")


def _places(sample: Any, ndim: int | None) -> list[int]:
    """Positions of the arrays that can be brought into the layout."""
    return [
        i
        for i, a in enumerate(sample.args)
        if isinstance(a, np.ndarray) and a.size and a.ndim == (a.ndim if ndim is None else ndim)
    ]


def _subsets(places: list[int]) -> Iterator[tuple[int, ...]]:
    for n in range(1, len(places) + 1):
        yield from itertools.combinations(places, n)


def _thinned(array: Any, rng: np.random.Generator) -> Any:
    """Mostly zeros, with an empty first row."""
    kept = rng.random(array.shape) < 0.5
    kept[0] = False
    kept[-1, -1] = True
    return np.where(kept, array, np.zeros((), array.dtype)).astype(array.dtype)


def _paired(samples: Iterator[Any], rng: np.random.Generator) -> Iterator[Any]:
    """The samples, and those of two arrays once more with two of one shape: none broadcasts."""
    for sample in samples:
        yield sample
        places = _places(sample, None)
        if len(places) == 2 and sample.args[places[0]].ndim == 2:
            first, second = (sample.args[i] for i in places)
            args = [*sample.args]
            args[places[1]] = rng.choice(second.reshape(-1), first.shape)
            yield type(sample)(*args, **sample.kwargs)


def _refused(context: Context, layout: str, error: CoreDispatchError) -> None:
    named = layout in str(error) or context.op.name in str(error)
    context.expect(named, f"refused, without naming the layout or the operator: {error}")


def _sparse_calls(context: Context) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Samples with thinned matrices, and which of these to make sparse."""
    rng = np.random.default_rng(context.case.seed + context.fresh)
    for sample in _paired(context.samples(), rng):
        places = _places(sample, 2)
        if 0 < len(places) <= 2:
            args = [_thinned(a, rng) if i in places else a for i, a in enumerate(sample.args)]
            for subset in _subsets(places):
                yield context.placed(type(sample)(*args, **sample.kwargs)), subset


def _sparse_result(context: Context, sample: Any, subset: tuple[int, ...]) -> Any:
    """The result, dense; None where the combination is refused."""
    tensors = context.subject.tensors(sample)
    args = [a.to_sparse_csr() if i in subset else a for i, a in enumerate(tensors.args)]
    taken = sum(fallback.report().values())
    try:
        result = context.op(*args, **tensors.kwargs)
    except CoreDispatchError as error:
        _refused(context, "sparse_csr", error)
        return None
    context.expect(sum(fallback.report().values()) == taken, "a fallback was taken")
    return [t.to_dense() for t in tensors_in(result)]


@check(27, plan=_plan, variant="sparse-kernel")
def sparse_kernel(context: Context) -> None:
    """The operator on CSR matrices gives the dense result, or refuses."""
    served = 0
    for sample, subset in _sparse_calls(context):
        result = _sparse_result(context, sample, subset)
        if result is not None:
            context.close(result, sample, signs=False)  # a place that is not stored has no sign
            served += 1
    context.expect(served, "the kernel of the layout served none of the operator's samples")


@check(27, plan=_plan, variant="sparse-gradient")
def sparse_gradient(context: Context) -> None:
    """The gradient of a CSR matrix is that of the dense one, at the places it stores."""
    judged = 0
    for sample, subset in _sparse_calls(context):
        if _sparse_result(context, sample, subset) is None:
            continue
        gradients = []
        for convert in (lambda t: t.to_sparse_csr(), lambda t: t):
            tensors = context.subject.tensors(sample)
            leaves = [tensors.args[i].requires_grad_(True) for i in subset]
            args = [convert(a) if i in subset else a for i, a in enumerate(tensors.args)]
            result = tensors_in(context.op(*args, **tensors.kwargs))[0].to_dense()
            if not result.requires_grad:
                break
            weight = context.subject.tensor(np.cos(np.arange(result.numel())))
            (result * weight.reshape(result.shape)).sum().backward()
            gradients.append([context.subject.array(leaf.grad) for leaf in leaves])
        if len(gradients) < 2:
            continue
        for place, sparse, dense in zip(subset, *gradients, strict=True):
            stored = sample.args[place] != 0
            error = np.abs(sparse * stored - dense * stored).max(initial=0)
            context.expect(error < 1e-10, f"the gradient of argument {place} is off by {error}")
            judged += 1
    if not judged:
        raise NotRun("no result of the operator on sparse matrices has a gradient")


def _quantized_calls(context: Context) -> Iterator[tuple[Any, tuple[int, ...], str]]:
    """Samples, which of their arrays to quantize, and to what."""
    for sample in context.samples():
        places = [i for i in _places(sample, None) if sample.args[i].dtype.kind == "f"]
        if 0 < len(places) <= 2:
            for subset, dtype in itertools.product(_subsets(places), ("quint8", "qint8")):
                yield sample, subset, dtype


@check(27, plan=_plan, variant="quant-kernel")
def quantized_kernel(context: Context) -> None:
    """The operator on quantized tensors is within 0.6 output steps of its reference."""
    served = 0
    for sample, subset, dtype in _quantized_calls(context):
        context.placed(sample)
        zero = 110 if dtype == "quint8" else -12
        tensors, dense = context.subject.tensors(sample), [*sample.args]
        args = [*tensors.args]
        for i in subset:
            args[i] = cd.ops.quantize_per_tensor(args[i], SCALE, zero, dtype)
            dense[i] = context.subject.array(cd.ops.dequantize(args[i])).astype(np.float64)
        try:
            result = context.op(*args, **tensors.kwargs)
        except CoreDispatchError as error:
            _refused(context, "quantized", error)
            continue
        wanted = Reference(context.op, type(sample)(*dense, **sample.kwargs))()
        wanted = wanted if isinstance(wanted, (list, tuple)) else [wanted]
        for output, r in zip(tensors_in(result), wanted, strict=True):
            context.expect(output.layout == "quantized", f"the result is {output.layout}")
            found = context.subject.array(cd.ops.dequantize(output))
            context.expect(found.shape == r.shape, f"shape {found.shape}, not {r.shape}")
            error = np.abs(found - r).max(initial=0) / output.q_scale()
            context.expect(error <= 0.6, f"off by {error:.2f} output steps")
        served += 1
    context.expect(served, "the kernel of the layout served none of the operator's samples")
