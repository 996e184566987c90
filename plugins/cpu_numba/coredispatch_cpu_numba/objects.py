"""NumPy arrays as objects: looked at, made and returned by compiled code.

Below some thousand elements an operator costs what its calls cost. ``np.add`` takes 0.25 us for two
8 x 8 matrices, most of it to find out what they are, and Numba as much to take arrays and to return
one. Compiled functions of ``OBJECT`` arguments get the Python objects themselves, ask them in a
nanosecond each what they need to know, and make their result by NumPy's own C function. An operator
is then one call: 0.08 us for ``a + b``.

What is read of an array is what NumPy's C macros read (``PyArray_DATA``, ``PyArray_NDIM``,
``PyArray_DIMS``, ``PyArray_FLAGS``, ``PyArray_TYPE``). They are inlined into every extension
module: where the fields lie is part of NumPy's ABI, as are the places of functions in its table.
The same holds for floats, lists and tuples and for the macros of Python.

Objects are borrowed from the caller. Who makes or returns one must hold the GIL.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache as memoized
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import NativeValue, box, intrinsic, register_model, unbox

from .atomics import borrowed_array, stack_words
from .building import build, compiled

__all__ = [
    "ALIGNED",
    "OBJECT",
    "READABLE",
    "WRITEABLE",
    "array_in",
    "build_function",
    "copy_bytes",
    "count",
    "data_of",
    "dimensions",
    "doubles_at",
    "dtype_number",
    "elements_in",
    "fits",
    "fits_flat",
    "is_array",
    "is_none",
    "items_in",
    "itemsize",
    "length",
    "made_at",
    "made_like",
    "made_of",
    "missing",
    "none",
    "number_in",
    "object_at",
    "overlap",
    "own",
    "refused",
    "same_shape",
    "words_at",
    "words_in",
]

_HEADER = object.__basicsize__
# Where the fields are, in bytes: of any object, of an array, of its dtype.
_TYPE = _HEADER - 8
_DATA, _NDIM, _SHAPE, _STRIDES, _DTYPE, _FLAGS = (_HEADER + n for n in (0, 8, 16, 24, 40, 48))
_BYTE_ORDER, _DTYPE_NUMBER = _HEADER + 10, _HEADER + 12
# NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_ALIGNED, NPY_ARRAY_WRITEABLE
ALIGNED = 0x100
READABLE = ALIGNED | 0x1
WRITEABLE = READABLE | 0x400
_SWAPPED = ord(">" if sys.byteorder == "little" else "<")
_NUMBERS = {
    types.boolean: np.dtype(np.bool_).num,
    types.int64: np.dtype(np.int64).num,
    types.float32: np.dtype(np.float32).num,
    types.float64: np.dtype(np.float64).num,
}
_FLOAT32, _FLOAT64 = _NUMBERS[types.float32], _NUMBERS[types.float64]
_INT64 = _NUMBERS[types.int64]
#: a float is exact for every int up to here
_EXACT = 2**53

# The names under which compiled code knows NumPy's PyArray_Type and PyArray_New, whose addresses
# differ from process to process, and their places in its table of functions.
_PLACES = {"coredispatch_PyArray_Type": 2, "coredispatch_PyArray_New": 93}
_ARRAY_TYPE, _NEW_ARRAY = _PLACES


def _name_functions() -> None:
    table_of = ctypes.pythonapi.PyCapsule_GetPointer
    table_of.restype, table_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    core: Any = np._core
    table = ctypes.cast(table_of(core.multiarray._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    for name, place in _PLACES.items():
        llvmlite.binding.add_symbol(name, table[place])


_name_functions()

_i32, _i64 = ir.IntType(32), ir.IntType(64)
_pointer = ir.IntType(8).as_pointer()


class Object(types.Opaque):  # type: ignore[misc]
    """The Numba type of a Python object, whatever it is."""


OBJECT = Object("object")
register_model(Object)(models.OpaqueModel)


@unbox(Object)
def _unbox(typ: Object, obj: Any, c: Any) -> NativeValue:
    return NativeValue(obj)


@box(Object)
def _box(typ: Object, value: Any, c: Any) -> Any:
    return value  # NULL where NumPy has set an error


# ---- what is written in LLVM ------------------------------------------------------------------


def _loads(kind: ir.Type, result: Any) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any, place: Any) -> Any:
        """The field at ``address + place``."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at = builder.inttoptr(builder.add(*args), kind.as_pointer())
            value = builder.load(at)
            return value if kind in (_i64, ir.DoubleType()) else builder.sext(value, _i64)

        return result(types.intp, types.intp), codegen

    return load


_word, _half, _byte = (_loads(ir.IntType(bits), types.intp) for bits in (64, 32, 8))
_double = _loads(ir.DoubleType(), types.float64)


@intrinsic
def _address(typingctx: Any, obj: Any) -> Any:
    """Where an object is."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], _i64)

    return types.intp(OBJECT), codegen


def _external(builder: Any, name: str) -> ir.Value:
    found = builder.module.globals.get(name)
    if found is None:
        found = ir.GlobalVariable(builder.module, ir.IntType(8), name)
        found.linkage = "external"
    return found


def _place_of(name: str) -> Any:
    @intrinsic
    def place(typingctx: Any) -> Any:
        """Where a variable of the interpreter, or what ``_PLACES`` names, is."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.ptrtoint(_external(builder, name), _i64)

        return types.intp(), codegen

    return place


