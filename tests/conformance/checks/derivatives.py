"""Check 12, beyond central differences near zero: other dtypes, far away, any incoming gradient.

Near zero and in float64 a derivative is checked by differences. Here it is carried over: to float32
and half precision, which must agree with float64; far from zero, by differences of single elements;
and to incoming gradients of any size, sign and layout, in which a derivative is linear. What the
result does not depend on, its derivative may not read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.autograd import GradcheckError, gradcheck
from coredispatch.plugin import Sample
from coredispatch.registry import AutogradError, CoreDispatchError

from ..case import BACKEND, Case
from ..context import Context, Failure, NotRun, elements, has_values, tensors_in
from ..distributions import limits
from ..reference import NoReference, Reference
from ..subject import OpMetadata, Subject
from ..windows import window
from . import check
from .arguments import unread
from .recorded_calls import FAR, RecordedCall, recorded_calls
from .values import decomposes

#: an incoming gradient this large, with the other sign: an exact factor
FACTOR = -4096.0
#: units in the last place of the largest derivative, and of its own, that narrow ones may be off
NARROW = ("float32", "float16", "bfloat16")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        for variant in ("accumulates", "freed"):
            yield Case(12, BACKEND, "float64", variant=variant)
        return
    op = metadata.op
    if op.samples is None or not op.differentiable or not has_values(op) or op.mutates:
        return
    if metadata.layouts:
        return
    for dtype in NARROW:
        if dtype not in metadata.dtypes or dtype not in subject.dtypes:
            continue
        if not decomposes(op) or "float16" in metadata.dtypes:  # LAPACK has no half precision
            yield Case(12, op.name, dtype, variant="narrow", mandatory=dtype == "float32")
    if "float64" in metadata.dtypes and "float64" in subject.dtypes:
        if op.edges:
            yield Case(12, op.name, "float64", variant="edges")
        yield Case(12, op.name, "float64", variant="incoming")
        if op.kind == "primitive" or op.vjp_rule is not None:
            yield Case(12, op.name, "float64", variant="far")
            if op.gradcheck is None:  # what is checked instead reads what it likes
                yield Case(12, op.name, "float64", variant="not-read")


def _off(found: Any, wanted: Any, allowed: Any) -> float:
    """The largest error over what is allowed; infinite where one is a number and the other not."""
    found, wanted = (np.asarray(a).astype(np.float64) for a in (found, wanted))
    known = np.isfinite(wanted)
    if not np.array_equal(known, np.isfinite(found)):
        return float("inf")
    error = np.abs(found - wanted)[known]
    bound = np.broadcast_to(allowed, wanted.shape)[known]
    return float((error / np.maximum(bound, 1e-300)).max(initial=0.0))


def _real(values: list[Any]) -> bool:
    return all(v.dtype.kind in "fV" for v in values)


# ---- narrow dtypes ------------------------------------------------------------------------------


@check(12, plan=_plan, variant="narrow")
def narrow(context: Context) -> None:
    """In float32 and half precision a gradient is the one of float64, rounded."""
    single = context.case.dtype == "float32"
    # What cancels in a factor loses its digits: 1 less the square of a tanh near 1. In single
    # precision that shows where a decomposition rounds again and again.
    reach = 0.0 if single and context.op.kind == "primitive" else 1.0
    for sample, call in recorded_calls(context, 4 if single else 2):
        _narrowed(context, sample, call, reach)
    # bfloat16 is as wide as float32. Far from zero the products of a gradient's gradient leave the
    # range of float16, unless a rule of its own avoids them.
    op = context.op
    squared = context.case.dtype == "float16" and op.name.endswith("_backward") and not op.vjp_rule
    if op.values is None and context.case.dtype != "bfloat16" and not squared:
        for sample, call in recorded_calls(context, 2 if single else 1, values=(-FAR, FAR)):
            _narrowed(context, sample, call, 2 * FAR * call.result_read())
    if not context.asserted:
        raise NotRun("no sample has a derivative")


def _narrowed(context: Context, sample: Any, call: RecordedCall, reach: float = 0.0) -> None:
    """``reach``: how large the products of inputs and incoming gradients are."""
    info = limits(context.make().dtype)
    u = float(info.eps) / 2
    wide = sample.map(lambda a: np.asarray(a.astype(np.float64)) if a.dtype.kind in "fV" else a)
    try:
        other = RecordedCall(context, context.placed(wide))
    except CoreDispatchError:
        return
    incoming = call.incoming()
    if len(other.results) != len(incoming):
        return
    found, wanted = call.gradients(incoming), other.gradients(incoming)
    if not _real(found) or not _real(wanted):
        return
    context.sample = sample
    if reach and context.op.kind != "primitive":
        # A decomposition carries one argument's gradient on to the next, as a recurrence does.
        largest = [np.abs(w[np.isfinite(w)]).max(initial=0.0) for w in wanted]
        reach = max(reach, *largest)
    # Formulas with an inverse take products apart that nearly cancel: det(x) inv(x) inv(x), twice.
    bound = context.op.tolerance
    slack = 4 if bound is not None and bound.kind == "conditioned" else 1
    spread = [np.zeros(w.shape) for w in wanted]
    # Most gradients need no spread. A few directions find it but for a factor; before a failure
    # stands, many are asked.
    for first, last in ((0, 0), (0, 3), (3, 40)):
        for direction in range(first, last):
            near = _moved_gradients(context, wide, direction, u, incoming)
            with np.errstate(all="ignore"):
                spread = [
                    s if n is None else np.fmax(s, np.abs(n - w))
                    for s, n, w in zip(spread, near or [None] * len(spread), wanted, strict=True)
                ]
        offs = [
            None if off is None else off / slack
            for f, w, s in zip(found, wanted, spread, strict=True)
            for off in (_too_far(f, w, s, info, reach),)
        ]
        if all(off is None or off <= 1 for off in offs):
            break
    for number, (f, w, off) in enumerate(zip(found, wanted, offs, strict=True)):
        if off is None:
            continue  # what it is made of is out of range
        context.expect(
            off <= 1,
            f"the gradient of argument {number} in {context.case.dtype} is not that of float64, "
            f"{off:.3g} times too far: {f.reshape(-1)[:4].tolist()}, {w.reshape(-1)[:4].tolist()}",
        )


def _moved_gradients(
    context: Context, wide: Any, direction: int, u: float, incoming: list[Any]
) -> list[Any] | None:
    """The gradients where each input is moved by ``u`` of itself; None where there are others."""
    rng = np.random.default_rng(direction)

    def move(a: Any) -> Any:
        moved = a.dtype.kind == "f"
        return np.asarray(a * (1 + u * rng.choice((-1.0, 1.0), a.shape))) if moved else a

    call = RecordedCall(context, wide.map(move))
    return call.gradients(incoming) if len(call.results) == len(incoming) else None


def _too_far(f: Any, w: Any, spread: Any, info: Any, reach: float) -> float | None:
    """How far a gradient is off, in what is allowed; None where its parts are out of range."""
    u, largest = float(info.eps) / 2, float(info.max)
    f = f.astype(np.float64)
    # Beyond the dtype's range an infinity is right, and close to it so is either.
    with np.errstate(all="ignore"):
        open_ = ~np.isfinite(spread) | (np.abs(w) > largest / 64)
    w, f = np.where(open_, 0.0, w), np.where(open_, 0.0, f)
    scale = np.abs(np.where(np.isfinite(w), w, 0)).max(initial=0.0)
    if scale > np.sqrt(largest):
        return None
    allowed = 8 * spread + 8 * u * np.abs(w) + u * (8 * scale + 24 * reach)
    allowed = allowed + float(info.smallest_normal)
    return _off(f, w, np.where(np.isfinite(allowed), allowed, np.inf))


def _differences(context: Context, call: RecordedCall, leaves: tuple[Any, ...]) -> None:
    """Compare with central differences; raises GradcheckError.

    A step of 1e-5 may lead over a jump (of a quotient by a small number that is rounded to an
    integer): where it finds a difference, a smaller one has to find it, too.
    """
    # What cancels in a difference of large results is no fault of the derivative's.
    size = float(max(np.abs(context.subject.array(t)).max() for t in call.results))
    try:
        gradcheck(call.function, leaves, eps=1e-5, atol=1e-4 + 1e-10 * size, rtol=2e-3)
    except GradcheckError:
        gradcheck(call.function, leaves, eps=1e-8, atol=1e-3 + 1e-7 * size, rtol=2e-3)


# ---- far from zero ------------------------------------------------------------------------------


@check(12, plan=_plan, variant="far")
def far(context: Context) -> None:
    """Inputs up to 100: each element of the derivative against central differences."""
    low, high = context.op.values or (-FAR, FAR)
    if context.op.values is not None:
        low, high = (low, FAR) if high > 1.5 else (low, high)
        if high != FAR:
            raise NotRun("the operator's domain ends near zero")
    tiny = [
        s for s in context.op.samples(context.make(values=(low, high))) if 1 < elements(s) <= 24
    ]
    tiny = sorted(tiny, key=elements)
    alike = [s for s in tiny if len({a.shape for a in _arrays(s)}) == 1 < len(_arrays(s))]
    for sample in [*tiny[:: max(1, len(tiny) // 4)][:5], *alike[-1:]]:
        try:
            call = RecordedCall(context, context.placed(sample))
        except AutogradError:
            continue
        finite = all(np.isfinite(context.subject.array(t)).all() for t in call.results)
        incoming = call.incoming()
        if (
            not call.results
            or not finite
            or not _real([context.subject.array(t) for t in call.slots])
        ):
            continue
        try:
            gradients = call.gradients(incoming)
        except AutogradError:
            continue
        if any(np.abs(g).max(initial=0) > 1e12 for g in gradients):
            continue
        context.sample = sample
        _finite_gradients(context, gradients)
        leaves = [s.detach().requires_grad_(True) for s in call.slots]
        try:
            _differences(context, call, tuple(leaves))
        except GradcheckError as error:
            raise Failure(f"far from zero: {error.message} [{context.shown()}]") from None
        except AutogradError:
            continue
        context.expect(True, "")
    if not context.asserted:
        raise NotRun("no small sample is finite far from zero")


def _arrays(sample: Any) -> list[Any]:
    found: list[Any] = []
    sample.map(lambda a: found.append(a) or a)
    return found


def _finite_gradients(context: Context, gradients: list[Any]) -> None:
    for number, gradient in enumerate(gradients):
        context.expect(
            bool(np.isfinite(gradient).all()),
            f"far from zero the gradient of argument {number} is not finite: "
            f"{gradient.reshape(-1)[:6].tolist()}",
        )


# ---- incoming gradients -------------------------------------------------------------------------


@check(12, plan=_plan, variant="incoming")
def incoming(context: Context) -> None:
    """A derivative is linear in the incoming gradient, whatever its size, sign and layout."""
    for sample, call in recorded_calls(context):
        given = call.incoming()
        base = call.gradients(given)
        context.sample = sample
        ways: dict[str, Callable[[], list[Any]]] = {
            "transposed": lambda given=given: [np.array(g, order="F") for g in given],
            "with gaps": lambda given=given: [window(g) for g in given],
        }
        scaled = [np.asarray(g * FACTOR) for g in given]
        _agrees(context, call.gradients(scaled), base, FACTOR, "large")
        for what, make in ways.items():
            _agrees(context, call.gradients(make()), base, 1.0, what)
        ones = [np.ones(g.shape) for g in given]
        if context.subject.backend.views:
            one = [
                context.subject.tensor(np.ones(())).to(t.dtype).expand(tuple(t.shape))
                for t in call.results
            ]
            _agrees(context, call.gradients(one), call.gradients(ones), 1.0, "expanded")
    if not context.asserted:
        raise NotRun("no sample has a derivative")


def _agrees(context: Context, found: list[Any], base: list[Any], factor: float, what: str) -> None:
    for number, (f, b) in enumerate(zip(found, base, strict=True)):
        wanted = b * factor
        finite = np.isfinite(b)
        scale = np.abs(np.where(finite, wanted, 0)).max(initial=0.0)
        parts = (
            [(f, wanted)] if b.dtype.kind != "c" else [(f.real, wanted.real), (f.imag, wanted.imag)]
        )
        for p, q in parts:
            with np.errstate(all="ignore"):
                off = _off(p, q, 1e-9 * scale + 1e-11 * np.abs(q) + 1e-300)
            few = [np.asarray(x).reshape(-1)[:4].tolist() for x in (p, q)]
            context.expect(
                off <= 1,
                f"for an incoming gradient that is {what} the gradient of argument {number} "
                f"differs: {few[0]}, not {few[1]}",
            )


# ---- what is not read ---------------------------------------------------------------------------


@check(12, plan=_plan, variant="not-read")
def not_read(context: Context) -> None:
    """NaN where the result does not depend on the input changes no gradient."""
    for sample, call in recorded_calls(context, 8):
        gradients = call.gradients(call.incoming())
        _local(context, sample, call, gradients)
        _ignored(context, sample, call, gradients)
        for what, other in itertools.chain(
            _without_gradient(context, sample, call, gradients),
            unread(context, sample),
        ):
            try:
                spoilt = RecordedCall(context, context.placed(other))
                found = spoilt.gradients(call.incoming())
            except CoreDispatchError as error:
                raise Failure(f"with NaN in{what}: {error} [{context.shown()}]") from None
            for number, (f, w) in enumerate(zip(found, gradients, strict=True)):
                off = _off(f, w, 1e-9 * (1 + np.abs(w)))
                context.expect(
                    off <= 1 or _read_nearby(context, sample, other, number),
                    f"the gradient of argument {number} depends on{what}, which is not read",
                )
    if not context.asserted:
        raise NotRun("the results depend on all of the inputs")


def _read_nearby(context: Context, sample: Any, other: Any, number: int) -> bool:
    """Whether what was spoilt is read as soon as an argument changes: x**0 is 1 for every x, and
    grows by log(x).
    """
    place = _floating(sample)[number]
    moved = [_replaced(s, place, s.args[place] + 2.0**-20) for s in (sample, other)]
    results = [np.asarray(Reference(context.op, s)()) for s in moved]
    return not np.array_equal(*results, equal_nan=True)


def _only_result(context: Context, sample: Any, call: RecordedCall) -> Any:
    """The reference's result; None where it has none, or where the call has several."""
    if len(call.results) != 1:
        return None
    try:
        wanted = np.asarray(Reference(context.op, sample)())
    except (NoReference, ValueError, TypeError):
        return None
    return wanted if wanted.shape == tuple(call.results[0].shape) else None


