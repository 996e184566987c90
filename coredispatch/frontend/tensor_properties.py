"""What a tensor is: sizes, dtype, device, memory. See :mod:`.tensor`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from coredispatch._warnings import warn_once
from coredispatch.registry.around.devices import index_of
from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.errors import (
    AutogradError,
    ChoiceTypeError,
    DimError,
    OpError,
    ShapeError,
)
from coredispatch.registry.model.sizes import contiguous_strides as _contiguous_strides
from coredispatch.registry.model.spelling import TensorLayout
from coredispatch.registry.model.value import version_of

if TYPE_CHECKING:
    from coredispatch.frontend.argument_types import DeviceLike
    from coredispatch.frontend.size import Size
    from coredispatch.frontend.storage import TypedStorage, UntypedStorage
    from coredispatch.frontend.tensor import Tensor

    _Above = Tensor  # for a type checker the methods of this file are those of a Tensor
else:
    _Above = object

__all__ = ["TensorProperties"]

_INFERENCE = TABLE.bit("inference")
_STRIDED = TensorLayout("strided")
#: from a memory format to the order of dimensions that it has in memory
_CHANNELS_LAST = {"channels_last": (0, 2, 3, 1), "channels_last_3d": (0, 2, 3, 4, 1)}


def _op(name: str) -> Any:
    return TABLE.operator(name)


#: every tensor tells its device, and a name is checked letter by letter
_device = lru_cache(maxsize=256)(Device)


class TensorProperties(_Above):
    """The properties of a tensor, and views of it that are attributes."""

    @overload
    def size(self, dim: None = None) -> Size: ...

    @overload
    def size(self, dim: int) -> int: ...

    def size(self, dim: int | None = None) -> Size | int:
        """``shape``, or the length of dimension ``dim``."""
        if dim is None:
            return self.shape
        try:
            return self.raw.shape[dim]
        except IndexError:
            n = self.ndim
            raise DimError(
                f"size(): dim {dim} is out of range for a tensor of {n} dimension(s)",
                fix=f"use a dim from {-n} to {n - 1}",
            ) from None

    def dim(self) -> int:
        """Number of dimensions."""
        return len(self.raw.shape)

    ndimension = dim

    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for length in self.raw.shape:
            count *= length
        return count

    nelement = numel

    def element_size(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    @property
    def backend(self) -> Backend:
        """The backend that owns the data; :class:`OpError` for a wrapper, which has none."""
        s = TABLE.snapshot
        if isinstance(self.raw, Wrapper):
            raise OpError(
                f"a tensor that the layer {self.raw.layer!r} wraps has no data of its own",
                fix="use it in operators only, or ask the tensor inside: Wrapper.of(x).value",
            )
        for name, (backend, _) in s.backends.items():
            if s.order.by_name[name].bit & self.keys:
                return backend
        raise OpError(
            f"the plugin of this tensor's backend is not loaded ({s.order.names(self.keys)})",
            fix="load it again with cd.plugins.load(name)",
        )

    @property
    def device(self) -> Device:
        """Where the data lie."""
        if isinstance(self.raw, Wrapper):
            inner: Any = self.raw.value
            return inner.device
        backend = self.backend
        if backend.device_count() <= 1 and backend.name in ("cpu", "meta"):
            return _device(backend.name, None)
        return _device(backend.name, index_of(backend, self.raw))

    @property
    def layout(self) -> TensorLayout:
        """``"strided"``, or the name of the layout key."""
        order = TABLE.snapshot.order
        for key in order.members(self.keys & order.layout_bits):
            return TensorLayout(key.name)
        return _STRIDED

    @property
    def is_cuda(self) -> bool:
        """Whether the data lie on a CUDA device."""
        return self.device.type == "cuda"

    @property
    def is_meta(self) -> bool:
        """Whether there are no data."""
        return self.device.type == "meta"

    def get_device(self) -> int:
        """Index of the device, -1 for the CPU."""
        return -1 if self.device.type == "cpu" else self.device.index or 0

    def is_floating_point(self) -> bool:
        """Whether the dtype is floating (not complex)."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether the dtype has negative values."""
        return self.dtype.is_signed

    @overload
    def stride(self, dim: None = None) -> tuple[int, ...]: ...

    @overload
    def stride(self, dim: int) -> int: ...

    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Steps in elements between neighbours along each dimension, or along ``dim``."""
        if isinstance(self.raw, Wrapper):
            strides = self.raw.own_strides()
        else:
            strides = self.backend.strides(self.raw)
        if strides is None:
            strides = _contiguous_strides(self.raw.shape)
        elif 0 in strides:
            strides = _over_single_elements(tuple(self.raw.shape), strides)
        return strides if dim is None else strides[dim]

    @property
    def _base(self) -> Tensor | None:
        """The tensor that this one is a view of, through all views between; None for no view.

        What ``detach`` and ``data`` give is no view in this sense.
        """
        found: Any = None
        link = self._view
        while link is not None and getattr(link.op, "name", "") != "detach":
            if not link.renamed:
                found = link.base
            link = link.base._view
        return found

    def _is_view(self) -> bool:
        """Whether this tensor is a view of another, which ``_base`` gives."""
        return self._base is not None

    def storage_offset(self) -> int:
        """Elements between the start of the storage and the first element."""
        return self.backend.offset(self.raw)

    @property
    def _placement(self) -> tuple[tuple[int, ...], int] | None:
        """Strides and offset, None of a value whose operators see it as row-major."""
        if isinstance(self.raw, Wrapper):
            return None
        return self.stride(), self.storage_offset()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in row-major order without gaps (or channels-last order)."""
        shape, strides = self.raw.shape, self.stride()
        name = None if memory_format is None else str(memory_format).rpartition(".")[2]
        if name not in (None, "contiguous_format"):
            if name not in _CHANNELS_LAST:
                raise ChoiceTypeError.among(
                    "memory_format", str(memory_format), ("contiguous_format", *_CHANNELS_LAST)
                )
            order = _CHANNELS_LAST[name]
            if len(shape) != len(order):
                return False
            shape, strides = tuple(shape[i] for i in order), tuple(strides[i] for i in order)
        expected = 1
        for length, step in zip(reversed(shape), reversed(strides), strict=True):
            if length != 1:
                if step != expected:
                    return 0 in shape
                expected *= length
        return True

    def data_ptr(self) -> int:
        """Address of the first element, 0 where the backend has none."""
        interface = getattr(self.raw, "__array_interface__", None) or getattr(
            self.raw, "__cuda_array_interface__", None
        )
        return int(interface["data"][0]) if interface else 0

    def untyped_storage(self) -> UntypedStorage:
        """The bytes that this tensor and its views share: one object for all of them."""
        from coredispatch.frontend.storage import storage_behind

        return storage_behind(self)

    def storage(self) -> TypedStorage:
        """:meth:`untyped_storage` as elements of this tensor's dtype; warns, as PyTorch does."""
        from coredispatch.frontend.storage.typed import warn_of_removal

        warn_of_removal()
        return self._typed_storage()

    def _typed_storage(self) -> TypedStorage:
        from coredispatch.frontend.storage import TypedStorage

        return TypedStorage._of(self.untyped_storage(), self.dtype)

    def storage_type(self) -> Any:
        """The class of :meth:`storage`: ``FloatStorage`` for float32."""
        from coredispatch.frontend.storage import legacy_class

        return legacy_class(self.dtype)

    def set_(
        self,
        source: Tensor | UntypedStorage | TypedStorage | None = None,
        storage_offset: int = 0,
        size: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
    ) -> Tensor:
        """Make this tensor see other memory: that of a tensor, or a place inside a storage.

        Without ``source`` it becomes empty. Offset and strides are in elements. Raises
        :class:`DTypeError` for another dtype and :class:`OpError` for a place outside the storage,
        whose memory does not grow (PyTorch's does).
        """
        from coredispatch.frontend.storage.tensor_methods import set_tensor

        return set_tensor(self, source, storage_offset, size, stride)

    def is_shared(self) -> bool:
        """Whether other processes can see the elements; on CUDA always."""
        return self.layout == "strided" and self.untyped_storage().is_shared()

    def share_memory_(self) -> Tensor:
        """Move the elements to memory that other processes can see; returns self.

        Views move along. Nothing is done where they are shared already, and on CUDA. NumPy arrays
        that shared the old memory keep it.
        """
        from coredispatch.frontend.storage.tensor_methods import share_tensor

        return share_tensor(self)

    def is_pinned(self, device: DeviceLike | None = None) -> bool:
        """Whether the elements lie in page-locked main memory (see :meth:`pin_memory`)."""
        from coredispatch.frontend.pinned_memory import is_pinned

        return is_pinned(self.raw)

    def pin_memory(self, device: DeviceLike | None = None) -> Tensor:
        """A copy in page-locked main memory, or self where the elements lie there.

        ``x.to("cuda", non_blocking=True)`` from there is made by the device while the program goes
        on; ``x`` must not be written to before that is done. The copy has no history.

        Raises :class:`OpError` where there is no accelerator, and for a tensor that is not dense or
        not on the CPU.
        """
        from coredispatch.frontend.pinned_memory import pinned

        return pinned(self)

    def qscheme(self) -> Any:
        """How a quantized tensor's integers stand for numbers: ``cd.per_tensor_affine``, say.

        Raises a ``RuntimeError`` unless the tensor is quantized.
        """
        from coredispatch.frontend.ao.schemes import scheme_of

        return scheme_of(self)

    @property
    def _version(self) -> int:
        if self.keys & _INFERENCE:
            raise AutogradError("inference tensors have no version counter", fix="use a .clone()")
        return version_of(self)

    def is_inference(self) -> bool:
        """Whether this is an inference tensor (see :class:`coredispatch.inference_mode`)."""
        return bool(self.keys & _INFERENCE)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of ``numpy()``."""
        from coredispatch.backends.dtypes import numpy_dtype

        return numpy_dtype(self.dtype)

    @property
    def T(self) -> Tensor:
        """All dimensions reversed."""
        if self.ndim == 0:
            warn_once(
                "Tensor.T is deprecated on 0-D tensors. This function is the identity in these "
                "cases.",
            )
        elif self.ndim != 2:
            warn_once(
                "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
                "deprecated and it will throw an error in a future release. Consider `x.mT` to "
                "transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` "
                "to reverse the dimensions of a tensor.",
            )
        return _op("permute")(self, tuple(range(self.ndim - 1, -1, -1)))

    @property
    def mT(self) -> Tensor:
        """The last two dimensions exchanged."""
        if self.ndim < 2:
            raise DimError(f"mT needs at least 2 dimensions, this tensor has {self.ndim}")
        return _op("transpose")(self, -2, -1)

    @property
    def H(self) -> Tensor:
        """Conjugate transpose of a matrix. Raises :class:`ShapeError` for another tensor."""
        if self.ndim != 2:
            raise ShapeError(
                f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor.",
                fix="use mH for batches of matrices",
            )
        return _op("conj")(self.mT) if self.dtype.is_complex else self.mT

    @property
    def mH(self) -> Tensor:
        """The last two dimensions exchanged, conjugated."""
        return _op("conj")(self.mT) if self.dtype.is_complex else self.mT

    @property
    def real(self) -> Tensor:
        """Real part (the tensor itself for real dtypes)."""
        return _op("real")(self) if self.dtype.is_complex else self

    @property
    def imag(self) -> Tensor:
        """Imaginary part of a complex tensor."""
        return _op("imag")(self)


def _over_single_elements(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """``strides`` with PyTorch's instead of the zeros that NumPy has where nothing is stepped over.

    A dimension of size 1 steps over all of the next one. What is expanded keeps its zero.
    """
    if 0 in shape and not any(strides):
        return _contiguous_strides(tuple(max(size, 1) for size in shape))
    found = list(strides)
    for dim in reversed(range(len(shape))):
        if shape[dim] == 1 and not found[dim]:
            found[dim] = shape[dim + 1] * found[dim + 1] if dim + 1 < len(shape) else 1
    return tuple(found)
