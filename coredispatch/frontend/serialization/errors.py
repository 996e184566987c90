"""Errors of saving and loading."""

from __future__ import annotations

import pickle

from coredispatch.registry.model.errors import CoreDispatchError

__all__ = ["SerializationError", "UnsafeGlobalError"]


class SerializationError(CoreDispatchError, RuntimeError):
    """A file that cannot be loaded, or an object that cannot be saved."""


class UnsafeGlobalError(SerializationError, pickle.UnpicklingError):
    """A file names a class or function that ``load(weights_only=True)`` does not trust."""
