"""``cd.load``: structure and tensors from a saved file, without running its code."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coredispatch.frontend.serialization.blocks import array_in
from coredispatch.frontend.serialization.container import Archive, Target, open_for_reading
from coredispatch.frontend.serialization.errors import SerializationError, UnsafeGlobalError
from coredispatch.frontend.serialization.memory import instance, make_tensor
from coredispatch.frontend.serialization.trust import trusted
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.around.loader import plugins
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.value import Storage

__all__ = ["load"]

MapLocation = str | Device | Mapping[str, str] | Callable[[Any, str], Any] | None


def load(f: Target, map_location: MapLocation = None, *, weights_only: bool = True) -> Any:
    """Read what :func:`save` wrote.

    Args:
        f: a path, or a binary file opened for reading.
        map_location: where tensors go instead of the device they were saved on: a device or its
            name, a dict from names to names, or ``function(storage, name)`` that returns a device
            (or the storage it was given, for the CPU, or None, for no change).
        weights_only: make only tensors, numbers, strings, containers and what
            :func:`add_safe_globals` allows. With False the file can run any code: use it for
            files you trust.

    Raises:
        SerializationError: the file is foreign, cut off, damaged or from a later release, or a
            tensor's device or layout is not there.
        UnsafeGlobalError: with weights_only, the file holds something else.
    """
    name = repr(str(f)) if hasattr(f, "__fspath__") or isinstance(f, str) else "the file"
    with open_for_reading(f) as file:
        archive = Archive(file, name)
        loader = _Loader(archive, _placement(map_location), weights_only)
        try:
            return loader.load()
        except (SerializationError, UnsafeGlobalError):
            raise
        except (EOFError, IndexError, KeyError, pickle.UnpicklingError) as error:
            raise SerializationError(f"{name} is damaged: {error!r}") from error


def _placement(location: MapLocation) -> Callable[[str], str]:
    """A function from the device a tensor was saved on to the one it goes to."""
    if location is None:
        return lambda device: device
    if isinstance(location, str | Device):
        fixed = str(location)
        return lambda device: fixed
    if isinstance(location, Mapping):
        table = {str(key): str(value) for key, value in location.items()}
        return lambda device: table.get(device, device)
    if not callable(location):
        raise TypeError(f"map_location is a {type(location).__name__}; give a device or a dict")

    def asked(device: str) -> str:
        storage = Storage()
        answer = location(storage, device)
        if answer is None:
            return device
        return "cpu" if answer is storage else str(answer)

    return asked


class _Loader(pickle.Unpickler):
    def __init__(self, archive: Archive, place: Callable[[str], str], weights_only: bool) -> None:
        super().__init__(io.BytesIO(archive.read("structure.pkl")))
        self.archive = archive
        self.place = place
        self.weights_only = weights_only
        self.made: dict[int, Any] = {}
        self.storages: dict[int, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if not self.weights_only:
            return super().find_class(module, name)
        found = trusted(module, name)
        if found is None:
            raise UnsafeGlobalError(
                f"{self.archive.name} holds {module}.{name}, and load(weights_only=True) makes "
                "only tensors, numbers, strings and containers: anything else can run code",
                fix="if you trust the file, weights_only=False; or allow this name alone with "
                f"serialization.add_safe_globals([{name}])",
            )
        return found

    def persistent_load(self, reference: Any) -> Any:
        kind, value, *extra = reference
        if kind == "dtype":
            return DType.of(value)
        if kind == "device":
            return Device(value)
        if kind == "size":
            return Size(value)
        if kind != "tensor":
            raise pickle.UnpicklingError(f"unknown kind of reference {kind!r}")
        if value not in self.made:
            self.made[value] = self._make(self.archive.records[value])
        if extra:
            self.made[value].__dict__.update(extra[0])
        return self.made[value]

    def _make(self, record: dict[str, Any]) -> Any:
        kind = record["kind"]
        if kind in ("array", "scalar"):
            array = self._array(record["array"])
            return array if kind == "array" else array[()]
        cls = self._class(record["class"])
        device, requires_grad = self.place(record["device"]), record["requires_grad"]
        if kind == "layout":
            return self._layout(record, cls, device)
        if kind == "meta":
            empty = TABLE.operator("empty")
            tensor = empty(tuple(record["shape"]), dtype=DType.of(record["dtype"]), device="meta")
            return instance(cls, tensor.raw, tensor.keys).requires_grad_(requires_grad)
        place = record["array"]
        storage = self.storages.setdefault(place["block"], Storage())
        return make_tensor(self._array(place), device, requires_grad, cls, storage)

    def _array(self, place: dict[str, Any]) -> np.ndarray[Any, Any]:
        block = self.archive.block(place["block"]) if place["block"] >= 0 else np.empty(0, np.uint8)
        try:
            return array_in(block, place)
        except (TypeError, ValueError) as error:
            raise SerializationError(f"{self.archive.name} is damaged: {error}") from error

    def _class(self, name: list[str]) -> Any:
        if len(name) > 1:
            return self.find_class(*name)
        for cls in (Tensor, *Tensor.__subclasses__()):
            if cls.__name__ == name[0] and cls.__module__.startswith("coredispatch."):
                return cls
        raise SerializationError(
            f"{self.archive.name} holds a {name[0]}, which this release does not have",
            fix="load it with the release of coredispatch that wrote it",
        )

    def _layout(self, record: dict[str, Any], cls: type[Tensor], device: str) -> Any:
        name = record["layout"]
        found = TABLE.snapshot.layouts.get(name)
        if found is None or found[0].unpack is None:
            raise SerializationError(
                f"{self.archive.name} holds a tensor of layout {name!r}, which no plugin reads",
                fix=plugins.hint_for_key(name),
            )
        parts = {
            key: make_tensor(self._array(part["array"]), device).raw
            if "array" in part
            else part["value"]
            for key, part in record["parts"].items()
        }
        raw = found[0].unpack(parts)
        keys = TABLE.bit(name) | TABLE.bit(Device(device).type)
        return instance(cls, raw, keys).requires_grad_(record["requires_grad"])
