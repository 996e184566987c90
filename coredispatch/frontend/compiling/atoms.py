"""Values that a walk through Python's state goes no further from."""

from __future__ import annotations

import collections
import enum
import functools
import types
from typing import Any

import numpy as np

from coredispatch.frontend.compiling.records import PLAIN
from coredispatch.plugin import Device, DType, Operator

__all__ = ["ATOMS", "BOUND", "CACHING", "of_python", "short"]

#: values that never change, or whose state is part of no program: compared by identity
ATOMS: tuple[type, ...] = (
    DType,
    Device,
    Operator,
    type,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.GenericAlias,
    types.CodeType,
    type(vars(collections.namedtuple("_Named", "field"))["field"]),
    np.ufunc,
    type(np.sum),  # NumPy's functions in Python
    np.dtype,
    np.generic,
    enum.Enum,
    range,
    slice,
)
#: methods written in C, with the objects that they are of
BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)
#: functions that remember what they gave, where nobody can look
CACHING = type(functools.lru_cache(len))


def of_python(ufunc: np.ufunc) -> bool:
    """Whether it is one of ``numpy.frompyfunc``, and calls a function that nobody can look into."""
    return getattr(np, ufunc.__name__, None) is not ufunc and "O" in "".join(ufunc.types)


def short(key: Any) -> str:
    return repr(key) if isinstance(key, PLAIN) else type(key).__name__
