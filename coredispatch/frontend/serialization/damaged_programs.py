"""Programs in files: whatever a damaged one makes of their reading is told as damage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from coredispatch.frontend.serialization.errors import SerializationError
from coredispatch.registry.model.errors import CoreDispatchError

__all__ = ["told_as_damage"]


@contextlib.contextmanager
def told_as_damage(writer: str) -> Iterator[None]:
    """Errors of Python inside become :class:`SerializationError`; ``writer`` is the advice."""
    try:
        yield
    except (CoreDispatchError, MemoryError):
        raise
    except Exception as error:
        raise SerializationError(
            f"the program in the file is damaged: {type(error).__name__}: {str(error)[:200]}",
            fix=f"write it again with {writer}",
        ) from error
