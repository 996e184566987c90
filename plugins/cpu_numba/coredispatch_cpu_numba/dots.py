"""Instructions that multiply narrow numbers and add up neighbours: those that share 32 bits.

Two bfloat16: Intel's AVX512-BF16 takes 32 products in the time that AVX-512 needs for 16 of
float32. It rounds each sum to nearest, and takes subnormal numbers, also among the results, for
zero.

Bytes, unsigned times signed, to sums of 32 bits that wrap around: four where the processor has VNNI
(AVX512-VNNI, AVX-VNNI), whose ``vpdpbusd`` does not saturate. Elsewhere two, widened to 16 bits:
``vpmaddwd`` is exact, as two products of at most ``255 * 128`` fit 32 bits. ``vpmaddubsw``, which
takes bytes, adds them in 16 bits, where two such products saturate.
"""

from __future__ import annotations

from functools import cache as memoized
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils
from numba.core.registry import cpu_target

__all__ = [
    "BFloat",
    "add_bytes",
    "add_pairs",
    "features",
    "has_pairs",
    "has_quads",
    "vector_bytes",
]

_LLVM = 17  # before, the operands of the instruction had other types
_LLVM_OF_BYTES = 22  # before, the operands of vpdpbusd were vectors of 32 bits
_MULTIPLY_ADD = {
    64: ("avx512bw", "avx512.pmaddw.d.512"),
    32: ("avx2", "avx2.pmadd.wd"),
    16: ("sse2", "sse2.pmadd.wd"),
}


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


@memoized
def vector_bytes() -> int:
    """How wide the vector registers are; 16 bytes are everywhere."""
    return 64 if "avx512f" in features() else 32 if "avx2" in features() else 16


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


def has_quads() -> bool:
    """Whether :func:`add_bytes` takes four bytes of each factor in 32 bits, not two of 16 bits."""
    return {64: "avx512vnni", 32: "avxvnni"}.get(vector_bytes(), "") in features()


def add_bytes(builder: Any, x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
    """``total`` plus the products of ``x`` (unsigned) and ``y`` (signed), each 32 bits of either.

    All three are vectors of as many 32-bit numbers as a register holds.
    """
    lanes = total.type.count
    if has_quads():
        modern = binding.llvm_version_info[0] >= _LLVM_OF_BYTES
        kind = ir.VectorType(ir.IntType(8), 4 * lanes) if modern else total.type
        signature = ir.FunctionType(total.type, [total.type, kind, kind])
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        function = cgutils.get_or_insert_function(builder.module, signature, name)
        return builder.call(function, [total, builder.bitcast(x, kind), builder.bitcast(y, kind)])
    kind = ir.VectorType(ir.IntType(16), 2 * lanes)
    x, y = builder.bitcast(x, kind), builder.bitcast(y, kind)
    feature, name = _MULTIPLY_ADD[4 * lanes]
    if feature in features():
        signature = ir.FunctionType(total.type, [kind, kind])
        function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.x86.{name}")
        return builder.add(total, builder.call(function, [x, y]))
    for first in range(2):
        places = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(first, 2 * lanes, 2)))
        a, b = (builder.sext(builder.shuffle_vector(z, z, places), total.type) for z in (x, y))
        total = builder.add(total, builder.mul(a, b))
    return total
