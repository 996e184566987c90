"""Moving tensors between backends: the one op that knows two of them."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.around.hookspecs import hookimpl
from coredispatch.registry.around.loader import backend_of_device
from coredispatch.registry.dispatch.operator import composite
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import current_device
from coredispatch.registry.model.errors import DTypeError, MissingKernel
from coredispatch.registry.model.value import dtype_of

__all__ = ["coredispatch_register", "to_device"]


@composite(
    out=lambda self, device: tuple(self.shape),
    dtype=lambda self, device: dtype_of(self),
    namespace=(),
    method=False,
    generic=False,
)
def to_device(self: Tensor, device: Device) -> Tensor:  # type: ignore[name-defined]  # noqa: F821
    """A copy of ``self`` on ``device``, through NumPy; layouts do not travel.

    Raises :class:`DeviceError` for a device that is not there.
    """
    target = current_device(device)
    backend, bit = backend_of_device(target)
    order = TABLE.snapshot.order
    if self.keys & order.layout_bits:
        raise DTypeError(
            f"a {self.layout} tensor cannot be moved to {target}", fix="convert it to dense first"
        )
    source = self.backend
    if source.name == "meta":
        raise MissingKernel(
            f"a meta tensor has no data that could be moved to {target}",
            fix="create it there, or give a module memory with module.to_empty(device=...)",
        )
    with_index = getattr(backend, "from_numpy_on", None)
    array = source.to_numpy(self.raw)
    if with_index is not None:
        raw = with_index(array, target.index)
    else:
        raw = backend.from_numpy(array)
    if raw is self.raw:
        raw = array.copy()
    return Tensor(raw, bit)


@to_device.vjp
def _(grad: Any, self: Any) -> Any:
    return to_device(grad, self.device)


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register ``to_device``."""
    registrar.op(to_device)
