"""The mechanism: keys, values, operators, the table, and how a call is resolved.

Knows nothing of tensors, NumPy or any operator; imports the standard library and pluggy only.
"""

from __future__ import annotations

from coredispatch.registry.around import (
    binding,
    checks,
    devices,
    fallback,
    loader,
    mixed_devices,
    out_arguments,
    raw_values,
    slow_path,
)
from coredispatch.registry.around.explain import Explanation, explain, explain_keys
from coredispatch.registry.around.hookspecs import API_VERSION, hookimpl
from coredispatch.registry.around.loader import Plugin, plugins
from coredispatch.registry.dispatch import resolve
from coredispatch.registry.dispatch.declare import composite, primitive
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE, Snapshot, layout_dtype
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
from coredispatch.registry.wiring import HOOKS

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

# The calls that go upwards (see wiring.py, which says what each slot takes and gives).
HOOKS.bind = binding.bind
HOOKS.write_into = out_arguments.write_into
HOOKS.canonicalize = slow_path.canonicalize
HOOKS.device_bit = devices.device_bit
HOOKS.placed = devices.placed
HOOKS.current_index = devices.current_index
HOOKS.accelerator = devices.accelerator
HOOKS.hint_for_key = plugins.hint_for_key
HOOKS.resolve = resolve.resolve
HOOKS.load_plugins = loader.load_plugins
HOOKS.fallback_target = fallback.target
HOOKS.promoted = slow_path.promoted
HOOKS.number = slow_path.number
HOOKS.in_float32 = slow_path.in_float32
HOOKS.call_raw = raw_values.call_raw
HOOKS.scalar = slow_path.scalar
HOOKS.fitted = slow_path.fitted
HOOKS.check_inplace = slow_path.check_inplace
HOOKS.check_types = checks.check_types
HOOKS.output_wrapper = slow_path.OutputWrapper
HOOKS.serve_fallback = fallback.serve
HOOKS.mixed_devices = mixed_devices.mixed_devices
HOOKS.refuse = slow_path.refuse
HOOKS.failure = checks.failure
HOOKS.refusal = checks.refusal
HOOKS.dtype_of_native = DType.of
HOOKS.layout_dtype = layout_dtype
HOOKS.operator = TABLE.operator
