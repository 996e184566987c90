"""What the processor can do."""

from __future__ import annotations

__all__ = ["get_cpu_capability"]

_LEVELS = (("AVX512F", "AVX512"), ("AVX2", "AVX2"), ("SVE", "SVE"), ("NEON", "DEFAULT"))


def get_cpu_capability() -> str:
    """``"AVX512"``, ``"AVX2"``, ``"SVE"`` or ``"DEFAULT"``: what NumPy found, and uses."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as features
    except ImportError:
        return "DEFAULT"
    return next((level for feature, level in _LEVELS if features.get(feature)), "DEFAULT")
