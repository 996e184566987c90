"""Checks 14 and 15: refused calls - the error's class, what it names, and that nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import DType, samples
from coredispatch.registry import CoreDispatchError, DeviceError, OpError
from coredispatch.registry.around.devices import reads_anywhere

from ..case import BACKEND, Case
from ..context import Context, NotRun, sample_tensors, snapshot, tensors_in
from ..covering_array import ConfiguredMake
from ..growth import Filling, cost, growths
from ..subject import OpMetadata, Subject, numpy_dtype
from ..templates import templates
from ..tensor_layouts import layout_of
from . import check
from .values import VALUE_SHAPED, choose_dtypes, shapes_of

#: how long an index is of which the last places are asked, and calls of it
LATE, LATE_CALLS = 2100, 6
#: parameters that hold places in another argument
INDEXED = frozenset(("index", "indices", "target", "padding_idx"))


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        yield Case(14, BACKEND, variant="unknown-device")
        return
    op = metadata.op
    if op.samples is None:
        return
    for dtype in ("int64", "bfloat16"):
        if metadata.native and dtype in subject.dtypes and _outside(metadata, dtype):
            yield Case(14, op.name, dtype, variant="dtype")
    for dtype in choose_dtypes(metadata, ("float32",), 1):
        if dtype not in subject.dtypes:
            return
        if op.errors is not None:
            yield Case(14, op.name, dtype, variant="declared")
        if op.tensors and not op.random:
            yield Case(14, op.name, dtype, variant="wrong-type")
        if getattr(op.out_rule, "__name__", "") == "broadcast" and len(op.tensors) > 1:
            yield Case(14, op.name, dtype, variant="shapes")
        if any(p.name == "dim" for p in op.schema.params) and not op.name.endswith("_backward"):
            yield Case(14, op.name, dtype, variant="dim")
        if len(op.tensors) > 1 and not reads_anywhere(op):
            yield Case(15, op.name, dtype)
        if metadata.native and INDEXED & {p.name for p in op.schema.params}:
            yield Case(14, op.name, dtype, variant="places")


def _outside(metadata: OpMetadata, dtype: str) -> bool:
    """Whether the rules of a public operator refuse arrays of ``dtype``."""
    named = metadata.op.namespaces or metadata.op.method
    if not named or dtype in metadata.dtypes or metadata.layouts:
        return False
    try:
        sample = next(
            iter(metadata.op.samples(samples.Make(numpy_dtype(dtype), 0, metadata.op.values)))
        )
        sample = sample.map(lambda a: cd.empty(a.shape, dtype=DType.of(a.dtype), device="meta"))
        metadata.op(*sample.args, **sample.kwargs)
    except cd.DTypeError:
        return True
    except Exception:  # sampled otherwise, or computed from values
        return False
    return False


def _refused(
    context: Context, sample: Any, wanted: Any, fragment: str = "", call: Any = None
) -> None:
    """The call raises ``wanted``, names the op, and leaves its inputs as they were."""
    tensors = context.subject.tensors(sample)
    before = snapshot(context, tensors)
    try:
        (call or context.call)(tensors)
        context.subject.synchronize()  # a device that computes later raises then
    except wanted as error:
        text = str(error)
        context.expect(
            isinstance(error, CoreDispatchError), f"a bare {type(error).__name__}: {text[:80]}"
        )
        context.expect(_names(context.op, text), f"the error does not name the op: {text[:120]}")
        context.expect(fragment in text, f"the error does not say {fragment!r}: {text[:120]}")
        context.expect(len(text.splitlines()) <= 10, "the error has more than ten lines")
        context.unchanged(before, tensors)
    except Exception as error:
        expected = wanted.__name__ if isinstance(wanted, type) else "a documented error"
        context.expect(False, f"raised {type(error).__name__} instead of {expected}: {error}")
    else:
        context.expect(False, "the call was accepted")


def _names(op: Any, text: str) -> bool:
    """Whether the message names the op or, for a composite, the op inside it that refused."""
    if op.name in text or op.name.rstrip("_") in text:
        return True
    return op.kind == "composite" and "(" in text.splitlines()[0]


@check(14, plan=_plan, variant="declared")
def declared(context: Context) -> None:
    """The error inputs of the operator definition."""
    for entry in context.op.errors(context.make()):
        sample, wanted, *rest = entry
        _refused(context, context.placed(sample), wanted, *rest[:1])
    _works_still(context)


@check(14, plan=_plan, variant="wrong-type")
def wrong_type(context: Context) -> None:
    """A list, a string or nothing in the place of the first tensor."""
    position = context.op.tensors[0]
    sample = next(context.samples(), None)
    if sample is None or position >= len(sample.args):
        raise NotRun("no sample passes the tensor by position")
    for wrong in ("text", object()):
        args = [*sample.args]
        args[position] = wrong
        changed = type(sample)(*args, **sample.kwargs)
        context.sample = changed
        _refused(context, changed, (OpError, CoreDispatchError))
    context.sample = sample
    _works_still(context)


@check(14, plan=_plan, variant="dtype")
def dtype(context: Context) -> None:
    """A dtype that the operator's rules refuse: no kernel makes another one of it in silence."""
    sample = next(context.samples())
    context.sample = sample
    _refused(context, sample, cd.DTypeError)


