"""The file format of ``cd.save``: a zip archive that can be read without running any code.

    format.json     format name and version, byte order, and a record per tensor: dtype, shape,
                    strides, the block it lies in, device, requires_grad
    structure.pkl   the saved object with references in place of tensors
    blocks/<n>      bytes of memory; tensors that share memory share a block

Entries are stored uncompressed and with a fixed date, so equal objects give equal files; the
archive's checksums catch damaged data.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from coredispatch.frontend.serialization.errors import SerializationError

__all__ = ["Archive", "open_for_reading", "open_for_writing", "write_archive"]

FORMAT = "coredispatch tensors"
VERSION = 1

Target = str | os.PathLike[str] | IO[bytes]


def _entry(archive: zipfile.ZipFile, name: str, parts: list[Any]) -> None:
    size = _size(parts)
    info = zipfile.ZipInfo(name)  # dated 1980, the first day a zip file knows
    with archive.open(info, "w", force_zip64=size >= 1 << 31) as entry:
        for part in parts:
            entry.write(part)


def _size(parts: list[Any]) -> int:
    return sum(memoryview(part).nbytes for part in parts)


def write_archive(
    file: IO[bytes], structure: bytes, records: list[dict[str, Any]], blocks: list[list[Any]]
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
        _entry(archive, "structure.pkl", [structure])
        for number, block in enumerate(blocks):
            _entry(archive, f"blocks/{number}", block)


@contextlib.contextmanager
def open_for_writing(target: Target) -> Iterator[IO[bytes]]:
    """A binary file to write `target` with.

    A path gets its new contents all at once, when the block ends without an error: a program
    that dies while saving leaves the previous file as it was.
    """
    if not isinstance(target, str | os.PathLike):
        if not hasattr(target, "write"):
            raise TypeError(f"save needs a path or a binary file, got {type(target).__name__}")
        yield target
        return
    path = Path(os.path.realpath(target))  # a link goes on pointing to the file it named
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        with open(path, "wb") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def open_for_reading(source: Target) -> Iterator[IO[bytes]]:
    """A seekable binary file with the contents of `source`."""
    if isinstance(source, str | os.PathLike):
        with open(source, "rb") as file:
            yield file
        return
    if not hasattr(source, "read"):
        raise TypeError(f"load needs a path or a binary file, got {type(source).__name__}")
    seekable = getattr(source, "seekable", None)
    yield source if seekable is not None and seekable() else io.BytesIO(source.read())


class Archive:
    """A saved file opened for reading.

    Raises:
        SerializationError: the file is no such archive, is cut off, or is damaged.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.name = name
        try:
            self._zip = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise self._broken(file, error) from error
        names = set(self._zip.namelist())
        if "format.json" not in names:
            foreign = any(entry.endswith("data.pkl") for entry in names)
            raise SerializationError(
                f"{name} is a zip archive, but was not written by coredispatch.save",
                fix="it looks like a PyTorch checkpoint: load it with PyTorch and save its tensors "
                "as NumPy arrays, which from_numpy takes"
                if foreign
                else None,
            )
        index = json.loads(self.read("format.json"))
        if index.get("format") != FORMAT or index.get("version", 0) > VERSION:
            raise SerializationError(
                f"{name} has format {index.get('format')!r} version {index.get('version')}, "
                f"and this release reads {FORMAT!r} up to version {VERSION}",
                fix="load it with the release of coredispatch that wrote it",
            )
        if index["byteorder"] != sys.byteorder:
            raise SerializationError(
                f"{name} was written on a {index['byteorder']}-endian machine",
                fix="load and save it again on such a machine, as NumPy arrays",
            )
        self.records: list[dict[str, Any]] = index["tensors"]
        self._sizes: list[int] = index["blocks"]
        self._blocks: dict[int, np.ndarray[Any, Any]] = {}

    def _broken(self, file: IO[bytes], error: Exception) -> SerializationError:
        file.seek(0)
        start = file.read(4)
        if not start:
            return SerializationError(f"{self.name} is empty")
        if start == b"PK\x03\x04":
            return SerializationError(
                f"{self.name} is cut off or damaged: {error}",
                fix="copy or save it again; coredispatch.save never leaves half a file behind",
            )
        return SerializationError(f"{self.name} was not written by coredispatch.save")

    def read(self, name: str) -> bytes:
        """The bytes of one entry."""
        try:
            return self._zip.read(name)
        except (KeyError, EOFError, zipfile.BadZipFile) as error:
            raise SerializationError(f"{self.name} is damaged: {error}") from error

    def block(self, number: int) -> np.ndarray[Any, Any]:
        """Block `number` as writable bytes; the same array each time."""
        if number not in self._blocks:
            size = self._sizes[number]
            block = np.empty(size, np.uint8)
            try:
                with self._zip.open(f"blocks/{number}") as entry:
                    view, done = memoryview(block), 0
                    while count := entry.readinto(view[done:]):  # type: ignore[attr-defined]
                        done += count
            except (KeyError, EOFError, zipfile.BadZipFile) as error:
                raise SerializationError(f"{self.name} is damaged: {error}") from error
            if done != size:
                raise SerializationError(f"{self.name} is cut off: block {number} is incomplete")
            self._blocks[number] = block
        return self._blocks[number]
