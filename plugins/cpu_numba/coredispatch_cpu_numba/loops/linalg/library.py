"""Products of matrices by a BLAS: blocks of the result, each one call of ``gemm``."""

from __future__ import annotations

from collections.abc import Callable

from coredispatch_cpu_numba.atomics import address_of
from coredispatch_cpu_numba.blas_calls import gemm
from coredispatch_cpu_numba.compilation import Loop

__all__ = ["LOOPS"]


def _product(char: str) -> Callable[..., None]:
    multiply, size = gemm(char == "d"), 8 if char == "d" else 4

    def loop(
        function, a, b, out, a_turned, b_turned, rows, depth, columns, kept, tall, wide, lo, hi
    ):
        across = (columns + wide - 1) // wide
        down = (rows + tall - 1) // tall
        left, right, result = address_of(a), address_of(b), address_of(out)
        for block in range(lo, hi):
            matrix, place = block // (across * down), block % (across * down)
            i, j = place // across * tall, place % across * wide
            step_a, leading_a = (1, rows) if a_turned else (depth, depth)
            step_b, leading_b = (depth, depth) if b_turned else (1, columns)
            multiply(
                function,
                a_turned,
                b_turned,
                min(tall, rows - i),
                min(wide, columns - j),
                depth,
                left + size * (matrix * rows * depth + i * step_a),
                leading_a,
                right + size * (matrix * depth * columns + j * step_b),
                leading_b,
                kept,
                result + size * ((matrix * rows + i) * columns + j),
                columns,
            )

    return loop


LOOPS: dict[str, Loop] = {"product": Loop("naaannnnnnnn", _product)}
