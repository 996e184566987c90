"""What ``fully_shard`` may be told about dtypes and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CPUOffloadPolicy", "MixedPrecisionPolicy", "OffloadPolicy"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of a unit; None leaves them as they are.

    Attributes:
        param_dtype: of the gathered parameters, and of the computation.
        reduce_dtype: in which gradients are added up; `param_dtype` by default.
        output_dtype: of the outputs of forward.
        cast_forward_inputs: cast the inputs of forward to `param_dtype`.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Parts stay on the device."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parts stay in the memory of the CPU: that of modules on the CPU already do."""

    pin_memory: bool = True
