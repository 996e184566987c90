"""The mechanism: keys, values, operators, the table, and how a call is resolved.

Knows nothing of tensors, NumPy or any operator; imports the standard library and pluggy only.
"""

from __future__ import annotations

from . import binding, calls, fallback
from .backend import Backend, Kernel, Layer, Layout
from .device import Device, default_device, set_default_device
from .dtypes import DType, Promotion, can_cast, default_dtype, promote_types, result_type
from .errors import (
    ArgumentError,
    AutogradError,
    CoreDispatchError,
    DeviceError,
    DimError,
    DTypeError,
    KernelError,
    MissingKernel,
    OpError,
    PluginError,
    RegistrationError,
    SchemaError,
    ShapeError,
)
from .explain import Explanation, explain, explain_keys
from .hookspecs import API_VERSION, hookimpl
from .keys import Key, KeyOrder
from .loader import Plugin, plugins
from .operator import Operator, composite, primitive
from .schema import Param, Schema
from .table import TABLE, Registrar, Snapshot
from .value import Storage, Value

__all__ = [
    "API_VERSION",
    "ArgumentError",
    "AutogradError",
    "Backend",
    "CoreDispatchError",
    "DType",
    "DTypeError",
    "Device",
    "DeviceError",
    "DimError",
    "Explanation",
    "Kernel",
    "KernelError",
    "Key",
    "KeyOrder",
    "Layer",
    "Layout",
    "MissingKernel",
    "OpError",
    "Operator",
    "Param",
    "Plugin",
    "PluginError",
    "Promotion",
    "Registrar",
    "RegistrationError",
    "Schema",
    "SchemaError",
    "ShapeError",
    "Snapshot",
    "Storage",
    "TABLE",
    "Value",
    "binding",
    "calls",
    "can_cast",
    "composite",
    "default_device",
    "default_dtype",
    "explain",
    "explain_keys",
    "fallback",
    "hookimpl",
    "plugins",
    "primitive",
    "promote_types",
    "result_type",
    "set_default_device",
]
