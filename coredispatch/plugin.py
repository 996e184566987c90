"""The only module a plugin author imports.

A backend in one file::

    from coredispatch.plugin import Backend, hookimpl

    class Mine(Backend):
        name = "mine"
        array_type = MyArray
        kernels = {"add": my_add, ...}
        def from_numpy(self, array): ...
        def to_numpy(self, raw): ...

    @hookimpl
    def coredispatch_register(registrar):
        registrar.backend(Mine())

and, in its ``pyproject.toml``, the entry point that lets coredispatch find it::

    [project.entry-points."coredispatch.plugins"]
    mine = "my_package"
"""

import pkgutil as _pkgutil
import typing as _typing

from coredispatch.registry import (
    API_VERSION,
    ArgumentError,
    AutogradError,
    Backend,
    CoreDispatchError,
    DataDependentError,
    Device,
    DeviceError,
    DimError,
    DType,
    DTypeError,
    KernelError,
    Layer,
    Layout,
    MissingKernel,
    NoDeviceError,
    NumberRangeError,
    Operator,
    OpError,
    OutOfMemoryError,
    Promotion,
    Registrar,
    RegistrationError,
    RequirementError,
    SchemaError,
    ShapeError,
    Value,
    composite,
    default_dtype,
    hookimpl,
    primitive,
    promote_types,
    result_type,
)
from coredispatch.registry.around.aliasing import base_of, is_view, result_dtype, view_link
from coredispatch.registry.around.checks import check_types, check_write, describe_call
from coredispatch.registry.around.modes import Mode, Switch, is_masked, is_on, key_bit
from coredispatch.registry.around.raw_values import (
    backends,
    call_raw,
    check,
    check_index,
    device_count,
    from_raw,
    operator,
    reference,
    to_raw,
)
from coredispatch.registry.around.threads import get_num_threads
from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.boxed_kernels import CallEntry, LayerEntry
from coredispatch.registry.dispatch.dispatcher import dispatch
from coredispatch.registry.dispatch.linking import link_results
from coredispatch.registry.dispatch.promotions import beyond_half
from coredispatch.registry.dispatch.raw_kernels import link_view
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.backend import ContextKernel
from coredispatch.registry.model.determinism import alert_not_deterministic
from coredispatch.registry.model.generator import Generator, default_generator
from coredispatch.registry.model.kernel_context import KernelContext
from coredispatch.registry.model.sizes import (
    Symbol,
    as_int,
    check_reinterpreted,
    contiguous_strides,
)
from coredispatch.registry.model.value import bump_version, dtype_of, version_of

if _typing.TYPE_CHECKING:
    from coredispatch import graph
    from coredispatch.backends.array_api import ArrayApiBackend
    from coredispatch.backends.conversions import to_dtype as numpy_cast
    from coredispatch.backends.dtypes import numpy_dtype
    from coredispatch.backends.index_parts import IndexParts
    from coredispatch.backends.numpy.heap import keep_unless_told as keep_freed_memory
    from coredispatch.backends.numpy.random import Stream as NumpyStream
    from coredispatch.frontend import nn
    from coredispatch.frontend.argument_types import FloatList, Index, IntList, Scalar
    from coredispatch.frontend.distributed.communicator import (
        Communicator,
        GroupInfo,
        LateError,
        Request,
    )
    from coredispatch.frontend.modes import no_grad
    from coredispatch.frontend.tensor import Tensor
    from coredispatch.frontend.tensor_lists import are_alike
    from coredispatch.graph import passes
    from coredispatch.graph.cache import GraphCache, graph_key
    from coredispatch.ops.elementwise import checked as checked_values
    from coredispatch.ops.support import constants, rules, samples, tolerance
    from coredispatch.ops.support.samples import Sample, laid_out