_array_type = _place_of(_ARRAY_TYPE)
_float_type, _int_type = _place_of("PyFloat_Type"), _place_of("PyLong_Type")
_list_type, _tuple_type = _place_of("PyList_Type"), _place_of("PyTuple_Type")
_none, _not_implemented = _place_of("_Py_NoneStruct"), _place_of("_Py_NotImplementedStruct")


@intrinsic
def object_at(typingctx: Any, address: Any) -> Any:
    """The object that the word at ``address`` points to."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _pointer.as_pointer()))

    return OBJECT(types.intp), codegen


@intrinsic
def copy_bytes(typingctx: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy so many bytes from one address to another."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, source, size = args
        places = [builder.inttoptr(place, _pointer) for place in (target, source)]
        cgutils.raw_memcpy(builder, *places, size, 1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@intrinsic
def _returned(typingctx: Any, address: Any) -> Any:
    """A new reference to the object at ``address``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        obj = builder.inttoptr(args[0], _pointer)
        context.get_python_api(builder).incref(obj)
        return obj

    return OBJECT(types.intp), codegen


@intrinsic
def _whole(typingctx: Any, obj: Any) -> Any:
    """The int in an object that is one; for what lies beyond 64 bits the least that does not."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_i64, [_pointer, _i32.as_pointer()])
        function = cgutils.get_or_insert_function(
            builder.module, kind, "PyLong_AsLongLongAndOverflow"
        )
        beyond = cgutils.alloca_once(builder, _i32)
        value = builder.call(function, [args[0], beyond])
        fitting = builder.icmp_signed("==", builder.load(beyond), _i32(0))
        return builder.select(fitting, value, _i64(-(2**63)))

    return types.intp(OBJECT), codegen


@intrinsic
def made_at(typingctx: Any, number: Any, ndim: Any, lengths: Any) -> Any:
    """An array of the dtype of that number; ``lengths`` is where those of its dimensions are."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, ndim, lengths = args
        null, zero = _pointer(None), _i32(0)
        kinds = [_pointer, _i32, _pointer, _i32, _pointer, _pointer, _i32, _i32, _pointer]
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_pointer, kinds), _NEW_ARRAY
        )
        shape = [builder.trunc(ndim, _i32), builder.inttoptr(lengths, _pointer)]
        kind = builder.trunc(number, _i32)
        rest = [null, null, zero, zero, null]
        return builder.call(function, [_external(builder, _ARRAY_TYPE), *shape, kind, *rest])

    return OBJECT(types.intp, types.intp, types.intp), codegen


@memoized
def _memory(dtype: types.Type) -> Any:
    kind = types.Array(dtype, 1, "C")

    @intrinsic
    def memory(typingctx: Any, address: Any, size: Any) -> Any:
        """So many elements at an address."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return borrowed_array(context, builder, kind, *args)

        return kind(types.intp, types.intp), codegen

    return memory


words_at, doubles_at = _memory(types.int64), _memory(types.float64)


@memoized
def array_in(kind: types.Array) -> Any:
    """A compiled function: the array of this type that is in an object. It borrows the memory."""

    @intrinsic
    def read(typingctx: Any, obj: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def field(base: Any, place: int, kind: ir.Type) -> Any:
                return builder.load(
                    builder.bitcast(builder.gep(base, [_i64(place)]), kind.as_pointer())
                )

            array = context.make_array(kind)(context, builder)
            itemsize = _i64(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
            lengths, steps = field(args[0], _SHAPE, _pointer), field(args[0], _STRIDES, _pointer)
            shape = [field(lengths, 8 * i, _i64) for i in range(kind.ndim)]
            strides = [field(steps, 8 * i, _i64) for i in range(kind.ndim)]
            size = _i64(1)
            for i in reversed(range(kind.ndim)):
                if kind.layout == "C":  # what follows from the shape need not be read
                    strides[i] = builder.mul(itemsize, size)
                size = builder.mul(size, shape[i])
            array.data = field(args[0], _DATA, array.data.type)
            array.itemsize = itemsize
            array.nitems = size
            array.shape = cgutils.pack_array(builder, shape, _i64)
            array.strides = cgutils.pack_array(builder, strides, _i64)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            array.parent = cgutils.get_null_value(array.parent.type)
            return array._getvalue()

        return kind(OBJECT), codegen

    return read


# ---- what is written in Python ----------------------------------------------------------------


@compiled
def none():
    """``None``"""
    return _returned(_none())


@compiled
def refused():
    """``NotImplemented``: the next kernel of the table serves."""
    return _returned(_not_implemented())


@memoized
def fits_flat(dtype: types.Type) -> Any:
    """A compiled function: whether an object is a contiguous array of this dtype."""
    number = _NUMBERS[dtype]
    return compiled(lambda obj: is_array(obj, READABLE) and dtype_number(obj) == number)


@memoized
def elements_in(dtype: types.Type) -> Any:
    """A compiled function: the elements of a contiguous array in a row."""
    memory = _memory(dtype)
    return compiled(lambda obj: memory(data_of(obj), count(obj)))


@compiled
def missing(obj):
    """Whether NumPy had no memory for an object, and has set an error."""
    return _address(obj) == 0


@compiled
def is_none(obj):
    """Whether an argument was not given."""
    return _address(obj) == _none()


@compiled
def own(obj):
    """An argument as the result."""
    return _returned(_address(obj))


@compiled
def dimensions(obj):
    """How many dimensions an array has."""
    return _half(_address(obj), _NDIM)


@compiled
def length(obj, dim):
    """The length of a dimension of an array."""
    return _word(_word(_address(obj), _SHAPE), 8 * dim)


@compiled
def count(obj):
    """How many elements an array has."""
    size = 1
    for dim in range(dimensions(obj)):
        size *= length(obj, dim)
    return size


@compiled
def same_shape(a, b):
    """Whether two arrays have one shape."""
    if dimensions(a) != dimensions(b):
        return False
    for dim in range(dimensions(a)):
        if length(a, dim) != length(b, dim):
            return False
    return True


@compiled
def dtype_number(obj):
    """NumPy's number of the dtype of an array."""
    return _half(_word(_address(obj), _DTYPE), _DTYPE_NUMBER)


