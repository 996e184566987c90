"""``TypedStorage``: an :class:`UntypedStorage` whose bytes are elements of one dtype."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from coredispatch._warnings import warn
from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.frontend.storage.untyped import UntypedStorage
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType, default_dtype
from coredispatch.registry.model.errors import ArgumentError, OpError
from coredispatch.registry.model.spelling import SPELLING

__all__ = ["STORAGE_NAMES", "TypedStorage"]

#: names of PyTorch's storage classes by dtype
STORAGE_NAMES: dict[str, str] = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "bfloat16": "BFloat16Storage",
    "complex128": "ComplexDoubleStorage",
    "complex64": "ComplexFloatStorage",
}

_warned: list[bool] = []


def warn_of_removal() -> None:
    """PyTorch's warning that typed storages will go, once in a process."""
    if not _warned:
        _warned.append(True)
        warn(
            "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will "
            "be the only storage class. This should only matter to you if you are using storages "
            "directly.  To access UntypedStorage directly, use tensor.untyped_storage() instead "
            "of tensor.storage()"
        )


class TypedStorage:
    """Elements of one dtype over an :class:`UntypedStorage`.

    ``TypedStorage(3, dtype=cd.int32)`` has three elements of no meaning, ``TypedStorage([1, 2])``
    the given ones; ``TypedStorage(wrap_storage=untyped, dtype=...)`` reads bytes that are there.
    """

    is_sparse: ClassVar[bool] = False
    is_hpu: ClassVar[bool] = False
    dtype: DType

    def __init__(
        self,
        *args: Any,
        wrap_storage: UntypedStorage | None = None,
        dtype: Any = None,
        device: Any = None,
        _internal: bool = False,
    ) -> None:
        if not _internal:
            warn_of_removal()
        self.dtype = DType.of(default_dtype() if dtype is None else dtype)
        if wrap_storage is not None:
            if args or dtype is None or device is not None:
                raise ArgumentError(
                    "TypedStorage(wrap_storage=...) takes dtype and no other argument"
                )
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(
                    "TypedStorage: wrap_storage must be an UntypedStorage, got "
                    f"{type(wrap_storage).__name__}"
                )
            self._untyped_storage = wrap_storage
            return
        if len(args) > 1:
            raise ArgumentError("TypedStorage takes a size, or a sequence of elements")
        given = args[0] if args else 0
        if isinstance(given, int):
            self._untyped_storage = UntypedStorage(given * self.dtype.itemsize, device=device)
        elif isinstance(given, list | tuple | range | np.ndarray):
            from coredispatch.frontend.creation import tensor

            made = tensor(given, dtype=self.dtype, device=device)
            self._untyped_storage = made.untyped_storage()
        else:
            raise ArgumentError(
                f"TypedStorage: a {type(given).__name__} is neither a size nor a sequence"
            )

    @classmethod
    def _of(cls, untyped: UntypedStorage, dtype: DType) -> TypedStorage:
        return TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)

    # -- properties --------------------------------------------------------------------------------

    @property
    def _dtype(self) -> DType:
        return self.dtype

    @property
    def device(self) -> Device:
        """Where the elements lie."""
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        """Whether the elements lie on a CUDA device."""
        return self._untyped_storage.is_cuda

    @property
    def filename(self) -> str | None:
        """The file that :meth:`from_file` mapped, else None."""
        return self._untyped_storage.filename

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def get_device(self) -> int | None:
        """Index of the device, None for the CPU."""
        return self._untyped_storage.get_device()

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._untyped_storage.nbytes()

    def size(self) -> int:
        """Number of elements."""
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    __len__ = size

    def data_ptr(self) -> int:
        """Address of the first element."""
        return self._untyped_storage.data_ptr()

    def resizable(self) -> bool:
        """Whether :meth:`resize_` can change the size."""
        return self._untyped_storage.resizable()

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self._untyped_storage

    def pickle_storage_type(self) -> str:
        """The name of PyTorch's class for storages of this dtype."""
        try:
            return STORAGE_NAMES[self.dtype.name]
        except KeyError:
            raise KeyError(f"dtype {self.dtype} is not recognized") from None

    # -- elements ------------------------------------------------------------------------------

    def _array(self, what: str) -> np.ndarray[Any, Any]:
        self._untyped_storage._need_host(what)
        memory = self._untyped_storage._memory
        dtype = numpy_dtype(self.dtype)
        return np.ndarray(memory.size // dtype.itemsize, dtype, memory)

    def _index(self, index: Any) -> int:
        if isinstance(index, slice):
            raise OpError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise OpError(f"can't index a {type(self)} with {type(index)}")
        size = self.size()
        if not -size <= index < size:
            raise IndexError(f"index {index} out of range for storage of size {size}")
        return index

    def __getitem__(self, index: Any) -> Any:
        return _number(self._array("storage[...]")[self._index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        array = self._array("storage[...] = ...")
        if isinstance(index, slice):
            array[index] = _checked(value, self)
        else:
            array[self._index(index)] = _checked(value, self)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        return [_number(item) for item in self._array("storage.tolist()")]

    def fill_(self, value: Any) -> TypedStorage:
        """Set all elements; returns self."""
        self._array("storage.fill_()")[...] = _checked(value, self)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        """Take over the elements of a storage of as many; returns self."""
        if isinstance(source, TypedStorage) and source.dtype is not self.dtype:
            source = source._converted(self.dtype)
        self._untyped_storage.copy_(source.untyped())
        return self

    def resize_(self, size: int) -> None:
        """Another number of elements, while no tensor lies in the storage."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    # -- copies and other kinds ----------------------------------------------------------------

    def clone(self) -> TypedStorage:
        """A copy."""
        return self._of(self._untyped_storage.clone(), self.dtype)

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return self._of(self._untyped_storage.__deepcopy__(memo), self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return TypedStorage._of, (self._untyped_storage, self.dtype)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """The storage on a device."""
        return self._of(self._untyped_storage.to(device=device), self.dtype)

    def cpu(self) -> TypedStorage:
        """The storage on the CPU."""
        return self._of(self._untyped_storage.cpu(), self.dtype)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """The storage on a CUDA device."""
        return self._of(self._untyped_storage.cuda(device), self.dtype)

    def _converted(self, dtype: Any) -> TypedStorage:
        """A copy with elements of another type."""
        from coredispatch.frontend.serialization.memory import make_tensor

        target = DType.of(dtype)
        array = self._array(f"storage conversion to {target}")
        converted = make_tensor(array, "cpu").to(target)
        if target is self.dtype:
            converted = converted.clone()
        return self._of(converted.untyped_storage(), target)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the storage's class, or a copy with elements of the given type."""
        if dtype is None:
            name = STORAGE_NAMES.get(self.dtype.name)
            if name is None:
                return "coredispatch.storage.TypedStorage"
            return f"coredispatch.{'cuda.' if self.is_cuda else ''}{name}"
        return self._converted(getattr(dtype, "dtype", dtype))

    # -- sharing, buffers, files ---------------------------------------------------------------

    def is_shared(self) -> bool:
        """Whether other processes can see the elements."""
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        """See :meth:`UntypedStorage.share_memory_`."""
        self._untyped_storage.share_memory_()
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """See :meth:`UntypedStorage.is_pinned`."""
        return self._untyped_storage.is_pinned(device)

    def pin_memory(self, device: Any = None) -> TypedStorage:
        """See :meth:`UntypedStorage.pin_memory`."""
        return self._of(self._untyped_storage.pin_memory(device), self.dtype)

    @classmethod
    def from_buffer(cls, *args: Any, dtype: Any = None, device: Any = None, **kw: Any) -> Any:
        """Elements of a buffer, copied: see :meth:`UntypedStorage.from_buffer`."""
        kind = DType.of(default_dtype() if dtype is None else dtype)
        untyped = UntypedStorage.from_buffer(*args, dtype=kind, **kw)
        return cls._of(untyped if device is None else untyped.to(device=device), kind)

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> Any:
        """`size` elements of a file, mapped: see :meth:`UntypedStorage.from_file`."""
        kind = getattr(cls, "dtype", None) or default_dtype()
        return cls._of(UntypedStorage.from_file(filename, shared, size * kind.itemsize), kind)

    def __str__(self) -> str:
        package = SPELLING.package.replace("cd", "coredispatch")
        what = (
            f"[{package}.storage.TypedStorage(dtype={self.dtype}, device={self.device}) "
            f"of size {len(self)}]"
        )
        if self.device.type != "cpu":
            return f"...\n{what}"
        return " " + "\n ".join(map(str, self.tolist())) + f"\n{what}"

    __repr__ = __str__


def _converter(name: str, dtype: str) -> Any:
    def convert(self: Any) -> TypedStorage:
        converted: TypedStorage = self.type(DType.of(dtype))
        return converted

    convert.__name__, convert.__qualname__ = name, f"TypedStorage.{name}"
    convert.__doc__ = f"A copy with elements of type {dtype}."
    return convert


for _name, _dtype in (
    ("double", "float64"),
    ("float", "float32"),
    ("half", "float16"),
    ("long", "int64"),
    ("int", "int32"),
    ("short", "int16"),
    ("char", "int8"),
    ("byte", "uint8"),
    ("bool", "bool"),
    ("bfloat16", "bfloat16"),
    ("complex_double", "complex128"),
    ("complex_float", "complex64"),
):
    for _class in (TypedStorage, UntypedStorage):
        setattr(_class, _name, _converter(_name, _dtype))


def _number(item: Any) -> Any:
    value = item.item()
    return float(value) if type(value).__module__ == "ml_dtypes" else value


def _checked(value: Any, storage: TypedStorage) -> Any:
    if isinstance(value, bool | int | float | complex | np.generic):
        return value
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"can't assign a {type(value).__name__} to a {storage.type()}")
    return item()
