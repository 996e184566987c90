"""The layer ``autocast``: each op's cast policy, decided once per operator and key set."""

from __future__ import annotations

import functools
from typing import Any

from coredispatch.frontend.amp.autocast import AutocastState, autocast, get_autocast_dtype
from coredispatch.plugin import (
    DType,
    Layer,
    LayerEntry,
    Operator,
    Registrar,
    Value,
    backends,
    dispatch,
    dtype_of,
    dtypes,
    hookimpl,
    is_masked,
    key_bit,
    operator,
    promote_types,
    version_of,
)

__all__ = ["CastEntry", "coredispatch_register"]

_AUTOGRAD = key_bit("autograd")
_float32, _float64 = dtypes.float32, dtypes.float64
_eligible = (dtypes.float16, dtypes.bfloat16, _float32)


@functools.cache
def policy_on(device: str, cast: str) -> str | None:
    """What an operator's ``cast`` comes to on a device: lower, float32, widest or nothing."""
    if not cast.endswith("_accelerated"):
        return cast
    on_cpu, _, elsewhere = cast.removesuffix("_accelerated").rpartition("_cpu_")
    return on_cpu or None if device == "cpu" else elsewhere


class CastEntry(LayerEntry):
    """Cast the floating arguments as the operator's policy says, then go on below.

    ``lower`` gives the dtype of the autocast block (unless an argument is float64), ``float32``
    that, ``widest`` the dtype that those of the arguments promote to; :func:`policy_on` says which
    of them holds for the device.
    """

    def __init__(self, op: Any, keys: int, mask: int, record: Operator, *rest: Any) -> None:
        super().__init__(op, keys, mask, record, *rest)
        self.lists: bool = bool(record.lists)
        self.device: str = next((name for name in backends() if keys & key_bit(name)), "")
        policy = policy_on(self.device, record.cast)
        self.lower: bool = policy == "lower"
        self.widest: bool = policy == "widest"
        self.passes: bool = policy is None
        self.to_dtype = operator("to_dtype")

    def call(self, args: tuple[Any, ...]) -> Any:
        state = autocast.current(self.device)
        if self.passes or state is None or not state.enabled:
            return self.below(args)
        target = self.target(state, args)
        if target is None:
            return self.below(args)
        converted = list(args)
        before = after = 0
        for position, value in enumerate(args):
            if isinstance(value, Value):
                dtype = dtype_of(value)
                before |= value.keys
                if dtype is not target and dtype in _eligible and value.keys & state.bit:
                    value = converted[position] = self.cast(state, value, target)
                after |= value.keys
            elif self.lists and isinstance(value, (list, tuple)):
                converted[position] = self.cast_list(state, value, target)
                before = -1
        if before == after:
            return self.below(tuple(converted))
        return self.redispatch(*converted)  # a cast has keys of its own: recorded, or not

    def call_two(self, a: Value, b: Any) -> Any:
        return self.call((a, b))

    def target(self, state: AutocastState, args: Any) -> DType | None:
        """The dtype to compute in, None where the arguments stay as they are."""
        if not self.lower and not self.widest:
            return _float32
        found: list[DType] = []
        for value in _flat(args) if self.lists else args:
            if isinstance(value, Value) and value.keys & state.bit:
                dtype = dtype_of(value)
                if dtype.is_floating_point:
                    found.append(dtype)
        if self.lower:
            return None if _float64 in found else state.dtype
        if len(set(found)) < 2:
            return None
        widest = found[0]
        for dtype in found[1:]:
            widest = promote_types(widest, dtype)
        return widest

    def cast_list(self, state: AutocastState, items: Any, target: DType) -> Any:
        """The tensors of a list, as far as they are to be cast."""
        if not any(isinstance(item, (Value, list, tuple)) for item in items):
            return items
        return type(items)(
            [
                self.cast(state, item, target)
                if isinstance(item, Value)
                and item.keys & state.bit
                and dtype_of(item) in _eligible
                and dtype_of(item) is not target
                else self.cast_list(state, item, target)
                if isinstance(item, (list, tuple))
                else item
                for item in items
            ]
        )

    def cast(self, state: AutocastState, value: Any, dtype: DType) -> Any:
        """``value`` in ``dtype``; through the weight cache if it is a leaf that requires grad."""
        cache = state.cache
        if (
            cache is None
            or not value.keys & _AUTOGRAD
            or dtype is not state.dtype
            or not value.is_leaf
        ):
            return dispatch(self.to_dtype, (value, dtype))
        known = cache.get(id(value))
        version = version_of(value)
        if known is not None and known[1] == version:
            hit = known[2]
            # A cast made under no_grad has no history and must not serve a recorded call.
            if hit.keys & _AUTOGRAD or is_masked("autograd"):
                return hit
        result = dispatch(self.to_dtype, (value, dtype))
        cache[id(value)] = (value, version, result)
        return result


def _flat(items: Any) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if isinstance(item, (list, tuple)):
            found += _flat(item)
        else:
            found.append(item)
    return found


def _applies(op: Operator) -> bool:
    return op.cast is not None and not op.mutates


def _through(function: Any, args: tuple[Any, ...]) -> Any:
    given = next((v for v in _flat(args) if isinstance(v, Value)), None)
    with autocast("cpu" if given is None else given.device.type):  # type: ignore[attr-defined]
        return function(*args)


def _meaning(op: Any, function: Any, args: tuple[Any, ...]) -> Any:
    """The call with its floating arguments cast as the policy of the operator says."""
    tensors = [v for v in _flat(args) if isinstance(v, Value) and dtype_of(v).is_floating_point]
    found = {dtype_of(v) for v in tensors}
    device = tensors[0].device.type if tensors else "cpu"  # type: ignore[attr-defined]
    policy = policy_on(device, op.cast)
    if policy == "lower" and _float64 not in found:
        found = {get_autocast_dtype(device)}
    elif policy == "float32":
        found = {_float32}
    elif policy != "widest" or not found:
        return function(*args)
    target = functools.reduce(promote_types, found)

    def cast(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([cast(item) for item in value])
        eligible = isinstance(value, Value) and dtype_of(value) in _eligible
        return value.to(target) if eligible else value

    return function(*map(cast, args))


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layer ``autocast``, above autograd."""
    layer = Layer(
        "autocast",
        generic=CastEntry,
        applies=_applies,
        above=("autograd",),
        through=_through,
        keeps=("bits", "gradients"),
        meaning=_meaning,
    )
    registrar.layer(layer)
