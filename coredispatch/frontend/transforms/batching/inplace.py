"""Writes: the functional form at this level, and the result written to what is in the wrapper."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.frontend.transforms.batching.batch import Batch, op
from coredispatch.frontend.transforms.batching.elementwise import ELEMENTWISE
from coredispatch.frontend.transforms.levels import inside
from coredispatch.plugin import OpError, Value, check_write, describe_call, dispatch, dtype_of

__all__ = ["WRITES", "as_it_was", "derived"]


def derived(batch: Batch, target: Any, *args: Any) -> Any:
    """Any derived in-place form: compute, then write."""
    functional = batch.op.inplace_of
    assert functional is not None
    _writable(batch, target, (target, *args))
    if functional.name in ELEMENTWISE and _one_dtype(args, target):
        rank = len(target.raw.shape)
        if all(len(a.raw.shape) <= rank for a in args if isinstance(a, Value)):
            values = [batch.aligned(a, rank) if isinstance(a, Value) else a for a in args]
            dispatch(batch.op, (batch.open(target), *values))
            return target
    result = dispatch(functional, as_it_was((target, *args)))
    check_write(target, result.raw)
    op("copy_")(batch.open(target), batch.front(result))
    return target


def _one_dtype(args: tuple[Any, ...], target: Any) -> bool:
    dtype = dtype_of(target)
    return all(dtype_of(a) is dtype for a in args if isinstance(a, Value))


def as_it_was(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``args`` with a copy of the tensor that is written to, where its graph may need it."""
    target = args[0]
    if not any(x.keys & AUTOGRAD for a in args if isinstance(a, Value) for x in inside(a)):
        return args
    copied = op("clone")(target)
    return tuple([copied if a is target else a for a in args])


def _writable(batch: Batch, target: Any, args: tuple[Any, ...]) -> None:
    if batch.of(target) is not None:
        return
    name = batch.op.name
    error = OpError(
        f"vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a "
        f"Tensor `other` in extra_args that has more elements than `self`. This happened due to "
        f"`other` being vmapped over but `self` not being vmapped over in a vmap: {name} would "
        "write the results of all samples to one tensor",
        fix="make the tensor by x.new_zeros(...) or zeros_like(x) of one that is mapped over, or "
        "use the out-of-place form",
    )
    error.call = describe_call(batch.op, args)
    raise error


def copy_(batch: Batch, target: Any, src: Any, non_blocking: bool) -> Any:
    """``copy_``: each sample of ``src``, or ``src`` itself, to each sample."""
    _writable(batch, target, (target, src, non_blocking))
    shape = tuple(target.raw.shape)
    source = tuple(src.raw.shape)
    while len(source) > len(shape) and source[0] == 1:
        src = op("getitem")(src, (0,))
        source = source[1:]
    check_write(target, op("expand")(src, shape).raw)
    op("copy_")(batch.open(target), batch.aligned(src, len(shape)), non_blocking)
    return target


#: writes that need no functional form
WRITES: dict[str, Any] = {"copy_": copy_}
