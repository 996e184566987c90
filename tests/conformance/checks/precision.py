"""Check 13: autocast - each op's cast policy, the weight cache, and restoration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import coredispatch as cd

from ..case import BACKEND, Case
from ..context import Context, Failure, NotRun, Unsupported, elements, tensors_in
from ..subject import OpMetadata, Subject
from . import check

__all__ = ["half"]


def half(subject: Subject) -> str | None:
    """The half precision that autocast is tried with: the first that the backend declares."""
    return next((name for name in ("bfloat16", "float16") if name in subject.dtypes), None)


def _low(context: Context) -> Any:
    return getattr(cd, half(context.subject) or "bfloat16")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    low, absent = half(subject), "autocast" in subject.expectations.absent
    if low is None or absent:
        if metadata is None:  # half precision is optional, autocast with it is not
            yield Case(13, BACKEND, variant="absent", mandatory=absent)
        return
    if metadata is None:
        for variant in ("restored", "weight-cache", "threads", "backward"):
            yield Case(13, BACKEND, low, variant=variant)
        return
    op = metadata.op
    if op.cast is None or op.samples is None or op.mutates or "float32" not in metadata.dtypes:
        return
    yield Case(13, op.name, "float32", variant=op.cast)


@check(13, plan=_plan, variant="absent")
def absent(context: Context) -> None:
    """What the backend declares not to have is refused, and the mode is undone."""
    a, b = _pair(context)
    try:
        with cd.autocast(context.subject.name, _low(context)):
            a @ b
    except cd.CoreDispatchError as error:
        context.expect((a @ b).dtype is cd.float32, "the mode outlived the refusal")
        raise Unsupported(str(error).splitlines()[0]) from None
    raise Failure("autocast is declared absent, or its dtypes are, yet it is served: declare it")


def _policy(context: Context, source: str, wanted: Any) -> None:
    """Calls with floating inputs of ``source`` give results of ``wanted``."""
    from ..subject import numpy_dtype

    done = 0
    for sample in context.samples(dtype=numpy_dtype(source)):
        tensors = context.subject.tensors(sample)
        floats = _floating(tensors)
        if not floats or elements(sample) == 0 or done == 4:
            continue
        if any(t.dtype.name != source for t in floats):
            continue
        plain = [t.dtype for t in tensors_in(context.call(tensors))]
        with cd.autocast(context.subject.name, _low(context)):
            inside = tensors_in(context.call(tensors))
        after = [t.dtype for t in tensors_in(context.call(tensors))]
        changed = [t for t, p in zip(inside, plain, strict=True) if p.is_floating_point]
        for output in changed:
            context.expect(
                output.dtype is wanted, f"{output.dtype} under autocast, the policy says {wanted}"
            )
        context.expect(after == plain, "the dtypes after the block differ from those before")
        done += 1
    if not done:
        raise NotRun("no sample with floating tensors of one dtype")


def _floating(tensors: Any) -> list[Any]:
    from ..context import sample_tensors

    return [t for t in sample_tensors(tensors) if t.dtype.is_floating_point]


@check(13, plan=_plan, variant="lower")
def lower(context: Context) -> None:
    """float32 inputs run in the autocast dtype."""
    _policy(context, "float32", _low(context))


@check(13, plan=_plan, variant="float32")
def upper(context: Context) -> None:
    """Inputs in half precision run in float32."""
    domain = context.metadata.dtypes  # type: ignore[union-attr]
    low = half(context.subject) or "bfloat16"
    if low not in domain:
        raise NotRun(f"the op takes no {low}")
    _policy(context, low, cd.float32)


@check(13, plan=_plan, variant="float32_accelerated")
def upper_where_accelerated(context: Context) -> None:
    """Inputs in half precision run in float32, on the CPU in their own dtype."""
    domain = context.metadata.dtypes  # type: ignore[union-attr]
    low = half(context.subject) or "bfloat16"
    if low not in domain:
        raise NotRun(f"the op takes no {low}")
    _policy(context, low, getattr(cd, low) if context.subject.name == "cpu" else cd.float32)


@check(13, plan=_plan, variant="widest")
def widest(context: Context) -> None:
    """Inputs of two floating dtypes run in the wider one."""
    done = 0
    for sample in context.samples():
        tensors = context.subject.tensors(sample)
        floats = _floating(tensors)
        if len(floats) < 2 or done == 4 or any(t.ndim == 0 for t in floats):
            continue
        args = list(tensors.args)
        for i, argument in enumerate(args):
            if argument is floats[0]:
                args[i] = argument.to(_low(context))
            elif isinstance(argument, list) and argument and argument[0] is floats[0]:
                args[i] = [argument[0].to(_low(context)), *argument[1:]]
        with cd.autocast(context.subject.name, _low(context)):
            result = context.op(*args, **tensors.kwargs)
        for output in tensors_in(result):
            if output.dtype.is_floating_point:
                context.expect(output.dtype is cd.float32, f"{output.dtype}, not float32")
        done += 1
    if not done:
        raise NotRun("no sample with two floating tensors")
    context.expect(True, "")


@check(13, plan=_plan, variant="lower_accelerated")
def lower_where_accelerated(context: Context) -> None:
    """float32 inputs run in the autocast dtype, on the CPU in their own."""
    on_cpu = context.subject.name == "cpu"
    _policy(context, "float32", cd.float32 if on_cpu else _low(context))


@check(13, plan=_plan, variant="widest_accelerated")
def widest_where_accelerated(context: Context) -> None:
    """Inputs of two floating dtypes run in the wider one; on the CPU they stay as they are."""
    if context.subject.name == "cpu":
        _policy(context, "float32", cd.float32)
    else:
        widest(context)


@check(13, plan=_plan, variant="lower_cpu_widest_accelerated")
def lower_or_widest(context: Context) -> None:
    """float32 inputs run in the autocast dtype on the CPU, elsewhere in the widest among them."""
    if context.subject.name == "cpu":
        lower(context)
    else:
        widest(context)


def _pair(context: Context) -> tuple[Any, Any]:
    device = context.subject.device
    cd.manual_seed(0)
    return cd.rand(4, 5, device=device), cd.rand(5, 3, device=device)


@check(13, plan=_plan, variant="restored")
def restored(context: Context) -> None:
    """Nesting, ``enabled=False``, exceptions and the decorator all restore what was there."""
    a, b = _pair(context)
    name = context.subject.name
    with cd.autocast(name, _low(context)):
        context.expect((a @ b).dtype is _low(context), "autocast is not in force")
        with cd.autocast(name, enabled=False):
            context.expect((a @ b).dtype is cd.float32, "enabled=False does not switch it off")
        context.expect((a @ b).dtype is _low(context), "the inner block was not undone")
    context.expect((a @ b).dtype is cd.float32, "the outer block was not undone")
    try:
        with cd.autocast(name, _low(context)):
            a @ a
    except cd.OpError:
        pass
    context.expect((a @ b).dtype is cd.float32, "the mode outlived a failed operator")
    decorated = cd.autocast(name, _low(context))(lambda: a @ b)
    context.expect(decorated().dtype is _low(context), "the decorator has no effect")
    context.expect((a @ b).dtype is cd.float32, "the decorator left the mode on")


@check(13, plan=_plan, variant="weight-cache")
def weight_cache(context: Context) -> None:
    """The cast of a weight is forgotten when the weight changes, and when the block ends."""
    a, w = (x.mul(8).round() for x in _pair(context))  # small integers: every order sums the same
    w.requires_grad_(True)
    name = context.subject.name
    with cd.autocast(name, _low(context)):
        before = (a @ w).detach().float()
        with cd.no_grad():
            w.mul_(2.0)
        after = (a @ w).detach().float()
    context.same(after, before * 2.0, "after an update of the weight")
    with cd.no_grad():
        w.mul_(2.0)
    with cd.autocast(name, _low(context)):
        context.same((a @ w).detach().float(), before * 4.0, "in the next block")


@check(13, plan=_plan, variant="threads")
def threads(context: Context) -> None:
    """Autocast of one thread is not that of another."""
    import threading

    a, b = _pair(context)
    found: list[Any] = []
    with cd.autocast(context.subject.name, _low(context)):
        worker = threading.Thread(target=lambda: found.append((a @ b).dtype))
        worker.start()
        worker.join()
    context.expect(found == [cd.float32], f"another thread computed in {found}")


@check(13, plan=_plan, variant="backward")
def backward(context: Context) -> None:
    """Gradients come back in the dtype of the weights."""
    a, w = (x.mul(8).round() for x in _pair(context))  # small integers: every order sums the same
    w.requires_grad_(True)
    with cd.autocast(context.subject.name, _low(context)):
        loss = (a @ w).float().sum()
    loss.backward()
    context.expect(w.grad is not None and w.grad.dtype is cd.float32, "the gradient's dtype")
    wanted = context.subject.array(a).sum(0)
    error = abs(context.subject.array(w.grad) - wanted[:, None]).max()
    context.expect(error < 0.05, f"the gradient is off by {error}")
