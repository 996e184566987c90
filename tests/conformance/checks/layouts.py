"""Check 27: the layouts that plugins bring, each by what its :class:`Layout` says of itself.

A layout is certified by its way in and its way out. What goes in must come out; copies and files
keep it; what it has no kernel for is refused by name, never served by making it dense; and every
kernel that it has for an operator gives what the operator's reference gives for the dense tensors.
What only its authors know to ask are cases of their plugin's ``coredispatch_conformance`` hook.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import Layout, from_raw, laid_out, to_raw
from coredispatch.registry import TABLE, CoreDispatchError, fallback

from ..case import BACKEND, Case
from ..context import Context, NotRun, has_values
from ..covering_array import ConfiguredMake
from ..subject import OpMetadata, Subject, numpy_dtype
from ..tensor_layouts import (
    conversions,
    copies,
    dense,
    extras,
    layout_of,
    layouts,
    representable,
    scope,
)
from . import check
from .layout_kernels import gradient, kernel, mixed, stored_zeros
from .stored_order import ORDERS, kernel_in_order, packed_in_order
from .values import choose_dtypes

#: shapes that a layout is tried with; those that its ``from_dense`` refuses are left out
SHAPES = (
    (),
    (1,),
    (5,),
    (4, 4),
    (6, 5),
    (3, 7),
    (2, 3, 4),
    (2, 4, 4),
    (2, 3, 4, 5),
    (0, 3),
    (3, 0),
)
#: steps that a layout may round by on the way in
ROUNDING = 0.5 * 1.001


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        yield from _own_cases(subject)
        return
    op, rows = metadata.op, TABLE.snapshot.registrations
    if op.samples is None or not has_values(op) or op.mutates or metadata.layouts or op.factory:
        return
    for name, layout in layouts().items():
        served = (op.name, name, subject.name) in rows or (op.name, name, None) in rows
        if not served or layout.from_dense is None or layout.to_dense is None:
            continue
        for dtype in choose_dtypes(metadata, layout.dtypes_checked, 4):
            if dtype in subject.dtypes and dtype in layout.dtypes_checked:
                yield Case(27, op.name, dtype, variant=f"{name}+kernel")
                if dtype == "float64" and layout.step is None:
                    if len(op.tensors) > 1:
                        yield Case(27, op.name, dtype, variant=f"{name}+mixed")
                    if layout.movable:
                        yield Case(27, op.name, dtype, variant=f"{name}+stored-zeros")
                        for what in ORDERS if layout.takes is None else layout.takes:
                            yield Case(27, op.name, dtype, variant=f"{name}+{what}")
                if dtype == "float64" and op.differentiable:
                    yield Case(27, op.name, dtype, variant=f"{name}+gradient")


def _own_cases(subject: Subject) -> Iterator[Case]:
    """The cases about a layout as a whole, and those of the plugins' own."""
    for name, layout in layouts().items():
        if layout.from_dense is None or layout.to_dense is None:
            yield Case(27, BACKEND, variant=f"{name}+conversions")
            continue
        for dtype in layout.dtypes_checked:
            if dtype in subject.dtypes:
                yield Case(27, BACKEND, dtype, variant=f"{name}+round-trip")
        if layout.step is None:  # one that rounds has a dtype of its own
            yield Case(27, BACKEND, layout.dtypes_checked[0], variant=f"{name}+dtypes")
            for what in ORDERS if layout.movable else ():
                yield Case(27, BACKEND, layout.dtypes_checked[0], variant=f"{name}+{what}")
        yield Case(27, BACKEND, layout.dtypes_checked[0], variant=f"{name}+refusal")
        if layout.pack is not None:
            yield Case(27, BACKEND, layout.dtypes_checked[0], variant=f"{name}+saved")
    for plugin, asked in extras().items():
        for name in asked.CASES:
            yield Case(27, BACKEND, variant=f"{plugin}+{name}")


@check(27, plan=_plan)
def layout(context: Context) -> None:
    """A layout keeps what goes in, refuses by name, and computes what dense tensors give."""
    name = scope(context.case.variant)
    what = context.case.variant.partition("+")[2]
    if context.case.op != BACKEND:
        _OF_KERNELS[what](context, _layout(context, name))
    elif name in layouts() and what in _OF_LAYOUTS:
        _OF_LAYOUTS[what](context, _layout(context, name))
    else:
        extras()[name].CASES[what](context)


def _layout(context: Context, name: str) -> Layout:
    found = layouts().get(name)
    if found is None:
        raise NotRun(f"no loaded plugin brings the layout {name!r}")
    return found


# ---- cases about a layout as a whole ----------------------------------------------------------


def _tensors(context: Context, layout: Layout) -> Iterator[tuple[Any, Any, str]]:
    """Tensors of the layout with the array that each was made of, and by which way."""
    make = ConfiguredMake(numpy_dtype(context.case.dtype), seed=context.case.seed + context.fresh)
    found = False
    for form, shape in itertools.product(conversions(layout), SHAPES):
        array = representable(layout, make(shape), make.rng)
        try:
            tensor = context.subject.tensor(laid_out(array, layout.name, form))
        except CoreDispatchError:
            continue
        found = True
        yield array, tensor, form
    context.expect(found, f"{layout.name} takes no array of any shape: {SHAPES}")


