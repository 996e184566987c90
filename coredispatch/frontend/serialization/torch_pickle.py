"""The pickles of PyTorch's files, in the nodes and records that coredispatch's own files have.

``torch.save`` pickles with protocol 2 (others are read too). A tensor is a call of
``torch._utils._rebuild_tensor_v2`` with a reference to its storage, offset, size and strides in
elements; here it becomes a record with places in bytes, which :mod:`.tensor_reader` checks like
those of coredispatch's own files. Nothing is called. Source: ``torch/serialization.py``,
``torch/_utils.py`` and ``torch/_tensor.py`` of PyTorch 2.13.
"""

from __future__ import annotations

import _compat_pickle
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from coredispatch.frontend.serialization.errors import Damage, shown
from coredispatch.frontend.serialization.numpy_pickle import NumpyPickle
from coredispatch.frontend.serialization.options import OPTIONS, Options
from coredispatch.frontend.serialization.pickle_reader import Global
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.dtypes import ALL_DTYPES

__all__ = ["STORAGE_DTYPES", "StorageReference", "TorchPickle"]

#: element types of PyTorch's storage classes
STORAGE_DTYPES: Final[dict[str, str]] = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "UntypedStorage": "uint8",
}
_EIGHT_BITS: Final = tuple(d for d in dtypes.STORAGE_DTYPES if d.name.startswith("float8"))
_SIZES: Final = {
    **{dtype.name: dtype.itemsize for dtype in ALL_DTYPES},
    **{dtype.name: dtype.itemsize for dtype in _EIGHT_BITS},
}


class StorageReference(NamedTuple):
    """A storage as a file names it.

    Attributes:
        key: the name of its bytes in the file.
        dtype: the name of its element type; what its bytes are swapped by.
        location: the device.
        elements: how many there are.
        typed: whether PyTorch's object has a dtype.
        offset: elements before its first one in the bytes of its key.
    """

    key: str
    dtype: str
    location: str
    elements: int
    typed: bool
    offset: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _SIZES[self.dtype]


