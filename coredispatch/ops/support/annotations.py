"""The type names of op signatures.

A schema reads its annotations as text (``Tensor | Scalar``); these names exist so that editors
and type checkers can follow the text. What each admits is listed in ``registry/model/schema.py``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType

__all__ = [
    "DType",
    "Device",
    "FloatList",
    "Generator",
    "Index",
    "IntList",
    "Scalar",
    "Tensor",
]

# The frontend's class; ops sit below it and may not import it.
Tensor: TypeAlias = Any
Generator: TypeAlias = Any
Index: TypeAlias = Any
Scalar: TypeAlias = bool | int | float | complex
# What a body is given is a tuple; what a caller of the operator may write, an int among others, is
# in `coredispatch.frontend.argument_types`. No annotation says both.
IntList: TypeAlias = Any
FloatList: TypeAlias = Any