def _in_order(context: Context, layout: Layout) -> None:
    packed_in_order(context, layout, _tensors(context, layout))


def _conversions(context: Context, layout: Layout) -> None:
    raise NotRun(f"layout {layout.name!r} has no from_dense= and to_dense=: nothing can certify it")


def _round_trip(context: Context, layout: Layout) -> None:
    """What goes in comes out: exactly, or rounded to the nearest value that the layout has."""
    for array, tensor, form in _tensors(context, layout):
        what = f"{layout.name} {form} of {array.shape}"
        context.expect(tensor.layout == layout.name, f"{what}: the layout is {tensor.layout}")
        context.expect(tuple(tensor.shape) == array.shape, f"{what}: shape {tuple(tensor.shape)}")
        strided = dense(tensor)
        context.expect(layout_of(strided) is None, f"{what}: to_dense gives {strided.layout}")
        context.expect(tuple(strided.shape) == array.shape, f"{what}: to_dense {strided.shape}")
        found = context.subject.array(strided)
        if layout.step is None:
            context.expect(found.dtype == array.dtype, f"{what}: dtype {found.dtype}")
            context.expect(np.array_equal(found, array), f"{what}: other values come out")
            continue
        error = np.abs(found.astype(np.float64) - array)
        steps = (error / layout.step(tensor)).max(initial=0.0) if array.size else 0.0
        context.expect(steps <= ROUNDING, f"{what}: off by {steps:.3f} steps")


def _dtypes(context: Context, layout: Layout) -> None:
    """What ``astype`` of the data gives has the other dtype and stands for the same values.

    The dispatcher promotes with it where a call has tensors of two dtypes.
    """
    if len(layout.dtypes_checked) < 2:
        raise NotRun(f"layout {layout.name!r} is checked in one dtype")
    for array, tensor, form in _tensors(context, layout):
        strided = dense(tensor)
        for name in layout.dtypes_checked:
            other = numpy_dtype(name)
            if other.kind != array.dtype.kind or name not in context.subject.dtypes:
                continue
            what = f"astype({name}) of {layout.name} {form} of {array.shape}"
            direct = context.subject.tensor(laid_out(array.astype(other), layout.name, form))
            wanted = to_raw(direct).dtype  # in the data's own terms
            converted = to_raw(tensor).astype(getattr(cd, name))
            context.expect(converted.dtype == wanted, f"{what} has the dtype {converted.dtype}")
            back = dense(from_raw(converted, keys_like=strided, layout=layout.name))
            found = context.subject.array(back)
            context.expect(found.dtype == other, f"{what} comes out as {found.dtype}")
            context.expect(np.array_equal(found, array.astype(other)), f"{what} has other values")


def _saved(context: Context, layout: Layout) -> None:
    """Files, pickles and copies keep the layout and the values."""
    for _, tensor, form in _tensors(context, layout):
        for way, back in copies(tensor):
            what = f"{way} of {layout.name} {form} {tuple(tensor.shape)}"
            context.expect(back.layout == layout.name, f"{what} has the layout {back.layout}")
            context.expect(back.dtype is tensor.dtype, f"{what} has the dtype {back.dtype}")
            context.same(dense(back), dense(tensor), what)


def _refusal(context: Context, layout: Layout) -> None:
    """An operator without a kernel is refused by the layout's name; nothing is made dense."""
    refused = 0
    for _, tensor, _ in itertools.islice(_tensors(context, layout), 6):
        for op in _without_kernel(context.subject, layout):
            taken = sum(fallback.report().values())
            try:
                op(tensor)
            except CoreDispatchError as error:
                context.expect(layout.name in str(error), f"{op.name}: unhelpful: {error}")
                refused += 1
            else:
                context.expect(False, f"{op.name} of a {layout.name} tensor was served silently")
            context.expect(sum(fallback.report().values()) == taken, "a fallback was taken")
    context.expect(refused, f"every unary primitive has a kernel for {layout.name}")


def _without_kernel(subject: Subject, layout: Layout) -> Iterator[Any]:
    """Primitives of coredispatch of one tensor for which the layout has no kernel."""
    served = {op for op, key, _ in TABLE.snapshot.registrations if key == layout.name}
    for name in subject.operators("ops"):
        op = getattr(cd.ops, name)
        params = op.schema.params
        alone = len(params) == 1 and params[0].is_tensor and not op.view
        if op.kind == "primitive" and alone and name not in served and not op.mutates:
            yield op


_OF_KERNELS: dict[str, Callable[[Context, Layout], None]] = {
    "kernel": kernel,
    "gradient": gradient,
    "mixed": mixed,
    "stored-zeros": stored_zeros,
    **dict.fromkeys(ORDERS, kernel_in_order),
}
_OF_LAYOUTS: dict[str, Callable[[Context, Layout], None]] = {
    "conversions": _conversions,
    "round-trip": _round_trip,
    "dtypes": _dtypes,
    "saved": _saved,
    "refusal": _refusal,
    **dict.fromkeys(ORDERS, _in_order),
}
