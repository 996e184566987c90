"""Moving tensors between devices: the one op that knows two backends."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.modes import fresh_keys
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.around.devices import backend_of_device, resolved
from coredispatch.registry.around.hookspecs import hookimpl
from coredispatch.registry.dispatch.declare import composite
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend, Layout
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import DeviceError, MissingKernel
from coredispatch.registry.model.value import dtype_of

__all__ = ["coredispatch_register", "from_host", "to_device", "to_host"]


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
    need not go through main memory. A layout travels part by part (its ``pack`` and ``unpack``),
    to any backend; what can be done with it there is what it has kernels for.
    ``non_blocking`` lets a backend return before the data have arrived.

    Raises :class:`DeviceError` for a device that is not there, :class:`DTypeError` for a dtype that
    it does not declare, and :class:`MissingKernel` for a meta tensor, which has no data.
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
        backend.check_dtypes(DType.of(raw.dtype))
        made = backend.transfer(raw, source, index, non_blocking)
        # NumPy's backend gives back the very array; the result must not be an alias of self.
        return backend.from_numpy(source.to_numpy(raw).copy()) if made is raw else made

    layout_bits = self.keys & TABLE.snapshot.order.layout_bits
    with backend.on(index):
        if not layout_bits:
            return Tensor(moved(self.raw), bit)
        layout = _movable(self, backend)
        return Tensor(layout.rebuilt(self.raw, source, moved), bit | layout_bits)


def _movable(tensor: Tensor, backend: Backend) -> Layout:
    """The layout of ``tensor``, whose data can be taken apart and made again on ``backend``."""
    layout = TABLE.snapshot.layouts[tensor.layout][0]
    if not layout.movable:
        raise DeviceError(
            f"a {layout.name} tensor cannot be moved to {backend.name!r}: its layout has no pack "
            "and unpack",
            fix="convert it to dense first",
        )
    if backend.name == "meta":
        raise DeviceError(
            f"a {layout.name} tensor cannot be moved to 'meta': what it stores depends on values",
            fix="convert it to dense first",
        )
    return layout


@to_device.vjp
def _(grad: Any, self_device: Any) -> Any:
    return to_device(grad, self_device)


@composite(namespace=(), method=False, differentiable=False, generic=False)
def to_host(self: Tensor) -> object:
    """The elements as a NumPy array; waits for them where a backend computes later.

    Every read of a value is this operator: ``item``, ``tolist``, ``numpy``, ``bool``, ``float``,
    ``int``. So a layer sees where a value leaves the table, and a trace what it would bake in.
    """
    return self.backend.to_numpy(self.raw)


@composite(
    out=lambda array, device: tuple(array.shape),
    dtype=lambda array, device: DType.of(array.dtype),
    namespace=(),
    method=False,
    differentiable=False,
    factory=True,
    generic=False,
)
def from_host(
    array: object,
    *,
    device: Device | None = None,  # type: ignore[name-defined]  # noqa: F821
) -> Tensor:
    """A tensor on the CPU that shares the memory of a NumPy array.

    Every constant that comes from outside is this operator (``tensor``, ``from_numpy``,
    ``as_tensor``): the other end of :func:`to_host`.
    """
    return Tensor(array, fresh_keys(TABLE.bit("cpu")))


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the operators through which data move, leave and come in."""
    registrar.op(to_device, to_host, from_host)
