"""How precisely float32 matrices are multiplied."""

from __future__ import annotations

from coredispatch._warnings import warn
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import DTypeError

__all__ = ["get_float32_matmul_precision", "set_float32_matmul_precision"]

_precision = "highest"


def get_float32_matmul_precision() -> str:
    """``"highest"``, ``"high"`` or ``"medium"``."""
    return _precision


def set_float32_matmul_precision(precision: str) -> None:
    """``"high"`` and ``"medium"`` let a backend multiply float32 matrices in fewer bits.

    The backends that are loaded are told: CuPy uses TF32 then, where the device has it. The CPU
    multiplies in float32 always. Another value warns and changes nothing, as in PyTorch.
    """
    global _precision
    if not isinstance(precision, str):
        raise DTypeError(
            f"set_float32_matmul_precision({precision!r})", fix="use 'highest', 'high' or 'medium'"
        )
    if precision not in ("highest", "high", "medium"):
        warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current "
            "setFloat32MatmulPrecision call has no effect."
        )
        return
    _precision = precision
    for backend, _ in TABLE.snapshot.backends.values():
        tell = getattr(backend, "set_float32_matmul_precision", None)
        if tell is not None and backend.device_count() > 0:
            tell(precision)
