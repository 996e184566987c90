"""Exceptions that cross threads and processes as text, as PyTorch's ``_utils`` carries them."""

from __future__ import annotations

import sys
import traceback
from typing import Any

__all__ = ["ExceptionWrapper", "KeyErrorMessage"]


class KeyErrorMessage(str):
    """The text of a KeyError, whose ``repr`` keeps its lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception as its class and its traceback's text, which can be sent and raised elsewhere.

    Args:
        exc_info: what ``sys.exc_info()`` gave; None: the exception that is handled now.
        where: for the text, such as ``"in DataLoader worker process 0"``.
    """

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))
        self.where = where

    def reraise(self) -> None:
        """Raise an exception of the same class whose text is the traceback.

        A class that takes no single text is raised as RuntimeError.
        """
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            text = KeyErrorMessage(text)
        elif getattr(self.exc_type, "message", None):
            raise self.exc_type(message=text)
        try:
            error = self.exc_type(text)
        except Exception:
            raise RuntimeError(text) from None
        raise error