class TorchPickle(NumpyPickle):
    """Reads the pickle of an object that ``torch.save`` wrote.

    Attributes:
        records: of the tensors, with the number that their storage has in ``storages`` as block.
        storages: what the pickle refers to.
        bytes: contents of blocks that stand in the pickle itself, after the storages.
        bits: for some records, what is to be done to the elements: ``"conj"`` and ``"neg"``.
    """

    PLACE = "data.pkl"
    WRITER = "PyTorch"
    MOST_NODES: int = 1_000_000  # type: ignore[misc]

    def __init__(self, data: Any, position: int = 0, options: Options = OPTIONS) -> None:
        super().__init__(data, position)
        self._encoding = options.encoding
        if options.trusted:
            self.MOST_NODES = sys.maxsize
        self.storages: list[StorageReference] = []
        self.bits: dict[int, tuple[str, ...]] = {}
        self._numbers: dict[str, int] = {}
        self._protocol_number = 2

    # -- opcodes that version 1 does not have ----------------------------------------------------

    def _protocol(self) -> None:
        (self._protocol_number,) = self._take(1)
        if not 0 <= self._protocol_number <= 5:
            raise Damage("", f"protocol {self._protocol_number} is unknown")

    def _put(self, format: str) -> None:
        number = self._number(format)
        self._memo[number] = self._stack[-1]

    def _line(self) -> str:
        piece: bytes = self._data[self.position : self.position + 512]
        end = piece.find(b"\n")
        if end < 0:
            raise Damage("", "a name has no end")
        self.position += end + 1
        try:
            return piece[:end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise Damage("", "a name is not UTF-8") from error

    def _global_line(self) -> None:
        module, name = self._line(), self._line()
        if self._protocol_number < 3:  # Python 2's names
            if (module, name) in _compat_pickle.NAME_MAPPING:
                module, name = _compat_pickle.NAME_MAPPING[module, name]
            elif module in _compat_pickle.IMPORT_MAPPING:
                module = _compat_pickle.IMPORT_MAPPING[module]
        self._stack.append(Global(module, name))

    def _old_text(self, format: str) -> None:
        data = self._take(self._number(format))
        if self._encoding == "bytes":
            self._push("bytes", data)
            return
        try:
            self._stack.append(data.decode(self._encoding))
        except (UnicodeDecodeError, LookupError) as error:
            raise Damage(
                "",
                f"a text of Python 2 is not {self._encoding}: {error}",
                fix="load it with encoding='latin1', or 'bytes'",
            ) from error

    def _pop_global(self) -> Global:
        item = self._pop()
        if isinstance(item, Global):
            return item
        # A class that the older form refers to, with its source text.
        return Global(*self._parts_of(item, "global").split(":", 1))

    def _as_value(self, item: Any) -> Any:
        if isinstance(item, Global) and item.module == "torch" and item.name in _DTYPE_NAMES:
            if item not in self._named:
                self._named[item] = self._node("dtype", _DTYPE_NAMES[item.name])
            return self._named[item]
        return super()._as_value(item)

    # -- checks of what arguments are ------------------------------------------------------------

    def _flag(self, value: Any, what: str) -> bool:
        if type(value) is not bool:
            raise Damage("", f"{what} is {shown(value)}")
        return value

    def _named_dtype(self, value: Any) -> str:
        name: str = self._parts_of(value, "dtype")
        if name not in _SIZES:
            raise Damage("", f"elements of type {name} are not among coredispatch's dtypes")
        return name

    # -- storages --------------------------------------------------------------------------------

    def _reference(self) -> None:
        parts = self._copied(self._pop_value(), "tuple")
        if len(parts) == 4 and parts[0] == "module":  # a class, with its source text
            self._stack.append(parts[1])
            return
        if len(parts) not in (5, 6) or parts[0] != "storage":
            raise Damage("", f"{shown(parts[:1])} is not a reference to a storage")
        _, cls, key, location, count = parts[:5]
        module, _, name = self._parts_of(cls, "global").partition(":")
        if module.partition(".")[0] not in ("torch", "coredispatch") or name not in STORAGE_DTYPES:
            raise Damage("", f"{module}.{name} is not a storage whose elements coredispatch has")
        if type(key) is not str or type(location) is not str:
            raise Damage("", "a storage has no name or no device")
        count = self._integer(count, "the size of a storage")
        if count < 0:
            raise Damage("", f"the size of a storage is {count}")
        found = StorageReference(key, STORAGE_DTYPES[name], location, count, name[0] != "U")
        if len(parts) == 6 and parts[5] is not None:  # a part of another storage
            view = self._copied(parts[5], "tuple")
            if len(view) != 3 or view[2] != count:
                raise Damage("", "a part of a storage has no place in it")
            found = found._replace(offset=self._integer(view[1], "the place of a storage"))
            if found.offset < 0:
                raise Damage("", f"the place of a storage is {found.offset}")
        if self._numbers.setdefault(key, len(self.storages)) == len(self.storages):
            self.storages.append(found)
        self._push("storage", found)

    def block(self, storage: StorageReference) -> int:
        """The number of the block with the bytes of a storage."""
        return self._numbers[storage.key]

    # -- tensors ---------------------------------------------------------------------------------

    def _record(self, record: dict[str, Any], **extra: Any) -> tuple[str, Any]:
        self.records.append(record)
        return "tensor", len(self.records) - 1

    def _place(self, storage: Any, dtype: str, offset: Any, size: Any, stride: Any) -> Any:
        """The record of an array inside a storage."""
        found: StorageReference = self._parts_of(storage, "storage")
        shape = self._integers(size, "a size")
        strides = [n * _SIZES[dtype] for n in self._integers(stride, "the strides")]
        start = self._integer(offset, "the offset") * _SIZES[dtype]
        if start < 0 or min(strides, default=0) < 0:
            raise Damage("", "an offset or stride of a tensor is negative")
        place = {"dtype": dtype, "shape": shape, "strides": strides, "block": -1, "offset": 0}
        if 0 not in shape:
            place["block"] = self.block(found)
            place["offset"] = start + found.offset * found.itemsize
        return place

    def _tensor(
        self, storage: Any, dtype: str, offset: Any, size: Any, stride: Any, grad: Any, bits: Any
    ) -> tuple[str, Any]:
        place = self._place(storage, dtype, offset, size, stride)
        found: StorageReference = self._parts_of(storage, "storage")
        if self._kind(bits) == "dict":
            pairs = self._copied(bits, "dict")
            wanted = tuple(name for name, on in pairs if name in ("conj", "neg") and on is True)
            if wanted:
                self.bits[len(self.records)] = wanted
        return self._record(
            {
                "kind": "tensor",
                "class": ["Tensor"],
                "device": found.location,
                "requires_grad": self._flag(grad, "requires_grad"),
                "array": place,
            }
        )

    def _tensor_1(self, arguments: list[Any]) -> tuple[str, Any]:
        storage, offset, size, stride = self._exactly(arguments, 4, 4)
        dtype = self._parts_of(storage, "storage").dtype
        return self._tensor(storage, dtype, offset, size, stride, False, None)

    def _tensor_2(self, arguments: list[Any]) -> tuple[str, Any]:
        storage, offset, size, stride, grad, _, *bits = self._exactly(arguments, 6, 7)
        dtype = self._parts_of(storage, "storage").dtype
        return self._tensor(storage, dtype, offset, size, stride, grad, (bits or [None])[0])

    def _tensor_3(self, arguments: list[Any]) -> tuple[str, Any]:
        storage, offset, size, stride, grad, _, dtype, *bits = self._exactly(arguments, 7, 8)
        name = self._named_dtype(dtype)
        return self._tensor(storage, name, offset, size, stride, grad, (bits or [None])[0])

    def finished(self) -> dict[str, Any]:
        """:meth:`read`, after which the records name all blocks by number."""
        found = self.read()
        for record in self.records:
            place = record.get("array", {})
            if isinstance(place.get("block"), tuple):
                place["block"] = len(self.storages) + place["block"][1]
        return found

    def _source(self, value: Any) -> dict[str, Any]:
        """The record of a tensor that another one is made of."""
        number: int = self._parts_of(value, "tensor")
        return self.records[number]

    def _parameter(self, arguments: list[Any]) -> tuple[str, Any]:
        data, grad, *_ = self._exactly(arguments, 3, 4)
        record = self._source(data)
        bits = self.bits.get(self._parts_of(data, "tensor"))
        if bits:
            self.bits[len(self.records)] = bits
        flag = self._flag(grad, "requires_grad")
        return self._record({**record, "class": ["Parameter"], "requires_grad": flag})

    def _parameter_with_state(self, arguments: list[Any]) -> tuple[str, Any]:
        *rest, state = self._exactly(arguments, 4, 4)
        return self._with_attributes(self._parameter(rest), state)

    def _with_attributes(self, made: tuple[str, Any], state: Any) -> tuple[str, Any]:
        if self._kind(state) == "tuple":
            state, slots = self._exactly(self._copied(state, "tuple"), 2, 2)
            if slots is not None and self.nodes[slots[0]] != {"dict": []}:
                raise Damage("", "a tensor has slots with values")
        if state is not None and self._parts_of(state, "dict"):
            made = (*made, {"attributes": self._copied(state, "dict")})  # type: ignore[assignment]
        return made

    def _from_type(self, arguments: list[Any]) -> tuple[str, Any]:
        function, cls, inner, state = self._exactly(arguments, 4, 4)
        module, _, name = self._parts_of(function, "global").partition(":")
        make = self.CALLS.get(Global(module, name))
        if module != "torch._utils" or make is None:
            raise Damage("", f"{module}.{name} does not make a tensor")
        made = make(self, self._copied(inner, "tuple"))
        module, _, name = self._parts_of(cls, "global").partition(":")
        record = self.records[made[1]]
        if (module, name) in _PARAMETER:
            record["class"] = ["Parameter"]
        elif (module, name) != ("torch", "Tensor"):
            record["class"] = [module, name]
        return self._with_attributes(made, state)

    def _meta(self, arguments: list[Any]) -> tuple[str, Any]:
        dtype, size, _, grad = self._exactly(arguments, 4, 4)
        return self._record(
            {
                "kind": "meta",
                "class": ["Tensor"],
                "device": "meta",
                "requires_grad": self._flag(grad, "requires_grad"),
                "dtype": self._named_dtype(dtype),
                "shape": self._integers(size, "a size"),
            }
        )

    def _from_host(self, arguments: list[Any]) -> tuple[str, Any]:
        data, dtype, device, grad = self._exactly(arguments, 4, 4)
        record = self._source(data)
        name = self._named_dtype(dtype)
        if record["kind"] != "tensor" or record["array"]["dtype"] != name:
            raise Damage("", "a tensor of a device was saved with other elements than it has")
        if type(device) is not str:
            raise Damage("", f"{shown(device)} is not a device")
        flag = self._flag(grad, "requires_grad")
        return self._record({**record, "device": device, "requires_grad": flag})

    def _sparse(self, arguments: list[Any]) -> tuple[str, Any]:
        layout, data = self._exactly(arguments, 2, 2)
        name = self._parts_of(layout, "layout")
        parts = self._copied(data, "tuple")
        if name != "sparse_csr" or len(parts) != 4:
            raise Damage(
                "",
                f"tensors of layout {name} cannot be loaded from PyTorch's files",
                fix="save x.to_sparse_csr() or x.to_dense() with PyTorch",
            )
        rows, columns, values = (self._source(part) for part in parts[:3])
        if any(part["kind"] != "tensor" for part in (rows, columns, values)):
            raise Damage("", "the parts of a sparse tensor are not dense tensors")
        return self._record(
            {
                "kind": "layout",
                "class": ["Tensor"],
                "device": values["device"],
                "requires_grad": False,
                "layout": name,
                "parts": {
                    "crow_indices": {"array": rows["array"]},
                    "col_indices": {"array": columns["array"]},
                    "values": {"array": values["array"]},
                    "size": {"value": self._integers(parts[3], "a size")},
                },
            }
        )

    # -- properties and what Python pickles by calls -----------------------------------------------

    def _size(self, arguments: list[Any]) -> tuple[str, Any]:
        return "Size", self._integers(self._exactly(arguments, 1, 1)[0], "a size")

    def _torch_device(self, arguments: list[Any]) -> tuple[str, Any]:
        kind, *index = self._exactly(arguments, 1, 2)
        if type(kind) is not str or any(type(n) is not int for n in index):
            raise Damage("", f"{shown(arguments)} is not a device")
        return "device", ":".join([kind, *map(str, index)])

    def _layout(self, arguments: list[Any]) -> tuple[str, Any]:
        name = self._exactly(arguments, 1, 1)[0]
        if type(name) is not str or not name.startswith("torch."):
            raise Damage("", f"{shown(name)} is not a layout")
        return "layout", name.removeprefix("torch.")

    def _encoded(self, arguments: list[Any]) -> tuple[str, Any]:
        text, encoding = self._exactly(arguments, 2, 2)
        if type(text) is not str or encoding != "latin1":
            raise Damage("", "bytes are not written as Python's pickler does")
        try:
            return "bytes", text.encode("latin1")
        except UnicodeEncodeError as error:
            raise Damage("", "bytes have characters that are none") from error

    def _made_ordered(self, arguments: list[Any]) -> tuple[str, Any]:
        if not arguments:
            return "OrderedDict", []
        # Python 2 gave the items as a list of lists.
        pairs = self._copied(self._exactly(arguments, 1, 1)[0], "list")
        return "OrderedDict", [list(self._copied(pair, "list")) for pair in pairs]

    def _no_bytes(self, arguments: list[Any]) -> tuple[str, Any]:
        self._no_arguments(arguments)
        return "bytes", b""

    def _members(self, kind: str, arguments: list[Any]) -> tuple[str, Any]:
        if not arguments:
            return kind, []
        return kind, list(self._copied(self._exactly(arguments, 1, 1)[0], "list"))

    # -- what changes after it was made ----------------------------------------------------------

    def _reduce(self) -> None:
        arguments = self._copied(self._pop_value(), "tuple")
        callee = self._pop_global()
        make = self.CALLS.get(callee)
        if make is None:
            self._push("call", [self._as_value(callee), *arguments])
            return
        made: tuple[Any, ...] = make(self, arguments)
        self._push(made[0], made[1])
        if len(made) > 2:
            self._top_node().update(made[2])


_DTYPE_NAMES: Final = {
    **{dtype.name: dtype.name for dtype in ALL_DTYPES},
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "cfloat": "complex64",
    "cdouble": "complex128",
    **{name: name for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz")},
    **{name: name for name in ("float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2")},
    **{name: name for name in ("complex32", "qint8", "quint8", "qint32")},
}
_PARAMETER: Final = {("torch.nn.parameter", "Parameter"), ("torch.nn", "Parameter")}


def _refuse(what: str) -> Callable[[Any, list[Any]], tuple[str, Any]]:
    def refuse(reader: Any, arguments: list[Any]) -> tuple[str, Any]:
        raise Damage("", f"{what} cannot be loaded", fix="save dense tensors instead, with PyTorch")

    return refuse


TorchPickle.CALLS = NumpyPickle.CALLS | {
    Global("torch._utils", "_rebuild_tensor"): TorchPickle._tensor_1,
    Global("torch._utils", "_rebuild_tensor_v2"): TorchPickle._tensor_2,
    Global("torch._utils", "_rebuild_tensor_v3"): TorchPickle._tensor_3,
    Global("torch._utils", "_rebuild_parameter"): TorchPickle._parameter,
    Global("torch._utils", "_rebuild_parameter_with_state"): TorchPickle._parameter_with_state,
    Global("torch._utils", "_rebuild_meta_tensor_no_storage"): TorchPickle._meta,
    Global("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): TorchPickle._from_host,
    Global("torch._utils", "_rebuild_sparse_tensor"): TorchPickle._sparse,
    Global("torch._utils", "_rebuild_qtensor"): _refuse("a quantized tensor of PyTorch"),
    Global("torch._utils", "_rebuild_nested_tensor"): _refuse("a nested tensor"),
    Global("torch._tensor", "_rebuild_from_type_v2"): TorchPickle._from_type,
    Global("collections", "OrderedDict"): TorchPickle._made_ordered,
    Global("torch", "Size"): TorchPickle._size,
    Global("torch", "device"): TorchPickle._torch_device,
    Global("torch.serialization", "_get_layout"): TorchPickle._layout,
    Global("_codecs", "encode"): TorchPickle._encoded,
    Global("builtins", "bytes"): TorchPickle._no_bytes,
    Global("builtins", "set"): lambda reader, found: reader._members("set", found),
    Global("builtins", "frozenset"): lambda reader, found: reader._members("frozenset", found),
}

TorchPickle.OPCODES = NumpyPickle.OPCODES | {
    b"\x80": TorchPickle._protocol,
    b"c": TorchPickle._global_line,
    b"q": lambda r: r._put("B"),
    b"r": lambda r: r._put("I"),
    b"U": lambda r: r._old_text("B"),
    b"T": lambda r: r._old_text("I"),
    b"2": lambda r: r._stack.append(r._stack[-1]),
    b"\x96": lambda r: r._push("bytearray", r._take(r._number("Q"))),
    b"Q": TorchPickle._reference,
    b"R": TorchPickle._reduce,
}
