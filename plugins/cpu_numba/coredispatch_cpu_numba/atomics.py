"""Atomic memory access, futexes and calls through pointers, on plain integer addresses.

What ``threads`` is made of. All atomics are sequentially consistent 64-bit operations.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = [
    "address_of",
    "array_at",
    "atomic_add",
    "atomic_load",
    "atomic_store",
    "borrowed_array",
    "call",
    "compare_exchange",
    "cycles",
    "futex_wait",
    "futex_wake",
    "pause",
    "sched_getcpu",
    "sched_setaffinity",
    "sched_yield",
    "stack_words",
    "unpacked",
]

_i64 = ir.IntType(64)
_LINE = 8  # words of a cache line
_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}.get(platform.machine(), -1)
_WAIT_PRIVATE, _WAKE_PRIVATE = 128, 129
# the instruction that tells the CPU that this is a spin loop, and its operand
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause", None), "aarch64": ("llvm.aarch64.hint", 1)}


def _pointer(builder: Any, address: ir.Value, to: ir.Type = _i64) -> ir.Value:
    return builder.inttoptr(address, to.as_pointer())


@intrinsic
def atomic_load(typingctx: Any, address: Any) -> Any:
    """The word at ``address``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "seq_cst", 8)

    return types.intp(types.intp), codegen


@intrinsic
def atomic_store(typingctx: Any, address: Any, value: Any) -> Any:
    """Write ``value`` to ``address``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


@intrinsic
def atomic_add(typingctx: Any, address: Any, value: Any) -> Any:
    """Add ``value`` to the word at ``address``; returns what was there before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.intp(types.intp, types.intp), codegen


@intrinsic
def compare_exchange(typingctx: Any, address: Any, expected: Any, value: Any) -> Any:
    """Replace ``expected`` at ``address`` with ``value``; False if something else was there."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.intp, types.intp, types.intp), codegen


@intrinsic
def pause(typingctx: Any) -> Any:
    """Tell the CPU that this is a spin loop."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name, operand = _PAUSE.get(platform.machine(), (None, None))
        if name:
            operands = [] if operand is None else [ir.IntType(32)(operand)]
            _external(builder, name, operands, ir.VoidType())
        return context.get_dummy_value()

    return types.void(), codegen


def _external(builder: Any, name: str, args: list[ir.Value], result: ir.Type) -> ir.Value:
    signature = ir.FunctionType(result, [a.type for a in args])
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, args)


def _futex(builder: Any, address: ir.Value, operation: int, value: ir.Value) -> None:
    zero = _i64(0)
    arguments = [_i64(_FUTEX), address, _i64(operation), value, zero, zero, zero]
    _external(builder, "syscall", arguments, _i64)


@intrinsic
def futex_wait(typingctx: Any, address: Any, expected: Any) -> Any:
    """Sleep while the low 32 bits at ``address`` are ``expected``; may wake for no reason."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _futex(builder, args[0], _WAIT_PRIVATE, args[1])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


@intrinsic
def futex_wake(typingctx: Any, address: Any, count: Any) -> Any:
    """Wake up to ``count`` threads that sleep on ``address``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _futex(builder, args[0], _WAKE_PRIVATE, args[1])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


@intrinsic
def cycles(typingctx: Any) -> Any:
    """The CPU's time stamp, a few per nanosecond."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _external(builder, "llvm.readcyclecounter", [], _i64)

    return types.intp(), codegen


@intrinsic
def sched_yield(typingctx: Any) -> Any:
    """Let another thread have this CPU."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _external(builder, "sched_yield", [], ir.IntType(32))
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def sched_getcpu(typingctx: Any) -> Any:
    """The number of the CPU that runs this."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(_external(builder, "sched_getcpu", [], ir.IntType(32)), _i64)

    return types.intp(), codegen


@intrinsic
def sched_setaffinity(typingctx: Any, thread: Any, size: Any, mask: Any) -> Any:
    """Confine a thread to the CPUs whose bits are set in the ``size`` bytes at ``mask``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        _external(
            builder, "sched_setaffinity", [builder.trunc(args[0], i32), args[1], args[2]], i32
        )
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@intrinsic
def call(typingctx: Any, function: Any, arguments: Any, lo: Any, hi: Any) -> Any:
    """Call the C function ``intptr_t function(intptr_t, intptr_t, intptr_t)`` at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_i64, [_i64] * 3)
        return builder.call(_pointer(builder, args[0], kind), args[1:])

    return types.intp(*[types.intp] * 4), codegen


def stack_words(count: int) -> Any:
    """A compiled function that reserves ``count`` words in its caller's stack frame."""

    @intrinsic
    def reserve(typingctx: Any) -> Any:
        """The address of the words; they last until the caller returns."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            words = cgutils.alloca_once(builder, ir.ArrayType(_i64, count))
            if count >= _LINE:
                words.align = 8 * _LINE  # so that no vector lies on two cache lines
            return builder.ptrtoint(words, _i64)

        return types.intp(), codegen

    return reserve


@intrinsic
def address_of(typingctx: Any, array: Any) -> Any:
    """The address of the first element of an array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, _i64)

    return types.intp(array), codegen


@intrinsic
def array_at(typingctx: Any, address: Any, size: Any, like: Any) -> Any:
    """A one-dimensional array of ``size`` elements at ``address``, of the dtype ``like``.

    It borrows the memory.
    """
    result = types.Array(like.dtype, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return borrowed_array(context, builder, result, args[0], args[1])

    return result(types.intp, types.intp, like), codegen


def borrowed_array(context: Any, builder: Any, kind: Any, address: ir.Value, size: ir.Value) -> Any:
    """An array of ``size`` elements at ``address``, without an owner: nobody counts references."""
    intp = context.get_value_type(types.intp)
    array = context.make_array(kind)(context, builder)
    itemsize = intp(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    array.data = builder.inttoptr(address, array.data.type)
    array.nitems = size
    array.itemsize = itemsize
    array.shape = cgutils.pack_array(builder, [size])
    array.strides = cgutils.pack_array(builder, [itemsize])
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    array.parent = cgutils.get_null_value(array.parent.type)
    return array._getvalue()


def unpacked(*kinds: types.Type) -> Any:
    """A compiled function that reads arguments of these types from pairs of words.

    An array is its address and its size, a number that is not whole a float64.
    """

    @intrinsic
    def unpack(typingctx: Any, address: Any, lo: Any, hi: Any) -> Any:
        """The tuple of the arguments, ``lo`` and ``hi``."""
        result = types.BaseTuple.from_types((*kinds, types.intp, types.intp))

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            words, numbers = (_pointer(builder, args[0], kind) for kind in (_i64, ir.DoubleType()))

            def value(i: int, kind: types.Type) -> Any:
                def load(memory: ir.Value, place: int) -> ir.Value:
                    return builder.load(builder.gep(memory, [_i64(place)]))

                if isinstance(kind, types.Array):
                    return borrowed_array(
                        context, builder, kind, load(words, 2 * i), load(words, 2 * i + 1)
                    )
                if kind == types.intp:
                    return load(words, 2 * i)
                return context.cast(builder, load(numbers, 2 * i), types.float64, kind)

            values = [value(i, kind) for i, kind in enumerate(kinds)]
            return context.make_tuple(builder, result, [*values, args[1], args[2]])

        return result(types.intp, types.intp, types.intp), codegen

    return unpack
