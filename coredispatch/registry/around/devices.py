"""Which device a call runs on: who owns a device, its index, and kernels run where their data are.

A backend with one device never gets here on a call that has tensors. For one with several,
resolution puts :class:`Placed` around each kernel: it finds the one device of the arguments, makes
it current through ``Backend.on``, and raises the one error of mixed devices. It also refuses
generators of other devices, and so stands around every kernel that takes one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from coredispatch.registry.around.declared_dtypes import declared
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.device import Device, current_device, default_device
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import DeviceError, NoDeviceError
from coredispatch.registry.wiring import HOOKS

__all__ = [
    "Placed",
    "backend_of_device",
    "accelerator",
    "current_index",
    "device_bit",
    "index_of",
    "mixed",
    "placed",
    "reads_anywhere",
    "resolved",
]


def backend_of_device(device: Device | str | None) -> tuple[Backend, int]:
    """The backend that owns ``device`` and its key's bit.

    Raises :class:`DeviceError` for an unknown key, with what to install, and for an index that
    is not there.
    """
    device = current_device(device)
    found = TABLE.snapshot.backends.get(device.type)
    if found is None:
        HOOKS.load_plugins()
        found = TABLE.snapshot.backends.get(device.type)
    if found is None:
        raise NoDeviceError(
            f"there is no device {str(device)!r}; known: {', '.join(TABLE.snapshot.backends)}",
            fix=HOOKS.hint_for_key(device.type),
        )
    backend = found[0]
    backend.check_device(device.index)
    return backend, TABLE.snapshot.order.by_name[device.type].bit


#: the answer for the processor: snapshot, default device, bit
_known: tuple[Any, Any, int] = (None, None, 0)


def device_bit(device: Device | str | None) -> int:
    """The bit of the backend that owns ``device``; None is the default device."""
    global _known
    if device is not None:
        return backend_of_device(device)[1]
    default, snapshot = default_device(), TABLE.snapshot
    if _known[0] is snapshot and _known[1] is default:
        return _known[2]
    bit = backend_of_device(default)[1]
    if default.type == "cpu":  # which does not come and go
        _known = (TABLE.snapshot, default, bit)
    return bit


def accelerator() -> str | None:
    """The key of the device beside the CPU, None where none is there.

    Where there are several it is that of the default device, else CUDA, else the one whose plugin
    was loaded first.
    """
    HOOKS.load_plugins()
    backends = TABLE.snapshot.backends
    for key in (default_device().type, "cuda", *backends):
        if key not in ("cpu", "meta") and key in backends and backends[key][0].device_count():
            return key
    return None


def current_index(key: str) -> int:
    """The index of the device of ``key`` that is current; 0 where there is no such device."""
    found = TABLE.snapshot.backends.get(key)
    if found is None or found[0].device_count() == 0:
        return 0
    return found[0].check_device(None)


#: a device is made once: its name is looked at for a microsecond
_device = functools.lru_cache(maxsize=256)(Device)


def resolved(backend: Backend, device: Device | None) -> Device:
    """``device`` with an index: None is the default device if ``backend`` owns it.

    Where it does not, and where ``device`` has no index, it is the backend's current one.

    Raises :class:`DeviceError` for a device that is not there.
    """
    if device is None:
        default = current_device(None)
        device = default if default.type == backend.name else Device(backend.name)
    return _device(device.type, backend.check_device(device.index))


def arrays_of(backend: Backend, raw: Any) -> list[Any]:
    """The arrays of ``backend`` in the data of a layout; none for anything else."""
    for layout, _ in TABLE.snapshot.layouts.values():
        if isinstance(raw, layout.data_type):
            return layout.arrays(raw, backend)
    return []


def index_of(backend: Backend, raw: Any) -> int:
    """The index of the device of an array, or of a layout's data, of ``backend``."""
    array_type: Any = backend.array_type
    if isinstance(raw, array_type):
        return backend.device_index(raw)
    arrays = arrays_of(backend, raw)
    return backend.device_index(arrays[0]) if arrays else backend.check_device(None)


def mixed(first: str, second: str, home: str) -> DeviceError:
    """The error of a call whose tensors lie on two devices, each described with its device."""
    return DeviceError(
        f"expected all tensors on one device, but found {first} and {second}",
        fix=f"move one over, for example other.to({home!r})",
    )