__all__ = [
    "API_VERSION",
    "ArgumentError",
    "ArrayApiBackend",
    "AutogradError",
    "Backend",
    "CallEntry",
    "Communicator",
    "ContextKernel",
    "CoreDispatchError",
    "DataDependentError",
    "DType",
    "DTypeError",
    "Device",
    "DeviceError",
    "DimError",
    "FloatList",
    "Generator",
    "GraphCache",
    "GroupInfo",
    "Index",
    "IndexParts",
    "IntList",
    "KernelContext",
    "KernelError",
    "LateError",
    "Layer",
    "LayerEntry",
    "Layout",
    "MissingKernel",
    "Mode",
    "NoDeviceError",
    "NumberRangeError",
    "NumpyStream",
    "OpError",
    "OutOfMemoryError",
    "Operator",
    "Promotion",
    "Registrar",
    "RegistrationError",
    "Request",
    "RequirementError",
    "Sample",
    "Scalar",
    "SchemaError",
    "ShapeError",
    "Switch",
    "Symbol",
    "Tensor",
    "Value",
    "Wrapper",
    "alert_not_deterministic",
    "beyond_half",
    "are_alike",
    "as_int",
    "backends",
    "base_of",
    "bump_version",
    "call_raw",
    "check",
    "check_index",
    "check_types",
    "checked_values",
    "check_write",
    "composite",
    "check_reinterpreted",
    "contiguous_strides",
    "constants",
    "default_dtype",
    "default_generator",
    "describe_call",
    "device_count",
    "dispatch",
    "dtype_of",
    "dtypes",
    "from_raw",
    "graph_key",
    "get_num_threads",
    "graph",
    "hookimpl",
    "is_masked",
    "is_on",
    "is_view",
    "key_bit",
    "keep_freed_memory",
    "laid_out",
    "link_results",
    "link_view",
    "nn",
    "no_grad",
    "numpy_cast",
    "numpy_dtype",
    "operator",
    "passes",
    "primitive",
    "promote_types",
    "reference",
    "result_dtype",
    "result_type",
    "rules",
    "samples",
    "to_raw",
    "tolerance",
    "version_of",
    "view_link",
]

#: names imported on demand: they pull in NumPy and the frontend, which register plugins themselves
_LATER = {
    "ArrayApiBackend": "coredispatch.backends.array_api:ArrayApiBackend",
    "Communicator": "coredispatch.frontend.distributed.communicator:Communicator",
    "FloatList": "coredispatch.frontend.argument_types:FloatList",
    "GraphCache": "coredispatch.graph.cache:GraphCache",
    "GroupInfo": "coredispatch.frontend.distributed.communicator:GroupInfo",
    "Index": "coredispatch.frontend.argument_types:Index",
    "IndexParts": "coredispatch.backends.index_parts:IndexParts",
    "IntList": "coredispatch.frontend.argument_types:IntList",
    "LateError": "coredispatch.frontend.distributed.communicator:LateError",
    "NumpyStream": "coredispatch.backends.numpy.random:Stream",
    "Request": "coredispatch.frontend.distributed.communicator:Request",
    "Sample": "coredispatch.ops.support.samples:Sample",
    "Scalar": "coredispatch.frontend.argument_types:Scalar",
    "Tensor": "coredispatch.frontend.tensor:Tensor",
    "are_alike": "coredispatch.frontend.tensor_lists:are_alike",
    "checked_values": "coredispatch.ops.elementwise.checked",
    "constants": "coredispatch.ops.support.constants",
    "graph": "coredispatch.graph",
    "graph_key": "coredispatch.graph.cache:graph_key",
    "keep_freed_memory": "coredispatch.backends.numpy.heap:keep_unless_told",
    "laid_out": "coredispatch.ops.support.samples:laid_out",
    "nn": "coredispatch.frontend.nn",
    "no_grad": "coredispatch.frontend.modes:no_grad",
    "numpy_cast": "coredispatch.backends.conversions:to_dtype",
    "numpy_dtype": "coredispatch.backends.dtypes:numpy_dtype",
    "passes": "coredispatch.graph.passes",
    "rules": "coredispatch.ops.support.rules",
    "samples": "coredispatch.ops.support.samples",
    "tolerance": "coredispatch.ops.support.tolerance",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = _pkgutil.resolve_name(_LATER[name])  # kernels ask at every call
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
