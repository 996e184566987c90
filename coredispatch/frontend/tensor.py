"""``Tensor``: what a user holds.

The operators' methods are installed from the table (:mod:`.methods`); here is what is not an
operator: facts, conversions, autograd's attributes and Python's protocols.
"""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from coredispatch.frontend.autograd.accumulate import accumulator
from coredispatch.frontend.autograd.backward import backward
from coredispatch.frontend.autograd.recording import node_of
from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.frontend.modes import is_inference_mode_enabled
from coredispatch.frontend.subclasses import as_subclass, declare, fill, kept_class, make_subclass
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.frontend.torch_dispatch import disabled_torch_dispatch, make_wrapper_subclass
from coredispatch.frontend.torch_function import OVERRIDE, default_torch_function
from coredispatch.registry.around.devices import index_of
from coredispatch.registry.around.loader import plugins
from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.masks import includes_layers
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.device import Device, current_device
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import (
    ArgumentError,
    AutogradError,
    DimError,
    DTypeError,
    OpError,
)
from coredispatch.registry.model.sizes import contiguous_strides as _contiguous_strides
from coredispatch.registry.model.spelling import SPELLING, TensorLayout
from coredispatch.registry.model.value import storage_of, version_of
from coredispatch.registry.wiring import HOOKS

if TYPE_CHECKING:
    from coredispatch.frontend.argument_types import DeviceLike, DTypeLike
    from coredispatch.frontend.autograd.node import Node
    from coredispatch.frontend.size import Size
    from coredispatch.frontend.storage import TypedStorage, UntypedStorage

__all__ = ["Tensor", "is_tensor"]


_INFERENCE = TABLE.bit("inference")
_STRIDED = TensorLayout("strided")


_bool = bool  # which is a method in the class below

#: keys of a tensor whose reads no layer sees: autograd has nothing to say to them
_UNLAYERED = TABLE.bit("cpu") | AUTOGRAD


def _op(name: str) -> Any:
    return TABLE.operator(name)


