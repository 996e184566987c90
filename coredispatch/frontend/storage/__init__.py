"""Storages: the memory behind tensors, public as ``cd.storage``.

:class:`UntypedStorage` is the bytes that a tensor and its views share, :class:`TypedStorage` the
same with a dtype, ``FloatStorage`` and its relatives are PyTorch's older names for that.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.storage.legacy import LEGACY, legacy_class
from coredispatch.frontend.storage.typed import STORAGE_NAMES, TypedStorage
from coredispatch.frontend.storage.untyped import UntypedStorage, storage_behind

__all__ = ["STORAGE_NAMES", "TypedStorage", "UntypedStorage", "legacy_class", "storage_behind"]

globals().update(LEGACY)


def _load_from_bytes(b: bytes) -> Any:
    """What a pickle of a PyTorch storage calls: the object that a saved file in `b` holds."""
    import io

    from coredispatch.frontend.serialization import load

    return load(io.BytesIO(b), weights_only=True)
