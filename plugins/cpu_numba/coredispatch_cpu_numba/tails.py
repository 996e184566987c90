"""Rows whose last elements fill no whole vector.

LLVM takes what its vectors leave over one by one: of a row of 319 float32, 15 exponentials took
longer than the 304 before them. Here they are brought into *room*, an array of whole vectors,
filled up with something harmless, and go through the loop that the vectors went through.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .atomics import array_at, stack_words
from .elementary.inlined import inlined
from .vectors import below, load_some, machine, splat, store_some, suffix

__all__ = ["CHAINS", "Tail", "fold_of", "larger", "tail_of", "vectorwise_of"]

#: vectors that are worked on side by side: the processor does not wait for one before the next
CHAINS = 4


class Tail(NamedTuple):
    """What compiled code needs for the tails of rows of one dtype."""

    #: elements of a room
    lanes: int
    #: ``room()``: an array of as many, which lasts until the caller returns
    room: Any
    #: ``bring(room, row, start, filler)``: ``row[start:]``, which is shorter than ``room``
    bring: Any
    #: ``put_back(row, start, room)``: what of ``room`` has a place in ``row[start:]``
    put_back: Any


@memoized
def tail_of(char: str, vectors: int = 1) -> Tail:
    """The functions for dtype ``char``, ``f`` or ``d``, and rooms of so many vectors."""
    lanes, dtype = machine().lanes(char), np.dtype(char).type
    count = lanes * vectors
    reserve = stack_words(count * np.dtype(char).itemsize // 8)

    @inlined
    def room():
        return array_at(reserve(), count, dtype)

    return Tail(count, room, *_moves(lanes, vectors))


def _array(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.make_array(kind)(context, builder, value)


def _at(builder: Any, array: Any, index: ir.Value, lanes: int) -> ir.Value:
    """The place of the vector that begins at ``index``."""
    vector = ir.VectorType(array.data.type.pointee, lanes)
    return builder.bitcast(builder.gep(array.data, [index]), vector.as_pointer())


def _moves(lanes: int, vectors: int) -> tuple[Any, Any]:
    """``bring`` and ``put_back``: loads and stores of the lanes that a mask has."""

    def places(context: Any, builder: Any, row: Any, room: Any, start: ir.Value) -> Any:
        """Where vectors begin in ``row`` and in ``room``, and the masks of what is in the row."""
        row, room = (_array(context, builder, *pair) for pair in (row, room))
        left = builder.sub(row.nitems, start)
        for first in range(0, lanes * vectors, lanes):
            word = start.type(first)
            at = _at(builder, row, builder.add(start, word), lanes)
            mask = below(builder, left, first, at.type.pointee)
            yield at, _at(builder, room, word, lanes), mask

    @intrinsic
    def bring(typingctx: Any, room: Any, row: Any, start: Any, filler: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            into, given, *_ = zip(signature.args, args, strict=True)
            for at, to, mask in places(context, builder, given, into, args[2]):
                rest = splat(builder, args[3], at.type.pointee)
                builder.store(load_some(builder, at, mask, rest), to, align=8)
            return context.get_dummy_value()

        return types.void(room, row, types.intp, row.dtype), codegen

    @intrinsic
    def put_back(typingctx: Any, row: Any, start: Any, room: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            into, _, given = zip(signature.args, args, strict=True)
            for to, at, mask in places(context, builder, into, given, args[1]):
                store_some(builder, builder.load(at, align=8), to, mask)
            return context.get_dummy_value()

        return types.void(row, types.intp, room), codegen

    return bring, put_back


def vectorwise_of(char: str, vectors: int, arity: int, compute: Callable[..., Any]) -> Any:
    """An intrinsic: ``out[:] = compute(*inputs)``, arrays of so many whole vectors each.

    ``compute`` takes LLVM's builder and a vector of each of the ``arity`` inputs. For loops of so
    few instructions that LLVM unrolls them before it looks for vectors, and then finds none.
    """
    lanes = machine().lanes(char)

    def write(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out, *inputs = (
            _array(context, builder, *pair) for pair in zip(signature.args, args, strict=True)
        )
        size = context.get_abi_sizeof(out.data.type.pointee)
        for first in range(0, lanes * vectors, lanes):
            places = [_at(builder, x, out.nitems.type(first), lanes) for x in (*inputs, out)]
            values = [builder.load(place, align=size) for place in places[:-1]]
            builder.store(compute(builder, *values), places[-1], align=size)
        return context.get_dummy_value()

    if arity == 2:

        def two(typingctx: Any, out: Any, x: Any, y: Any) -> Any:
            return types.void(out, x, y), write

        return intrinsic(two)

    def three(typingctx: Any, out: Any, x: Any, y: Any, z: Any) -> Any:
        return types.void(out, x, y, z), write

    return intrinsic(three)


def larger(builder: Any, one: ir.Value, other: ir.Value) -> ir.Value:
    """The larger number of each pair, the first where one is NaN."""
    return builder.select(builder.fcmp_ordered(">", other, one), other, one)


def _sum(builder: Any, one: ir.Value, other: ir.Value) -> ir.Value:
    return builder.fadd(one, other)


def _extreme(operation: str) -> Callable[..., ir.Value]:
    def combine(builder: Any, one: ir.Value, other: ir.Value) -> ir.Value:
        kind = ir.FunctionType(one.type, [one.type] * 2)
        name = f"llvm.{operation}.{suffix(one.type)}"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        return builder.call(function, [one, other], fastmath=("nsz",))

    return combine


def _itself(builder: Any, value: ir.Value) -> ir.Value:
    return value


def _square(builder: Any, value: ir.Value) -> ir.Value:
    return builder.fmul(value, value)


def _magnitude(builder: Any, value: ir.Value) -> ir.Value:
    kind = ir.FunctionType(value.type, [value.type])
    name = f"llvm.fabs.{suffix(value.type)}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [value])


#: how two vectors are combined, what changes none, and what is done to elements before
_FOLDS: dict[str, tuple[Callable[..., ir.Value], float, Callable[..., ir.Value]]] = {
    "sum": (_sum, 0.0, _itself),
    "amax": (_extreme("maximum"), -np.inf, _itself),
    "amin": (_extreme("minimum"), np.inf, _itself),
    "top": (larger, -np.inf, _itself),
    "squares": (_sum, 0.0, _square),
    "magnitudes": (_sum, 0.0, _magnitude),
    "magnitude": (_extreme("maximum"), 0.0, _magnitude),
}


@memoized
def fold_of(char: str, name: str) -> Any:
    """An intrinsic of an array: its ``sum``, ``amax``, ``amin`` or ``top``; the sum of its
    ``squares`` or ``magnitudes``, or its largest ``magnitude``.

    ``amax`` and ``amin`` are NaN where an element is; ``top`` is the largest of the numbers, in
    fewer instructions, for those who see NaN in what they do next. Vectors are combined in an order
    that depends on their number only.
    """
    lanes = machine().lanes(char)
    combine, neutral, prepare = _FOLDS[name]

    @intrinsic
    def fold(typingctx: Any, block: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = _array(context, builder, signature.args[0], args[0])
            word = array.nitems.type
            vector = ir.VectorType(array.data.type.pointee, lanes)
            size = context.get_abi_sizeof(vector.element)
            start = ir.Constant(vector, [neutral] * lanes)
            chains = [cgutils.alloca_once_value(builder, start) for _ in range(CHAINS)]
            for chain in chains:  # as often as this stands in a loop
                builder.store(start, chain)

            def add(chain: ir.Value, value: ir.Value) -> None:
                builder.store(combine(builder, builder.load(chain), value), chain)

            def take(chain: ir.Value, index: ir.Value) -> None:
                value = builder.load(_at(builder, array, index, lanes), align=size)
                add(chain, prepare(builder, value))

            step = lanes * CHAINS
            most, whole = (builder.and_(array.nitems, word(-count)) for count in (step, lanes))
            with cgutils.for_range_slice(builder, word(0), most, word(step)) as (i, _):
                for number, chain in enumerate(chains):
                    take(chain, builder.add(i, word(number * lanes)))
            with cgutils.for_range_slice(builder, most, whole, word(lanes)) as (i, _):
                take(chains[0], i)
            with builder.if_then(builder.icmp_signed("<", whole, array.nitems)):
                mask = below(builder, builder.sub(array.nitems, whole), 0, vector)
                rest = load_some(builder, _at(builder, array, whole, lanes), mask, start)
                add(chains[1], prepare(builder, rest))
            for one, other in ((0, 1), (2, 3), (0, 2)):
                add(chains[one], builder.load(chains[other]))
            result, count = builder.load(chains[0]), lanes
            while count > 1:  # halves onto halves
                count //= 2
                halves = (
                    builder.shuffle_vector(
                        result, result, ir.Constant(ir.VectorType(ir.IntType(32), count), places)
                    )
                    for places in (list(range(count)), list(range(count, 2 * count)))
                )
                result = combine(builder, *halves)
            return builder.extract_element(result, word(0))

        return block.dtype(block), codegen

    return fold