@check(14, plan=_plan, variant="shapes")
def shapes(context: Context) -> None:
    """Shapes that do not broadcast."""
    for sample in context.samples(limit=40):
        found = shapes_of(sample)
        if (
            len(found) < 2
            or not isinstance(sample.args[0], np.ndarray)
            or not isinstance(sample.args[1], np.ndarray)
        ):
            continue
        wrong = iter(((2, 3), (2, 4), (2, 3), (2, 3)))
        args = [
            np.ones(next(wrong), a.dtype) if isinstance(a, np.ndarray) else a for a in sample.args
        ]
        changed = type(sample)(*args, **sample.kwargs)
        context.sample = changed
        _refused(context, changed, cd.ShapeError)
        return
    raise NotRun("no sample with two arrays")


@check(14, plan=_plan, variant="dim")
def dim(context: Context) -> None:
    """A dim that is out of range."""
    params = context.op.schema.params
    position = [p.name for p in params].index("dim")
    for sample in context.samples():
        args, kwargs = [*sample.args], dict(sample.kwargs)
        given = position < len(args)
        old = args[position] if given else kwargs.get("dim", params[position].default)
        if not shapes_of(sample) or type(old) not in (int, tuple, type(None)):
            continue
        wrong = (9, *old[1:]) if type(old) is tuple else 9
        if given:
            args[position] = wrong
        else:
            kwargs["dim"] = wrong
        changed = type(sample)(*args, **kwargs)
        context.sample = changed
        _refused(context, changed, cd.DimError, "9")
        context.sample = sample
        _works_still(context)
        return
    raise NotRun("no sample passes a dim")


@check(14, plan=_plan, variant="places")
def places(context: Context) -> None:
    """An index that is refused in one place is refused in every place, also among many.

    Whether an index is refused at all, the operator says: one beyond the end, and one before
    the start. A call that is refused somewhere and taken elsewhere read what is not there.
    """
    judged, names = 0, [p.name for p in context.op.schema.params]
    for template in templates(context.op, lambda kind: context.make(kind=kind)):
        for position, array in enumerate(template.sample.args):
            if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.size < 3:
                continue
            request = template.requests.get(id(array))
            drawn = request is not None and request.points
            if drawn or names[position] in ("index", "indices"):
                judged += _judge_places(context, template, position)
        if judged >= 3:
            break
    judged += _late_places(context)
    if not judged:
        raise NotRun("no sample has an index of several elements that is refused anywhere")


