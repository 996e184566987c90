"""``UntypedStorage``: the bytes behind a tensor and its views."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from coredispatch.frontend.storage.memory import Bytes, first_address, memory_of, new_bytes
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device, current_device
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import ArgumentError, OpError
from coredispatch.registry.model.spelling import SPELLING

if TYPE_CHECKING:
    from coredispatch.frontend.storage.typed import TypedStorage

__all__ = ["UntypedStorage", "storage_behind"]

#: storages by device, address and size, so that one memory has one object while somebody holds it
_known: weakref.WeakValueDictionary[tuple[str, int, int], UntypedStorage] = (
    weakref.WeakValueDictionary()
)


class UntypedStorage:
    """A stretch of memory on one device, as bytes.

    ``UntypedStorage(n)`` has ``n`` bytes of no meaning, ``UntypedStorage([1, 2])`` the given ones.
    :meth:`Tensor.untyped_storage` gives the one behind a tensor: the same object for all of its
    views. Bytes of storages on other devices than the CPU are reached through tensors only.
    """

    is_sparse = False
    is_hpu = False

    def __init__(self, *args: Any, device: Any = None) -> None:
        if len(args) > 1:
            raise ArgumentError("UntypedStorage takes a size, or a sequence of bytes")
        self._device = current_device("cpu" if device is None else device)
        given = args[0] if args else 0
        self._lent = False  # whether tensors lie in it, so that it cannot be resized
        self._tensor: Tensor | None = None  # on other devices: the memory as it came
        self._memory: Bytes = np.empty(0, np.uint8)
        self._size = 0
        if isinstance(given, int):
            if given < 0:
                raise ArgumentError(f"UntypedStorage: the size {given} is negative")
            self._size = given
            if self._device.type == "cpu":
                self._memory = new_bytes(given)
            elif self._device.type != "meta":
                self._tensor = TABLE.operator("empty")(
                    (given,), dtype=DType.of("uint8"), device=self._device
                )
            return
        try:
            items = [item.__index__() for item in given]
        except (TypeError, AttributeError):
            raise TypeError(
                "UntypedStorage(): tried to construct a storage from a sequence "
                f"({type(given).__name__}), but one of the items is not an integer"
            ) from None
        self._need_host("UntypedStorage(sequence)")
        self._memory = np.array([item & 0xFF for item in items], np.uint8)
        self._size = self._memory.size

    @classmethod
    def _over(cls, memory: Bytes) -> UntypedStorage:
        """The storage of some bytes in host memory."""
        key = ("cpu", first_address(memory), memory.size)
        found = _known.get(key) if memory.size else None
        if found is None:
            found = cls(0)
            found._memory, found._size, found._lent = memory, memory.size, True
            if memory.size:
                _known[key] = found
        return found

    # -- properties --------------------------------------------------------------------------------

    def nbytes(self) -> int:
        """Number of bytes."""
        return self._size

    size = nbytes
    __len__ = nbytes

    def element_size(self) -> int:
        """1."""
        return 1

    @property
    def device(self) -> Device:
        """Where the bytes lie."""
        return self._device

    @property
    def is_cuda(self) -> bool:
        """Whether the bytes lie on a CUDA device."""
        return self._device.type == "cuda"

    def get_device(self) -> int | None:
        """Index of the device, None for the CPU."""
        return self._device.index

    def data_ptr(self) -> int:
        """Address of the first byte; 0 where there is none."""
        if self._device.type == "cpu":
            return first_address(self._memory)
        return 0 if self._tensor is None else self._tensor.data_ptr()

    @property
    def _cdata(self) -> int:
        return self.data_ptr() or id(self)

    def resizable(self) -> bool:
        """Whether :meth:`resize_` can change the size: while no tensor lies in the storage."""
        return not self._lent and self._device.type == "cpu"

    @property
    def filename(self) -> str | None:
        """The file that :meth:`from_file` mapped, else None."""
        return getattr(self, "_filename", None)

    # -- elements ------------------------------------------------------------------------------

    def _need_host(self, what: str) -> None:
        if self._device.type != "cpu":
            raise NotImplementedError(
                f"{what}: the bytes of a storage on {self._device} cannot be reached one by one; "
                "use tensors, or storage.cpu() where there are elements"
            )

    def __getitem__(self, index: Any) -> Any:
        self._need_host("storage[...]")
        if isinstance(index, slice):
            start, stop, step = index.indices(self._size)
            if step != 1:
                raise ArgumentError(f"storage[...]: the step of a slice is 1, not {step}")
            return UntypedStorage._over(self._memory[start : max(start, stop)])
        if not isinstance(index, int):
            raise TypeError(f"can't index an UntypedStorage with {type(index).__name__}")
        return int(self._memory[_position(index, self._size)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._need_host("storage[...] = ...")
        if isinstance(index, slice):
            self[index].fill_(value)
            return
        if not isinstance(index, int):
            raise TypeError(f"can't index an UntypedStorage with {type(index).__name__}")
        self._memory[_position(index, self._size)] = _byte(value)

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        self._need_host("storage.tolist()")
        found: list[int] = self._memory.tolist()
        return found

    def fill_(self, value: Any) -> UntypedStorage:
        """Set all bytes; returns self."""
        self._need_host("storage.fill_()")
        self._memory[...] = _byte(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
        """Take over the bytes of a storage of the same size; returns self."""
        other = source.untyped()
        if other.nbytes() != self._size:
            raise OpError(
                f"storage.copy_(): the storages have {self._size} and {other.nbytes()} bytes"
            )
        self._need_host("storage.copy_()")
        self._memory[...] = other.cpu()._memory
        return self

    def byteswap(self, dtype: Any) -> None:
        """Reverse the bytes of each element of the given type, in place (of each half of a
        complex one).
        """
        self._need_host("storage.byteswap()")
        kind = DType.of(dtype)
        width = kind.itemsize // 2 if kind.is_complex else kind.itemsize
        pieces = self._memory[: self._size // width * width].reshape(-1, width)
        pieces[...] = pieces[:, ::-1].copy()

    def resize_(self, size: int) -> UntypedStorage:
        """Another size; bytes that both have stay. Returns self.

        Raises:
            NotImplementedError: tensors lie in the storage.
        """
        if size == self._size:
            return self
        if not self.resizable():
            raise NotImplementedError(
                "resize_() of a storage that tensors lie in: its memory has a fixed size; use "
                "Tensor.resize_, or set x.data to another tensor"
            )
        if size < 0:
            raise ArgumentError(f"resize_(): the size {size} is negative")
        memory = new_bytes(size)
        both = min(size, self._size)
        memory[:both] = self._memory[:both]
        self._memory, self._size = memory, size
        return self

    # -- copies and other kinds ----------------------------------------------------------------

    def new(self) -> UntypedStorage:
        """An empty storage on the same device."""
        return UntypedStorage(0, device=self._device)

    def clone(self) -> UntypedStorage:
        """A copy."""
        if self._device.type == "meta":
            return UntypedStorage(self._size, device="meta")
        if self._tensor is not None:
            return storage_behind(self._tensor.clone())
        return UntypedStorage(self._size).copy_(self)

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        key = ("coredispatch untyped storage", id(self))
        if key not in memo:
            memo[key] = (self.clone(), self)
        found: UntypedStorage = memo[key][0]
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.cpu()._memory.tobytes(), str(self._device))

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._size

    def _as_tensor(self) -> Tensor:
        """The bytes as a one-dimensional tensor of uint8, sharing the memory."""
        if self._device.type == "cpu":
            from coredispatch.frontend.serialization.memory import make_tensor

            tensor: Tensor = make_tensor(self._memory, "cpu")
            return tensor
        if self._tensor is None or self._tensor.dtype.name != "uint8" or self._tensor.dim() != 1:
            raise NotImplementedError(
                f"the bytes of a storage on {self._device} cannot be copied as they are; copy "
                "its tensors"
            )
        return self._tensor

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """The storage on a device; itself if it is there."""
        target = current_device(device)
        if target == self._device or (target.type == "cpu" == self._device.type):
            return self
        if "meta" in (target.type, self._device.type):
            return UntypedStorage(self._size, device=target)
        return storage_behind(self._as_tensor().to(target))

    def cpu(self) -> UntypedStorage:
        """The storage on the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """The storage on a CUDA device."""
        return self.to(device="cuda" if device is None else device)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the class, or a :class:`TypedStorage` of the given type."""
        if dtype is None:
            module = type(self).__module__.replace("coredispatch.frontend", "coredispatch")
            return f"{module.removesuffix('.untyped')}.UntypedStorage"
        return self._to(dtype)

    def _to(self, dtype: Any) -> TypedStorage:
        from coredispatch.frontend.storage.typed import TypedStorage

        return TypedStorage(wrap_storage=self, dtype=DType.of("uint8"), _internal=True)._converted(
            dtype
        )

    # -- sharing -------------------------------------------------------------------------------

    def is_shared(self) -> bool:
        """Whether other processes can see the bytes; on CUDA always."""
        from coredispatch.frontend.multiprocessing.segments import segment_of

        return self.is_cuda or segment_of(self._memory) is not None

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes of a storage of its own to shared memory; returns self.

        Tensors that lie in the storage are moved by :meth:`Tensor.share_memory_`.
        """
        if self.is_shared() or not self._size:
            return self
        self._need_host("storage.share_memory_()")
        if self._lent:
            raise NotImplementedError(
                "share_memory_() of a storage that tensors lie in: call it on the tensor"
            )
        from coredispatch.frontend.multiprocessing.segments import new_segment

        memory = new_segment(self._size).memory
        memory[...] = self._memory
        self._memory = memory
        return self

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> UntypedStorage:
        return cls(size, device=device).share_memory_()

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the bytes lie in page-locked main memory."""
        from coredispatch.frontend.pinned_memory import is_pinned

        return self._device.type == "cpu" and is_pinned(self._memory)

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        """The bytes in page-locked main memory: itself or a copy. See :meth:`Tensor.pin_memory`."""
        from coredispatch.frontend.pinned_memory import pinned_array

        self._need_host("pin_memory()")
        memory = pinned_array(self._memory, "storage.pin_memory()")
        return self if memory is self._memory else UntypedStorage._over(memory)

    # -- from buffers and files ----------------------------------------------------------------

    @classmethod
    def from_buffer(
        cls,
        buffer: Any,
        byte_order: str | None = None,
        count: int = -1,
        offset: int = 0,
        *,
        dtype: Any = None,
    ) -> UntypedStorage:
        """A copy of `count` elements of a buffer, beginning at byte `offset`."""
        kind = DType.of("uint8" if dtype is None else dtype)
        if kind.itemsize > 1 and byte_order not in ("native", "little", "big"):
            raise ArgumentError(
                f"from_buffer: byte_order is {byte_order!r}; give 'native', 'little' or 'big'"
            )
        data = memoryview(buffer).cast("B")
        if not 0 <= offset <= len(data):
            raise ArgumentError(
                f"from_buffer: offset must be 0 to {len(data)} (the buffer's size), but is {offset}"
            )
        rest = len(data) - offset
        if count < 0:
            if rest % kind.itemsize:
                raise ArgumentError(
                    f"from_buffer: {rest} bytes are no multiple of {kind.itemsize}, the size of "
                    f"{kind}"
                )
            count = rest // kind.itemsize
        if count * kind.itemsize > rest:
            raise ArgumentError(f"from_buffer: the buffer has only {rest} bytes after the offset")
        made = cls(count * kind.itemsize)
        made._memory[...] = np.frombuffer(data[offset : offset + made._size], np.uint8)
        if byte_order in ("little", "big") and byte_order != _NATIVE:
            made.byteswap(kind)
        return made

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The bytes of a file, mapped into memory.

        With `shared` the file is made `nbytes` long where it is shorter, and writes reach it;
        without, they stay in this process.
        """
        name = os.fspath(filename)
        if shared:
            with open(name, "a+b") as file:
                if os.fstat(file.fileno()).st_size < nbytes:
                    file.truncate(nbytes)
        if not nbytes:
            return cls(0)
        made = cls._over(np.asarray(np.memmap(name, np.uint8, "r+" if shared else "c", 0, nbytes)))
        made._filename = os.path.abspath(name)  # type: ignore[attr-defined]
        return made

    def __str__(self) -> str:
        package = "coredispatch" if SPELLING.package == "cd" else SPELLING.package
        what = f"[{package}.storage.UntypedStorage(device={self._device}) of size {self._size}]"
        if self._device.type != "cpu":
            return f"...\n{what}"
        return "\n ".join(["", *map(str, self.tolist())]).lstrip("\n") + f"\n{what}"

    __repr__ = __str__


