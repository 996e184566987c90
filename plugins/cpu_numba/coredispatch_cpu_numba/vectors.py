"""Register tiles: products of small blocks whose sums stay in vector registers.

LLVM's loop vectorizer does not keep a block of sums in registers across a long inner loop, so the
two inner loops of a convolution are written as vector operations here. ``lanes`` elements make a
vector; how many sums fit the registers depends on the CPU, so the shapes of the tiles do, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

__all__ = [
    "Machine",
    "across",
    "below",
    "byte_tile",
    "copied",
    "dot_tile",
    "halved",
    "load_some",
    "machine",
    "parted",
    "product_tile",
    "splat",
    "store_some",
    "suffix",
    "turned",
]


@dataclass(frozen=True)
class Machine:
    """The vector registers of the CPU that code is compiled for."""

    bytes: int
    registers: int

    def lanes(self, char: str) -> int:
        """Elements of a vector of dtype ``char``."""
        return self.bytes // {"f": 4, "d": 8, "E": 2}[char]


def machine() -> Machine:
    """What Numba compiles for: AVX-512, AVX, or 128 bits."""
    features = str(cpu_target.target_context.codegen().magic_tuple()[-1]).split(",")
    if "+avx512f" in features:
        return Machine(64, 32)
    return Machine(32, 16) if "+avx2" in features else Machine(16, 16)


def _data(context: Any, builder: Any, kind: Any, value: Any) -> ir.Value:
    return context.make_array(kind)(context, builder, value).data


def _vector_at(builder: Any, data: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


def _size(kind: ir.Type) -> int:
    """Bytes of an element: vectors lie at any of them."""
    return {"float": 4, "double": 8, "i16": 2}[str(kind.element)]


def suffix(kind: ir.Type) -> str:
    """What names of LLVM's functions of ``kind`` end in."""
    return f"v{kind.count}{'i' if _size(kind) == 2 else 'f'}{8 * _size(kind)}"