def _judge_places(context: Context, template: Any, position: int) -> bool:
    """Whether an index array has bad numbers that are refused; they must be in each place."""
    array = template.sample.args[position]
    found = False
    for wrong in (100_000, -100_000):
        refusals = {}
        for place in dict.fromkeys((0, 1, array.size // 2, array.size - 1)):
            spoilt = np.array(array)
            spoilt.reshape(-1)[place] = wrong
            args = [*template.sample.args]
            args[position] = spoilt
            sample = context.placed(type(template.sample)(*args, **template.sample.kwargs))
            try:
                context.op(*context.subject.tensors(sample).args, **sample.kwargs)
                context.subject.synchronize()
                refusals[place] = False
            except CoreDispatchError:
                refusals[place] = True
        if any(refusals.values()):
            found = True
            taken = [p for p, refused in refusals.items() if not refused]
            context.expect(not taken, f"index {wrong} is refused, but taken at place {taken[:1]}")
    return found


def _late_places(context: Context) -> int:
    """The same of long index arrays: what is looked at first is not only their beginning."""
    dtype = numpy_dtype("float32" if context.case.dtype == "-" else context.case.dtype)
    make, found = Filling(context, dtype=dtype), 0
    for growth in growths(context, dtype):
        template = growth.template
        if not template.whole or found >= LATE_CALLS or context.op.name in VALUE_SHAPED:
            continue  # of a shape that a large number decides
        places = [i for i, _ in growth.axes if template.requests[id(template.arrays[i])].points]
        sample = growth.sample(context, LATE, make) if places else None
        if sample is None:
            continue
        arrays: dict[int, Any] = {}
        sample.map(lambda a, arrays=arrays: arrays.setdefault(id(a), a))
        chosen = [*arrays.values()][places[0]]
        if chosen.size > 20 * LATE or cost(context, sample) > 100 * LATE:
            continue
        for wrong in (100_000, -100_000, -1):
            refused = {
                at: _refuses(context, _spoilt(sample, chosen, at, wrong))
                for at in (0, chosen.size // 2, chosen.size - 1)
            }
            taken = [at for at, was in refused.items() if not was]
            found += any(refused.values())
            context.expect(
                len(taken) in (0, len(refused)),
                f"index {wrong} among {chosen.size} is refused, but taken at place {taken[:1]}",
            )
    return found


def _spoilt(sample: Any, chosen: Any, at: int, wrong: int) -> Any:
    def change(array: Any) -> Any:
        if array is not chosen:
            return array
        spoilt = np.array(array)
        spoilt.reshape(-1)[at] = wrong
        return spoilt

    return sample.map(change)


def _refuses(context: Context, sample: Any) -> bool:
    tensors = context.subject.tensors(context.placed(sample))
    try:
        context.op(*tensors.args, **tensors.kwargs)
        context.subject.synchronize()
    except CoreDispatchError:
        return True
    return False


def _works_still(context: Context) -> None:
    """After a refusal the op works as before."""
    for sample in context.samples(limit=3):
        tensors = context.subject.tensors(sample)
        context.close(context.call(tensors), sample)


@check(14, plan=_plan, variant="unknown-device")
def unknown_device(context: Context) -> None:
    """A device nobody registered is refused with a hint; one out of range as well."""
    for device in ("no_such_device", f"{context.subject.name}:4096"):
        try:
            cd.zeros(2, device=device)
        except DeviceError as error:
            context.expect(device.partition(":")[0] in str(error), f"unhelpful: {error}")
        else:
            context.expect(False, f"device {device!r} was accepted")


@check(15, plan=_plan)
def mixed(context: Context) -> None:
    """Tensors of two devices are refused by a DeviceError that names both."""
    subject = context.subject
    other = "cpu" if subject.name != "cpu" else "meta"
    make = ConfiguredMake(
        numpy_dtype(context.case.dtype), seed=context.case.seed, values=context.op.values
    )
    for sample in context.op.samples(make):
        context.placed(sample)
        arrays = [a for a in sample.args if isinstance(a, np.ndarray)]
        if len(arrays) < 2 or any(a.ndim == 0 or a.size == 0 for a in arrays[:2]):
            continue
        tensors = subject.tensors(sample)
        strided = [t for t in sample_tensors(tensors) if layout_of(t) is None]
        if not any(t.ndim for t in strided):
            continue
        chosen = [t for t in strided if t.ndim][-1]  # a 0-d one may come along
        args = [a.to(other) if a is chosen else a for a in tensors.args]
        if all(a is b for a, b in zip(args, tensors.args, strict=True)):
            continue
        before = [subject.array(t).tobytes() for t in tensors_in(args) if t.device.type != "meta"]
        try:
            context.op(*args, **tensors.kwargs)
        except DeviceError as error:
            text = str(error)
            context.expect(
                subject.name in text and other in text, f"the error does not name both: {text}"
            )
            now = [subject.array(t).tobytes() for t in tensors_in(args) if t.device.type != "meta"]
            context.expect(before == now, "refused, yet an input changed")
        except CoreDispatchError as error:
            context.expect(False, f"raised {type(error).__name__}, not DeviceError: {error}")
        else:
            context.expect(False, f"tensors on {subject.name} and {other} were accepted")
        return
    raise NotRun("no sample with two dimensioned tensors")
