"""Errors of saving and loading."""

from __future__ import annotations

import errno
import pickle
import reprlib
from typing import Any

from coredispatch.registry.model.errors import CoreDispatchError

__all__ = [
    "Damage",
    "EmptyFileError",
    "ForeignFileError",
    "MissingFolderError",
    "NotAFileError",
    "SerializationError",
    "UnsafeGlobalError",
    "UnsavableObjectError",
    "shown",
]


class SerializationError(CoreDispatchError, RuntimeError):
    """A file that cannot be loaded, or an object that cannot be saved."""


class UnsafeGlobalError(SerializationError, pickle.UnpicklingError):
    """A file names a class or function that ``load(weights_only=True)`` does not trust."""


class ForeignFileError(SerializationError, pickle.UnpicklingError):
    """A file in no format that ``load`` knows."""


class EmptyFileError(SerializationError, EOFError):
    """A file without contents."""


class NotAFileError(SerializationError, TypeError, AttributeError):
    """What should be a path or a binary file is neither: PyTorch finds that it has no ``seek``."""


class MissingFolderError(SerializationError, FileNotFoundError):
    """The folder that a file should be saved in is not there."""

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.errno = errno.ENOENT


class UnsavableObjectError(SerializationError, pickle.PicklingError):
    """An object holds something that no file can say, such as a local function."""


class Damage(Exception):
    """A part of a file says what ``save`` never writes.

    Raised where the part is read. ``load`` makes a :class:`SerializationError` of it that names
    the file as well. With a ``fix`` of its own, the reason is not in the file.
    """

    def __init__(self, place: str, what: str, fix: str | None = None) -> None:
        self.place = place
        self.what = what
        self.fix = fix
        super().__init__(f"{place}: {what}")


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxother, _SHORT.maxstring = 2, 120, 80


def shown(value: Any) -> str:
    """A short text for a value of a file, which may be of any size and depth."""
    try:
        return _SHORT.repr(value)
    except Exception:  # the text of somebody's object
        return f"<{type(value).__name__}>"
