"""``PyTorchFileReader`` and ``PyTorchFileWriter``: the records of a file, as libraries read them.

They give bytes and interpret none: what a record means is the program's affair.
"""

from __future__ import annotations

import os
import zipfile
from typing import IO, Any

__all__ = ["PyTorchFileReader", "PyTorchFileWriter"]

_VERSION = b"3\n"


class PyTorchFileReader:
    """The records of a file that ``torch.save`` wrote, by their names.

    Args:
        file: its path, or an open binary file.

    Raises:
        RuntimeError: it is no such file.
    """

    def __init__(self, file: str | os.PathLike[str] | IO[bytes]) -> None:
        try:
            self._archive = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise RuntimeError(
                f"PytorchStreamReader failed reading zip archive: {error}"
            ) from error
        names = self._archive.namelist()
        if not names:
            raise RuntimeError("PytorchStreamReader failed: the archive has no records")
        #: the folder that all records lie in
        self._folder = names[0].partition("/")[0] + "/"

    def get_record(self, name: str) -> bytes:
        """The bytes of a record. Raises RuntimeError where there is none of that name."""
        try:
            return self._archive.read(self._folder + name)
        except KeyError:
            raise RuntimeError(
                f"PytorchStreamReader failed locating file {name}: file not found"
            ) from None

    def has_record(self, name: str) -> bool:
        """Whether there is a record of that name."""
        return self._folder + name in self._archive.NameToInfo

    def get_all_records(self) -> list[str]:
        """The names of the records."""
        return [name.removeprefix(self._folder) for name in self._archive.namelist()]

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """A tensor of ``numel`` elements whose memory is a copy of the record."""
        from coredispatch.frontend.creation import frombuffer

        return frombuffer(bytearray(self.get_record(name)), dtype=dtype, count=numel)

    def version(self) -> int:
        """The version of the format."""
        return int(self.get_record("version"))

    def serialization_id(self) -> str:
        """A text that the writer made of the contents; empty where there is none."""
        name = ".data/serialization_id"
        return self.get_record(name).decode() if self.has_record(name) else ""


class PyTorchFileWriter:
    """Writes records into a file that :class:`PyTorchFileReader` and PyTorch read.

    Args:
        file: its path, or an open binary file.
    """

    def __init__(self, file: str | os.PathLike[str] | IO[bytes], *args: Any, **kwargs: Any) -> None:
        stem = "archive" if hasattr(file, "write") else os.path.basename(os.fspath(file))
        self._folder = os.path.splitext(stem)[0] + "/"
        self._archive = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)

    def archive_name(self) -> str:
        """The folder that all records lie in."""
        return self._folder[:-1]

    def write_record(self, name: str, data: Any, size: int | None = None) -> None:
        """Write the first ``size`` bytes of ``data`` under ``name``."""
        content = data.encode() if isinstance(data, str) else bytes(data)
        self._archive.writestr(self._folder + name, content[:size])

    def get_all_written_records(self) -> list[str]:
        """The names of the records so far."""
        return [name.removeprefix(self._folder) for name in self._archive.namelist()]

    def write_end_of_file(self) -> None:
        """Write the version and the directory; nothing can be written afterwards."""
        self._archive.writestr(self._folder + "version", _VERSION)
        self._archive.close()
