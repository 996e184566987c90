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

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from coredispatch.registry import (
    API_VERSION,
    ArgumentError,
    Backend,
    Device,
    DeviceError,
    DimError,
    DType,
    DTypeError,
    KernelError,
    Layer,
    Layout,
    MissingKernel,
    Operator,
    OpError,
    Promotion,
    Registrar,
    RegistrationError,
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
from coredispatch.registry.around import checks
from coredispatch.registry.around import slow_path as calls
from coredispatch.registry.dispatch.dispatcher import HOOKS
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.generator import Generator, default_generator

if TYPE_CHECKING:
    from coredispatch.backends.array_api import ArrayApiBackend
    from coredispatch.backends.dtypes import numpy_dtype
    from coredispatch.backends.index_parts import IndexParts
    from coredispatch.backends.numpy.random import Stream as NumpyStream
    from coredispatch.frontend import nn
    from coredispatch.frontend.modes import no_grad
    from coredispatch.frontend.tensor import Tensor
    from coredispatch.ops.support import rules
    from coredispatch.ops.support.annotations import FloatList, Index, IntList, Scalar

__all__ = [
    "API_VERSION",
    "ArgumentError",
    "ArrayApiBackend",
    "Backend",
    "DType",
    "DTypeError",
    "Device",
    "DeviceError",
    "DimError",
    "FloatList",
    "Generator",
    "Index",
    "IndexParts",
    "IntList",
    "KernelError",
    "Layer",
    "Layout",
    "MissingKernel",
    "NumpyStream",
    "OpError",
    "Operator",
    "Promotion",
    "Registrar",
    "RegistrationError",
    "Scalar",
    "SchemaError",
    "ShapeError",
    "Tensor",
    "Value",
    "check",
    "composite",
    "default_dtype",
    "default_generator",
    "dtypes",
    "from_raw",
    "hookimpl",
    "nn",
    "no_grad",
    "numpy_dtype",
    "operator",
    "primitive",
    "promote_types",
    "result_type",
    "rules",
    "to_raw",
]


def to_raw(tensor: Any) -> Any:
    """The backend's own array inside ``tensor``."""
    return tensor.raw


def from_raw(
    raw: Any, *, keys_like: Any = None, backend: str | None = None, layout: str | None = None
) -> Any:
    """A tensor around ``raw``, with the backend of another tensor or a named one.

    ``layout`` names the layout key where ``raw`` is a layout's data; None means a dense array.
    Raises :class:`RegistrationError` for an unknown backend or layout.
    """
    order = TABLE.snapshot.order
    keys = 0 if keys_like is None else keys_like.keys & order.backend_bits
    for name, kind in ((backend, "backend"), (layout, "layout")):
        if name is None:
            continue
        key = order.by_name.get(name)
        if key is None or key.kind != kind:
            raise RegistrationError(
                f"from_raw(): there is no {kind} {name!r}",
                fix=f"known: {', '.join(k.name for k in order.highest_first if k.kind == kind)}",
            )
        keys |= key.bit
    if not keys & order.backend_bits:
        raise RegistrationError("from_raw(): give keys_like= or backend=")
    return HOOKS.value_type(raw, keys)


def check(op: str, args: tuple[Any, ...]) -> None:
    """Refuse raw arguments that operator ``op`` does not take: types, shapes, dims, dtypes.

    Array libraries refuse most of them by themselves, and the error is then improved; this is
    for kernels whose library would go on with what it was given. Raises as the operator does.
    """
    checks.check_raw(operator(op), args)


def operator(name: str) -> Operator:
    """The operator called ``name``; raises :class:`RegistrationError` where there is none."""
    return TABLE.operator(name)


def __getattr__(name: str) -> Any:
    # Imported on demand: these pull in NumPy and the frontend, which register plugins themselves.
    if name == "ArrayApiBackend":
        from coredispatch.backends.array_api import ArrayApiBackend

        return ArrayApiBackend
    if name == "IndexParts":
        from coredispatch.backends.index_parts import IndexParts

        return IndexParts
    if name == "NumpyStream":
        from coredispatch.backends.numpy.random import Stream

        return Stream
    if name == "nn":
        from coredispatch.frontend import nn

        return nn
    if name == "no_grad":
        from coredispatch.frontend.modes import no_grad

        return no_grad
    if name == "numpy_dtype":
        from coredispatch.backends.dtypes import numpy_dtype

        return numpy_dtype
    if name == "Tensor":
        from coredispatch.frontend.tensor import Tensor

        return Tensor
    if name in ("FloatList", "Index", "IntList", "Scalar"):
        return getattr(importlib.import_module("coredispatch.ops.support.annotations"), name)
    if name == "rules":
        from coredispatch.ops.support import rules

        return rules
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
