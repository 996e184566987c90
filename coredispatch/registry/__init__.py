"""The mechanism: keys, values, operators, the table, and how a call is resolved.

Knows nothing of tensors, NumPy or any operator; imports the standard library and pluggy only.
"""

from __future__ import annotations

from coredispatch.registry.around import binding, fallback, slow_path
from coredispatch.registry.around.explain import Explanation, explain, explain_keys
from coredispatch.registry.around.hookspecs import API_VERSION, hookimpl
from coredispatch.registry.around.loader import Plugin, plugins
from coredispatch.registry.dispatch.operator import Operator, composite, primitive
from coredispatch.registry.dispatch.table import TABLE, Registrar, Snapshot
from coredispatch.registry.model import errors
from coredispatch.registry.model.backend import Backend, Kernel, Layer, Layout
from coredispatch.registry.model.device import Device, default_device, set_default_device
from coredispatch.registry.model.dtypes import (
    DType,
    Promotion,
    can_cast,
    default_dtype,
    promote_types,
    result_type,
)
from coredispatch.registry.model.errors import *  # noqa: F403
from coredispatch.registry.model.keys import Key, KeyOrder
from coredispatch.registry.model.schema import Param, Schema
from coredispatch.registry.model.value import Storage, Value

__all__ = [
    "API_VERSION",
    "Backend",
    "DType",
    "Device",
    "Explanation",
    "Kernel",
    "Key",
    "KeyOrder",
    "Layer",
    "Layout",
    "Operator",
    "Param",
    "Plugin",
    "Promotion",
    "Registrar",
    "Schema",
    "Snapshot",
    "Storage",
    "TABLE",
    "Value",
    "binding",
    "slow_path",
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
__all__ += errors.__all__
