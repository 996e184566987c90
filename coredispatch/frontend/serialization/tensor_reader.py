"""Records of ``format.json`` and blocks become tensors and arrays again, after checking."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch.frontend.serialization.allowlist import allowed
from coredispatch.frontend.serialization.blocks import (
    ArrayPlace,
    array_at,
    check_layout_of_blocks,
    read_place,
    read_shape,
)
from coredispatch.frontend.serialization.container import Archive
from coredispatch.frontend.serialization.element_types import only_valid_elements
from coredispatch.frontend.serialization.errors import Damage, SerializationError, shown
from coredispatch.frontend.serialization.grammar import hides_a_member
from coredispatch.frontend.serialization.memory import (
    instance,
    is_own_slot,
    make_tensor,
    moved,
)
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.around.loader import plugins
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import ALL_DTYPES, STORAGE_DTYPES, DType
from coredispatch.registry.model.errors import CoreDispatchError
from coredispatch.registry.model.generator import Generator
from coredispatch.registry.model.spelling import SPELLING
from coredispatch.registry.model.value import Storage

__all__ = ["TensorReader"]

Record = dict[str, Any]

_DEVICE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(:\d{1,6})?", re.ASCII)
_DTYPES = {dtype.name: dtype for dtype in (*ALL_DTYPES, *STORAGE_DTYPES)}


class TensorReader:
    """Makes the tensors of an archive, each once, after all of its records were checked."""

    def __init__(self, archive: Archive, name: str, place: Callable[[str], str]) -> None:
        self.archive = archive
        self.name = name
        self._place = place
        self._used = bytearray(len(archive.records))
        self._byte_blocks: set[int] = set()
        self._storages: dict[int, Storage] = {}
        self._copies: dict[int, np.ndarray[Any, Any]] = {}
        self._arrays: list[dict[str, ArrayPlace]] = [
            self._checked(record, f"{archive.records_place}[{number}]")
            for number, record in enumerate(archive.records)
        ]
        self._members: dict[int, int] = {}  # arrays in each block
        for places in self._arrays:
            for array in places.values():
                self._members[array.block] = self._members.get(array.block, 0) + 1

    # -- checks ------------------------------------------------------------------------------

    def _checked(self, record: Any, place: str) -> dict[str, ArrayPlace]:
        """The arrays of a record by name. Raises Damage unless all of the record is sound."""
        kind = record.get("kind") if isinstance(record, dict) else None
        expected = _KEYS.get(kind) if isinstance(kind, str) else None
        if expected is None or record.keys() != expected:
            raise Damage(place, f"{shown(record)} is not a record")
        if kind in ("array", "scalar"):
            found = self._array(record["array"], f"{place}, array", True)
            if kind == "scalar" and found.shape:
                raise Damage(place, f"a number has the shape {found.shape}")
            return {"": found}
        self._check_details(record, place)
        if kind == "tensor":
            found = self._array(record["array"], f"{place}, array", False)
            self._check_grad(record, found.dtype.kind in "fcV", place)
            return {"": found}
        if kind == "meta":
            dtype = self._dtype_of(record["dtype"], place)
            read_shape(record["shape"], dtype.itemsize, f"{place}, shape")
            self._check_grad(record, dtype.is_floating_point or dtype.is_complex, place)
            return {}
        return self._parts(record["parts"], place)

    def _array(self, record: Any, place: str, numpy: bool) -> ArrayPlace:
        return read_place(record, self.archive.sizes, place, numpy)

    @staticmethod
    def _check_details(record: Record, place: str) -> None:
        cls, device = record["class"], record["device"]
        if (
            not isinstance(cls, list)
            or len(cls) not in (1, 2)
            or not all(isinstance(part, str) for part in cls)
        ):
            raise Damage(place, f"{shown(cls)} is not the name of a class")
        if not isinstance(device, str) or not _DEVICE.fullmatch(device):
            raise Damage(place, f"{shown(device)} is not a device")
        if not isinstance(record["requires_grad"], bool):
            raise Damage(place, f"requires_grad is {shown(record['requires_grad'])}")

    @staticmethod
    def _check_grad(record: Record, possible: bool, place: str) -> None:
        if record["requires_grad"] and not possible:
            raise Damage(place, "integers and bools require grad")

    def _parts(self, parts: Any, place: str) -> dict[str, ArrayPlace]:
        if not isinstance(parts, dict):
            raise Damage(place, "the parts of a layout are not an object")
        found = {}
        for name, part in parts.items():
            where = f"{place}, part {shown(name)}"
            if not isinstance(part, dict) or part.keys() not in ({"array"}, {"value"}):
                raise Damage(where, "it is neither an array nor a value")
            if "array" in part:
                found[name] = self._array(part["array"], where, True)
        return found

    def check_all_used(self) -> None:
        """Raise Damage if a record or a block is in the file for nothing."""
        unused = self._used.find(0)
        if unused >= 0:
            raise Damage(f"{self.archive.records_place}[{unused}]", "nothing refers to it")
        places = [place for places in self._arrays for place in places.values()]
        check_layout_of_blocks(places, self.archive.sizes, self._byte_blocks)

    # -- what a structure refers to ------------------------------------------------------------

    def record(self, kind: str, number: Any) -> Any:
        """The tensor, array or scalar of a record."""
        if type(number) is not int or not 0 <= number < len(self._used):
            raise Damage("", f"there is no record {shown(number)}")
        if self._used[number]:
            raise Damage("", f"record {number} is used twice")
        self._used[number] = 1
        record = self.archive.records[number]
        have = record["kind"] if record["kind"] in ("array", "scalar") else "tensor"
        if have != kind and self.archive.version > 1:
            raise Damage("", f"record {number} is of a {have}")
        return self._made(record, self._arrays[number], f"{self.archive.records_place}[{number}]")

    def set_attributes(self, tensor: Any, attributes: dict[Any, Any]) -> None:
        """Set attributes on a tensor, none of which hides what belongs to its class."""
        for name in attributes:
            if not isinstance(tensor, Tensor) or is_own_slot(name):
                raise Damage("", f"an attribute cannot be called {shown(name)}")
            if hides_a_member(type(tensor), name):
                raise Damage("", f"the attribute {shown(name)} hides a member of the class")
        tensor.__dict__.update(attributes)

    def block(self, number: int) -> bytes:
        """The bytes of a block that holds no arrays."""
        if not 0 <= number < len(self.archive.sizes) or number in self._byte_blocks:
            raise Damage("", f"there is no block {number} of its own")
        self._byte_blocks.add(number)
        return self.archive.block(number).tobytes()

    def dtype(self, name: Any) -> DType:
        """The element type of that name, also of a layout whose plugin has one."""
        return self._dtype_of(name, "")

    def _dtype_of(self, name: Any, place: str) -> DType:
        if isinstance(name, str):
            if name in _DTYPES:
                return _DTYPES[name]
            plugins.discover()
            for layout, _ in TABLE.snapshot.layouts.values():
                for dtype in layout.dtypes:
                    if dtype.name == name:
                        return dtype
        raise Damage(place, f"{shown(name)} is not a dtype of coredispatch or a loaded plugin")

    def device(self, name: Any) -> Device:
        """The device of that name, which need not be here."""
        if not isinstance(name, str) or not _DEVICE.fullmatch(name):
            raise Damage("", f"{shown(name)} is not a device")
        return Device(name)

    def generator(self, device: Any, state: bytes) -> Generator:
        """A generator on a device in that state, which need not be here."""
        made = Generator()
        made.device = self.device(device)
        try:
            made.load_state_bytes(state)
        except CoreDispatchError as error:
            raise Damage("", f"{error.message}") from error
        return made

    # -- making --------------------------------------------------------------------------------

    def _made(self, record: Record, places: dict[str, ArrayPlace], where: str) -> Any:
        kind = record["kind"]
        if kind in ("array", "scalar"):
            array = self._filled(places[""], where)
            return array if kind == "array" else array[()]
        cls, device = self._class(record["class"]), self._place(record["device"])
        try:
            if kind == "meta":
                dtype = self._dtype_of(record["dtype"], where)
                empty = TABLE.operator("empty")
                tensor = empty(tuple(record["shape"]), dtype=dtype, device="meta")
                return instance(cls, tensor.raw, tensor.keys).requires_grad_(
                    record["requires_grad"]
                )
            if kind == "layout":
                return self._layout(record, places, cls, device, where)
            place = places[""]
            storage = self._storages.setdefault(place.block, Storage())
            array = self._filled(place, where)
            return make_tensor(array, device, record["requires_grad"], cls, storage)
        except Damage:
            raise
        except Exception as error:  # of the device, of the layout's plugin
            text, fix = f"{type(error).__name__}: {error}", None
            if isinstance(error, CoreDispatchError):
                text, fix = error.message, error.fix
            raise SerializationError(
                f"{self.name}, {where}: the tensor cannot be made: {text}",
                fix=fix or "load it with map_location='cpu'",
            ) from error

    def _filled(self, place: ArrayPlace, where: str, own: bool = False) -> np.ndarray[Any, Any]:
        """The array at a place; with `own`, in memory that no array outside its layout shares."""
        block = None
        if place.block >= 0:
            block = self.archive.block(place.block)
            if own and self._members[place.block] > 1:
                if place.block not in self._copies:
                    self._copies[place.block] = block.copy()
                block = self._copies[place.block]
        array = array_at(block, place)
        if not only_valid_elements(array):
            raise Damage(where, "a bool is neither 0 nor 1, or text is not made of characters")
        return array

    def _class(self, name: list[str]) -> Any:
        if len(name) > 1:
            found = self.resolve(":".join(name))
            if not isinstance(found, type) or not issubclass(found, Tensor):
                raise Damage("", f"{'.'.join(name)[:100]} is not a class of tensors")
            return found
        importlib.import_module("coredispatch.frontend.nn.parameter")
        known: list[type[Tensor]] = [Tensor, *Tensor.__subclasses__()]
        for cls in known:
            if cls.__name__ == name[0] and SPELLING.module_of(cls).startswith("coredispatch."):
                return cls
        raise SerializationError(
            f"{self.name} holds a {name[0]:.100}, which this release does not have",
            fix="load it with the release of coredispatch that wrote it",
        )

    def resolve(self, name: str) -> Any:
        """The class or function called ``module:name``."""
        return allowed(*name.split(":", 1))

    def _layout(
        self, record: Record, places: dict[str, ArrayPlace], cls: Any, device: str, where: str
    ) -> Any:
        name = record["layout"]
        if not isinstance(name, str):
            raise Damage(where, f"{shown(name)} is not the name of a layout")
        if name not in TABLE.snapshot.layouts:
            plugins.discover()
        found = TABLE.snapshot.layouts.get(name)
        if found is None or found[0].unpack is None:
            raise SerializationError(
                f"no plugin reads the layout {shown(name)}",
                fix=plugins.hint_for_key(name),
            )
        parts = {
            key: self._filled(places[key], where, own=True) if "array" in part else part["value"]
            for key, part in record["parts"].items()
        }
        # On the host, where the layout can check what the file says, and from there to its device.
        tensor = moved(Tensor(found[0].unpack(parts), TABLE.bit(name) | TABLE.bit("cpu")), device)
        return instance(cls, tensor.raw, tensor.keys).requires_grad_(record["requires_grad"])


_TENSOR_KEYS = {"kind", "class", "device", "requires_grad"}
_KEYS: dict[str, set[str]] = {
    "array": {"kind", "array"},
    "scalar": {"kind", "array"},
    "tensor": _TENSOR_KEYS | {"array"},
    "meta": _TENSOR_KEYS | {"dtype", "shape"},
    "layout": _TENSOR_KEYS | {"layout", "parts"},
}