class Tensor(TensorBase):
    """A multi-dimensional array of one dtype on one device.

    Make one with :func:`coredispatch.tensor`, ``zeros``, ``from_numpy`` and the like.
    """

    __array_priority__ = 1000
    __torch_function__ = classmethod(default_torch_function)
    __torch_dispatch__ = staticmethod(disabled_torch_dispatch)
    #: of a subclass: the keys its instances carry; whether they are made as ``Tensor(data)`` is
    _class_keys = 0
    _from_data = False
    _makes_itself = False

    def __new__(cls, *args: Any, **options: Any) -> Self:
        self = super().__new__(cls)
        if cls._from_data:
            fill(self, args, options)
        return self

    def __init__(self, raw: Any = None, keys: Any = None, *sizes: Any, **options: Any) -> None:
        if self._from_data:
            return
        # The framework says which keys; a user's Tensor(2, 3) and Tensor([1, 2]) do not.
        if type(keys) is int and type(raw) is not int and not sizes:
            super().__init__(raw, keys)
        else:
            given = tuple(arg for arg in (raw, keys, *sizes) if arg is not None)
            fill(self, given, options)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        declare(cls)

    as_subclass = as_subclass
    _make_subclass = staticmethod(make_subclass)
    _make_wrapper_subclass = staticmethod(make_wrapper_subclass)

    # -- facts -----------------------------------------------------------------------------

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
            return self.raw.value.device
        backend = self.backend
        if backend.device_count() <= 1 and backend.name in ("cpu", "meta"):
            return Device(backend.name)
        return Device(backend.name, index_of(backend, self.raw))

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
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        """Elements between the start of the storage and the first element."""
        return self.backend.offset(self.raw)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in row-major order without gaps (or channels-last order)."""
        shape, strides = self.raw.shape, self.stride()
        if memory_format is not None and str(memory_format).endswith("channels_last"):
            if len(shape) != 4:
                return False
            order = (0, 2, 3, 1)
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
        """False: no backend page-locks the host memory of tensors."""
        return False

    def pin_memory(self, device: DeviceLike | None = None) -> Tensor:
        """Refused with an :class:`OpError`, as in PyTorch where there is no accelerator."""
        from coredispatch.frontend.storage.tensor_methods import refuse_pinning

        refuse_pinning("pin_memory()")

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
        return _op("permute")(self, tuple(range(self.ndim - 1, -1, -1)))

    @property
    def mT(self) -> Tensor:
        """The last two dimensions exchanged."""
        if self.ndim < 2:
            raise DimError(f"mT needs at least 2 dimensions, this tensor has {self.ndim}")
        return _op("transpose")(self, -2, -1)

    @property
    def H(self) -> Tensor:
        """Conjugate transpose of a matrix."""
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

    # -- autograd --------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether operators on this tensor are recorded."""
        return bool(self.keys & AUTOGRAD)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, _bool):
            raise DTypeError(f"requires_grad must be a bool, not {type(value).__name__}")
        if value:
            dtype = self.dtype
            if not (dtype.is_floating_point or dtype.is_complex):
                raise AutogradError(
                    f"only floating and complex tensors can require gradients, not {dtype}",
                    fix="convert it with .float()",
                )
            if self.keys & _INFERENCE and not is_inference_mode_enabled():
                raise AutogradError(
                    "an inference tensor cannot require gradients outside inference mode",
                    fix="use a .clone(), or make it under cd.no_grad()",
                )
            self.keys |= AUTOGRAD
            if self._node is None:
                # A leaf, which every recorded call will ask for these (see value.storage_of).
                self._node, self._output_nr = None, 0
                self._view, self._storage = self._view, self._storage
                self._accumulator = self._accumulator
        else:
            if self._node is not None:
                raise AutogradError(
                    "requires_grad of a tensor that is not a leaf cannot be switched off",
                    fix="use .detach()",
                )
            self.keys &= ~AUTOGRAD

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set ``requires_grad`` in place; returns self."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor, or None for a leaf."""
        return node_of(self)

    @property
    def output_nr(self) -> int:
        """Which output of ``grad_fn`` this is."""
        return self._output_nr

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf, or None."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, TensorBase):
                raise DTypeError(f"grad must be a tensor or None, not {type(value).__name__}")
            if value is self:
                raise AutogradError("a tensor cannot be its own gradient")
            if tuple(value.raw.shape) != tuple(self.raw.shape):
                raise AutogradError(
                    f"assigned grad has shape {tuple(value.raw.shape)}, the tensor has shape "
                    f"{tuple(self.raw.shape)}"
                )
            if value.dtype is not self.dtype:
                raise AutogradError(
                    f"assigned grad has dtype {value.dtype}, the tensor has {self.dtype}"
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Accumulate gradients into the leaves; see :func:`coredispatch.autograd.backward`."""
        backward(self, gradient, retain_graph, create_graph, inputs)

    @property
    def data(self) -> Tensor:
        """The same data without history, and without version checks."""
        result = Tensor(self.raw, self.keys & ~AUTOGRAD)
        result._dtype = self._dtype
        return kept_class(self, result) if self.keys & OVERRIDE else result

    @data.setter
    def data(self, value: Tensor) -> None:
        self.raw = value.raw
        kept = AUTOGRAD | OVERRIDE
        self.keys = (value.keys & ~kept) | (self.keys & kept)
        self._dtype = None

    def detach_(self) -> Tensor:
        """Drop the history in place."""
        view = self._view
        if view is not None and not view.renamed and self.keys & AUTOGRAD:
            raise AutogradError("a view cannot be detached in place", fix="use .detach()")
        if view is not None and view.renamed:
            self._view, self._storage = None, storage_of(self)
        self._node, self._output_nr = None, 0
        self.keys &= ~AUTOGRAD
        return self

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call ``hook(grad)`` whenever the gradient is computed; it may return another one.

        The gradient is complete: for a leaf, the sum of all contributions of a backward pass.
        """
        if not self.keys & AUTOGRAD:
            raise AutogradError("cannot register a hook on a tensor that requires no grad")
        node = node_of(self)
        if node is None:
            node = accumulator(self)
        handle: RemovableHandle = node.add_tensor_hook(self._output_nr, hook)
        return handle

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call ``hook(tensor)`` after a gradient was accumulated into this leaf."""
        if not self.keys & AUTOGRAD or self._node is not None:
            raise AutogradError("post accumulate grad hooks are for leaves that require grad")
        handle: RemovableHandle = accumulator(self).register_post_accumulate_hook(hook)
        return handle

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is not a leaf in ``.grad``."""
        if not self.keys & AUTOGRAD:
            raise AutogradError("can't retain_grad on a tensor that requires no grad")
        if self.is_leaf or getattr(self, "_retains", False):
            return
        self._retains = True
        reference = weakref.ref(self)

        def keep(gradient: Any) -> None:
            tensor = reference()
            if tensor is not None:
                known = tensor._grad
                # A copy: the gradient itself goes on through the graph.
                tensor._grad = gradient.clone() if known is None else known + gradient

        keep.retains = True  # type: ignore[attr-defined]
        self.register_hook(keep)

    @property
    def retains_grad(self) -> bool:
        """Whether :meth:`retain_grad` was called on this tensor."""
        return bool(getattr(self, "_retains", False))

    # -- conversions -----------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The data as a NumPy array, sharing memory on the CPU.

        Raises for tensors that require grad or lie elsewhere, unless ``force``.
        """
        if self.keys & AUTOGRAD and not force:
            raise AutogradError(
                "can't call numpy() on a tensor that requires grad",
                fix="use tensor.detach().numpy()",
            )
        result: np.ndarray[Any, Any]
        if isinstance(self.raw, Wrapper):  # its layer may have a kernel for this
            result = _op("to_host")(self)
            return result
        order = TABLE.snapshot.order
        if self.keys & order.layout_bits:
            raise DTypeError(
                f"can't convert a {self.layout} tensor to NumPy", fix="convert it to dense first"
            )
        backend = self.backend
        if backend.name != "cpu" and not force:
            raise DTypeError(
                f"can't convert a {self.device} tensor to NumPy", fix="use tensor.cpu() first"
            )
        if self.keys & ~_UNLAYERED or HOOKS.observe is not None or includes_layers():
            result = _op("to_host")(self)
        else:  # nobody stands between the call and the array: 2 us less
            result = backend.to_numpy(self.raw)
        return result

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError("a copy is needed to convert the dtype, but copy=False")
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self) -> int | float | bool:
        """The value of a one-element tensor as a Python number (also a complex one)."""
        if self.numel() != 1:
            raise ArgumentError(
                f"a tensor with {self.numel()} elements cannot be converted to a number",
                fix="index one element, or use .tolist()",
            )
        return _plain(self.numpy(force=True))

    def tolist(self) -> Any:
        """Nested lists of Python numbers (a number for a 0-dim tensor)."""
        array = self.numpy(force=True)
        if self.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        return array.tolist()

    @overload
    def to(
        self,
        dtype: DTypeLike,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: str | None = None,
    ) -> Tensor: ...

    @overload
    def to(
        self,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: str | None = None,
    ) -> Tensor: ...

    @overload
    def to(
        self,
        other: Tensor,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: str | None = None,
    ) -> Tensor: ...

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """``to(dtype)``, ``to(device, dtype)`` or ``to(other)``; self where nothing changes.

        Keywords: ``dtype``, ``device``, ``copy``, ``memory_format``, and ``non_blocking``, which
        lets an asynchronous backend return before the data have arrived.
        """
        device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        copy = kwargs.pop("copy", False)
        memory_format = kwargs.pop("memory_format", None)
        non_blocking = bool(kwargs.pop("non_blocking", False))
        if kwargs:
            raise DTypeError(f"to() got an unexpected keyword argument {next(iter(kwargs))!r}")
        flags: list[bool] = []
        for argument in args:
            if isinstance(argument, TensorBase):
                device, dtype = argument.device, argument.dtype  # type: ignore[attr-defined]
            elif isinstance(argument, (str, Device)):
                device = argument
            elif isinstance(argument, bool):
                flags.append(argument)  # non_blocking, copy by position
            elif argument is not None:
                dtype = DType.of(argument)
        if flags:
            non_blocking, copy = flags[0], (flags[1] if len(flags) > 1 else copy)
        result: Any = self
        if dtype is not None and DType.of(dtype) is not self.dtype:
            result = _op("to_dtype")(result, dtype)
        if device is not None:
            target = current_device(device)
            here = self.device
            if target.type != here.type or target.index not in (None, here.index or 0):
                result = _op("to_device")(result, target, non_blocking)
        if memory_format is not None and not str(memory_format).endswith("preserve_format"):
            result = result.contiguous(memory_format=memory_format)
        return result.clone() if copy and result is self else result

    def contiguous(self, memory_format: Any = None) -> Tensor:
        """The tensor itself where it lies in ``memory_format`` (row-major) already, else a copy."""
        if not isinstance(self.raw, Wrapper) and self.layout == "strided":
            flags = getattr(self.raw, "flags", None) if memory_format is None else None
            if self.is_contiguous(memory_format) if flags is None else flags.c_contiguous:
                return self
        result: Tensor = _op("contiguous")(self, memory_format=memory_format)
        return result

    def cpu(self, memory_format: Any = None) -> Tensor:
        """The tensor on the CPU."""
        return self.to("cpu", memory_format=memory_format)

    def cuda(self, device: DeviceLike | None = None) -> Tensor:
        """The tensor on a CUDA device."""
        return self.to("cuda" if device is None else device)

    @overload
    def type(self, dtype: None = None) -> str: ...

    @overload
    def type(self, dtype: DTypeLike, non_blocking: bool = False) -> Tensor: ...

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Tensor | str:
        """The dtype's tensor type name, or the tensor converted to ``dtype``.

        A dtype may also be spelled as types were once: ``"torch.FloatTensor"``, ``FloatTensor``.
        """
        if dtype is None:
            prefix = SPELLING.of("" if self.device.type == "cpu" else f"{self.device.type}.")
            return prefix + _TYPE_NAMES.get(self.dtype.name, self.dtype.name) + "Tensor"
        from coredispatch.frontend.legacy import convert

        return convert(self, dtype, non_blocking)

    def new(self, *args: Any, **options: Any) -> Tensor:
        """``x.new(2, 3)``, ``x.new([1, 2])``: a tensor of this one's dtype and device.

        Lengths of dimensions give memory that nobody initialised.
        """
        from coredispatch.frontend.legacy import new

        return new(self, *args, **options)

    def float(self, memory_format: Any = None) -> Tensor:
        """The tensor as float32."""
        return self.to(dtypes.float32, memory_format=memory_format)

    def double(self, memory_format: Any = None) -> Tensor:
        """The tensor as float64."""
        return self.to(dtypes.float64, memory_format=memory_format)

    def half(self, memory_format: Any = None) -> Tensor:
        """The tensor as float16."""
        return self.to(dtypes.float16, memory_format=memory_format)

    def bfloat16(self, memory_format: Any = None) -> Tensor:
        """The tensor as bfloat16."""
        return self.to(dtypes.bfloat16, memory_format=memory_format)

    def int(self, memory_format: Any = None) -> Tensor:
        """The tensor as int32."""
        return self.to(dtypes.int32, memory_format=memory_format)

    def long(self, memory_format: Any = None) -> Tensor:
        """The tensor as int64."""
        return self.to(dtypes.int64, memory_format=memory_format)

    def short(self, memory_format: Any = None) -> Tensor:
        """The tensor as int16."""
        return self.to(dtypes.int16, memory_format=memory_format)

    def char(self, memory_format: Any = None) -> Tensor:
        """The tensor as int8."""
        return self.to(dtypes.int8, memory_format=memory_format)

    def byte(self, memory_format: Any = None) -> Tensor:
        """The tensor as uint8."""
        return self.to(dtypes.uint8, memory_format=memory_format)

    def bool(self, memory_format: Any = None) -> Tensor:
        """The tensor as bool."""
        return self.to(dtypes.bool_, memory_format=memory_format)

    def cfloat(self, memory_format: Any = None) -> Tensor:
        """The tensor as complex64."""
        return self.to(dtypes.complex64, memory_format=memory_format)

    def cdouble(self, memory_format: Any = None) -> Tensor:
        """The tensor as complex128."""
        return self.to(dtypes.complex128, memory_format=memory_format)

    def type_as(self, other: Tensor) -> Tensor:
        """The tensor in the dtype of ``other``."""
        return self.to(other.dtype)

    def new_tensor(
        self, data: Any, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
    ) -> Tensor:
        """A tensor of ``data`` with this one's dtype and device unless given."""
        from coredispatch.frontend.creation import tensor

        made = tensor(data, dtype=dtype or self.dtype, device=device or self.device)
        return kept_class(self, made) if self.keys & OVERRIDE else made

    def _new(self, name: str, size: Any, kwargs: dict[str, Any], *extra: Any) -> Tensor:
        kwargs.setdefault("dtype", self.dtype)
        kwargs.setdefault("device", self.device)
        requires_grad = kwargs.pop("requires_grad", False)
        if len(size) == 1 and isinstance(size[0], (tuple, list)):
            size = tuple(size[0])
        made = _op(name)(tuple(size), *extra, **kwargs)
        if isinstance(self.raw, Wrapper):
            made = self.raw.like(made)
        made = made.requires_grad_(requires_grad)
        return kept_class(self, made) if self.keys & OVERRIDE else made

    def new_zeros(self, *size: Any, **kwargs: Any) -> Tensor:
        """Zeros of ``size`` with this tensor's dtype and device unless given."""
        return self._new("zeros", size, kwargs)

    def new_ones(self, *size: Any, **kwargs: Any) -> Tensor:
        """Ones of ``size`` with this tensor's dtype and device unless given."""
        return self._new("ones", size, kwargs)

    def new_empty(self, *size: Any, **kwargs: Any) -> Tensor:
        """An uninitialised tensor of ``size`` with this one's dtype and device unless given."""
        return self._new("empty", size, kwargs)

    def new_full(self, size: Any, fill_value: Any, **kwargs: Any) -> Tensor:
        """``fill_value`` everywhere, with this tensor's dtype and device unless given."""
        return self._new("full", (size,), kwargs, fill_value)

    def where(self, condition: Tensor, other: Any) -> Tensor:
        """``self`` where ``condition`` holds, else ``other``."""
        return _op("where")(condition, self, other)

    # -- Python's protocols ----------------------------------------------------------------

    def __setitem__(self, index: Any, value: Any) -> None:
        from coredispatch.frontend.indexing import assign

        assign(self, index, value)

    def __len__(self) -> int:
        if not self.raw.shape:
            raise DTypeError("len() of a 0-dim tensor")
        return int(self.raw.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        if not self.raw.shape:
            raise DTypeError("iteration over a 0-dim tensor")
        return iter([self[i] for i in range(self.raw.shape[0])])

    def __reversed__(self) -> Tensor:
        return _op("flip")(self, (0,)) if self.ndim else self

    def __contains__(self, item: Any) -> bool:
        if not isinstance(item, (TensorBase, numbers.Number)):
            raise DTypeError(
                f"a tensor contains numbers, not {type(item).__name__}",
                fix="ask for a number or a tensor",
            )
        return bool((self == item).any())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise OpError(
                f"the truth value of a tensor with {self.numel()} elements is ambiguous",
                fix="use .any() or .all()",
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.is_floating_point or self.dtype.is_complex or self.numel() != 1:
            raise DTypeError("only integer tensors of one element can be converted to an index")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        # As in PyTorch: a 0-dim tensor is formatted as its number, others ignore the format.
        if self.ndim == 0 and self.device.type != "meta":
            return format(self.item(), spec)
        return repr(self)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        from coredispatch.frontend.printing import tensor_repr

        prefix = f"{type(self).__name__}(" if self._class_keys else "tensor("
        if tensor_contents is not None:
            return f"{prefix}{tensor_contents})"
        return tensor_repr(self, prefix)

    def __copy__(self) -> Tensor:
        from coredispatch.frontend.serialization import copy_tensor

        return copy_tensor(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        from coredispatch.frontend.serialization import deepcopy_tensor

        return deepcopy_tensor(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        from coredispatch.frontend.serialization import reduce_tensor

        return reduce_tensor(self)

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Tensor:
        """What NumPy functions make of their results: ``np.sin(tensor)`` is a tensor."""
        from coredispatch.frontend.creation import from_numpy

        return from_numpy(np.asarray(array))

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the array API standard, :mod:`coredispatch.array_api`.

        Raises :class:`ArgumentError` for a version of the standard that it has not.
        """
        from coredispatch.frontend import array_api

        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ArgumentError(
                f"the version {api_version!r} of the array API is not there",
                fix="use 2024.12 or earlier",
            )
        return array_api

    def to_device(self, device: DeviceLike, /, *, stream: Any = None) -> Tensor:
        """:meth:`to` under its name in the array API standard."""
        return self.to(device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if self.keys & AUTOGRAD:
            raise AutogradError("can't export a tensor that requires grad", fix="use .detach()")
        given = {
            "stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy
        }  # fmt: skip
        options = {name: value for name, value in given.items() if value is not None}
        if self.dtype is dtypes.bfloat16 and isinstance(self.raw, np.ndarray):
            from coredispatch.frontend.dlpack import export

            return export(self.raw, **options)
        return self.raw.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.raw.__dlpack_device__()
        return device

    @property
    def __cuda_array_interface__(self) -> Any:
        interface = getattr(self.raw, "__cuda_array_interface__", None)
        if interface is None:
            raise AttributeError("this tensor does not lie on a CUDA device")
        return interface


def _plain(array: np.ndarray[Any, Any]) -> Any:
    value = array.reshape(()).item()
    # ml_dtypes scalars are no Python numbers
    return float(value) if type(value).__module__ == "ml_dtypes" else value


_TYPE_NAMES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def is_tensor(obj: Any) -> bool:
    """Whether ``obj`` is a :class:`Tensor`."""
    return isinstance(obj, Tensor)


HOOKS.value_type = Tensor


def _ask_plugins(self: Tensor, name: str) -> Any:
    """``__getattr__`` until the plugins are there: one of them may bring ``name`` as a method."""
    if not name.startswith("_"):
        plugins.discover()
        found = getattr(type(self), name, None)
        if found is not None:
            return found.__get__(self, type(self))
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _stop_asking() -> None:
    # The mere presence of __getattr__ costs every method call 0.1 us.
    del Tensor.__getattr__


Tensor.__getattr__ = _ask_plugins  # type: ignore[attr-defined]
plugins.discovered.append(_stop_asking)