def placed(
    backend: Backend, op: Operator, fn: Callable[..., Any], kernel: bool = True
) -> Callable[..., Any]:
    """``fn`` as it is called on ``backend``: placed where there is something to decide.

    ``kernel`` False: it is what writes the results of ``op``, and takes other arguments.
    """
    several = backend.device_count() > 1
    generator = next((i for i, p in enumerate(op.schema.params) if p.kind == "Generator"), -1)
    generator = generator if kernel else -1
    if several or op.device >= 0 or generator >= 0:
        make = Placed if several or op.device < 0 else Located
        fn = make(backend, op, fn, several, generator)
    return declared(backend, op, fn) if kernel else fn


def check_generator(backend: Backend, generator: Any) -> None:
    """Raise :class:`DeviceError` for a generator of another device than those of ``backend``."""
    device = getattr(generator, "device", None)
    if device is not None and device.type != backend.name:
        raise DeviceError(
            f"Expected a '{backend.name}' device type for generator but found '{device.type}'",
            fix=f"pass Generator(device='{backend.name}'), or None for the device's own",
        )


def reads_anywhere(op: Operator) -> bool:
    """Whether the second argument may lie on another device: a copy brings it over."""
    return op.name in ("copy", "copy_")


class Placed:
    """A kernel that is told its device, and run with it current where there are several.

    A factory gets a device with an index, never None. Arguments of several indices are refused,
    but for 0-dim arrays and for what a copy reads, which move.
    """

    def __init__(
        self,
        backend: Backend,
        op: Operator | None,
        fn: Callable[..., Any],
        several: bool,
        generator: int = -1,
    ) -> None:
        self.backend, self.fn, self.several, self.generator = backend, fn, several, generator
        self.position = -1 if op is None else op.device
        #: the default device of the last call that named none, and what it came to
        self.known: tuple[Device | None, Any] = (None, None)
        self.copies = op is not None and reads_anywhere(op)

    def __call__(self, *raws: Any, **out: Any) -> Any:
        backend, position = self.backend, self.position
        if self.generator >= 0 and raws[self.generator] is not None:
            check_generator(backend, raws[self.generator])
        home = self._home(raws, out) if self.several else None
        if position >= 0:
            given = raws[position]
            if given is None and home is not None:
                given = Device(backend.name, home)
            known = self.known
            if given is None and not self.several and default_device() is known[0]:
                device = known[1]
            else:
                device = resolved(backend, given)
                if given is None:
                    self.known = default_device(), device
            raws = (*raws[:position], device, *raws[position + 1 :])
            home = device.index if home is None else home
        if not self.several or home is None:
            return self.fn(*raws, **out)
        with backend.on(home):
            return self.fn(*[self._brought(raw, home) for raw in raws], **out)

    def _home(self, raws: tuple[Any, ...], out: dict[str, Any]) -> int | None:
        """The index of the arguments' device; raises :class:`DeviceError` where there are two."""
        arrays: list[Any] = [*self._arrays(raws), *self._arrays(out.values())]
        if not arrays:
            return None
        index = self.backend.device_index
        binding: list[Any] = [raw for raw in arrays if raw.shape] or arrays[:1]
        binding = arrays[:1] if self.copies else binding
        home = index(binding[0])
        for raw in binding:
            if index(raw) != home:
                name = f"{self.backend.name}:{home}"
                raise mixed(self._described(binding[0]), self._described(raw), name)
        return home

    def _arrays(self, items: Any) -> Iterator[Any]:
        array_type: Any = self.backend.array_type
        for item in items:
            if isinstance(item, array_type):
                yield item
            elif isinstance(item, (list, tuple)):
                yield from self._arrays(item)
            else:
                yield from arrays_of(self.backend, item)

    def _described(self, raw: Any) -> str:
        sizes = ", ".join(map(str, raw.shape))
        index = self.backend.device_index(raw)
        return f"{DType.of(raw.dtype).name}[{sizes}] on {self.backend.name}:{index}"

    def _brought(self, item: Any, home: int) -> Any:
        """``item`` with 0-dim arrays of another device on ``home``, which is current."""
        backend = self.backend
        array_type: Any = backend.array_type
        if isinstance(item, array_type):
            if (item.shape and not self.copies) or backend.device_index(item) == home:
                return item
            return backend.transfer(item, backend, home)
        if isinstance(item, (list, tuple)) and not hasattr(item, "_fields"):
            return type(item)([self._brought(inner, home) for inner in item])
        return item


class Located(Placed):
    """:class:`Placed` for a factory of a backend that has one device: it is told which."""

    def __call__(self, *raws: Any, **out: Any) -> Any:
        position, known = self.position, self.known
        if out or raws[position] is not None or default_device() is not known[0]:
            return super().__call__(*raws, **out)
        if self.generator >= 0 and raws[self.generator] is not None:
            check_generator(self.backend, raws[self.generator])
        return self.fn(*raws[:position], known[1], *raws[position + 1 :])
