"""What the namespace can do: ``__array_namespace_info__`` of the array API standard."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.array_api.creation import isdtype
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.device import Device, default_device
from coredispatch.registry.model.dtypes import DType, default_dtype

__all__ = ["Info"]

_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip


class Info:
    """Capabilities, devices and dtypes of the namespace."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean masks and shapes that depend on values are there; 64 dimensions at most."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where arrays are made."""
        return default_device()

    def devices(self) -> list[Device]:
        """The devices that arrays can be made on."""
        return [Device("cpu")]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of arrays made of Python numbers."""
        return {
            "real floating": default_dtype(),
            "complex floating": default_dtype().to_complex(),
            "integral": dtypes.int64,
            "indexing": dtypes.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes by name, those of a kind where one is given."""
        found = {name: DType.of(name) for name in _DTYPES}
        return {name: d for name, d in found.items() if kind is None or isdtype(d, kind)}
