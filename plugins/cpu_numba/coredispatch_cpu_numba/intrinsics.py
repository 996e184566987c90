"""LLVM operations that Numba does not offer on scalars, each of which still vectorizes.

They are written for one element; LLVM's loop vectorizer widens them with the loop around
them. ``T`` below is float32 or float64, and stays what it was: Numba's own integer arithmetic
would promote 32-bit patterns to 64 bits and halve the vector.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = [
    "choose",
    "copysign",
    "fabs",
    "floor",
    "fma",
    "frexp",
    "full_vectors",
    "fused",
    "largest",
    "ldexp_downward",
    "ldexp_shifted",
    "neighbour",
    "polynomial",
    "raised",
    "rint",
    "rint_shift",
    "smallest",
]

# Adding 1.5 * 2**(mantissa bits) to a small number rounds it to an integer, and leaves that
# integer in the low bits of the sum. Unlike a float-to-int conversion it is defined for NaN.
_SHIFT = {types.float32: 12582912.0, types.float64: 6755399441055744.0}
_SHIFT_BITS = {types.float32: 0x4B400000, types.float64: 0x4338000000000000}
# mantissa bits, exponent bias, bits of sqrt(0.5), smallest normal, scale of subnormals
_FORMAT = {
    types.float32: (23, 127, 0x3F3504F3, 2.0**-126, 25),
    types.float64: (52, 1023, 0x3FE6A09E667F3BCD, 2.0**-1022, 54),
}


def _has_avx512(context: Any) -> bool:
    features = context.codegen().magic_tuple()[-1]
    return "+avx512f" in str(features).split(",")


@intrinsic
def full_vectors(typingctx: Any) -> Any:
    """Compile the function this stands in with 512-bit vectors where the CPU has AVX-512.

    LLVM prefers 256 bits on some AVX-512 CPUs. The attribute concerns this one function and
    leaves Numba's global ``CPU_FEATURES`` alone. exp over 10,000 float32 on Zen 4: 2.4 us with
    512 bits, 3.3 us with 256. The function is also kept out of line: inlined into a
    ``prange`` body it would lose the attribute.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        attributes = builder.function.attributes
        attributes.add("noinline")
        if _has_avx512(context):
            # llvmlite checks names against a list of enum attributes; this one is a string.
            set.add(attributes, '"prefer-vector-width"="512"')
            # Without a frame pointer the stack is aligned to 16 bytes, and each vector that is put
            # there for a while lies across two lines of the cache.
            set.add(attributes, '"frame-pointer"="all"')
        return context.get_dummy_value()

    return types.void(), codegen


def _call(builder: Any, name: str, args: Any, flags: tuple[str, ...] = ()) -> ir.Value:
    suffix = {"float": "f32", "double": "f64"}[str(args[0].type)]
    signature = ir.FunctionType(args[0].type, [a.type for a in args])
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.{name}.{suffix}")
    return builder.call(function, args, fastmath=flags)


