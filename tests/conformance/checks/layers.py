"""Check 34: a layer's kernels against the call without the layer.

A layer stands between users and every kernel of a backend. What it may change is what it declares
(``Layer.keeps``, ``Layer.meaning``); all else must be as if it were not there: results, dtypes,
strides, what is written, which memory is shared, random numbers, gradients, refusals.
``Layer.through`` is how the suite brings it into force. That it then saw the call is observed, not
assumed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import Layer
from coredispatch.registry import TABLE, AutogradError, CoreDispatchError
from coredispatch.registry.around.observe import observe

from ..case import BACKEND, Case
from ..context import Context, NotRun, poison, sample_tensors, snapshot, tensors_in
from ..exact import wide_integers
from ..reference import positional
from ..subject import OpMetadata, Subject
from ..templates import templates
from ..tensor_layouts import layout_of, scope
from ..variations import variations, with_argument
from . import check
from .decompositions import disagreement, public, weighted_sum
from .exactness import refilled
from .values import choose_dtypes

#: dtypes that layers are tried in: casts, integers and complex numbers take ways of their own
DTYPES = ("float32", "int64", "bool", "complex64")
#: samples of an operator that are judged for each case
JUDGED = 40
#: and again with other values, in the same shapes
REPEATED = 3
#: calls with other options and shapes
VARIED = 120


class _Left(Exception):
    """Raised inside a layer, to see that it is gone afterwards."""


def layers() -> dict[str, Layer]:
    """The layers of all loaded plugins, by name."""
    return {name: layer for name, (layer, _) in TABLE.snapshot.layers.items()}


def serves(layer: Layer, op: Any) -> bool:
    """Whether a layer has a kernel of some kind for an operator."""
    registrations = TABLE.snapshot.registrations
    own = ((op.name, layer.name, below) for below in (None, *TABLE.snapshot.backends))
    if layer.name in op.rules or any(key in registrations for key in own):
        return True
    return layer.generic is not None and (layer.applies is None or bool(layer.applies(op)))


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        for name, layer in layers().items():
            yield Case(34, BACKEND, variant=f"{name}+{'left' if layer.through else 'declared'}")
        return
    op = metadata.op
    if op.samples is None or op.name.startswith(("empty", "new_empty")):
        return
    for name, layer in layers().items():
        if layer.through is None:
            continue
        inplace = op.inplace_op is not None and "writes" in layer.keeps
        for dtype in choose_dtypes(metadata, DTYPES, 3):
            if dtype not in subject.dtypes:
                continue
            # A layer that tensors carry need not see the others, as autograd of integers.
            required = dtype.startswith("float") and not op.factory
            if serves(layer, op):
                yield Case(34, op.name, dtype, variant=f"{name}+call", mandatory=required)
            if inplace and serves(layer, op.inplace_op):
                yield Case(34, op.name, dtype, variant=f"{name}+in-place", mandatory=required)
        differentiable = op.differentiable and not op.mutates and "gradients" in layer.keeps
        if differentiable and serves(layer, op) and "float64" in metadata.dtypes:
            if "float64" in subject.dtypes:
                yield Case(34, op.name, "float64", variant=f"{name}+gradient")


@check(34, plan=_plan)
def layer(context: Context) -> None:
    """A layer changes what it says it changes, and nothing else."""
    name = scope(context.case.variant)
    found = layers().get(name)
    if found is None:
        raise NotRun(f"no loaded plugin brings the layer {name!r}")
    if found.through is None:
        raise NotRun(f"layer {name!r} does not say how to call through it: give it a through=")
    what = context.case.variant.partition("+")[2]
    if what == "left":
        _left(context, found)
    elif what == "gradient":
        _gradient(context, found)
    else:
        _call(context, found, context.op.inplace_op if what == "in-place" else context.op)


# ---- calls ------------------------------------------------------------------------------------


def _full(op: Any, tensors: Any) -> tuple[Any, ...]:
    """All arguments of a call, in the order of the signature."""
    return tuple(positional(op, list(tensors.args), tensors.kwargs))


def _plain(op: Any) -> Any:
    """The operator as a function of all its arguments by position."""
    params = op.schema.params
    named = [p.name for p in params if p.keyword_only]

    def call(*args: Any) -> Any:
        split = len(params) - len(named)
        return op(*args[:split], **dict(zip(named, args[split:], strict=True)))

    return call


def _free(layer: Layer, op: Any, args: tuple[Any, ...]) -> Any:
    """What a call comes to, without the layer."""
    function = _plain(op)
    return function(*args) if layer.meaning is None else layer.meaning(op, function, args)


def _through(layer: Layer, op: Any, args: tuple[Any, ...]) -> tuple[Any, bool]:
    """What a call gives with the layer in force, and whether the layer saw it."""
    assert layer.through is not None
    with observe() as log:
        result = layer.through(_plain(op), args)
    return result, any(layer.name in seen.keys for seen in log)


def _outcome(context: Context, op: Any, sample: Any, call: Any) -> tuple[Any, Any, str]:
    """The arguments after a call, its result, and the class of what was raised."""
    tensors = context.subject.tensors(sample)
    cd.manual_seed(context.case.seed)
    try:
        result = call(op, _full(op, tensors))
        context.subject.synchronize()  # a device that computes later raises then
        return tensors, result, ""
    except (CoreDispatchError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return tensors, None, type(error).__name__


def _call(context: Context, layer: Layer, op: Any) -> None:
    """Results, writes and shared memory with the layer are those without it."""
    judged, seen_by_layer, refusals = 0, False, 0
    for sample in itertools.chain(_samples(context), _with_all_digits(context, layer)):

        def through(op: Any, args: tuple[Any, ...]) -> Any:
            nonlocal seen_by_layer
            result, seen = _through(layer, op, args)
            seen_by_layer = seen_by_layer or seen
            return result

        plain, wanted, refused = _outcome(
            context, op, sample, lambda op, args: _free(layer, op, args)
        )
        given, found, error = _outcome(context, op, sample, through)
        context.expect(
            bool(error) == bool(refused),
            f"with the layer {error or 'a result'}, without it {refused or 'a result'}",
        )
        judged += 1
        if error:
            refusals += 1
            continue
        _results_agree(context, layer, found, wanted, sample)
        if "writes" in layer.keeps:
            _writes_agree(context, (given, found), (plain, wanted))
    if not judged:
        raise NotRun("the operator has no sample")
    if seen_by_layer or refusals == judged:  # what is refused may reach no layer
        return
    unseen = f"no call was seen by the layer {layer.name!r}: see its through="
    context.expect(not context.case.mandatory, unseen)
    raise NotRun(unseen)


def _samples(context: Context) -> Iterator[Any]:
    again = context.samples(REPEATED, seed=(context.case.seed + context.fresh + 1) % 2**32)
    first = [*itertools.islice(context.samples(), JUDGED)]
    drawn = first[::8] if public(context.op) else []  # its callers check the options of another
    found = (v for s in drawn for v in [*variations(context.op, s)][1:])
    varied = (v.sample for v in found if not v.what.startswith("sparse="))  # a plugin's affair
    typed = (
        with_argument(context.op, s, p.name, cd.float64)
        for s in first[:REPEATED]
        for p in context.op.schema.params
        if p.kind == "DType"
    )
    more = itertools.chain(itertools.islice(varied, VARIED), typed)
    return itertools.chain(first, again, map(context.placed, more))


def _with_all_digits(context: Context, layer: Layer) -> Iterator[Any]:
    """Integers that a double does not hold, and doubles that single precision does not.

    The samples' integers are small, and their numbers single: a layer that converts results and
    converts them back loses nothing of these.
    """
    if "bits" not in layer.keeps:
        return
    metadata = context.metadata
    if context.case.dtype == "int64":
        dtype = np.dtype(np.int64)
        found = templates(context.op, lambda kind: context.make(kind=kind, dtype=dtype))
        free = (t for t in found if all(_unbounded(r) for r in t.requests.values()))
        for template in itertools.islice(free, REPEATED):
            sample = refilled(
                context, template, dtype, lambda shape, i: wide_integers(shape, dtype, i)
            )
            if sample is not None:
                yield sample
    elif context.case.dtype == "float32" and metadata and "float64" in metadata.dtypes:
        if "float64" in context.subject.dtypes:
            yield from itertools.islice(context.samples(dtype=np.dtype(np.float64)), REPEATED)


def _unbounded(request: Any) -> bool:
    """Whether an array may hold any number: neither places nor amounts, nor within bounds."""
    return request.method == "__call__" and request.low is None and request.high is None


def _results_agree(context: Context, layer: Layer, a: Any, b: Any, sample: Any) -> None:
    """The results are of the same kinds, dtypes, shapes and values, and of the same strides."""
    found, wanted = tensors_in(a), tensors_in(b)
    context.expect(
        (type(a), len(found)) == (type(b), len(wanted)),
        f"{type(a).__name__} of {len(found)} tensors with the layer, "
        f"{type(b).__name__} of {len(wanted)} without",
    )
    for f, w in zip(found, wanted, strict=True):
        for what in ("dtype", "shape", "device", "layout"):
            mine, other = getattr(f, what), getattr(w, what)
            context.expect(mine == other, f"{what} {mine} with the layer, {other} without")
    strided = all(layout_of(t) is None for t in found)
    if "bits" in layer.keeps:
        free = None if context.op.random else sample  # a random op repeats with its seed
        context.same(found, wanted, "with the layer and without", of=free)
        if strided and "writes" in layer.keeps:
            mine, other = [t.stride() for t in found], [t.stride() for t in wanted]
            context.expect(mine == other, f"strides {mine} with the layer, {other} without")
    elif "values" in layer.keeps:
        for f, w in zip(found, wanted, strict=True):
            error = disagreement(context.array(f), context.array(w))
            context.expect(error <= 1, f"with the layer {error:.3g} times too far off")


def _writes_agree(context: Context, through: Any, free: Any) -> None:
    """The arguments hold the same, and so they do once the results were written to."""
    given, found = through
    plain, wanted = free
    mine, other = sample_tensors(given), sample_tensors(plain)
    positions = [[i for i, g in enumerate(t) if r is g] for t, r in _pairs(mine, found)]
    expected = [[i for i, g in enumerate(t) if r is g] for t, r in _pairs(other, wanted)]
    context.expect(positions == expected, "a result is an argument, with the layer or without")
    _contents_agree(context, given, plain, "an argument holds something else with the layer")
    counted = [t._version for t in mine], [t._version for t in other]
    context.expect(counted[0] == counted[1], f"the versions are {counted[0]}, not {counted[1]}")
    refusals = [[_poisoned(r) for r in tensors_in(results)] for results in (found, wanted)]
    context.expect(refusals[0] == refusals[1], "a result can be written to with or without it")
    _contents_agree(
        context, given, plain, "a result shares memory with an argument, with the layer or without"
    )


def _pairs(given: list[Any], results: Any) -> list[tuple[list[Any], Any]]:
    return [(given, r) for r in tensors_in(results)]


def _contents_agree(context: Context, given: Any, plain: Any, what: str) -> None:
    if snapshot(context, given) != snapshot(context, plain):  # equal bits are equal values
        for f, w in zip(sample_tensors(given), sample_tensors(plain), strict=True):
            context.same(f, w, what, of=context.sample)
    context.expect(True, "")


def _poisoned(result: Any) -> str:
    """Write to a result; the class of what was raised."""
    if not result.numel():
        return ""
    try:
        poison(result)
    except CoreDispatchError as error:
        return type(error).__name__
    return ""


# ---- gradients, and what is left --------------------------------------------------------------


def _gradient(context: Context, layer: Layer) -> None:
    """The gradients of a call through the layer are those without it."""
    judged = 0
    for sample in itertools.islice(context.samples(), JUDGED):
        free = _gradients(context, sample, lambda op, args: _free(layer, op, args))
        if free is None:
            continue
        through = _gradients(context, sample, lambda op, args: _through(layer, op, args)[0])
        context.expect(through is not None, "no gradient passes through the layer")
        assert through is not None
        for number, (f, w) in enumerate(zip(through, free, strict=True)):
            f, w = (np.zeros_like(w) if f is None else f), (np.zeros_like(f) if w is None else w)
            if w is None or f is None:
                continue
            context.expect(f.shape == w.shape, f"gradient {number}: {f.shape}, not {w.shape}")
            error = disagreement(f, w)
            context.expect(error <= 1, f"gradient {number} is {error:.3g} times too far off")
        judged += 1
    if not judged:
        raise NotRun("no sample has a gradient")


def _gradients(context: Context, sample: Any, call: Any) -> list[Any] | None:
    """The gradients of a weighted sum of the results, which are computed outside the layer."""
    tensors = context.subject.tensors(sample)
    floating = [t for t in sample_tensors(tensors) if t.dtype.is_floating_point]
    leaves = [t.requires_grad_(True) for t in floating]
    cd.manual_seed(context.case.seed)
    try:
        total = weighted_sum(context, tensors_in(call(context.op, _full(context.op, tensors))))
        if not leaves or total is None:
            return None
        found = cd.autograd.grad(total, leaves, allow_unused=True)
    except AutogradError:
        return None  # a documented refusal
    return [None if g is None else context.array(g) for g in found]


def _left(context: Context, layer: Layer) -> None:
    """Nothing is left of the layer after a call, nor after one that raised."""
    assert layer.through is not None
    x = context.tensor(np.array([1.0, -2.0, 3.0], np.float32))

    def raising(*_: Any) -> None:
        raise _Left

    for function in (cd.neg, raising):
        try:
            layer.through(function, (x,))
        except _Left:
            context.expect(function is raising, "an exception of an earlier call")
        else:
            context.expect(function is cd.neg, "an exception inside the layer did not come out")
        with observe() as log:
            cd.neg(x)
        kept = any(layer.name in seen.keys for seen in log)
        context.expect(not kept, "the layer is in force after the call")
