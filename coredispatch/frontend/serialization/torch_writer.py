"""``cd.save(..., format="torch")``: a file that ``torch.load(weights_only=True)`` reads.

The pickle names PyTorch's functions and classes, none of which is here: a placeholder of ours is
written as the global that it stands for. Tensors that share memory share a storage in the file;
one that shares with no other in the file is written without the rest of its memory.
"""

from __future__ import annotations

import collections
import io
import pickle
import struct
import sys
import types
import zipfile
from typing import IO, Any, ClassVar

import numpy as np

from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.serialization.blocks import BlockWriter
from coredispatch.frontend.serialization.encoding import number_of
from coredispatch.frontend.serialization.errors import SerializationError, UnsavableObjectError
from coredispatch.frontend.serialization.memory import attributes, host_array
from coredispatch.frontend.serialization.torch_pickle import STORAGE_DTYPES
from coredispatch.frontend.size import Size
from coredispatch.frontend.storage import TypedStorage, UntypedStorage
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.sizes import Symbol
from coredispatch.registry.model.spelling import SPELLING, TensorLayout

__all__ = ["write_torch"]

Array = np.ndarray[Any, Any]

_STORAGES = {dtype: name for name, dtype in STORAGE_DTYPES.items() if name != "UntypedStorage"}
_ALIGNMENT = 64  # of PyTorch's own writer, so that mapped storages are aligned
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class _Name:
    """Stands for a class or function of PyTorch."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *_: Any) -> None:
        """Never called; what pickle reduces to must look as if it could be."""


class _Storage:
    """Stands for a storage: a block, or in the end a reference to one."""

    def __init__(self, dtype: str, device: str, typed: bool = True) -> None:
        self.dtype, self.device = dtype, device
        #: untyped where PyTorch has no class for the dtype
        self.class_name = _STORAGES.get(dtype, "UntypedStorage") if typed else "UntypedStorage"
        self.key, self.nbytes = "", 0

    @property
    def size(self) -> int:
        """Elements of the class."""
        return self.nbytes // (
            1 if self.class_name == "UntypedStorage" else np.dtype(self.dtype).itemsize
        )


class _Place:
    """An array on its way: which storage it will lie in, and where, is known at the end."""

    def __init__(self, array: Array, device: str, typed: bool = True) -> None:
        self.array, self.device, self.typed = array, device, typed


#: the storage of an array, and its offset and strides there, in elements
_Placed = tuple[_Storage, int, tuple[int, ...]]


def _layout(places: list[_Place]) -> tuple[list[_Placed], list[Any]]:
    """Where each array lies, and the bytes of the storages.

    Raises:
        SerializationError: tensors of several dtypes share memory.
    """
    writer = BlockWriter()
    for place in places:
        writer.add(place.array)
    records, blocks = writer.finish()
    storages: dict[int, _Storage] = {}
    found = []
    for place, record in zip(places, records):
        dtype = DType.of(place.array.dtype).name
        itemsize = place.array.dtype.itemsize
        number = record["block"]
        if number < 0:
            storage = _Storage(dtype, place.device, place.typed)
            number = len(blocks)
            blocks.append([])
            storages[number] = storage
        storage = storages.setdefault(number, _Storage(dtype, place.device, place.typed))
        if storage.dtype != dtype:
            raise SerializationError(
                "save: Cannot save multiple tensors or storages that view the same data as "
                f"different types ({storage.dtype} and {dtype})",
                fix="save a clone() of one of them, or format='coredispatch'",
            )
        storage.key = str(number)
        storage.nbytes = sum(memoryview(part).nbytes for part in blocks[number])
        if any(step % itemsize for step in (record["offset"], *record["strides"])):
            raise SerializationError("save: a tensor whose strides are no whole elements")
        steps = tuple(step // itemsize for step in record["strides"])
        found.append((storage, record["offset"] // itemsize, steps))
    return found, blocks


_PythonPickler: Any = pickle._Pickler  # its methods for single types can be replaced


class _Pickler(_PythonPickler):  # type: ignore[misc]
    """Writes PyTorch's names. Two passes are made: the first collects the arrays."""

    dispatch: ClassVar[dict[Any, Any]] = dict(_PythonPickler.dispatch)

    def __init__(
        self, file: IO[bytes], protocol: int, placed: list[_Placed] | None, archive: bool
    ) -> None:
        super().__init__(file, protocol)
        self.places: list[_Place] = []
        self._placed, self._zip = placed, archive
        self._number = 0

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Storage):
            return None
        name = obj.class_name
        module = "torch.storage" if name == "UntypedStorage" else "torch"
        part = () if self._zip else (None,)  # the older form can say: a part of another storage
        return ("storage", _name(module, name), obj.key, obj.device, obj.size, *part)

    def _stored(self, array: Array, device: str, typed: bool = True) -> _Placed:
        if self._placed is None:
            self.places.append(_Place(array, device, typed))
            return _Storage(DType.of(array.dtype).name, device, typed), 0, ()
        self._number += 1
        return self._placed[self._number - 1]

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, Symbol):
            obj = number_of(obj)
        super().save(obj, save_persistent_id)

    def save_name(self, obj: _Name) -> None:
        if self.proto >= 4:
            self.save(obj.module)
            self.save(obj.name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    dispatch[_Name] = save_name

    def save_dtype(self, obj: DType) -> None:
        self.save(_name("torch", obj.name))

    dispatch[DType] = save_dtype

    def save_storage(self, obj: Any) -> None:
        typed = isinstance(obj, TypedStorage)
        array = obj.cpu()._array("save") if typed else obj.cpu()._memory
        self.save(self._stored(array, str(obj.device), typed)[0])

    dispatch[TypedStorage] = dispatch[UntypedStorage] = save_storage

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__module__ == "builtins" and not isinstance(obj, type | types.FunctionType):
            return NotImplemented
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if isinstance(obj, Size):
            return _name("torch", "Size"), (tuple(obj),)
        if isinstance(obj, Device):
            index = () if obj.index is None else (obj.index,)
            return _name("torch", "device"), (obj.type, *index)
        if isinstance(obj, TensorLayout):
            return _name("torch.serialization", "_get_layout"), (f"torch.{str.__str__(obj)}",)
        if isinstance(obj, _Name | _Reduced | _Storage | DType | TypedStorage | UntypedStorage):
            return NotImplemented
        named = isinstance(obj, type | types.FunctionType)
        module = getattr(obj, "__module__", None) if named else None
        if module is None or isinstance(obj, type):
            module = SPELLING.module_of(obj if isinstance(obj, type) else type(obj))
        if module.partition(".")[0] == "coredispatch":
            what = obj.__name__ if named else type(obj).__name__
            raise UnsavableObjectError(
                f"save(format='torch'): {what} is coredispatch's own, which PyTorch cannot read",
                fix="save a state_dict(), or use format='coredispatch'",
            )
        return NotImplemented

    def _tensor(self, tensor: Tensor) -> Any:
        if tensor.layout != "strided":
            raise SerializationError(
                f"save(format='torch'): a tensor of layout {tensor.layout!r}",
                fix="save x.to_dense(), or use format='coredispatch'",
            )
        grad = tensor.requires_grad
        details: tuple[Any, ...]
        made: tuple[Any, tuple[Any, ...]]
        hooks: Any = collections.OrderedDict()
        if tensor.is_meta:
            details = (tensor.dtype, tuple(tensor.shape), tensor.stride(), grad)
            made = _name("torch._utils", "_rebuild_meta_tensor_no_storage"), details
            return self._classed(tensor, made)
        array = host_array(tensor)
        if min(array.strides, default=0) < 0:
            array = array.copy()  # PyTorch has no negative strides
        storage, offset, steps = self._stored(array, str(tensor.device))
        place = (storage, offset, tuple(array.shape), steps)
        parameter = isinstance(tensor, Parameter)
        if tensor.dtype.name not in _STORAGES and not self._zip:
            raise SerializationError(
                f"save: PyTorch's older form has no storage of {tensor.dtype}",
                fix="leave out _use_new_zipfile_serialization=False",
            )
        if tensor.dtype.name in _STORAGES:
            made = (
                _name("torch._utils", "_rebuild_tensor_v2"),
                (
                    *place,
                    grad and not parameter,
                    hooks,
                ),
            )
        else:
            details = (*place, grad and not parameter, hooks, tensor.dtype)
            made = _name("torch._utils", "_rebuild_tensor_v3"), details
        return self._classed(tensor, made)

    def _classed(self, tensor: Tensor, made: tuple[Any, tuple[Any, ...]]) -> Any:
        own = SPELLING.module_of(type(tensor)).partition(".")[0] == "coredispatch"
        state = attributes(tensor)
        if not own:
            raise UnsavableObjectError(
                f"save(format='torch'): {type(tensor).__name__} is a class of tensors of its own",
                fix="save x.detach() as a plain tensor: Tensor(x.raw, x.keys)",
            )
        if isinstance(tensor, Parameter):
            data = _Reduced(*made)
            hooks: Any = collections.OrderedDict()
            if state:
                details = (data, tensor.requires_grad, hooks, state)
                return _name("torch._utils", "_rebuild_parameter_with_state"), details
            return _name("torch._utils", "_rebuild_parameter"), (data, tensor.requires_grad, hooks)
        if state:
            cls = _name("torch", "Tensor")
            function, arguments = made
            return _name("torch._tensor", "_rebuild_from_type_v2"), (
                function,
                cls,
                arguments,
                state,
            )
        return made


class _Reduced:
    """Stands for what a call returns."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> Any:
        return self.function, self.arguments


_names: dict[tuple[str, str], _Name] = {}


def _name(module: str, name: str) -> _Name:
    return _names.setdefault((module, name), _Name(module, name))


def _dumped(
    obj: Any, protocol: int, placed: list[_Placed] | None, archive: bool
) -> tuple[bytes, list[_Place]]:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol, placed, archive)
    try:
        pickler.dump(obj)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UnsavableObjectError(f"save: {error}") from error
    return buffer.getvalue(), pickler.places


def write_torch(file: IO[bytes], obj: Any, protocol: int = 2, legacy: bool = False) -> None:
    """Write an object as ``torch.save`` does.

    Raises:
        SerializationError: it has a tensor that PyTorch's files cannot say here.
        UnsavableObjectError: it has an object of coredispatch's own, or one that does not pickle.
    """
    _, places = _dumped(obj, protocol, None, not legacy)
    placed, blocks = _layout(places)
    data, _ = _dumped(obj, protocol, placed, not legacy)
    storages = {storage.key: storage for storage, *_ in placed}
    if legacy:
        _write_legacy(file, data, storages, blocks, protocol)
        return
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        position = 0
        position = _entry(archive, "data.pkl", [data], position)
        position = _entry(archive, "byteorder", [sys.byteorder.encode()], position)
        for key in storages:
            position = _entry(archive, f"data/{key}", blocks[int(key)], position)
        _entry(archive, "version", [b"3\n"], position)


def _entry(archive: zipfile.ZipFile, name: str, parts: list[Any], position: int) -> int:
    """Write an entry whose bytes begin at a multiple of the alignment; returns where it ends."""
    info = zipfile.ZipInfo(f"archive/{name}")
    size = sum(memoryview(part).nbytes for part in parts)
    large = size >= 1 << 31
    header = position + 30 + len(info.filename) + (20 if large else 0) + 4
    padding = -header % _ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    with archive.open(info, "w", force_zip64=large) as entry:
        for part in parts:
            entry.write(part)
    return int(archive.start_dir)


def _write_legacy(
    file: IO[bytes], data: bytes, storages: dict[str, _Storage], blocks: list[Any], protocol: int
) -> None:
    details = {
        "protocol_version": _PROTOCOL,
        "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    for value in (_MAGIC, _PROTOCOL, details):
        file.write(pickle.dumps(value, protocol))
    file.write(data)
    file.write(pickle.dumps(sorted(storages), protocol))
    for key in sorted(storages):
        file.write(struct.pack("<q", storages[key].size))
        for part in blocks[int(key)]:
            file.write(part)
