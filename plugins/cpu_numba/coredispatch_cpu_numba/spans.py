"""Stretches of one-dimensional contiguous arrays, without bounds to check.

Numba's slicing handles negative and overlong bounds; that is most of the code of a loop over
short rows, and of the time it takes to compile it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from .elementary.inlined import inlined
from .halves import STORED, narrowed, widened

__all__ = [
    "add_to",
    "copy",
    "copy_apart",
    "fill",
    "floats",
    "item",
    "part",
    "put",
    "put_two",
    "row_of",
]


@intrinsic
def part(typingctx: Any, array: Any, start: Any, stop: Any) -> Any:
    """``array[start:stop]`` for ``0 <= start <= stop <= array.size``; borrows the memory."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.return_type
        whole = context.make_array(kind)(context, builder, args[0])
        piece = context.make_array(kind)(context, builder)
        size = builder.sub(args[2], args[1])
        piece.data = builder.gep(whole.data, [args[1]])
        piece.nitems = size
        piece.itemsize = whole.itemsize
        piece.shape = cgutils.pack_array(builder, [size])
        piece.strides = whole.strides
        piece.meminfo = cgutils.get_null_value(whole.meminfo.type)
        piece.parent = cgutils.get_null_value(whole.parent.type)
        return piece._getvalue()

    return array(array, types.intp, types.intp), codegen


@intrinsic
def item(typingctx: Any, array: Any, index: Any) -> Any:
    """``array[index]`` for ``0 <= index < array.size``: never counted from the end.

    A number of half precision comes as float32.
    """
    half = array.dtype in STORED

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        data = context.make_array(kind)(context, builder, args[0]).data
        value = builder.load(builder.gep(data, [args[1]]))
        return widened(builder, kind.dtype, value) if half else value

    return (types.float32 if half else array.dtype)(array, types.intp), codegen


@intrinsic
def put(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value`` for ``0 <= index < array.size``; half precision takes a float32."""
    half = array.dtype in STORED

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        data = context.make_array(kind)(context, builder, args[0]).data
        stored = narrowed(builder, kind.dtype, args[2]) if half else args[2]
        if stored.type != data.type.pointee:  # a bool is a byte in memory
            stored = builder.zext(stored, data.type.pointee)
        builder.store(stored, builder.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.intp, types.float32 if half else array.dtype), codegen


@intrinsic
def put_two(typingctx: Any, array: Any, index: Any, source: Any, at: Any) -> Any:
    """``array[index:index + 2] = source[at:at + 2]``, both as one."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, given = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)
        )
        two = ir.VectorType(target.type.pointee, 2).as_pointer()
        size = context.get_abi_sizeof(target.type.pointee)
        value = builder.load(builder.bitcast(builder.gep(given, [args[3]]), two), align=size)
        place = builder.bitcast(builder.gep(target, [args[1]]), two)
        builder.store(value, place, align=size)
        return context.get_dummy_value()

    return types.void(array, types.intp, source, types.intp), codegen


def floats(array: Any, room: Any) -> Any:
    """``array``, or of half precision its numbers in float32, which ``room`` takes."""
    raise NotImplementedError("in compiled code only")


@overload(floats, inline="always")
def _floats(array, room):
    if array.dtype not in STORED:
        return lambda array, room: array

    def widen(array, room):
        for i in range(array.size):
            room[i] = item(array, i)
        return part(room, 0, array.size)

    return widen


@intrinsic
def add_to(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] += value`` for ``0 <= index < array.size``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        data = context.make_array(kind)(context, builder, args[0]).data
        place = builder.gep(data, [args[1]])
        builder.store(builder.fadd(builder.load(place), args[2]), place)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


@intrinsic
def copy_apart(typingctx: Any, array: Any, source: Any) -> Any:
    """As ``copy``, of memory that does not overlap: short runs take one call of ``memcpy``.

    LLVM's own vectors of bytes are for hundreds of them at a time.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, given = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, args, strict=True)
        )
        cgutils.raw_memcpy(builder, target.data, given.data, given.nitems, given.itemsize)
        return context.get_dummy_value()

    return types.void(array, source), codegen


@inlined
def row_of(array, index, n):
    """Row ``index`` of a matrix whose rows have ``n`` elements."""
    return part(array, index * n, index * n + n)


@inlined
def fill(array, value):
    for i in range(array.size):
        array[i] = value


@inlined
def copy(array, source):
    for i in range(array.size):
        array[i] = source[i]
