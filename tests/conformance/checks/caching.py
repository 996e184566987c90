"""Check 26: nothing remembers what it must not - bytes, modes, or unloaded kernels."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import hookimpl

from ..case import BACKEND, Case
from ..context import Context, NotRun, elements, has_values, sample_tensors, tensors_in
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from . import check
from .precision import half
from .values import choose_dtypes, in_domain


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        yield Case(26, BACKEND, variant="unload")
        yield Case(26, BACKEND, variant="failed-load")
        yield Case(26, BACKEND, variant="modes")
        return
    op = metadata.op
    if op.samples is None or not has_values(op) or op.mutates or not op.tensors + op.lists:
        return
    for dtype in choose_dtypes(metadata, ("float32",), 1):
        if dtype in subject.dtypes:
            yield Case(26, op.name, dtype, mandatory=dtype in MANDATORY_DTYPES)
    both = {"float32", "float64"} <= {*metadata.dtypes} & {*subject.dtypes}
    if both and in_domain(op, "uniform", "offset"):
        # What is kept by address may be kept for one dtype, or for parts of arrays.
        yield Case(26, op.name, "float64", "offset", mandatory=False)


@check(26, plan=_plan)
def new_bytes(context: Context) -> None:
    """The same tensors with new contents give the result of the new contents."""
    fresh = context.op.samples(context.make(seed=(context.case.seed + 1) % 2**32))
    other = {_structure(s): s for s in fresh}
    done = 0
    for sample in context.samples():
        second = other.get(_structure(sample))
        if second is None or elements(sample) == 0 or done == 6:
            continue
        context.placed(second)
        tensors, replacing = context.subject.tensors(sample), context.subject.tensors(second)
        context.call(tensors)
        for old, new in zip(sample_tensors(tensors), sample_tensors(replacing), strict=True):
            if old.numel():
                context.rewrite(old, new)
        result = context.call(tensors)
        context.close(result, second)
        wants = [t for t in sample_tensors(tensors) if t.dtype.is_floating_point]
        if wants and context.op.differentiable:
            for tensor in wants:
                tensor.requires_grad_(True)
            recorded = context.call(tensors)
            context.close(
                recorded, second, slack=2.0
            )  # perhaps the decomposition, not a fused kernel
            for tensor in wants:
                tensor.requires_grad_(False)
            plain = context.call(tensors)
            context.expect(
                not any(t.requires_grad for t in tensors_in(plain)),
                "requires_grad outlives its switch",
            )
        done += 1
    if not done:
        raise NotRun("no sample has the same shapes with other values")


def _structure(sample: Any) -> str:
    """The call without the values of its arrays."""

    def shown(array: Any) -> str:
        marked = f"{array.layout} {array.form}" if hasattr(array, "layout") else ""
        return f"{array.dtype}{array.shape}{marked}"

    return repr(sample.map(shown))


def _pack(subject: Subject, kernels: dict[str, Any], priority: int = 10**6) -> Any:
    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.kernels(subject.name, kernels, priority=priority)

    module = ModuleType("conformance_pack")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    return module


@check(26, plan=_plan, variant="unload")
def unload(context: Context) -> None:
    """A pack's kernel serves while it is loaded; what it covered serves before and after."""
    subject = context.subject
    x = subject.tensor(np.array([1.0, -2.0, 3.0], np.float32))
    wanted = x.neg().tolist()
    own = subject.kernel("neg")
    context.expect(own is not None, "the backend has no kernel for neg")
    fn = own.fn  # type: ignore[union-attr]
    cd.plugins.load("conformance_pack", _pack(subject, {"neg": lambda a: fn(fn(fn(fn(a))))}))
    try:
        context.expect(x.neg().tolist() == x.tolist(), "the pack's kernel does not serve")
        cd.plugins.load("conformance_low", _pack(subject, {"neg": fn}, -5))
        context.expect(x.neg().tolist() == x.tolist(), "a kernel of lower priority took over")
    finally:
        for name in ("conformance_low", "conformance_pack"):
            if name in cd.plugins:
                cd.plugins.unload(name)
    context.expect(x.neg().tolist() == wanted, "the memo survives the plugin")
    context.expect(subject.kernel("neg") is own, "the table is not as it was")


@check(26, plan=_plan, variant="failed-load")
def failed_load(context: Context) -> None:
    """A plugin that fails to register leaves nothing behind."""
    subject = context.subject
    own = subject.kernel("neg")
    good = own.fn  # type: ignore[union-attr]
    try:
        cd.plugins.load("conformance_bad", _pack(subject, {"neg": good, "no_such_operator": good}))
    except cd.CoreDispatchError as error:
        context.expect("no_such_operator" in str(error), f"unhelpful: {error}")
    else:
        context.expect(False, "a kernel for an operator that does not exist was accepted")
    context.expect(subject.kernel("neg") is own, "half of a refused plugin stayed")


@check(26, plan=_plan, variant="modes")
def modes(context: Context) -> None:
    """Flipping autocast between two equal calls changes the dtype both ways."""
    a = cd.ones(3, 3, device=context.subject.device)
    context.expect((a @ a).dtype is cd.float32, "float32 times float32")
    low = half(context.subject)
    if low is not None and "autocast" not in context.subject.expectations.absent:
        for _ in range(2):
            with cd.autocast(context.subject.name, getattr(cd, low)):
                context.expect((a @ a).dtype.name == low, "autocast is not seen")
            context.expect((a @ a).dtype is cd.float32, "autocast is still seen")
