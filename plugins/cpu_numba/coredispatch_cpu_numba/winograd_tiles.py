"""Transforms of Winograd's convolution of 3 x 3 weights, with results in tiles of 4 x 4.

Results of one dimension are the coefficients of a product of polynomials, which its values at six
points determine: 0, 3/4, -3/4, 3/2, -3/2 and infinity. Lavin and Gray (2016) take 1 and 2 for 3/4
and 3/2. There, numbers grow more before they are subtracted from each other again, and errors are
three times as large. All factors of inputs and of results are exact in few bits.

A matrix element is a vector of channels. Addresses and distances are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as memoized
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .tiles import transposed, vector_bytes

__all__ = ["POINTS", "TILE", "filters", "outputs", "patches"]

POINTS, TILE, _PATCH, _TAPS = 36, 4, 6, 3
_A, _B = 0.75, 1.5
_WORD = ir.IntType(64)
_SIZE = 4
_Values = list[ir.Value]


class _Vectors:
    """Arithmetic of float32 vectors."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.kind = ir.VectorType(ir.FloatType(), vector_bytes() // _SIZE)

    def load(self, address: ir.Value) -> ir.Value:
        pointer = self.builder.inttoptr(address, self.kind.as_pointer())
        return self.builder.load(pointer, align=_SIZE)

    def store(self, value: ir.Value, address: ir.Value) -> None:
        pointer = self.builder.inttoptr(address, self.kind.as_pointer())
        self.builder.store(value, pointer, align=_SIZE)

    def all(self, number: float) -> ir.Value:
        return ir.Constant(self.kind, [number] * self.kind.count)

    def plus(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.fadd(x, y)

    def minus(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.fsub(x, y)

    def times(self, factor: float, x: ir.Value) -> ir.Value:
        return self.builder.fmul(self.all(factor), x)

    def fused(self, factor: float, x: ir.Value, total: ir.Value) -> ir.Value:
        """``factor * x + total``"""
        function = self.builder.module.declare_intrinsic(
            f"llvm.fmuladd.v{self.kind.count}f32",
            fnty=ir.FunctionType(self.kind, [self.kind] * 3),
        )
        return self.builder.call(function, [self.all(factor), x, total])


def _moved(builder: Any, base: ir.Value, distance: ir.Value, times: int) -> ir.Value:
    return builder.add(base, builder.mul(distance, _WORD(times))) if times else base


def _values_of_inputs(v: _Vectors, d: _Values) -> _Values:
    """Six values of six inputs: those of the interpolation's polynomials."""
    a, b = _A, _B
    even_a, odd_a = v.fused(-b * b, d[2], d[4]), v.fused(-b * b, d[1], d[3])
    even_b, odd_b = v.fused(-a * a, d[2], d[4]), v.fused(-a * a, d[1], d[3])
    both, product = -(a * a + b * b), a * a * b * b
    return [
        v.fused(product, d[0], v.fused(both, d[2], d[4])),
        v.fused(a, odd_a, even_a),
        v.fused(-a, odd_a, even_a),
        v.fused(b, odd_b, even_b),
        v.fused(-b, odd_b, even_b),
        v.fused(product, d[1], v.fused(both, d[3], d[5])),
    ]


def _values_of_weights(v: _Vectors, g: _Values) -> _Values:
    """Six values of three weights, over what the interpolation divides by."""
    values = [v.times(1 / (_A * _A * _B * _B), g[0])]
    for point, other in ((_A, _B), (_B, _A)):
        part = 1 / (2 * point * point * (point * point - other * other))
        even = v.fused(part * point * point, g[2], v.times(part, g[0]))
        values += [v.fused(sign * part * point, g[1], even) for sign in (1, -1)]
    return [*values, g[2]]


def _results(v: _Vectors, m: _Values) -> _Values:
    """Four results of six products."""
    plus_a, minus_a = v.plus(m[1], m[2]), v.minus(m[1], m[2])
    plus_b, minus_b = v.plus(m[3], m[4]), v.minus(m[3], m[4])
    return [
        v.plus(v.plus(m[0], plus_a), plus_b),
        v.fused(_B, minus_b, v.times(_A, minus_a)),
        v.fused(_B**2, plus_b, v.times(_A**2, plus_a)),
        v.fused(_B**3, minus_b, v.fused(_A**3, minus_a, m[5])),
    ]


def _both_ways(
    v: _Vectors, values: Callable[[_Vectors, _Values], _Values], columns: list[_Values]
) -> list[_Values]:
    """``values`` of each column, and then of each row of these: the result is rows."""
    made = [values(v, column) for column in columns]
    return [values(v, list(row)) for row in zip(*made, strict=True)]


@memoized
def patches() -> Any:
    """``patch(source, row, column, target, step)``: 36 values of 6 x 6 inputs, ``step`` apart."""

    @intrinsic
    def patch(typingctx: Any, source: Any, row: Any, column: Any, target: Any, step: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, row, column, target, step = args
            v = _Vectors(builder)
            lines = [_moved(builder, source, row, i) for i in range(_PATCH)]
            columns = [
                [v.load(_moved(builder, line, column, j)) for line in lines] for j in range(_PATCH)
            ]
            for i, values in enumerate(_both_ways(v, _values_of_inputs, columns)):
                for j, value in enumerate(values):
                    v.store(value, _moved(builder, target, step, i * _PATCH + j))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), codegen

    return patch


@memoized
def filters() -> Any:
    """``filter_(source, tap, target, step)``: 36 values of 3 x 3 weights, ``tap`` apart."""

    @intrinsic
    def filter_(typingctx: Any, source: Any, tap: Any, target: Any, step: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, tap, target, step = args
            v = _Vectors(builder)
            columns = [
                [v.load(_moved(builder, source, tap, i * _TAPS + j)) for i in range(_TAPS)]
                for j in range(_TAPS)
            ]
            for i, values in enumerate(_both_ways(v, _values_of_weights, columns)):
                for j, value in enumerate(values):
                    v.store(value, _moved(builder, target, step, i * _PATCH + j))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4), codegen

    return filter_


def _stored(builder: Any, row: ir.Value, address: ir.Value, mask: ir.Value | None) -> None:
    """Write four numbers, or those of a mask."""
    pointer = builder.inttoptr(address, row.type.as_pointer())
    if mask is None:
        builder.store(row, pointer, align=_SIZE)
        return
    word = ir.IntType(32)
    write = builder.module.declare_intrinsic(
        f"llvm.masked.store.v{TILE}f32.p0",
        fnty=ir.FunctionType(ir.VoidType(), [row.type, pointer.type, word, mask.type]),
    )
    builder.call(write, [row, pointer, word(_SIZE), mask])


@memoized
def outputs() -> Any:
    """``output(source, step, level, target, plane, row, channels, rows, columns, check)``.

    A tile of 4 x 4 results of each channel of a vector, to which the vector at ``level`` is added;
    each channel is written to a ``plane`` of its own. There are so many ``channels``, ``rows`` and
    ``columns``; what is beyond is not written. The vector at ``check`` becomes NaN where a result
    is not finite.
    """

    @intrinsic
    def output(
        typingctx: Any, source: Any, step: Any, level: Any, target: Any, plane: Any, row: Any,
        channels: Any, rows: Any, columns: Any, check: Any,
    ) -> Any:  # fmt: skip
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, step, level, target, plane, row, channels, rows, columns, check = args
            v = _Vectors(builder)
            lanes = v.kind.count
            given = [
                [v.load(_moved(builder, source, step, i * _PATCH + j)) for i in range(_PATCH)]
                for j in range(_PATCH)
            ]
            base = v.load(level)
            found = [v.plus(y, base) for line in _both_ways(v, _results, given) for y in line]
            sums = found
            while len(sums) > 1:
                sums = [v.plus(x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
            v.store(v.fused(0.0, sums[0], v.load(check)), check)
            turned = [
                transposed(builder, found[i : i + lanes]) for i in range(0, len(found), lanes)
            ]

            def distances(distance: ir.Value, count: ir.Value, most: int) -> _Values:
                last = builder.sub(count, _WORD(1))
                places = []
                for i in range(most):
                    there = builder.icmp_signed("<", _WORD(i), count)
                    index = builder.select(there, _WORD(i), last)
                    places.append(builder.mul(index, distance))
                return places

            planes, down = distances(plane, channels, lanes), distances(row, rows, TILE)

            def write(mask: ir.Value | None) -> None:
                """What does not exist goes where the last thing does, which is written later."""
                for c in reversed(range(lanes)):
                    line = builder.add(target, planes[c])
                    for i in reversed(range(TILE)):
                        four = turned[i * TILE // lanes][c]
                        begin = i * TILE % lanes
                        places = [ir.IntType(32)(begin + j) for j in range(TILE)]
                        mask_of = ir.Constant(ir.VectorType(ir.IntType(32), TILE), places)
                        four = builder.shuffle_vector(four, four, mask_of)
                        _stored(builder, four, builder.add(line, down[i]), mask)

            with builder.if_else(builder.icmp_signed("==", columns, _WORD(TILE))) as (whole, part):
                with whole:
                    write(None)
                with part:
                    kind = ir.VectorType(_WORD, TILE)
                    one = builder.insert_element(
                        ir.Constant(kind, ir.Undefined), columns, ir.IntType(32)(0)
                    )
                    none = ir.Constant(ir.VectorType(ir.IntType(32), TILE), None)
                    all_ = builder.shuffle_vector(one, one, none)
                    write(builder.icmp_signed("<", ir.Constant(kind, list(range(TILE))), all_))
            return context.get_dummy_value()

        return types.void(*[types.intp] * 10), codegen

    return output