_NATIVE = "little" if np.dtype("<u2").isnative else "big"


def _position(index: int, size: int) -> int:
    found = index + size if index < 0 else index
    if not 0 <= found < size:
        raise IndexError(f"index {index} out of range for storage of size {size}")
    return found


def _byte(value: Any) -> int:
    try:
        return int(value.__index__()) & 0xFF
    except AttributeError:
        raise TypeError(f"can't assign a {type(value).__name__} to an UntypedStorage") from None


def _rebuilt(data: bytes, device: str) -> UntypedStorage:
    return UntypedStorage.from_buffer(data).to(device=device)


def storage_behind(tensor: Tensor) -> UntypedStorage:
    """The storage that a strided tensor lies in.

    Raises:
        NotImplementedError: the tensor has another layout.
    """
    if tensor.layout != "strided":
        raise NotImplementedError(
            f"a tensor of layout {tensor.layout!r} has no storage of its own; ask its parts"
        )
    device = tensor.device
    if isinstance(tensor.raw, np.ndarray) and device.type == "cpu":
        return UntypedStorage._over(memory_of(tensor.raw))
    made = UntypedStorage(0, device=device)
    strides, shape = tensor.stride(), tensor.shape
    reach = sum((n - 1) * step for n, step in zip(shape, strides)) + 1 if 0 not in shape else 0
    made._size = (tensor.storage_offset() + reach) * tensor.element_size()
    made._lent = True
    if device.type != "meta":
        made._tensor = tensor.detach()
        whole = tensor.backend.storage_bytes(tensor.raw)
        if whole is not None:  # the memory from its start, in bytes, also behind a view
            count = whole // tensor.element_size()
            flat = made._tensor.as_strided((count,), (1,), 0)
            made._size, made._tensor = whole, flat.view(DType.of("uint8"))
    return made