def _load(builder: Any, data: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.load(_vector_at(builder, data, index, kind), align=_size(kind))


def splat(builder: Any, value: ir.Value, kind: ir.Type) -> ir.Value:
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(first, first, zeros)


def _fma(builder: Any, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    kind = x.type
    name = f"llvm.fmuladd.{suffix(kind)}"
    signature = ir.FunctionType(kind, [kind] * 3)
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, [x, y, z])


def _sums(builder: Any, count: int, kind: ir.Type) -> list[ir.Value]:
    """``count`` sums that start at 0; LLVM keeps them in registers."""
    zero = ir.Constant(kind, [0.0] * kind.count)
    return [cgutils.alloca_once_value(builder, zero) for _ in range(count)]


def product_tile(rows: int, vectors: int, lanes: int) -> Any:
    """``f(x, offsets, at, step, w, start, bias, first, out, to, pitch)``: a tile of a product.

    Writes to ``out[to + m pitch + p]``, for each row ``m`` and each column ``p`` of ``vectors``
    that begin ``step`` columns apart, ``bias[first + m]`` plus the sum over all ``k`` of
    ``w[start + k rows + m] x[offsets[k] + at + p]``. Vectors are written in their order.
    """

    @intrinsic
    def tile(
        typingctx: Any,
        x: Any,
        offsets: Any,
        at: Any,
        step: Any,
        w: Any,
        start: Any,
        bias: Any,
        first: Any,
        out: Any,
        to: Any,
        pitch: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            word = context.get_value_type(types.intp)
            arrays = (_data(context, builder, kinds[i], args[i]) for i in (0, 1, 4, 6, 8))
            x, offsets, w, bias, out = arrays
            at, step, start, first, to, pitch = (args[i] for i in (2, 3, 5, 7, 9, 10))
            moved = [builder.mul(step, word(v)) for v in range(vectors)]
            count = context.make_array(kinds[1])(context, builder, args[1]).nitems
            kind = ir.VectorType(context.get_data_type(kinds[0].dtype), lanes)
            sums = []
            for m in range(rows):
                level = builder.load(builder.gep(bias, [builder.add(first, word(m))]))
                level = splat(builder, level, kind)
                sums += [cgutils.alloca_once_value(builder, level) for _ in range(vectors)]
            with cgutils.for_range(builder, count) as loop:
                place = builder.add(at, builder.load(builder.gep(offsets, [loop.index])))
                given = [_load(builder, x, builder.add(place, v), kind) for v in moved]
                row = builder.add(start, builder.mul(loop.index, word(rows)))
                for m in range(rows):
                    weight = builder.load(builder.gep(w, [builder.add(row, word(m))]))
                    weight = splat(builder, weight, kind)
                    for v in range(vectors):
                        total = sums[m * vectors + v]
                        value = _fma(builder, weight, given[v], builder.load(total))
                        builder.store(value, total)
            for m in range(rows):
                row = builder.add(to, builder.mul(pitch, word(m)))
                for v in range(vectors):
                    target = _vector_at(builder, out, builder.add(row, moved[v]), kind)
                    value = builder.load(sums[m * vectors + v])
                    builder.store(value, target, align=_size(kind))
            return context.get_dummy_value()

        return types.void(x, offsets, at, step, w, start, bias, first, out, to, pitch), codegen

    return tile


def dot_tile(rows: int, taps: int, lanes: int) -> Any:
    """``f(g, at, pitch, x, offsets, tap, count, out, to, step)``: a tile of scalar products.

    Adds to ``out[to + m step + j]``, for each row ``m`` and each of the ``taps`` taps ``j``, the
    sum over ``p < count`` of ``g[at + m pitch + p] x[offsets[tap + j] + p]``; ``count`` is a
    multiple of ``lanes``.
    """

    @intrinsic
    def tile(
        typingctx: Any,
        g: Any,
        at: Any,
        pitch: Any,
        x: Any,
        offsets: Any,
        tap: Any,
        count: Any,
        out: Any,
        to: Any,
        step: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            word = context.get_value_type(types.intp)
            g, x, offsets, out = (_data(context, builder, kinds[i], args[i]) for i in (0, 3, 4, 7))
            at, pitch, tap, count, to, step = (args[i] for i in (1, 2, 5, 6, 8, 9))
            kind = ir.VectorType(context.get_data_type(kinds[0].dtype), lanes)
            sums = _sums(builder, rows * taps, kind)
            starts = [builder.add(at, builder.mul(pitch, word(m))) for m in range(rows)]
            places = [
                builder.load(builder.gep(offsets, [builder.add(tap, word(j))])) for j in range(taps)
            ]
            steps = builder.udiv(count, word(lanes))
            with cgutils.for_range(builder, steps) as loop:
                p = builder.mul(loop.index, word(lanes))
                given = [_load(builder, g, builder.add(s, p), kind) for s in starts]
                for j in range(taps):
                    value = _load(builder, x, builder.add(places[j], p), kind)
                    for m in range(rows):
                        total = sums[m * taps + j]
                        result = _fma(builder, given[m], value, builder.load(total))
                        builder.store(result, total)
            for m in range(rows):
                row = builder.add(to, builder.mul(step, word(m)))
                for j in range(taps):
                    target = builder.gep(out, [builder.add(row, word(j))])
                    total = across(builder, builder.load(sums[m * taps + j]))
                    builder.store(builder.fadd(builder.load(target), total), target)
            return context.get_dummy_value()

        return types.void(g, at, pitch, x, offsets, tap, count, out, to, step), codegen

    return tile


def across(builder: Any, vector: ir.Value) -> ir.Value:
    """The sum of the elements of ``vector``, halves added to halves."""
    element = vector.type.element
    signature = ir.FunctionType(element, [element, vector.type])
    name = f"llvm.vector.reduce.fadd.{suffix(vector.type)}"
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, [element(-0.0), vector], fastmath=("reassoc",))


def copied(lanes: int) -> Any:
    """``f(out, to, x, at, count)``: ``out[to:to + count] = x[at:at + count]``, its end masked.

    For rows of some ten elements, where what LLVM makes of a loop (a call of ``memcpy``, or checks
    for overlap and a scalar rest) takes longer than the copying.
    """

    @intrinsic
    def copy(typingctx: Any, out: Any, to: Any, x: Any, at: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            word = context.get_value_type(types.intp)
            out = builder.gep(_data(context, builder, kinds[0], args[0]), [args[1]])
            x = builder.gep(_data(context, builder, kinds[2], args[2]), [args[3]])
            kind = ir.VectorType(context.get_data_type(kinds[0].dtype), lanes)
            whole = builder.udiv(args[4], word(lanes))
            with cgutils.for_range(builder, whole) as loop:
                p = builder.mul(loop.index, word(lanes))
                value = _load(builder, x, p, kind)
                builder.store(value, _vector_at(builder, out, p, kind), align=_size(kind))
            rest = builder.urem(args[4], word(lanes))
            with builder.if_then(builder.icmp_unsigned("!=", rest, word(0))):
                _copy_rest(builder, out, x, builder.mul(whole, word(lanes)), rest, kind)
            return context.get_dummy_value()

        return types.void(out, to, x, at, count), codegen

    return copy


def _copy_rest(
    builder: Any, out: ir.Value, x: ir.Value, at: ir.Value, count: ir.Value, kind: ir.Type
) -> None:
    """Copy ``count`` elements, fewer than a vector of ``kind`` has."""
    mask = below(builder, count, 0, kind)
    value = load_some(builder, _vector_at(builder, x, at, kind), mask)
    store_some(builder, value, _vector_at(builder, out, at, kind), mask)


def below(builder: Any, count: ir.Value, first: int, kind: ir.Type) -> ir.Value:
    """The mask of those elements of a vector that starts at ``first`` that are below ``count``."""
    short = ir.IntType(32)
    numbers = ir.VectorType(short, kind.count)
    limit = splat(builder, builder.trunc(count, short), numbers)
    places = ir.Constant(numbers, list(range(first, first + kind.count)))
    return builder.icmp_signed("<", places, limit)


def load_some(
    builder: Any, source: ir.Value, mask: ir.Value, others: ir.Value | None = None
) -> ir.Value:
    """The elements at ``source`` that ``mask`` has; of the ``others``, 0 unless they are given."""
    kind, short = source.type.pointee, ir.IntType(32)
    name = f"llvm.masked.load.{suffix(kind)}.p0"
    signature = ir.FunctionType(kind, [source.type, short, mask.type, kind])
    load = cgutils.get_or_insert_function(builder.module, signature, name)
    if others is None:
        others = ir.Constant(kind, [kind.element(0)] * kind.count)
    return builder.call(load, [source, short(_size(kind)), mask, others])


def store_some(builder: Any, value: ir.Value, target: ir.Value, mask: ir.Value) -> None:
    """Write the elements of ``value`` that ``mask`` has to ``target``."""
    kind, short = value.type, ir.IntType(32)
    name = f"llvm.masked.store.{suffix(kind)}.p0"
    signature = ir.FunctionType(ir.VoidType(), [kind, target.type, short, mask.type])
    store = cgutils.get_or_insert_function(builder.module, signature, name)
    builder.call(store, [value, target, short(_size(kind)), mask])


def byte_tile(lanes: int, places: int) -> Any:
    """An intrinsic: sums over taps of bytes times int32, for ``lanes`` channels of some places.

    For each of ``places`` p, ``out[to + p pitch + c]`` is the sum over the taps j of
    ``x[at + p step + offsets[j] + c] w[first + j row + c]``, with unsigned bytes ``x``. Sums wrap
    around.
    """

    @intrinsic
    def tile(
        typingctx: Any, x: Any, at: Any, step: Any, offsets: Any, w: Any, first: Any, row: Any,
        out: Any, to: Any, pitch: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            word, whole = context.get_value_type(types.intp), ir.IntType(32)
            x, offsets, w, out = (_data(context, builder, kinds[i], args[i]) for i in (0, 3, 4, 7))
            at, step, first, row, to, pitch = (args[i] for i in (1, 2, 5, 6, 8, 9))
            count = context.make_array(kinds[3])(context, builder, args[3]).nitems
            kind, narrow = ir.VectorType(whole, lanes), ir.VectorType(ir.IntType(8), lanes)
            zero = ir.Constant(kind, [0] * lanes)
            sums = [cgutils.alloca_once_value(builder, zero) for _ in range(places)]
            with cgutils.for_range(builder, count) as loop:
                offset = builder.add(at, builder.load(builder.gep(offsets, [loop.index])))
                place = builder.add(first, builder.mul(loop.index, row))
                factor = builder.load(_vector_at(builder, w, place, kind), align=4)
                for p in range(places):
                    given = builder.add(offset, builder.mul(step, word(p)))
                    value = builder.load(_vector_at(builder, x, given, narrow), align=1)
                    product = builder.mul(builder.zext(value, kind), factor)
                    builder.store(builder.add(builder.load(sums[p]), product), sums[p])
            for p in range(places):
                place = builder.add(to, builder.mul(pitch, word(p)))
                builder.store(builder.load(sums[p]), _vector_at(builder, out, place, kind), align=4)
            return context.get_dummy_value()

        n = types.intp
        return types.void(x, n, n, offsets, w, n, n, out, n, n), codegen

    return tile


def halved(lanes: int) -> Any:
    """``f(out, to, x, at, count)``: ``out[to:to + count] = x[at:at + 2 count - 1:2]``."""

    @intrinsic
    def copy(typingctx: Any, out: Any, to: Any, x: Any, at: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            word = context.get_value_type(types.intp)
            out = builder.gep(_data(context, builder, kinds[0], args[0]), [args[1]])
            x = builder.gep(_data(context, builder, kinds[2], args[2]), [args[3]])
            kind = ir.VectorType(context.get_data_type(kinds[0].dtype), lanes)
            evens = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(0, 2 * lanes, 2)))
            parts = builder.udiv(builder.add(args[4], word(lanes - 1)), word(lanes))
            with cgutils.for_range(builder, parts) as loop:
                done = builder.mul(loop.index, word(lanes))
                rest = builder.sub(args[4], done)
                needed = builder.sub(builder.add(rest, rest), word(1))
                place = builder.add(done, done)
                low, high = (
                    load_some(
                        builder,
                        _vector_at(builder, x, builder.add(place, word(first)), kind),
                        below(builder, needed, first, kind),
                    )
                    for first in (0, lanes)
                )
                value = builder.shuffle_vector(low, high, evens)
                target = _vector_at(builder, out, done, kind)
                store_some(builder, value, target, below(builder, rest, 0, kind))
            return context.get_dummy_value()

        return types.void(out, to, x, at, count), codegen

    return copy


def parted(lanes: int) -> Any:
    """``f(out, to, count, other, rest, x, at)``: the elements of a row by turns, to two places.

    ``out[to:to + count] = x[at::2]`` and ``out[other:other + rest] = x[at + 1::2]``.
    """

    @intrinsic
    def copy(
        typingctx: Any, out: Any, to: Any, count: Any, other: Any, rest: Any, x: Any, at: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            word = context.get_value_type(types.intp)
            out = _data(context, builder, kinds[0], args[0])
            x = builder.gep(_data(context, builder, kinds[5], args[5]), [args[6]])
            kind = ir.VectorType(context.get_data_type(kinds[0].dtype), lanes)
            counts, places = (args[2], args[4]), (args[1], args[3])
            ends = [
                builder.sub(builder.add(counts[0], counts[0]), word(1)),
                builder.add(counts[1], counts[1]),
            ]
            longer = builder.icmp_signed(">", *ends)
            end = builder.select(longer, *ends)
            parts = builder.sdiv(builder.add(end, word(2 * lanes - 1)), word(2 * lanes))
            with cgutils.for_range(builder, parts) as loop:
                done = builder.mul(loop.index, word(lanes))
                place = builder.add(done, done)
                needed = builder.sub(end, place)
                both = [
                    load_some(
                        builder,
                        _vector_at(builder, x, builder.add(place, word(first)), kind),
                        below(builder, needed, first, kind),
                    )
                    for first in (0, lanes)
                ]
                for side in range(2):
                    turns = [2 * i + side for i in range(lanes)]
                    mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), turns)
                    value = builder.shuffle_vector(*both, mask)
                    target = _vector_at(builder, out, builder.add(places[side], done), kind)
                    left = builder.sub(counts[side], done)
                    store_some(builder, value, target, below(builder, left, 0, kind))
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, n, n, n, x, n), codegen

    return copy


def turned(lanes: int) -> Any:
    """``f(out, to, pitch, x, at, step)``: a square block of ``lanes`` rows, transposed.

    ``out[to + j pitch + i] = x[at + i step + j]`` for all ``i, j < lanes``, a power of two. Blocks
    of 1, 2, 4 ... elements change places with those across the diagonal (Eklundh 1972).
    """

    @intrinsic
    def block(typingctx: Any, out: Any, to: Any, pitch: Any, x: Any, at: Any, step: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            word = context.get_value_type(types.intp)
            out, x = (_data(context, builder, kinds[i], args[i]) for i in (0, 3))
            kind = ir.VectorType(context.get_data_type(kinds[0].dtype), lanes)
            rows = [
                _load(builder, x, builder.add(args[4], builder.mul(args[5], word(i))), kind)
                for i in range(lanes)
            ]
            places = ir.VectorType(ir.IntType(32), lanes)
            size = 1
            while size < lanes:
                upper = [c if not c & size else lanes + c - size for c in range(lanes)]
                lower = [c + size if not c & size else lanes + c for c in range(lanes)]
                for i in range(lanes):
                    if not i & size:
                        pair = rows[i], rows[i + size]
                        rows[i], rows[i + size] = (
                            builder.shuffle_vector(*pair, ir.Constant(places, taken))
                            for taken in (upper, lower)
                        )
                size *= 2
            for j, row in enumerate(rows):
                place = builder.add(args[1], builder.mul(args[2], word(j)))
                builder.store(row, _vector_at(builder, out, place, kind), align=_size(kind))
            return context.get_dummy_value()

        n = types.intp
        return types.void(out, n, n, x, n, n), codegen

    return block
