"""Instructions that multiply narrow numbers and add up neighbours: two bfloat16 in 32 bits.

Intel's AVX512-BF16 takes 32 products in the time that AVX-512 needs for 16 of float32. It rounds
each sum to nearest, and takes subnormal numbers, also among the results, for zero.
"""

from __future__ import annotations

from functools import cache as memoized
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils
from numba.core.registry import cpu_target

__all__ = ["BFloat", "add_pairs", "features", "has_pairs"]

_LLVM = 17  # before, the operands of the instruction had other types


class BFloat(ir.Type):
    """LLVM's ``bfloat``, which llvmlite does not have."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


@memoized
def features() -> frozenset[str]:
    """What the processor that Numba compiles for has; ``NUMBA_CPU_FEATURES`` sets it."""
    given = str(cpu_target.target_context.codegen().magic_tuple()[-1]).split(",")
    return frozenset(name[1:] for name in given if name.startswith("+"))


def has_pairs() -> bool:
    """Whether :func:`add_pairs` can be compiled."""
    return {"avx512bf16", "avx512bw"} <= features() and binding.llvm_version_info[0] >= _LLVM


def add_pairs(builder: Any, x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
    """``total`` (16 float32) plus the products of ``x`` and ``y`` (16 pairs each)."""
    kind = ir.VectorType(BFloat(), 32)
    signature = ir.FunctionType(total.type, [total.type, kind, kind])
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, [total, builder.bitcast(x, kind), builder.bitcast(y, kind)])