@compiled
def itemsize(obj):
    """The bytes of an element of an array; 0 for other dtypes than float32, float64 and int64."""
    number = dtype_number(obj)
    if number == _FLOAT32:
        return 4
    return 8 if number == _FLOAT64 or number == _INT64 else 0


@compiled
def items_in(obj):
    """How many items a list or tuple has and where the first is; -1 and nowhere for others."""
    kind = _word(_address(obj), _TYPE)
    if kind == _list_type():
        return _word(_address(obj), _HEADER), _word(_address(obj), _HEADER + 8)
    if kind == _tuple_type():
        return _word(_address(obj), _HEADER), _address(obj) + _HEADER + 8
    return -1, 0


@compiled
def overlap(a, b):
    """Whether two contiguous arrays of one dtype, which :func:`itemsize` knows, share memory."""
    first, second = data_of(a), data_of(b)
    return first < second + itemsize(b) * count(b) and second < first + itemsize(a) * count(a)


@compiled
def is_array(obj, flags):
    """Whether an object is an array with these flags, of elements in native byte order."""
    if _word(_address(obj), _TYPE) != _array_type():
        return False
    if _half(_address(obj), _FLAGS) & flags != flags:
        return False
    return _byte(_word(_address(obj), _DTYPE), _BYTE_ORDER) != _SWAPPED


@memoized
def fits(kind: types.Array) -> Any:
    """A compiled function: whether an object is an array of this type."""
    number, ndim = _NUMBERS[kind.dtype], kind.ndim
    flags = READABLE if kind.layout == "C" else ALIGNED

    @compiled
    def fitting(obj):
        return is_array(obj, flags) and dtype_number(obj) == number and dimensions(obj) == ndim

    return fitting


@compiled
def data_of(obj):
    """Where the elements of an array are."""
    return _word(_address(obj), _DATA)


@compiled
def words_in(obj):
    """The elements of an array of int64."""
    return words_at(data_of(obj), count(obj))


@compiled
def made_like(obj, number):
    """A new array of the dtype of that number, in the shape of another."""
    return made_at(number, dimensions(obj), _word(_address(obj), _SHAPE))


@memoized
def made_of(dtype: types.Type, ndim: int) -> Any:
    """A compiled function: a new array of this dtype, and of a shape that is a tuple."""
    number = _NUMBERS[dtype]
    if not ndim:
        return compiled(lambda shape: made_at(number, 0, 0))
    reserve = stack_words(ndim)

    @compiled
    def make(shape):
        place = reserve()
        lengths = words_at(place, ndim)
        for dim in range(ndim):
            lengths[dim] = shape[dim]
        return made_at(number, ndim, place)

    return make


@compiled
def number_in(obj):
    """Whether an object is a float, or an int that a float holds exactly, and the number."""
    kind = _word(_address(obj), _TYPE)
    if kind == _float_type():
        return True, _double(_address(obj), _HEADER)
    if kind == _int_type():
        whole = _whole(obj)
        return -_EXACT <= whole <= _EXACT, np.float64(whole)
    return False, 0.0


def build_function(
    function: Callable[..., Any],
    signature: tuple[Any, ...],
    name: str,
    fastmath: Iterable[str],
    cached_only: bool = False,
) -> Callable[..., Any]:
    """The C function that Python calls; it holds the GIL.

    Raises :class:`NotReady` where it is ``cached_only`` and the disk does not have it.
    """
    with _lock:
        result = build(
            function,
            signature,
            name,
            for_python=True,
            keeps_gil=True,
            fastmath=fastmath,
            cached_only=cached_only,
        )
    _kept.append(result)  # its code must not go away
    entry: Callable[..., Any] = result.entry_point
    return entry


_kept: list[Any] = []
_lock = threading.Lock()