def _elementwise(name: str, arity: int, doc: str, flags: tuple[str, ...] = ()) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, name, args, flags)

    if arity == 1:

        def typer1(typingctx: Any, x: Any) -> Any:
            return x(x), codegen

        typer = typer1
    elif arity == 2:

        def typer2(typingctx: Any, x: Any, y: Any) -> Any:
            return x(x, x), codegen

        typer = typer2
    else:

        def typer3(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
            return x(x, x, x), codegen

        typer = typer3
    typer.__doc__ = doc
    return intrinsic(typer)


floor = _elementwise("floor", 1, "The largest whole number up to ``x``.")
rint = _elementwise("rint", 1, "The nearest whole number, midpoints to even.")
fabs = _elementwise("fabs", 1, "``|x|``, the sign bit cleared (also of NaN and -0.0).")
copysign = _elementwise("copysign", 2, "``|x|`` with the sign bit of ``y``.")
largest = _elementwise(
    "maximum", 2, "The larger; NaN if either is. Of 0.0 and -0.0 either one (nsz).", ("nsz",)
)
smallest = _elementwise(
    "minimum", 2, "The smaller; NaN if either is. Of 0.0 and -0.0 either one (nsz).", ("nsz",)
)
fma = _elementwise("fmuladd", 3, "``x * y + z``, fused where the CPU has the instruction.")
fused = _elementwise("fma", 3, "``x * y + z``, rounded once on every CPU.")


@intrinsic
def choose(typingctx: Any, condition: Any, x: Any, y: Any) -> Any:
    """``x if condition else y`` without a branch, where LLVM would rather jump over a load."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first, second = args[1:]
        bit = args[0]
        if bit.type != ir.IntType(1):
            bit = builder.icmp_unsigned("!=", bit, bit.type(0))
        return builder.select(bit, first, second)

    return y(types.boolean, y, y), codegen


@intrinsic
def neighbour(typingctx: Any, x: Any, y: Any) -> Any:
    """The next number from ``x`` towards ``y``; ``y`` where they are equal, NaN if either is."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, y = args
        word = ir.IntType(context.get_abi_sizeof(x.type) * 8)
        bits, sign = builder.bitcast(x, word), word(1 << (word.width - 1))
        zero = x.type(0.0)
        upward = builder.fcmp_ordered("<", x, y)
        positive = builder.fcmp_ordered(">", x, zero)
        same = builder.icmp_unsigned("==", upward, positive)
        step = builder.select(same, word(1), word(-1))
        smallest = builder.or_(builder.and_(builder.bitcast(y, word), sign), word(1))
        nothing = builder.fcmp_ordered("==", x, zero)
        moved = builder.select(nothing, smallest, builder.add(bits, step))
        result = builder.select(builder.fcmp_ordered("==", x, y), y, builder.bitcast(moved, x.type))
        return builder.select(builder.fcmp_unordered("uno", x, y), builder.fadd(x, y), result)

    return x(x, x), codegen


def polynomial(*coefficients: float) -> Any:
    """A compiled ``c0 + c1 x + c2 x^2 + ...`` by Horner's rule, in the precision of ``x``.

    Coefficients are rounded to the type of ``x``; each step is one fused multiply-add where
    the CPU has it. Unrolling of the loop around it, not Estrin's scheme, fills the pipeline.
    """

    @intrinsic
    def evaluate(typingctx: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            (x,) = args
            result = x.type(coefficients[-1])
            for coefficient in coefficients[-2::-1]:
                result = _call(builder, "fmuladd", [result, x, x.type(coefficient)])
            return result

        return x(x), codegen

    return evaluate


@intrinsic
def rint_shift(typingctx: Any, x: Any, scale: Any) -> Any:
    """``x * scale + shift``: its low bits hold ``rint(x * scale)``, ``|x * scale| < 2**21``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shift = args[0].type(_SHIFT[signature.args[0]])
        product = _call(builder, "fmuladd", [args[0], args[1], shift])
        return cgutils.pack_array(builder, [product, builder.fsub(product, shift)])

    return types.UniTuple(x, 2)(x, x), codegen


def _ldexp(downward: bool) -> Any:
    @intrinsic
    def ldexp(typingctx: Any, x: Any, shifted: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, shifted = args
            mantissa, bias, *_ = _FORMAT[signature.args[0]]
            word = ir.IntType(context.get_abi_sizeof(x.type) * 8)
            k = builder.sub(builder.bitcast(shifted, word), word(_SHIFT_BITS[signature.args[0]]))
            if _has_avx512(context):
                i32 = ir.IntType(32)
                narrow = builder.trunc(k, i32) if word.width > 32 else k
                name = f"llvm.ldexp.{'f32' if word.width == 32 else 'f64'}.i32"
                ldexp = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(x.type, [x.type, i32]), name
                )
                return builder.call(ldexp, [x, narrow])

            def scaled(x: Any, k: Any, above: int) -> Any:
                power = builder.shl(builder.add(k, word(bias + above)), word(mantissa))
                return builder.fmul(x, builder.bitcast(power, x.type))

            if downward:
                up = (bias + 1) // 2
                return builder.fmul(scaled(x, k, up), ir.Constant(x.type, 2.0**-up))
            half = builder.ashr(k, word(1))
            return scaled(scaled(x, half, 0), builder.sub(k, half), 0)

        return x(x, x), codegen

    return ldexp


#: ``x * 2**k`` with ``k`` the integer in the low bits of ``rint_shift``'s first result. It rounds
#: once for subnormal results where AVX-512 has the instruction; elsewhere it multiplies by
#: ``2**(k//2)`` and ``2**(k - k//2)``, of which only the last can round.
ldexp_shifted = _ldexp(downward=False)
#: The same where ``k`` is not above 0 and ``x`` near 1, in half the instructions: ``k`` is raised
#: into the range of normal numbers, and what it was raised by multiplied off.
ldexp_downward = _ldexp(downward=True)


@intrinsic
def raised(typingctx: Any, x: Any, shifted: Any) -> Any:
    """``x * 2**k``, ``k`` as in :data:`ldexp_shifted`, where both are normal numbers.

    ``k`` is added to the exponent of ``x``.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, shifted = args
        word = ir.IntType(context.get_abi_sizeof(x.type) * 8)
        mantissa = _FORMAT[signature.args[0]][0]
        # what stands above k is shifted out
        power = builder.shl(builder.bitcast(shifted, word), word(mantissa))
        return builder.bitcast(builder.add(builder.bitcast(x, word), power), x.type)

    return x(x, x), codegen


def _turning(quarters: int) -> Any:
    @intrinsic
    def turned(typingctx: Any, shifted: Any, sine: Any, cosine: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            shifted, sine, cosine = args
            word = ir.IntType(context.get_abi_sizeof(sine.type) * 8)
            turn = builder.add(builder.bitcast(shifted, word), word(quarters))
            odd = builder.icmp_unsigned("!=", builder.and_(turn, word(1)), word(0))
            value = builder.bitcast(builder.select(odd, cosine, sine), word)
            sign = builder.shl(builder.and_(turn, word(2)), word(word.width - 2))
            return builder.bitcast(builder.xor(value, sign), sine.type)

        return sine(sine, sine, sine), codegen

    turned.__doc__ = (
        f"The sine, {quarters} quarters of a turn on, of an angle of ``n`` quarters and a rest: "
        "``n`` is in the low bits of ``rint_shift``'s first result, then sine and cosine of the "
        "rest."
    )
    return turned


sine_of_quarters, cosine_of_quarters = _turning(0), _turning(1)


@intrinsic
def frexp(typingctx: Any, x: Any) -> Any:
    """``(m, e)`` with ``x == m * 2**e`` and ``sqrt(0.5) <= m < sqrt(2)``, both of type ``T``.

    For finite ``x > 0``, subnormals included; other inputs give unspecified numbers.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (x,) = args
        mantissa, _, root_half, smallest, lift = _FORMAT[signature.args[0]]
        word = ir.IntType(context.get_abi_sizeof(x.type) * 8)
        small = builder.fcmp_ordered("<", x, x.type(smallest))
        lifted = builder.fmul(x, x.type(2.0**lift))
        bits = builder.bitcast(builder.select(small, lifted, x), word)
        offset = builder.sub(bits, word(root_half))
        exponent = builder.ashr(offset, word(mantissa))
        if word.width > 32:  # int32 to double has a vector instruction everywhere
            exponent = builder.trunc(exponent, ir.IntType(32))
        e = builder.sitofp(exponent, x.type)
        e = builder.fsub(e, builder.select(small, x.type(float(lift)), x.type(0.0)))
        fraction = builder.and_(offset, word((1 << mantissa) - 1))
        m = builder.bitcast(builder.add(fraction, word(root_half)), x.type)
        return cgutils.pack_array(builder, [m, e])

    return types.UniTuple(x, 2)(x), codegen
