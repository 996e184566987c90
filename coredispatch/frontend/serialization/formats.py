"""Which format a file has, and the archive that reads it."""

from __future__ import annotations

import io
from typing import IO, Any

from coredispatch.frontend.serialization import safetensors_files
from coredispatch.frontend.serialization.container import Archive
from coredispatch.frontend.serialization.errors import (
    EmptyFileError,
    ForeignFileError,
    SerializationError,
)
from coredispatch.frontend.serialization.options import Options
from coredispatch.frontend.serialization.stored_zip import StoredZip
from coredispatch.frontend.serialization.torch_files import (
    LEGACY_START,
    LegacyArchive,
    ZipArchive,
    mapped,
)

__all__ = ["open_archive"]

_TAR_MARK = (257, b"ustar")


def open_archive(file: IO[bytes], name: str, options: Options) -> Any:
    """The archive that reads a file: of coredispatch, PyTorch or safetensors.

    Raises:
        SerializationError: it is none of these.
        Damage: it is one, but cut off or damaged.
    """
    file.seek(0)
    start = file.read(512)
    if start.startswith(b"PK\x03\x04"):
        archive = StoredZip(file)
        if "format.json" in archive.names:
            return Archive(archive, name, mapped(file) if options.mmap else None)
        return ZipArchive(archive, file, name, options)
    if start.startswith(LEGACY_START):
        return LegacyArchive(file if hasattr(file, "readinto") else _in_memory(file), options)
    if safetensors_files.looks_like(start):
        return safetensors_files.SafetensorsArchive(file, mapped(file) if options.mmap else None)
    if not start:
        raise EmptyFileError(f"{name} is empty")
    place, mark = _TAR_MARK
    if start[place : place + len(mark)] == mark:
        raise SerializationError(
            f"{name} is in the tar format that PyTorch wrote before version 0.1.10",
            fix="load and save it again with PyTorch",
        )
    if start[:1] == b"\x80":
        raise SerializationError(
            f"{name} is a pickle, but no file of torch.save",
            fix="load it with pickle.load if you trust it",
        )
    raise ForeignFileError(
        f"{name} was not written by coredispatch.save, torch.save or safetensors"
    )


def _in_memory(file: IO[bytes]) -> IO[bytes]:
    file.seek(0)
    return io.BytesIO(file.read())
