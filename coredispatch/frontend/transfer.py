"""Moving tensors between devices: the one op that knows two backends."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.around.devices import backend_of_device, resolved
from coredispatch.registry.around.hookspecs import hookimpl
from coredispatch.registry.dispatch.operator import composite
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend, Layout
from coredispatch.registry.model.errors import DeviceError, MissingKernel
from coredispatch.registry.model.value import dtype_of

__all__ = ["coredispatch_register", "to_device"]


@composite(
    out=lambda self, device, non_blocking: tuple(self.shape),
    dtype=lambda self, device, non_blocking: dtype_of(self),
    namespace=(),
    method=False,
    generic=False,
)
def to_device(
    self: Tensor,
    device: Device,  # type: ignore[name-defined]  # noqa: F821
    non_blocking: bool = False,
) -> Tensor:
    """A copy of ``self`` on ``device``.

    The target's backend takes the data through its ``transfer``, so that two devices of one backend
    need not go through main memory. A layout travels part by part (its ``pack`` and ``unpack``).
    ``non_blocking`` lets a backend return before the data have arrived.

    Raises :class:`DeviceError` for a device that is not there, and :class:`MissingKernel` for a
    meta tensor, which has no data.
    """
    backend, bit = backend_of_device(device)
    index = resolved(backend, device).index or 0
    source = self.backend
    if source.name == "meta":
        raise MissingKernel(
            f"a meta tensor has no data that could be moved to {device}",
            fix="create it there, or give a module memory with module.to_empty(device=...)",
        )

    def moved(raw: Any) -> Any:
        made = backend.transfer(raw, source, index, non_blocking)
        # NumPy's backend gives back the very array; the result must not be an alias of self.
        return backend.from_numpy(source.to_numpy(raw).copy()) if made is raw else made

    layout_bits = self.keys & TABLE.snapshot.order.layout_bits
    with backend.on(index):
        if not layout_bits:
            return Tensor(moved(self.raw), bit)
        layout = _layout_of(self)
        parts = {
            name: moved(part) if isinstance(part, source.array_type) else part
            for name, part in _packed(layout, self, backend).items()
        }
        assert layout.unpack is not None
        return Tensor(layout.unpack(parts), bit | layout_bits)


def _layout_of(tensor: Tensor) -> Layout:
    return TABLE.snapshot.layouts[tensor.layout][0]


def _packed(layout: Layout, tensor: Tensor, backend: Backend) -> dict[str, Any]:
    """The parts of a tensor of ``layout``; refuses what ``backend`` could do nothing with."""
    if layout.pack is None or layout.unpack is None:
        raise DeviceError(
            f"a {layout.name} tensor cannot be moved to {backend.name!r}: its layout has no pack "
            "and unpack",
            fix="convert it to dense first",
        )
    if backend.name not in layout.devices:
        raise DeviceError(
            f"a {layout.name} tensor cannot be moved to {backend.name!r}: the layout is made for "
            f"{', '.join(layout.devices)}",
            fix="convert it to dense first",
        )
    return layout.pack(tensor.raw)


@to_device.vjp
def _(grad: Any, self: Any) -> Any:
    return to_device(grad, self.device)


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register ``to_device``."""
    registrar.op(to_device)
