"""The file format of ``cd.save``: a zip archive that can be read without running any code.

    format.json      format name and version, byte order, the size of each block, and a record per
                     tensor: dtype, shape, strides, the block it lies in, device, requires_grad
    structure.json   the saved object, with references in place of tensors
    blocks/<n>       bytes of memory; tensors that share memory share a block

Entries are stored uncompressed and with a fixed date, so equal objects give equal files; the
archive's checksums catch damaged data. ``docs/files.md`` describes the format.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from coredispatch.frontend.serialization.atomic import Target
from coredispatch.frontend.serialization.errors import (
    Damage,
    NotAFileError,
    SerializationError,
    shown,
)
from coredispatch.frontend.serialization.stored_zip import StoredZip

__all__ = ["Archive", "open_for_reading", "write_archive"]

Array = np.ndarray[Any, Any]

FORMAT = "coredispatch tensors"
VERSION = 2
#: the entry with the structure, by version; the pickle of version 1 is only interpreted
STRUCTURE = {1: "structure.pkl", 2: "structure.json"}
_LONGEST_NUMBER = 32  # characters; Python writes no longer floats or 64-bit integers


def _entry(archive: zipfile.ZipFile, name: str, parts: list[Any]) -> None:
    size = _size(parts)
    info = zipfile.ZipInfo(name)  # dated 1980, the first day a zip file knows
    with archive.open(info, "w", force_zip64=size >= 1 << 31) as entry:
        for part in parts:
            entry.write(part)


def _size(parts: list[Any]) -> int:
    return sum(memoryview(part).nbytes for part in parts)


def write_archive(
    file: IO[bytes],
    structure: dict[str, Any],
    records: list[dict[str, Any]],
    blocks: list[list[Any]],
) -> None:
    """Write one archive to a binary file, which need not be seekable."""
    index = {
        "format": FORMAT,
        "version": VERSION,
        "byteorder": sys.byteorder,
        "tensors": records,
        "blocks": [_size(block) for block in blocks],
    }
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _entry(archive, "format.json", [json.dumps(index).encode()])
        _entry(archive, STRUCTURE[VERSION], [json.dumps(structure, allow_nan=False).encode()])
        for number, block in enumerate(blocks):
            _entry(archive, f"blocks/{number}", block)


@contextlib.contextmanager
def open_for_reading(source: Target) -> Iterator[IO[bytes]]:
    """A seekable binary file with the contents of `source`."""
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            yield file
        return
    if not hasattr(source, "read") or isinstance(source, io.TextIOBase):
        raise NotAFileError(f"load needs a path or a binary file, got {type(source).__name__}")
    seekable = getattr(source, "seekable", None)
    yield source if seekable is not None and seekable() else io.BytesIO(source.read())


class Archive:
    """A saved file opened for reading.

    Args:
        archive: the file.
        name: how errors call it.
        memory: its bytes, mapped; blocks then lie there, and their checksums are not checked.

    Attributes:
        version: of the format.
        sizes: bytes of each block, which the file really has.
        records: one per tensor, as they stand in the file.
        structure_size: bytes of the structure.
        structure_place, records_place: where these stand in the file, for errors.

    Raises:
        SerializationError: the file is not one that this release reads.
        Damage: it is cut off or damaged.
    """

    records_place = "format.json, tensors"

    @property
    def structure_place(self) -> str:
        return STRUCTURE[self.version]

    def __init__(self, archive: StoredZip, name: str, memory: Array | None = None) -> None:
        self._zip = archive
        self._memory = memory
        names = set(archive.names)
        index = read_json(self._zip.read("format.json"), "format.json")
        if not isinstance(index, dict):
            raise Damage("format.json", "it is not an object")
        self.version = _version(index, name)
        keys = {"format", "version", "byteorder", "tensors", "blocks"}
        if index.keys() != keys:
            raise Damage("format.json", f"its keys are not {', '.join(sorted(keys))}")
        if index["byteorder"] not in ("little", "big"):
            raise Damage("format.json, byteorder", f"it is {shown(index['byteorder'])}")
        if index["byteorder"] != sys.byteorder:
            raise SerializationError(
                f"{name} was written on a {index['byteorder']}-endian machine",
                fix="load and save it again on such a machine, as NumPy arrays",
            )
        self.records = _listed(index, "tensors")
        self.sizes = _listed(index, "blocks")
        entries = {"format.json", STRUCTURE[self.version]}
        entries.update(f"blocks/{number}" for number in range(len(self.sizes)))
        if names != entries:
            raise Damage("the archive", f"entries are missing or unknown: {_some(names ^ entries)}")
        for number, size in enumerate(self.sizes):
            if type(size) is not int or size != self._zip.size(f"blocks/{number}"):
                raise Damage(
                    f"format.json, blocks[{number}]", f"the block has another size: {shown(size)}"
                )
        self.structure_size = self._zip.size(STRUCTURE[self.version])
        self._blocks: dict[int, np.ndarray[Any, Any]] = {}

    def structure(self) -> Any:
        """The object: bytes of a pickle in version 1, JSON values in later ones."""
        entry = STRUCTURE[self.version]
        data = self._zip.read(entry)
        return data if self.version == 1 else read_json(data, entry)

    def block(self, number: int) -> np.ndarray[Any, Any]:
        """Block `number` as writable bytes; the same array each time."""
        if number not in self._blocks and self._memory is not None:
            start = self._zip.position(f"blocks/{number}")
            self._blocks[number] = self._memory[start : start + self.sizes[number]]
        elif number not in self._blocks:
            block = np.empty(self.sizes[number], np.uint8)
            self._zip.read_into(f"blocks/{number}", block.data)
            self._blocks[number] = block
        return self._blocks[number]


def _version(index: dict[str, Any], name: str) -> int:
    version: Any = index.get("version")
    if index.get("format") == FORMAT and type(version) is int and version in STRUCTURE:
        return int(version)
    raise SerializationError(
        f"{name} has format {shown(index.get('format'))} version {shown(version)}, "
        f"and this release reads {FORMAT!r} up to version {VERSION}",
        fix="load it with the release of coredispatch that wrote it",
    )


def _listed(index: dict[str, Any], key: str) -> list[Any]:
    if not isinstance(index[key], list):
        raise Damage(f"format.json, {key}", "it is not a list")
    found: list[Any] = index[key]
    return found


def _some(names: set[str]) -> str:
    return ", ".join(repr(name)[:100] for name in sorted(names)[:3])


def read_json(data: bytes, place: str) -> Any:
    """JSON of ASCII characters, without the numbers that only Python knows.

    Raises:
        Damage: it is not that, or holds a number that ``save`` does not write.
    """
    try:
        return _DECODER.decode(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise Damage(place, str(error)[:200]) from error


def _integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits")
    number = float(text)
    if not -float("inf") < number < float("inf"):
        raise ValueError(f"{text} is not a finite number")
    return number


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)
