"""``cd.load``: structure and tensors from a saved file, without running its code."""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from coredispatch.frontend.serialization.allowlist import allowed
from coredispatch.frontend.serialization.atomic import Target
from coredispatch.frontend.serialization.building import Builder
from coredispatch.frontend.serialization.container import STRUCTURE, Archive, open_for_reading
from coredispatch.frontend.serialization.errors import (
    Damage,
    SerializationError,
    UnsafeGlobalError,
    shown,
)
from coredispatch.frontend.serialization.pickled import read_pickle
from coredispatch.frontend.serialization.tensor_reader import TensorReader
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.value import Storage

__all__ = ["load"]

MapLocation = str | Device | Mapping[str, str] | Callable[[Any, str], Any] | None

_SPARE_WORK = 1_000_000  # parts that may be hashed for keys in the smallest file


def load(f: Target, map_location: MapLocation = None, *, weights_only: bool | None = None) -> Any:
    """Read what :func:`save` wrote.

    Args:
        f: a path, or a binary file opened for reading.
        map_location: where tensors go instead of the device they were saved on: a device or its
            name, a dict from names to names, or ``function(storage, name)`` that returns a device
            (or the storage it was given, for the CPU, or None, for no change).
        weights_only: make only tensors, numbers, strings, containers and what
            :func:`add_safe_globals` allows; so does None, the default. With False the file can
            run any code: use it for files you trust.

    Raises:
        SerializationError: the file is foreign, cut off, damaged or from a later release, or a
            tensor's device or layout is not there.
        UnsafeGlobalError: with weights_only, the file holds something else.

    Example::

        cd.save(model.state_dict(), "model.cd")
        model.load_state_dict(cd.load("model.cd"))
    """
    if not isinstance(weights_only, bool | None):
        raise TypeError(f"load: weights_only is {weights_only!r}; give True, False or None")
    name = repr(str(f)) if hasattr(f, "__fspath__") or isinstance(f, str) else "the file"
    place = _placement(map_location)
    with open_for_reading(f) as file:
        try:
            return _Loader(Archive(file, name), name, place, weights_only is not False).load()
        except Damage as error:
            raise SerializationError(
                f"{name}, {error}" if error.fix else f"{name} is cut off or damaged: {error}",
                fix=error.fix
                or "copy or save it again; coredispatch.save never leaves half a file behind",
            ) from error


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


class _Loader(TensorReader):
    """What a structure refers to: the archive's records and blocks, classes and functions."""

    def __init__(
        self, archive: Archive, name: str, place: Callable[[str], str], safe: bool
    ) -> None:
        super().__init__(archive, name, place)
        self.safe = safe

    def load(self) -> Any:
        structure = self.archive.structure()
        entry, old = STRUCTURE[self.archive.version], self.archive.version == 1
        if old and not self.safe:
            found = _Unpickler(structure, self).read()
            self.check_all_used()
            return found
        if old:
            work = _SPARE_WORK + 2 * len(structure)
            structure = read_pickle(structure)
        else:
            work = _SPARE_WORK + 2 * self.archive.structure_size
        builder = Builder(structure, self, entry, strict=self.safe, work=work)
        found = builder.build()
        unused = None if old else builder.unused()
        if unused is not None and self.safe:
            raise Damage(entry, f"nothing refers to node {unused}")
        self.check_all_used()
        return found

    def resolve(self, name: str) -> Any:
        """The class or function called ``module:name``."""
        module, _, path = name.partition(":")
        if not self.safe:
            return self._imported(module, path)
        found = allowed(module, path)
        if found is None:
            raise UnsafeGlobalError(
                f"{self.name} holds {module}.{path}, and load(weights_only=True) makes "
                "only tensors, numbers, strings and containers: anything else can run code",
                fix="if you trust the file, weights_only=False; or allow this name alone with "
                f"serialization.add_safe_globals([{path}])",
            )
        return found

    def _imported(self, module: str, path: str) -> Any:
        try:
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise SerializationError(
                f"{self.name} holds {module}.{path}, which is not there: {error}",
                fix="make the module importable that the object was saved with",
            ) from error
        return found


class _Unpickler(pickle.Unpickler):
    """Runs the pickle of a file of version 1 that the user trusts."""

    def __init__(self, data: bytes, source: _Loader) -> None:
        super().__init__(io.BytesIO(data))
        self._source = source
        self._made: dict[Any, Any] = {}

    def read(self) -> Any:
        try:
            return self.load()
        except (Damage, SerializationError, ImportError):
            raise
        except Exception as error:  # also what the file's own classes raise
            raise SerializationError(
                f"{self._source.name}: {STRUCTURE[1]} cannot be unpickled: "
                f"{type(error).__name__}: {error}"
            ) from error

    def find_class(self, module: str, name: str) -> Any:
        if name == "Generator" and module.startswith("coredispatch."):
            from coredispatch.registry.model.generator import Generator

            return Generator
        return super().find_class(module, name)

    def persistent_load(self, reference: Any) -> Any:
        kind, value, *extra = reference
        if kind == "dtype":
            return self._source.dtype(value)
        if kind == "device":
            return self._source.device(value)
        if kind == "size":
            from coredispatch.frontend.size import Size

            return Size(value)
        if kind != "tensor":
            raise pickle.UnpicklingError(f"unknown kind of reference {shown(kind)}")
        if value not in self._made:
            self._made[value] = self._source.record("tensor", value)
        if extra:
            self._source.set_attributes(self._made[value], extra[0])
        return self._made[value]
