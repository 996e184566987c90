"""Calls of BLAS' C functions at addresses, from compiled code."""

from __future__ import annotations

from functools import cache as memoized
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["PLAIN", "ROW_MAJOR", "TURNED", "gemm"]

ROW_MAJOR, PLAIN, TURNED = 101, 111, 112  # CBLAS_ORDER, CBLAS_TRANSPOSE


@memoized
def gemm(double: bool) -> Any:
    """An intrinsic that calls ``gemm``: ``out = a @ b``, ``out += a @ b`` where ``kept`` is 1.

    ``multiply(function, a_turned, b_turned, rows, columns, depth, a, leading_a, b, leading_b, kept,
    out, leading_out)``; all are integers, matrices the addresses of their first elements.
    """
    word, flag, real = ir.IntType(64), ir.IntType(32), ir.DoubleType() if double else ir.FloatType()

    @intrinsic
    def multiply(
        typingctx: Any,
        function: Any,
        a_turned: Any,
        b_turned: Any,
        rows: Any,
        columns: Any,
        depth: Any,
        a: Any,
        leading_a: Any,
        b: Any,
        leading_b: Any,
        kept: Any,
        out: Any,
        leading_out: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            function, a_turned, b_turned, m, n, k, a, lda, b, ldb, kept, c, ldc = args

            def turned(given: Any) -> Any:
                chosen = builder.icmp_signed("!=", given, word(0))
                return builder.select(chosen, flag(TURNED), flag(PLAIN))

            given = [flag(ROW_MAJOR), turned(a_turned), turned(b_turned), m, n, k, real(1.0)]
            given += [a, lda, b, ldb, builder.sitofp(kept, real), c, ldc]
            kind = ir.FunctionType(ir.VoidType(), [x.type for x in given])
            builder.call(builder.inttoptr(function, kind.as_pointer()), given)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 13), codegen

    return multiply