def _local(context: Context, sample: Any, call: RecordedCall, gradients: list[Any]) -> None:
    """Where an element of an input reaches one of the result only, no other gradient reads it.

    Nor does it read the incoming gradient of other elements.
    """
    places = _floating(sample)
    wanted = _only_result(context, sample, call)
    if wanted is None or len(places) != len(gradients):
        return
    if wanted.size < 2 or wanted.dtype.kind != "f":
        return
    at = tuple(int(i) for i in np.unravel_index(wanted.size // 2, wanted.shape))
    others = np.ones(wanted.shape, np.bool_)
    others[at] = False
    local, alone = {}, []
    for place in places:
        array = sample.args[place]
        if array.shape != wanted.shape:
            continue
        other = _replaced(sample, place, np.where(others, array, np.nan))
        if _keeps(context, other, wanted, others):
            local[place] = other
            rest = _replaced(sample, place, np.where(others, np.nan, array))
            if _keeps(context, rest, wanted, ~others):  # nor does another reach this result
                alone.append(place)
    spoilt_incoming = np.array(call.incoming()[0])
    spoilt_incoming[at] = np.nan
    calls = [
        (
            f"element {at} of argument {place}",
            RecordedCall(context, context.placed(other)),
            call.incoming(),
            [*local],
        )
        for place, other in local.items()
    ]
    if alone:
        calls.append((f"the incoming gradient of element {at}", call, [spoilt_incoming], alone))
    for what, recorded, given, judged in calls:
        now = recorded.gradients(given)
        for place in judged:
            number = places.index(place)
            n, w = now[number], gradients[number]
            off = _off(n[others], w[others], 1e-9 * (1 + np.abs(w[others])))
            context.expect(
                off <= 1, f"the gradient of argument {number} at other elements reads {what}"
            )


def _keeps(context: Context, sample: Any, wanted: Any, where: Any) -> bool:
    """Whether the reference gives of a sample what is wanted there."""
    try:
        found = np.asarray(Reference(context.op, sample)())
    except (ValueError, TypeError):
        return False
    return found.shape == wanted.shape and np.array_equal(found[where], wanted[where])


def _floating(sample: Any) -> list[int]:
    """The places of the floating arrays of a sample."""
    return [
        i
        for i, a in enumerate(sample.args)
        if isinstance(a, np.ndarray) and a.dtype.kind == "f" and a.size
    ]


def _replaced(sample: Any, place: int, array: Any) -> Any:
    args = [*sample.args]
    args[place] = array
    return type(sample)(*args, **sample.kwargs)


def _ignored(context: Context, sample: Any, call: RecordedCall, gradients: list[Any]) -> None:
    """NaN that comes in where a result does not depend on an argument at all stays out of it."""
    places = _floating(sample)
    wanted = _only_result(context, sample, call)
    if wanted is None or len(places) != len(gradients):
        return
    for number, place in enumerate(places):
        array = sample.args[place]
        middle = np.unravel_index(array.size // 2, array.shape)
        for whole in (True, False):
            spoilt = np.full_like(array, np.nan) if whole else np.array(array)
            spoilt[() if whole else middle] = np.nan
            try:
                found = np.asarray(Reference(context.op, _replaced(sample, place, spoilt))())
            except (ValueError, TypeError):
                continue
            if found.shape != wanted.shape or found.dtype.kind != "f":
                continue
            free = (found == wanted) & np.isfinite(wanted)
            if not free.any() or free.shape != tuple(call.results[0].shape):
                continue
            now = call.gradients([np.where(free, np.nan, call.incoming()[0])])[number]
            if now.shape != array.shape:
                continue
            now, w = (now, gradients[number]) if whole else (now[middle], gradients[number][middle])
            off = _off(now, w, 1e-9 * (1 + np.abs(w)))
            context.expect(
                off <= 1,
                f"the gradient of argument {number} reads what comes in for results that do not "
                "depend on it",
            )


def _without_gradient(
    context: Context, sample: Any, call: RecordedCall, gradients: list[Any]
) -> Iterator[tuple[str, Any]]:
    """The sample with NaN where its gradient is 0 and its reference reads nothing."""
    places = _floating(sample)
    if len(places) != len(gradients) or decomposes(context.op):
        return
    try:
        wanted = Reference(context.op, sample)()
    except (NoReference, ValueError, TypeError):
        return
    for place, gradient in zip(places, gradients, strict=True):
        idle = gradient == 0
        if idle.shape != sample.args[place].shape or not idle.any():
            continue
        spoilt = np.asarray(np.where(idle, np.nan, sample.args[place]))
        other = _replaced(sample, place, spoilt)
        try:
            found = Reference(context.op, other)()
        except (ValueError, TypeError):
            continue
        both = [x if isinstance(x, (list, tuple)) else [x] for x in (found, wanted)]
        alike = all(
            np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind in "fc")
            for a, b in zip(*both, strict=True)
        )
        if alike:
            yield f" elements of argument {place}", other


# ---- ties, bounds, zeros ------------------------------------------------------------------------


@check(12, plan=_plan, variant="edges")
def edges(context: Context) -> None:
    """Where a derivative does not exist, the gradient is what the operator definition states."""
    for convention, args, kwargs, gradient in context.op.edges:
        sample = Sample(*[np.array(a) if isinstance(a, list) else a for a in args], **kwargs)
        call = RecordedCall(context, context.placed(sample))
        wanted = gradient if isinstance(gradient, tuple) else (gradient,)
        results = tensors_in(call.function(*call.slots))
        total = results[0].sum()
        for result in results[1:]:
            total = total + result.sum()
        found = cd.autograd.grad(total, call.slots)
        for number, (f, w) in enumerate(zip(found, wanted, strict=True)):
            array = context.subject.array(f)
            right = array.shape == np.shape(w) and np.allclose(array, w, equal_nan=True)
            context.expect(
                right, f"{convention}: the gradient of argument {number} is {array}, not {w}"
            )


# ---- the engine ---------------------------------------------------------------------------------


@check(12, plan=_plan, variant="accumulates")
def accumulates(context: Context) -> None:
    """A second backward adds to ``.grad``, and so does a second way to a leaf."""
    device = context.subject.device
    leaf = cd.tensor([1.0, -2.0], dtype=cd.float64, device=device).requires_grad_(True)
    for times in (1, 2, 3):
        (leaf * 3.0).sum().backward()
        found = context.subject.array(leaf.grad).tolist()
        context.expect(
            found == [3.0 * times] * 2, f"backward adds to .grad: after {times}, {found}"
        )
    held = leaf.grad
    leaf.grad = None
    (leaf * 2.0 + leaf * leaf).sum().backward()
    found = context.subject.array(leaf.grad).tolist()
    context.expect(found == [4.0, -2.0], f"the ways to a leaf add up: {found}")
    before = context.subject.array(held).tolist()
    context.expect(before == [9.0, 9.0], f"a gradient that was replaced is written to: {before}")
    (alone,) = cd.autograd.grad((leaf * 5.0).sum(), [leaf])
    context.expect(context.subject.array(leaf.grad).tolist() == [4.0, -2.0], "grad() adds to .grad")
    context.expect(context.subject.array(alone).tolist() == [5.0, 5.0], "grad() adds to .grad")


@check(12, plan=_plan, variant="freed")
def freed(context: Context) -> None:
    """A graph is freed by its backward, unless ``retain_graph`` keeps it."""
    leaf = cd.tensor([1.0, 2.0], dtype=cd.float64, device=context.subject.device)
    leaf.requires_grad_(True)
    total = (leaf * leaf).exp().sum()
    total.backward(retain_graph=True)
    total.backward()
    try:
        total.backward()
    except (AutogradError, RuntimeError) as error:
        context.expect("retain_graph" in str(error), f"unhelpful: {error}")
    else:
        context.expect(False, "the graph is not freed: backward ran through it again")
