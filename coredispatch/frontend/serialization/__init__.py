"""Saving, loading, pickling and copying of tensors, public as ``cd.serialization``."""

from __future__ import annotations

from coredispatch.frontend.serialization.allowlist import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from coredispatch.frontend.serialization.errors import (
    SerializationError,
    UnsafeGlobalError,
    UnsavableObjectError,
)
from coredispatch.frontend.serialization.loading import load
from coredispatch.frontend.serialization.memory import (
    copy_tensor,
    deepcopy_tensor,
    rebuild_tensor,
    reduce_tensor,
)
from coredispatch.frontend.serialization.pytorch_names import *  # noqa: F403
from coredispatch.frontend.serialization.pytorch_names import __all__ as _pytorch_names
from coredispatch.frontend.serialization.saving import save

__all__ = [
    "SerializationError",
    "UnsafeGlobalError",
    "UnsavableObjectError",
    "add_safe_globals",
    "clear_safe_globals",
    "copy_tensor",
    "deepcopy_tensor",
    "get_safe_globals",
    "load",
    "rebuild_tensor",
    "reduce_tensor",
    "safe_globals",
    "save",
    *_pytorch_names,
]
