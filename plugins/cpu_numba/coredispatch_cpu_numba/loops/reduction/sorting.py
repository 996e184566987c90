"""Short rows in order, by counting for each element how many stand before it.

Of ``n`` elements that is ``n * n`` comparisons without a branch, a vector of them at a time: up to
about a hundred elements nothing is faster. Elements become integers of the same order: NaN is the
largest, -0.0 equals 0.0, and of equal elements the first comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import item, put
from coredispatch_cpu_numba.vectors import machine

__all__ = ["LOOPS"]


@intrinsic
def _ordered(typingctx: Any, x: Any, descending: Any) -> Any:
    """``x`` as an integer of the same size and order, or of the opposite one."""
    whole = types.int32 if x == types.float32 else types.int64

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, descending = args
        word = context.get_value_type(whole)
        most = word((1 << (word.width - 1)) - 1)
        missing = builder.fcmp_unordered("uno", x, x)
        bits = builder.bitcast(builder.fadd(x, x.type(0.0)), word)  # -0.0 becomes 0.0
        sign = builder.ashr(bits, word(word.width - 1))
        bits = builder.select(missing, most, builder.xor(bits, builder.and_(sign, most)))
        down = builder.icmp_signed("!=", descending, descending.type(0))
        return builder.select(down, builder.not_(bits), bits)

    return whole(x, types.intp), codegen


def _places_of(lanes: int) -> Any:
    """An intrinsic that writes the places of ``lanes`` keys into ``places``, from ``first`` on.

    Its arguments are keys, places, how many keys there are, and the first of those to place. Keys
    before that one stand before equal ones, keys after the last behind.
    """

    @intrinsic
    def write(typingctx: Any, keys: Any, places: Any, n: Any, first: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            data, out = (
                context.make_array(kinds[i])(context, builder, args[i]).data for i in (0, 1)
            )
            n, first = args[2:]
            word = context.get_value_type(types.intp)
            element = context.get_value_type(kinds[0].dtype)
            vector = ir.VectorType(element, lanes)

            def at(array: ir.Value) -> ir.Value:
                return builder.bitcast(builder.gep(array, [first]), vector.as_pointer())

            def splat(value: ir.Value) -> ir.Value:
                undefined = ir.Constant(vector, ir.Undefined)
                zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
                one = builder.insert_element(undefined, value, word(0))
                return builder.shuffle_vector(one, undefined, zeros)

            own = builder.load(at(data), align=element.width // 8)
            numbers = ir.Constant(vector, list(range(lanes)))
            total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0] * lanes))
            stop = builder.add(first, word(lanes))
            last = builder.select(builder.icmp_signed("<", stop, n), stop, n)
            for lo, hi, part in ((word(0), first, -1), (first, last, 0), (last, n, 1)):
                with cgutils.for_range_slice(builder, lo, hi, word(1)) as (j, _):
                    key = splat(builder.load(builder.gep(data, [j])))
                    before = builder.icmp_signed("<=" if part < 0 else "<", key, own)
                    if part == 0:
                        lane = splat(builder.trunc(builder.sub(j, first), element))
                        later = builder.icmp_signed("<", lane, numbers)
                        equal = builder.icmp_signed("==", key, own)
                        before = builder.or_(before, builder.and_(equal, later))
                    more = builder.zext(before, vector)
                    builder.store(builder.add(builder.load(total), more), total)
            builder.store(builder.load(total), at(out), align=element.width // 8)
            return context.get_dummy_value()

        return types.void(keys, places, types.intp, types.intp), codegen

    return write


def _rows(char: str) -> Callable[..., None]:
    """Counts rows of ``n``, of each of which the first ``k`` in order are written."""
    lanes = machine().lanes(char)
    whole = np.int32 if char == "f" else np.int64
    write_places = _places_of(lanes)

    def loop(x, n, k, descending, values, indices, lo, hi):
        full_vectors()
        whole_vectors = (n + lanes - 1) // lanes * lanes
        keys, places = np.zeros(whole_vectors, whole), np.empty(whole_vectors, whole)
        order = np.empty(n, np.int64)
        for r in range(lo, hi):
            for j in range(n):
                keys[j] = _ordered(item(x, r * n + j), descending)
            for first in range(0, n, lanes):
                write_places(keys, places, n, first)
            for j in range(n):
                put(order, item(places, j), j)
            for i in range(k):
                put(indices, r * k + i, item(order, i))
                put(values, r * k + i, item(x, r * n + item(order, i)))

    return loop


LOOPS: dict[str, Loop] = {"rows": Loop("annnai", _rows, dtypes="fdEe")}
