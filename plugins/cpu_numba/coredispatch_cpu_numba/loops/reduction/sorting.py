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

from coredispatch_cpu_numba.atomics import array_at, stack_words
from coredispatch_cpu_numba.compilation import Loop
from coredispatch_cpu_numba.intrinsics import full_vectors
from coredispatch_cpu_numba.spans import fill, item, put
from coredispatch_cpu_numba.vectors import machine, splat

__all__ = ["LONGEST", "LOOPS"]

#: elements of the longest row
LONGEST = 256


@intrinsic
def _ordered(typingctx: Any, x: Any, descending: Any) -> Any:
    """``x`` as an integer of the same size and order, or of the opposite one; never the largest."""
    whole = types.int32 if x == types.float32 else types.int64

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, descending = args
        word = context.get_value_type(whole)
        most = word((1 << (word.width - 1)) - 1)
        above = word((1 << (word.width - 1)) - 2)  # infinity, and 1 more is still a number
        missing = builder.fcmp_unordered("uno", x, x)
        bits = builder.bitcast(builder.fadd(x, x.type(0.0)), word)  # -0.0 becomes 0.0
        sign = builder.ashr(bits, word(word.width - 1))
        bits = builder.select(missing, above, builder.xor(bits, builder.and_(sign, most)))
        down = builder.icmp_signed("!=", descending, descending.type(0))
        return builder.select(down, builder.not_(bits), bits)

    return whole(x, types.intp), codegen


def _places_of(lanes: int, vectors: int) -> Any:
    """An intrinsic that writes the places of the keys of some ``vectors``, from ``first`` on.

    Its arguments are keys, places, how many keys there are, and the first of those to place. Keys
    before that one stand before equal ones, keys after the last behind: ``j`` stands before ``i``
    where its key is below that of ``i``, plus 1 if ``j < i``.
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
            masked = lanes * element.width == 512

            def at(array: ir.Value, number: int) -> ir.Value:
                place = builder.gep(array, [builder.add(first, word(number * lanes))])
                return builder.bitcast(place, vector.as_pointer())

            def count(total: Any, key: ir.Value, limit: ir.Value) -> None:
                before, old = builder.icmp_signed("<", key, limit), builder.load(total)
                if masked:
                    more = builder.select(before, builder.add(old, ones), old)
                else:  # a mask is a vector of 0 and -1
                    more = builder.sub(old, builder.sext(before, vector))
                builder.store(more, total)

            ones = ir.Constant(vector, [1] * lanes)
            owns = [builder.load(at(data, v), align=element.width // 8) for v in range(vectors)]
            nexts = [builder.add(own, ones) for own in owns]
            nothing = ir.Constant(vector, [0] * lanes)
            totals = [cgutils.alloca_once_value(builder, nothing) for _ in range(vectors)]
            for total in totals:  # as often as this stands in a loop
                builder.store(nothing, total)
            stop = builder.add(first, word(lanes * vectors))
            for lo, hi, limits in ((word(0), first, nexts), (stop, n, owns)):
                with cgutils.for_range_slice(builder, lo, hi, word(1)) as (j, _):
                    key = splat(builder, builder.load(builder.gep(data, [j])), vector)
                    for total, limit in zip(totals, limits, strict=True):
                        count(total, key, limit)
            for j in range(lanes * vectors):
                place = builder.gep(data, [builder.add(first, word(j))])
                key = splat(builder, builder.load(place), vector)
                for v, total in enumerate(totals):
                    later = [int(j < v * lanes + lane) for lane in range(lanes)]
                    count(total, key, builder.add(owns[v], ir.Constant(vector, later)))
            for v, total in enumerate(totals):
                builder.store(builder.load(total), at(out, v), align=element.width // 8)
            return context.get_dummy_value()

        return types.void(keys, places, types.intp, types.intp), codegen

    return write


def _rows(char: str) -> Callable[..., None]:
    """Counts rows of ``n``, of which ``k`` in order are written each, from place ``begin`` on."""
    lanes = machine().lanes(char)
    whole = np.int32 if char == "f" else np.int64
    write_places, write_two = _places_of(lanes, 1), _places_of(lanes, 2)
    reserve = stack_words(LONGEST)
    behind = np.iinfo(whole).max  # no key is as large: what fills up a vector stands last

    def loop(x, n, begin, k, descending, values, indices, lo, hi):
        full_vectors()
        whole_vectors = (n + lanes - 1) // lanes * lanes
        keys = array_at(reserve(), whole_vectors, whole)
        places, order = array_at(reserve(), whole_vectors, whole), array_at(reserve(), n, np.int64)
        fill(keys, whole(behind))
        for r in range(lo, hi):
            for j in range(n):
                put(keys, j, _ordered(item(x, r * n + j), descending))
            first = 0
            while first + 2 * lanes <= whole_vectors:
                write_two(keys, places, whole_vectors, first)
                first += 2 * lanes
            if first < whole_vectors:
                write_places(keys, places, whole_vectors, first)
            for j in range(n):
                put(order, item(places, j), j)
            for i in range(k):
                place = item(order, begin + i)
                put(indices, r * k + i, place)
                put(values, r * k + i, item(x, r * n + place))

    return loop


LOOPS: dict[str, Loop] = {"rows": Loop("annnnai", _rows, dtypes="fdEe")}
