"""PyTorch's files, opened as archives of blocks, records and a structure like coredispatch's own.

Since 1.6 ``torch.save`` writes a zip archive: ``NAME/data.pkl`` is the pickle, ``NAME/data/KEY``
the bytes of a storage. Before, and with ``_use_new_zipfile_serialization=False``, a file is five
pickles (a magic number, the protocol, details about the machine, the object, the keys of the
storages) and, for each key, the number of elements and the elements.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from typing import IO, Any, Final

import numpy as np

from coredispatch.frontend.serialization.errors import Damage, SerializationError, shown
from coredispatch.frontend.serialization.options import DEFAULTS, Options
from coredispatch.frontend.serialization.stored_zip import StoredZip
from coredispatch.frontend.serialization.torch_pickle import StorageReference, TorchPickle

__all__ = ["LEGACY_START", "LegacyArchive", "TorchArchive", "ZipArchive", "mapped"]

Array = np.ndarray[Any, Any]

#: the pickle of the magic number that a file of the older form begins with
LEGACY_START: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_PROTOCOL: Final = 1001
_COUNT: Final = struct.Struct("<q")
_WINDOW: Final = 1 << 16


def mapped(file: IO[bytes]) -> Array:
    """All bytes of an open file, mapped into memory; what is written to them is not saved.

    Raises:
        ValueError: it is not a file on a disk.
    """
    try:
        number = file.fileno()
    except (AttributeError, OSError) as error:
        raise ValueError("load(mmap=True) needs a path: only a file on a disk is mapped") from error
    return np.frombuffer(mmap.mmap(number, 0, access=mmap.ACCESS_COPY), np.uint8)


class TorchArchive:
    """A file of PyTorch: see :class:`.container.Archive` for the attributes.

    Attributes:
        pickle: the reader of the object's pickle.
    """

    version: int = 2
    structure_place = TorchPickle.PLACE
    records_place = f"{TorchPickle.PLACE}, tensors"
    pickle: TorchPickle

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.structure_size = 0
        self._structure: Any = None
        self._blocks: dict[int, Array] = {}

    @property
    def records(self) -> list[dict[str, Any]]:
        return self.pickle.records

    def structure(self) -> Any:
        """The object, as nodes."""
        return self._structure

    def _checked_sizes(self, sizes: list[int], place: str) -> None:
        for storage, size in zip(self.pickle.storages, sizes):
            if (storage.offset + storage.elements) * storage.itemsize > size:
                raise Damage(
                    f"{place} {shown(storage.key)}",
                    f"{storage.elements} elements of {storage.dtype} do not fit its {size} bytes",
                )
        self.sizes = [*sizes, *map(len, self.pickle.bytes)]

    def block(self, number: int) -> Array:
        """Block `number` as writable bytes; the same array each time."""
        if number not in self._blocks:
            storages = self.pickle.storages
            if number < len(storages):
                self._blocks[number] = self._storage(number, storages[number])
            else:
                data = bytearray(self.pickle.bytes[number - len(storages)])
                self._blocks[number] = np.frombuffer(data, np.uint8)
        return self._blocks[number]

    def _storage(self, number: int, storage: StorageReference) -> Array:
        raise NotImplementedError


class ZipArchive(TorchArchive):
    """A zip archive that ``torch.save`` wrote.

    Raises:
        SerializationError: it is a zip archive of something else.
        Damage: it is cut off or damaged.
    """

    def __init__(self, archive: StoredZip, file: IO[bytes], name: str, options: Options) -> None:
        super().__init__()
        self._zip = archive
        self._map = mapped(file) if options.mmap else None
        names = set(archive.names)
        roots = [entry.removesuffix("data.pkl") for entry in names if entry.endswith("/data.pkl")]
        if len(roots) != 1:
            raise SerializationError(f"{name} is a zip archive, but not of coredispatch or PyTorch")
        self._root = roots[0]
        if f"{self._root}constants.pkl" in names:
            raise SerializationError(
                f"{name} is a program of TorchScript, not saved tensors",
                fix="load it with PyTorch and save its state_dict()",
            )
        order = f"{self._root}byteorder"
        found = _byte_order() if order not in names else archive.read(order).decode("latin1")
        if found not in ("little", "big"):
            raise Damage(order, f"it is {shown(found)}")
        self._swap = found != sys.byteorder
        data = archive.read(f"{self._root}data.pkl")
        self.structure_size = len(data)
        self.pickle = TorchPickle(data, 0, options)
        self._structure = self.pickle.finished()
        if self.pickle.position != len(data):
            raise Damage("data.pkl", "it goes on after its end")
        sizes = []
        for storage in self.pickle.storages:
            entry = f"{self._root}data/{storage.key}"
            if entry not in names:
                raise Damage("data.pkl", f"there is no storage {shown(storage.key)}")
            sizes.append(archive.size(entry))
        self._checked_sizes(sizes, "storage")

    def _storage(self, number: int, storage: StorageReference) -> Array:
        entry = f"{self._root}data/{storage.key}"
        if self._map is not None and not self._swap:
            start = self._zip.position(entry)
            return self._map[start : start + self.sizes[number]]
        block = np.empty(self.sizes[number], np.uint8)
        self._zip.read_into(entry, block.data)
        return _swapped(block, storage) if self._swap else block


def _byte_order() -> str:
    """The byte order of a file that does not name its own."""
    said = DEFAULTS["endianness"]
    return {"NATIVE": sys.byteorder, "BIG": "big"}.get(getattr(said, "name", ""), "little")


def _swapped(block: Array, storage: StorageReference) -> Array:
    width = storage.itemsize // (2 if storage.dtype.startswith("complex") else 1)
    whole = block[: block.size // width * width].reshape(-1, width)
    whole[...] = whole[:, ::-1].copy()
    return block


class LegacyArchive(TorchArchive):
    """A file of the older form.

    Raises:
        Damage: it is cut off or damaged.
    """

    def __init__(self, file: IO[bytes], options: Options) -> None:
        super().__init__()
        if options.mmap:
            raise ValueError(
                "load(mmap=True): a file of PyTorch's older form cannot be mapped; save it again"
            )
        self._file = file
        data = FileBytes(file)
        place = 0
        for expected in (hex(0x1950A86A20F9469CFC6C), _PROTOCOL, None):
            reader = TorchPickle(data, place)
            found = reader.read()
            place = reader.position
            if expected is None:
                continue
            root = found["root"]
            value = found["nodes"][root[0]].get("int") if type(root) is list else root
            if value != expected:
                raise Damage("the beginning", f"{shown(value)} stands where {expected} should")
        self.pickle = TorchPickle(data, place, options)
        self._structure = self.pickle.finished()
        self.structure_size = self.pickle.position - place
        keys = TorchPickle(data, self.pickle.position)
        self._read_places(keys.read(), keys.position, len(data))

    def _read_places(self, listed: Any, position: int, end: int) -> None:
        what = "the list of storages"
        root = listed["root"]
        keys = listed["nodes"][root[0]].get("list") if type(root) is list else None
        storages = {storage.key: storage for storage in self.pickle.storages}
        if keys is None or any(type(key) is not str for key in keys):
            raise Damage(what, "it is not a list of names")
        if len(set(keys)) != len(keys) or storages.keys() - set(keys):
            raise Damage(what, "a name is missing or stands twice")
        self._places: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for key in keys:
            if key not in storages:
                raise Damage(what, f"nothing refers to {shown(key)}")
            if position + _COUNT.size > end:
                raise Damage(f"storage {shown(key)}", "the file ends before it")
            self._file.seek(position)
            (count,) = _COUNT.unpack(self._file.read(_COUNT.size))
            position += _COUNT.size
            size = count * storages[key].itemsize
            if count < 0 or position + size > end:
                raise Damage(f"storage {shown(key)}", f"the file ends before its {count} elements")
            self._places[key], sizes[key] = position, size
            position += size
        if position != end:
            raise Damage("the end", "the file goes on after its last storage")
        self._checked_sizes([sizes[storage.key] for storage in self.pickle.storages], "storage")

    def _storage(self, number: int, storage: StorageReference) -> Array:
        block = np.empty(self.sizes[number], np.uint8)
        self._file.seek(self._places[storage.key])
        if self._file.readinto(block.data) != block.size:  # type: ignore[attr-defined]
            raise Damage(f"storage {shown(storage.key)}", "the file ends inside it")
        return _swapped(block, storage) if sys.byteorder == "big" else block


class FileBytes:
    """A file as a sequence of bytes, of which only a window is in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._length = file.seek(0, os.SEEK_END)
        self._start, self._window = 0, b""

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: slice) -> bytes:
        start, end = place.start, min(place.stop, self._length)
        if start < self._start or end > self._start + len(self._window):
            self._file.seek(start)
            self._start = start
            self._window = self._file.read(max(min(_WINDOW, self._length - start), end - start))
        return self._window[start - self._start : end - self._start]
