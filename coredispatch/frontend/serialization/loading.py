"""``cd.load``: structure and tensors from a saved file, without running its code."""

from __future__ import annotations

import importlib
import io
import os
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from coredispatch.frontend.serialization.allowlist import allowed, allowed_as
from coredispatch.frontend.serialization.atomic import Target
from coredispatch.frontend.serialization.building import Builder
from coredispatch.frontend.serialization.container import STRUCTURE, open_for_reading
from coredispatch.frontend.serialization.errors import (
    Damage,
    SerializationError,
    UnsafeGlobalError,
    shown,
)
from coredispatch.frontend.serialization.formats import open_archive
from coredispatch.frontend.serialization.options import Options
from coredispatch.frontend.serialization.pickled import read_pickle
from coredispatch.frontend.serialization.tensor_reader import TensorReader
from coredispatch.frontend.serialization.torch_building import TorchBuilder
from coredispatch.frontend.serialization.torch_files import TorchArchive
from coredispatch.frontend.serialization.torch_pickle import StorageReference
from coredispatch.frontend.storage import TypedStorage, UntypedStorage
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType

__all__ = ["load"]

MapLocation = str | Device | Mapping[str, str] | Callable[[Any, str], Any] | None

_SPARE_WORK = 1_000_000  # parts that may be hashed for keys in the smallest file


def load(
    f: Target,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what :func:`save`, ``torch.save`` or a library of safetensors wrote.

    PyTorch is not needed: its files, zip archives and the older form, are read by the same rules as
    coredispatch's own (see ``docs/files.md``).

    Args:
        f: a path, or a binary file opened for reading.
        map_location: where tensors go instead of the device they were saved on: a device or its
            name, a dict from names to names, or ``function(storage, name)`` that returns a device
            (or the storage it was given, for the CPU, or None, for no change).
        pickle_module: only Python's own ``pickle``; the file is not unpickled by it.
        weights_only: make only tensors, numbers, strings, containers and what
            :func:`add_safe_globals` allows; so does None, the default. With False the file can
            run any code: use it for files you trust. Names of ``torch`` mean coredispatch's.
        mmap: map the file into memory instead of reading it. Writes do not reach the file, and
            checksums are not looked at. The file must not be shortened meanwhile.
        pickle_load_args: ``encoding``, that of texts which Python 2 wrote (``"utf-8"``).

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
    if pickle_module is not None and getattr(pickle_module, "__name__", "") != "pickle":
        raise NotImplementedError(
            f"load(pickle_module={pickle_module!r}): files are read without a pickle module"
        )
    encoding = pickle_load_args.pop("encoding", "utf-8")
    if pickle_load_args:
        raise TypeError(f"load() got an unexpected argument {next(iter(pickle_load_args))!r}")
    options = Options(bool(mmap), encoding, weights_only is False)
    if options.mmap and not isinstance(f, str | os.PathLike):
        raise ValueError("load(mmap=True) needs a path: only a file on a disk is mapped")
    name = repr(str(f)) if hasattr(f, "__fspath__") or isinstance(f, str) else "the file"
    place = _placement(map_location)
    with open_for_reading(f) as file:
        try:
            archive = open_archive(file, name, options)
            reader: type[_Loader] = _TorchLoader if isinstance(archive, TorchArchive) else _Loader
            return reader(archive, name, place, not options.trusted).load()
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
        storage = UntypedStorage(0)
        answer = location(storage, device)
        if answer is None:
            return device
        return str(getattr(answer, "device", answer))

    return asked


class _Loader(TensorReader):
    """What a structure refers to: the archive's records and blocks, classes and functions."""

    builder: type[Builder] = Builder
    all_used = True  # whether a node or record that nothing refers to is damage

    def __init__(self, archive: Any, name: str, place: Callable[[str], str], safe: bool) -> None:
        super().__init__(archive, name, place)
        self.safe = safe

    def load(self) -> Any:
        structure = self.archive.structure()
        entry, old = self.archive.structure_place, self.archive.version == 1
        if old and not self.safe:
            found = _Unpickler(structure, self).read()
            self.check_all_used()
            return found
        if old:
            work = _SPARE_WORK + 2 * len(structure)
            structure = read_pickle(structure)
        else:
            work = _SPARE_WORK + 2 * self.archive.structure_size
        pickled = old or isinstance(self.archive, TorchArchive)
        builder = self.builder(structure, self, entry, strict=self.safe, work=work, pickled=pickled)
        found = builder.build()
        unused = builder.unused() if self.all_used and not old else None
        if unused is not None and self.safe:
            raise Damage(entry, f"nothing refers to node {unused}")
        if self.all_used:
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


class _TorchLoader(_Loader):
    """The same for a file of PyTorch, whose names of classes and functions mean coredispatch's."""

    builder = TorchBuilder
    archive: TorchArchive  # type: ignore[assignment]
    all_used = False  # arguments of calls are nodes, too

    def record(self, kind: str, number: Any) -> Any:
        """The tensor or array of a record, conjugated or negated where PyTorch only noted that."""
        made = super().record(kind, number)
        for bit in self.archive.pickle.bits.get(number, ()):
            made = made.detach().conj().resolve_conj() if bit == "conj" else made.detach().neg()
        return made

    def storage(self, reference: StorageReference) -> Any:
        """The storage that a file refers to, on the CPU."""
        block = self.archive.block(self.archive.pickle.block(reference))
        start = reference.offset * reference.itemsize
        part = block[start : start + reference.elements * reference.itemsize]
        untyped = UntypedStorage._over(part).to(device=self._place(reference.location))
        return TypedStorage._of(untyped, DType.of(reference.dtype)) if reference.typed else untyped

    def resolve(self, name: str) -> Any:
        """The class or function called ``module:name``; ``torch`` means coredispatch."""
        module, _, path = name.partition(":")
        if module.partition(".")[0] != "torch":
            return super().resolve(name)
        ours = f"coredispatch{module.removeprefix('torch')}"
        if self.safe:
            found = allowed(module, path) or allowed_as(module, path)
            return super().resolve(name) if found is None else found
        if (module, path) == ("torch._C", "_VariableFunctionsClass"):
            return importlib.import_module("coredispatch")  # whose attributes the functions are
        if module == "torch._C._nn":
            ours = "coredispatch.nn.functional"
        try:
            return self._imported(ours, path)
        except SerializationError:
            # Where a class is defined may differ, its public name does not.
            for parts in range(ours.count("."), 0, -1):
                public = importlib.import_module(".".join(ours.split(".")[:parts]))
                if path in getattr(public, "__all__", ()):
                    return getattr(public, path)
            raise


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
