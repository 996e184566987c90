"""A call with tensors of two backends: which of them move over, and the error for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.registry.around.checks import describe, name_call
from coredispatch.registry.around.devices import backend_of_device, mixed, reads_anywhere
from coredispatch.registry.dispatch.boxed_kernels import CallEntry
from coredispatch.registry.dispatch.dispatcher import Entry, dispatch_below, enter, keys_of
from coredispatch.registry.dispatch.masks import MASKS, masked
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.scalars import python_number
from coredispatch.registry.model.value import Value, bump_version, dtype_of
from coredispatch.registry.wiring import HOOKS

__all__: list[str] = []


def mixed_devices(entry: CallEntry, args: tuple[Any, ...]) -> Any:
    """Two backends in one call: 0-dim CPU tensors, indices, what ``copy_`` reads move over."""
    op = entry.op
    assert isinstance(op, Operator)
    served = _beside_host(op, args, entry.mask)
    if served is not None:
        return enter(served, args)
    s = TABLE.snapshot
    cpu = s.order.by_name.get("cpu")
    others = entry.keys & s.order.backend_bits & ~(cpu.bit if cpu else 0)
    names = s.order.names(others)

    def movable(v: Any) -> bool:
        return isinstance(v, Value) and cpu is not None and bool(v.keys & cpu.bit)

    if reads_anywhere(op) and isinstance(args[1], Value):
        target, source = args[0], args[1]
        if op.name == "copy_" and args[2:] == (True,) and _read_later(target, source):
            return target
        declared = backend_of_device(target.device)[0].dtypes
        if declared is not None and dtype_of(source).name not in declared:
            # Converted where it lies.
            source = HOOKS.value_type.to(source, dtype_of(target))
        source = HOOKS.value_type.to(source, target.device)
        return dispatch_below(op, (args[0], source, *args[2:]), entry.mask)
    if isinstance(args[0], Value):
        brought = _with_indices(op, args, movable)
        if brought is not None:
            return dispatch_below(op, brought, entry.mask)
    tensors = [v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,))]
    tensors = [v for v in tensors if isinstance(v, Value)]
    blocked = len(names) != 1 or any(movable(v) and tuple(v.raw.shape) != () for v in tensors)
    if blocked or any(map(movable, op.schema.written(args))):
        first = tensors[0]
        second = (
            next(v for v in tensors if (v.keys ^ first.keys) & s.order.backend_bits)
            if len({v.keys & s.order.backend_bits for v in tensors}) > 1
            else first
        )
        home = s.order.names(first.keys & s.order.backend_bits)[0]
        if s.backends[home][0].device_count() > 1:
            home = str(first.device)
        error = mixed(describe(first), describe(second), home)
        name_call(error, op, args)
        raise error

    device = next((v.device for v in tensors if not movable(v)), names[0])

    def move(item: Any) -> Any:
        if movable(item):
            return HOOKS.value_type.to(item, device)
        if isinstance(item, (list, tuple)):
            return type(item)(move(i) for i in item)
        return item

    return dispatch_below(op, tuple(move(a) for a in args), entry.mask)


def _beside_host(op: Operator, args: tuple[Any, ...], mask: int) -> Entry | None:
    """What serves a call whose tensors on the CPU are those that its body reads: the others decide.

    None for a call with other tensors on the CPU, or with none that ``op.host`` names.
    """
    s = TABLE.snapshot
    cpu = s.order.by_name.get("cpu")
    read = [p for p in op.host if isinstance(args[p], Value)]
    if not read or cpu is None or not all(args[p].keys & cpu.bit for p in read):
        return None
    keys = keys_of(op, tuple(None if p in read else arg for p, arg in enumerate(args)))
    if MASKS.active:
        keys = masked(keys)
    keys &= ~mask
    if (keys & s.order.backend_bits).bit_count() != 1:
        return None
    return op.memo.below.get((keys, mask)) or HOOKS.resolve(op, keys, mask)


def _read_later(target: Any, source: Any) -> bool:
    """Whether the backend of ``source`` will write its elements into ``target``, on the CPU.

    That is for memory it can write to by itself, of the same shape and dtype, and for tensors that
    are nothing but that: no layout, no layer.
    """
    s = TABLE.snapshot
    if (target.keys | source.keys) & ~s.order.backend_bits or "cpu" not in s.order.by_name:
        return False
    read = getattr(source.backend, "read_later", None)
    if read is None or not target.keys & s.order.by_name["cpu"].bit:
        return False
    if not read(source.raw, target.raw):
        return False
    bump_version(target)
    return True


def _with_indices(
    op: Operator, args: tuple[Any, ...], movable: Callable[[Any], bool]
) -> tuple[Any, ...] | None:
    """``args`` with ``movable`` index tensors on the device of the first, as in PyTorch.

    An integer of no dimension becomes a number wherever it is, so that tensors without data can be
    indexed by it. None where there is nothing to change.
    """
    device, changed = args[0].device, False

    def brought(item: Any) -> Any:
        nonlocal changed
        if not isinstance(item, Value) or getattr(item, "device", device) == device:
            return item
        if not item.raw.shape and dtype_of(item).is_integral and dtype_of(item).kind != "b":
            changed = True
            return python_number(item)
        if not movable(item):
            return item
        changed = True
        return HOOKS.value_type.to(item, device)

    made = list(args)
    for position, param in enumerate(op.schema.params):
        if param.kind == "Index" and isinstance(made[position], (list, tuple)):
            made[position] = type(made[position])([brought(item) for item in made[position]])
    return tuple(made) if changed else None
