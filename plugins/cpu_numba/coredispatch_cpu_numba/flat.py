"""``Flat(dtype)``: a C-contiguous NumPy array of any rank, seen by a kernel as one dimension.

Numba's own unboxing of an array copies its shape and strides, takes a reference through a
heap-allocated record and fixes the rank in the signature. An elementwise kernel needs a
pointer and a count. This type reads exactly these two, so that one compiled kernel serves
every rank, nobody calls ``reshape(-1)`` first, and read-only arrays need no second signature.
Measured on this class of machine: a three-argument call costs 0.08 us instead of 0.26 us
(plus 0.18 us for each ``reshape``).

The caller vouches for the argument: a C-contiguous ``numpy.ndarray`` of the stated dtype in
native byte order. It is borrowed for the duration of the call, and never returned or kept.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import NativeValue, register_model, unbox

from coredispatch_cpu_numba.atomics import borrowed_array

__all__ = ["Flat"]

# Where PyArrayObject_fields keeps data, nd and dimensions, after the object header. NumPy's
# C macros PyArray_DATA, PyArray_NDIM and PyArray_DIMS are inlined into every extension module,
# so these offsets are part of its ABI.
_DATA = object.__basicsize__
_NDIM = _DATA + 8
_SHAPE = _DATA + 16


class Flat(types.Array):
    """The Numba type of a C-contiguous array argument whose rank does not matter."""

    def __init__(self, dtype: types.Type) -> None:
        super().__init__(dtype, 1, "C", name=f"Flat({dtype})")


register_model(Flat)(models.ArrayModel)


@unbox(Flat)
def _unbox_flat(typ: Flat, obj: Any, c: Any) -> NativeValue:
    builder, context = c.builder, c.context
    intp = context.get_value_type(types.intp)
    bytes_ = ir.IntType(8).as_pointer()
    base = builder.bitcast(obj, bytes_)

    def field(offset: int, llvm_type: ir.Type) -> ir.Value:
        address = builder.gep(base, [intp(offset)])
        return builder.load(builder.bitcast(address, llvm_type.as_pointer()))

    data = field(_DATA, bytes_)
    ndim = builder.sext(field(_NDIM, ir.IntType(32)), intp)
    shape = field(_SHAPE, intp.as_pointer())
    count = cgutils.alloca_once_value(builder, intp(1))
    with cgutils.for_range(builder, ndim) as loop:
        extent = builder.load(builder.gep(shape, [loop.index]))
        builder.store(builder.mul(builder.load(count), extent), count)
    size = builder.load(count)

    return NativeValue(borrowed_array(context, builder, typ, builder.ptrtoint(data, intp), size))
