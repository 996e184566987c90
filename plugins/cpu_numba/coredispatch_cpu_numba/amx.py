"""Intel AMX: eight tile registers of 16 rows of 64 bytes, and products of tiles.

A product adds to a tile of 32-bit sums (16 rows, 16 columns) what ``a`` (16 rows, 64 bytes) times
``b`` gives. Row ``k`` of ``b`` has the rows of the matrix that meet one 32-bit word of ``a``, its
columns side by side: pairs of bfloat16 as in ``tiles.py``, or four bytes. Intel, "64 and IA-32
Architectures Software Developer's Manual", volume 1, chapter 18.

Tiles are numbered 0 to 7 by constants in the code, and belong to the thread that runs. A loop calls
``configure`` at the beginning of each of its parts, and ``release`` at the end: registers in use
are saved at every switch of threads. Between the two it must not call what may use tiles, too.

Products of bfloat16 take subnormal numbers for zero, as those in ``dots.py`` do, and round every
sum to nearest. Linux lets a process have the registers when it asks for them: ``has_tiles`` does.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache as memoized
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .dots import features

__all__ = [
    "COLUMNS",
    "ROWS",
    "ROW_BYTES",
    "add_bfloat16",
    "add_int8",
    "add_uint8_int8",
    "configure",
    "has_bfloat16",
    "has_int8",
    "has_tiles",
    "load",
    "release",
    "store",
    "zero",
]

#: of a tile: rows, bytes of a row, and 32-bit columns
ROWS, ROW_BYTES, COLUMNS = 16, 64, 16
_TILES = 8
_LLVM = 17  # before, pointers had types
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18

_i8, _i64 = ir.IntType(8), ir.IntType(64)


def _permitted() -> bool:
    """Ask Linux for the registers, which it grants to all threads and children of the process."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    arguments = (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
    return bool(call(*(ctypes.c_long(value) for value in arguments)) == 0)


@memoized
def has_tiles() -> bool:
    """Whether tiles can be used. True only after Linux has granted them to this process."""
    known = "amx-tile" in features() and binding.llvm_version_info[0] >= _LLVM
    return known and _permitted()


def has_bfloat16() -> bool:
    """Whether :func:`add_bfloat16` can be used."""
    return "amx-bf16" in features() and has_tiles()


def has_int8() -> bool:
    """Whether :func:`add_int8` and :func:`add_uint8_int8` can be used."""
    return "amx-int8" in features() and has_tiles()


def _emit(builder: Any, name: str, *arguments: ir.Value) -> None:
    signature = ir.FunctionType(ir.VoidType(), [a.type for a in arguments])
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.x86.{name}")
    builder.call(function, arguments)


def _number(tile: Any) -> ir.Constant:
    """The tile that a literal names."""
    if not isinstance(tile, types.IntegerLiteral) or not 0 <= tile.literal_value < _TILES:
        raise TypeError(f"a tile is a constant from 0 to {_TILES - 1}, got {tile}")
    return _i8(tile.literal_value)


@intrinsic
def configure(typingctx: Any) -> Any:
    """Give every tile all its rows and columns, all zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # one byte of palette, 15 of zeros; bytes of a row, 16 bits for each of 16; rows, 8 bits
        content = [1, *[0] * 15, *[ROW_BYTES, 0] * _TILES, *[0] * 16, *[ROWS] * _TILES, *[0] * 8]
        kind = ir.ArrayType(_i8, len(content))
        place = cgutils.global_constant(builder, "tiles", ir.Constant(kind, bytearray(content)))
        _emit(builder, "ldtilecfg", builder.bitcast(place, _i8.as_pointer()))
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def release(typingctx: Any) -> Any:
    """Give the tiles back."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic(prefer_literal=True)
def zero(typingctx: Any, tile: Any) -> Any:
    """Fill ``tile`` with zeros."""
    number = _number(tile)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit(builder, "tilezero", number)
        return context.get_dummy_value()

    return types.void(tile), codegen


def _moved(name: str, tile: Any, address: Any, step: Any) -> Any:
    number = _number(tile)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[1], _i8.as_pointer())
        _emit(builder, name, number, place, args[2])
        return context.get_dummy_value()

    return types.void(tile, types.intp, types.intp), codegen


@intrinsic(prefer_literal=True)
def load(typingctx: Any, tile: Any, address: Any, step: Any) -> Any:
    """Fill ``tile`` with 16 rows of 64 bytes that are ``step`` bytes apart."""
    return _moved("tileloadd64", tile, address, step)


@intrinsic(prefer_literal=True)
def store(typingctx: Any, tile: Any, address: Any, step: Any) -> Any:
    """Write the rows of ``tile`` to where ``load`` would read them."""
    return _moved("tilestored64", tile, address, step)


def _added(name: str, total: Any, a: Any, b: Any) -> Any:
    numbers = [_number(tile) for tile in (total, a, b)]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit(builder, name, *numbers)
        return context.get_dummy_value()

    return types.void(total, a, b), codegen


@intrinsic(prefer_literal=True)
def add_bfloat16(typingctx: Any, total: Any, a: Any, b: Any) -> Any:
    """Add to tile ``total`` (float32) the product of ``a`` and ``b`` (pairs of bfloat16)."""
    return _added("tdpbf16ps", total, a, b)


@intrinsic(prefer_literal=True)
def add_int8(typingctx: Any, total: Any, a: Any, b: Any) -> Any:
    """Add to tile ``total`` (int32) the product of ``a`` and ``b`` (fours of int8)."""
    return _added("tdpbssd", total, a, b)


@intrinsic(prefer_literal=True)
def add_uint8_int8(typingctx: Any, total: Any, a: Any, b: Any) -> Any:
    """Add to tile ``total`` (int32) the product of ``a`` (fours of uint8) and ``b`` (of int8)."""
    return _added("tdpbusd", total, a, b)
