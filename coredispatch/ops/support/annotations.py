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

# The frontend's classes; ops sit below it and may not import it.
Tensor: TypeAlias = Any
Generator: TypeAlias = Any
Index: TypeAlias = Any
# What a decomposition is given: a tuple of int for an IntList, numbers that fit the operator. What
# a caller may write, an int for an IntList, is in `coredispatch.frontend.argument_types`; no type
# says both.
Scalar: TypeAlias = Any
IntList: TypeAlias = Any
FloatList: TypeAlias = Any
