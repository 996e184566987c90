"""The names of ``cd.``: what is listed here, and every operator of the top-level namespace."""

from __future__ import annotations

import sys
from typing import Any

from coredispatch.frontend.amp.autocast import (
    autocast,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_enabled,
)
from coredispatch.frontend.creation import (
    as_tensor,
    asarray,
    from_dlpack,
    from_numpy,
    frombuffer,
    tensor,
    with_requires_grad,
)
from coredispatch.frontend.equality import allclose, broadcast_shapes, equal, is_same_size
from coredispatch.frontend.limits import finfo, iinfo
from coredispatch.frontend.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from coredispatch.frontend.printing import get_printoptions, printoptions, set_printoptions
from coredispatch.frontend.random import (
    fork_rng,
    get_rng_state,
    initial_seed,
    seed,
    set_rng_state,
)
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor, is_tensor
from coredispatch.registry.around import fallback
from coredispatch.registry.around.explain import explain
from coredispatch.registry.around.loader import plugins
from coredispatch.registry.around.observe import Observation, observe
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE, layout_dtype
from coredispatch.registry.model.device import Device, set_default_device
from coredispatch.registry.model.device import default_device as get_default_device
from coredispatch.registry.model.dtypes import (
    DType,
    bfloat16,
    bool_,
    can_cast,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    result_type,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from coredispatch.registry.model.dtypes import default_dtype as get_default_dtype
from coredispatch.registry.model.errors import (
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
from coredispatch.registry.model.generator import Generator, default_generator, manual_seed

device = Device
dtype = DType
bool = bool_
float = float32
double = float64
half = float16
short = int16
int = int32
long = int64
cfloat = complex64
cdouble = complex128
strided = "strided"
contiguous_format = "contiguous_format"
preserve_format = "preserve_format"
channels_last = "channels_last"


class _Operators:
    """``cd.ops.NAME``: every operator of the table, those of plugins included.

    It stands where the package ``coredispatch.ops`` would, so it answers for its modules as well:
    ``import coredispatch.ops.support.samples as samples`` asks here.
    """

    def __getattr__(self, name: str) -> Any:
        plugins.discover()
        found = TABLE.snapshot.ops.get(name)
        if found is None:
            module = sys.modules.get(f"coredispatch.ops.{name}")
            if module is not None:
                return module
            try:
                return TABLE.operator(name)
            except RegistrationError as error:
                raise AttributeError(str(error)) from None
        return found

    def __dir__(self) -> list[str]:
        return sorted(TABLE.snapshot.ops)


ops = _Operators()


def operators(namespace: str = "") -> dict[str, Any]:
    """The operators of a namespace under all their names; factories take ``requires_grad=``."""
    found: dict[str, Any] = {}
    for op in TABLE.snapshot.ops.values():
        if namespace in op.namespaces:
            function = with_requires_grad(op) if op.factory or op.name.endswith("_like") else op
            # The operator behind cd.linalg.norm is called linalg_norm: names are unique.
            prefix = namespace.rpartition(".")[2] + "_"
            for name in (op.name, *op.alias):
                found.setdefault(name.removeprefix(prefix) if namespace else name, function)
    return found


def late_name(name: str) -> Any:
    """A top-level operator or an element type that a plugin brought along, or None."""
    if name.startswith("__"):
        return None
    plugins.discover()
    return operators().get(name) or layout_dtype(name)


def numel(input: Any) -> Any:
    """Number of elements of ``input``."""
    return input.numel()


def is_inference(input: Any) -> bool:
    """Whether ``input`` was made under :class:`inference_mode`."""
    result: bool = input.is_inference()
    return result


def is_floating_point(input: Any) -> Any:
    """Whether the dtype of ``input`` is floating (not complex)."""
    return input.is_floating_point()


def is_complex(input: Any) -> Any:
    """Whether the dtype of ``input`` is complex."""
    return input.is_complex()


def save(obj: Any, f: Any, **options: Any) -> None:
    """Write ``obj`` (tensors, containers, state dicts) to a path or file."""
    from coredispatch.frontend.serialization import save as write

    write(obj, f, **options)


def load(f: Any, map_location: Any = None, **options: Any) -> Any:
    """Read what :func:`save` wrote; ``map_location`` says on which device."""
    from coredispatch.frontend.serialization import load as read

    return read(f, map_location, **options)


__all__ = [
    name
    for name in dir()
    if not name.startswith(("_", "@"))
    and name
    not in (
        "annotations",
        "Any",
        "operators",
        "late_name",
        "layout_dtype",
        "with_requires_grad",
        "TABLE",
        "sys",
    )
]
