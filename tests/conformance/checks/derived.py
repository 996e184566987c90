"""Checks 23 and 24: what is derived from an operator definition - meta tensors, and a composite's
decomposition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import coredispatch as cd
from coredispatch.registry import CoreDispatchError

from ..case import Case
from ..context import Context, Failure, has_values, sample_tensors, tensors_in
from ..reference import Reference, positional
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from . import check
from .values import VALUE_SHAPED, choose_dtypes


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.op.samples is None or metadata.op.mutates:
        return
    op = metadata.op
    for dtype in choose_dtypes(metadata, ("float32", "int64"), 2):
        if dtype not in subject.dtypes:
            continue
        mandatory = dtype in MANDATORY_DTYPES
        if op.name not in VALUE_SHAPED and not metadata.layouts:  # no layout has meta tensors
            yield Case(23, op.name, dtype, mandatory=mandatory)
        if (
            op.kind == "composite"
            and op.decomposition is not None
            and has_values(op)
            and metadata.native
        ):
            yield Case(24, op.name, dtype, mandatory=mandatory)


@check(23, plan=_plan)
def meta(context: Context) -> None:
    """On meta tensors the op gives the shapes and dtypes that it gives on the device."""
    for sample in context.samples():
        tensors = context.subject.tensors(sample)
        try:
            found = tensors_in(on_meta(context, tensors))
        except CoreDispatchError as error:
            masks = any(t.dtype.kind == "b" for t in sample_tensors(tensors))
            if masks and needs_values(error):
                continue  # the values of a mask decide the shape
            raise Failure(f"on meta tensors: {error} [{context.shown()}]") from None
        real = tensors_in(context.call(tensors))
        context.expect(len(found) == len(real), f"{len(found)} meta results, not {len(real)}")
        for m, r in zip(found, real, strict=True):
            context.expect(m.device.type == "meta", f"a result on {m.device}")
            context.expect(m.shape == r.shape, f"meta shape {m.shape}, real {r.shape}")
            context.expect(m.dtype is r.dtype, f"meta dtype {m.dtype}, real {r.dtype}")


def needs_values(error: Exception) -> bool:
    """Whether the op says that its result's shape depends on values."""
    return any(s in str(error) for s in ("a meta tensor has no data", "depends on values"))


def on_meta(context: Context, tensors: Any) -> Any:
    """What the op gives for the meta tensors of a call; raises what it raises."""
    if context.op.factory:
        moved = type(tensors)(*tensors.args, **{**tensors.kwargs, "device": "meta"})
    else:
        moved = _to_meta(tensors)
    return context.op(*moved.args, **moved.kwargs)


def _to_meta(tensors: Any) -> Any:
    def move(x: Any) -> Any:
        if isinstance(x, cd.Tensor):
            return x.to("meta")
        return type(x)(move(i) for i in x) if isinstance(x, (list, tuple)) else x

    return type(tensors)(
        *[move(a) for a in tensors.args], **{k: move(v) for k, v in tensors.kwargs.items()}
    )


@check(24, plan=_plan)
def fused_kernel(context: Context) -> None:
    """A fused kernel computes what the composite's decomposition computes: both match the
    reference.
    """
    for sample in context.samples(limit=8):
        tensors = context.subject.tensors(sample)
        fused = context.call(tensors)
        defined = context.op.decomposition(
            *positional(context.op, list(tensors.args), tensors.kwargs)
        )
        reference = Reference(context.op, sample)
        context.values(tensors_in(fused), reference, 1.0)
        context.values(tensors_in(defined), reference, 2.0)
        for a, b in zip(tensors_in(fused), tensors_in(defined), strict=True):
            context.expect(
                a.dtype is b.dtype, f"kernel gives {a.dtype}, the decomposition {b.dtype}"
            )
            context.expect(
                a.shape == b.shape, f"kernel gives {a.shape}, the decomposition {b.shape}"
            )
