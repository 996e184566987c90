"""The layer ``autocast``: one generic kernel driven by each op's cast policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.amp.autocast import AutocastState, current_state
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.around.hookspecs import hookimpl
from coredispatch.registry.dispatch.boxed_kernels import LayerEntry
from coredispatch.registry.dispatch.masks import current_masks
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE, Registrar
from coredispatch.registry.model.backend import Layer
from coredispatch.registry.model.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    promote_types,
)
from coredispatch.registry.model.value import dtype_of, version_of

__all__ = ["apply_policy", "coredispatch_register"]

_eligible = (float16, bfloat16, float32)


def _cast(state: AutocastState, value: TensorBase, dtype: DType) -> TensorBase:
    """``value`` in ``dtype``, through the weight cache where it is a leaf that requires grad."""
    cached = (
        state.cache is not None
        and value.keys & AUTOGRAD
        and value._node is None
        and dtype is state.dtype
    )
    if not cached:
        result: TensorBase = TABLE.operator("to_dtype")(value, dtype)
        return result
    assert state.cache is not None
    known = state.cache.get(id(value))
    recorded = not current_masks()[1] & AUTOGRAD
    if known is not None and known[1] == version_of(value):
        hit: TensorBase = known[2]
        # A cast made under no_grad has no history and must not serve a recorded call.
        if not recorded or hit.keys & AUTOGRAD:
            return hit
    result = TABLE.operator("to_dtype")(value, dtype)
    state.cache[id(value)] = (value, version_of(value), result)
    return result


def _map(fn: Callable[[Any], Any], argument: Any) -> Any:
    if isinstance(argument, TensorBase):
        return fn(argument)
    if isinstance(argument, (list, tuple)) and any(isinstance(i, TensorBase) for i in argument):
        return type(argument)([_map(fn, item) for item in argument])
    return argument


def _floats(state: AutocastState, op: Operator, args: tuple[Any, ...]) -> list[DType]:
    found: list[DType] = []

    def see(value: TensorBase) -> TensorBase:
        if value.keys & state.bit and dtype_of(value).is_floating_point:
            found.append(dtype_of(value))
        return value

    for argument in args:
        _map(see, argument)
    return found


def apply_policy(call: LayerEntry, args: tuple[Any, ...]) -> Any:
    """The generic kernel of the layer: cast as the op's policy says, then redispatch."""
    op: Operator = call.record
    state = current_state()
    if state is None:
        return call.below(args)
    if op.cast == "lower":
        if float64 in _floats(state, op, args):
            return call.below(args)
        target = state.dtype
    elif op.cast == "float32":
        target = float32
    else:
        target = float32
        found = _floats(state, op, args)
        if len(set(found)) < 2:
            return call.below(args)
        target = found[0]
        for dtype in found[1:]:
            target = promote_types(target, dtype)

    def convert(value: TensorBase) -> TensorBase:
        dtype = dtype_of(value)
        if value.keys & state.bit and dtype in _eligible and dtype is not target:
            return _cast(state, value, target)
        return value

    return call.redispatch(*[_map(convert, argument) for argument in args])


def _applies(op: Operator) -> bool:
    return op.cast is not None and not op.mutates


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``autocast``, above autograd."""
    registrar.layer(Layer("autocast", generic=apply_policy, applies=_applies, above=("autograd",)))
