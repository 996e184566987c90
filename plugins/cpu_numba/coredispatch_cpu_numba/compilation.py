"""From a loop to something callable, made when it is first needed.

A *loop* is a Python function ``loop(*arguments, lo, hi)`` that does the part ``[lo, hi)`` of
the work; what is counted (elements, rows, blocks) is the loop's affair. Compiled for a dtype, it
becomes a *task*: a C function ``task(address of the arguments, lo, hi)``. A *launcher*, one for
all loops whose arguments have the same types, takes the Python arguments apart, puts them where
the task finds them, and has ``threads`` run the task, in one piece or in parts.

The launcher is called as the bare C function behind Numba's dispatcher: the predicates have
already checked what Numba's type dispatch would check again. Nothing that a loop computes may
depend on where it is cut, so results are the same for every number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache as memoized
from typing import Any

import numpy as np
from numba import njit, types

from . import cache, threads
from .atomics import address_of, array_at, stack_words
from .background import NotReady
from .flat import Flat
from .halves import BFLOAT16, FLOAT16

__all__ = ["ELEMENTWISE", "REDUCTION", "Loop", "compile_loop", "launcher"]

#: ``x * y + z`` may round once. Nothing that could touch NaN, infinity or the sign of zero.
ELEMENTWISE = frozenset({"contract"})
#: sums may also be reordered, or they would not vectorize
REDUCTION = frozenset({"contract", "reassoc"})

#: what lies in arrays, by dtype character; half precision is computed with as float32, and
#: bytes, signed or not, as int32
_TYPES = {
    "f": types.float32,
    "d": types.float64,
    "E": BFLOAT16,
    "e": FLOAT16,
    "B": types.uint8,
    "i": types.int32,
}
_COMPUTED = {"f": "f", "d": "d", "E": "f", "e": "f", "B": "i"}
_ARRAYS = "abdiw"
_lock = threading.Lock()


@dataclass(frozen=True)
class Loop:
    """A loop to be compiled.

    Args:
        arguments: one letter each: ``a`` an array of the dtype; ``b``, ``d``, ``i`` an array of
            bool, float64, int64; ``w`` an array of the dtype that is computed with; ``s`` a scalar
            of that one; ``e`` a float64; ``n`` an int
        build: takes the character of what is computed with, and returns the function to compile
        fastmath: ELEMENTWISE or REDUCTION
        dtypes: the characters of the dtypes it can be built for; those of half precision where it
            reads and writes its arrays by ``spans.item`` and ``spans.put`` only
    """

    arguments: str
    build: Callable[[str], Callable[..., None]]
    fastmath: Iterable[str] = ELEMENTWISE
    dtypes: str = "fd"


def _signature(arguments: str, char: str) -> list[types.Type]:
    computed = _TYPES[_COMPUTED[char]]
    meaning = {
        "a": Flat(_TYPES[char]),
        "w": Flat(computed),
        "b": Flat(types.boolean),
        "d": Flat(types.float64),
        "i": Flat(types.int64),
        "s": computed,
        "e": types.float64,
        "n": types.intp,
    }
    return [meaning[letter] for letter in arguments]


_TASK = """
def task(address, lo, hi):
    words = array_at(address, {slots}, int64)
    numbers = array_at(address, {slots}, float64)
    loop({unpacked}, lo, hi)
    return 0
"""
_LAUNCHER = """
def launch({parameters}, count, grain, task, pool):
    address = reserve()
    words = array_at(address, {slots}, int64)
    numbers = array_at(address, {slots}, float64)
    {pack}
    run(pool, task, address, count, grain)
"""
_DTYPES = {"b": "boolean", "d": "float64", "i": "int64", "a": "stored", "w": "own"}
_STORED = {
    "f": np.float32,
    "d": np.float64,
    "E": np.uint16,
    "e": np.int16,
    "B": np.uint8,
    "i": np.int32,
}


def _compile(
    source: str, name: str, scope: dict[str, Any], signature: Any, cached_only: bool = False
) -> Any:
    """Compile the one function in ``source``; returns Numba's compile result.

    Raises :class:`NotReady` instead where it is ``cached_only`` and the disk does not have it.
    """
    exec(compile(source, __file__, "exec"), scope)
    function = scope[source.split()[1].partition("(")[0]]
    function.__module__ = __name__
    function.__qualname__ = name
    dispatcher = njit(nogil=True, error_model="numpy")(function)
    cache.enable(dispatcher)
    if cached_only and not cache.is_cached(dispatcher, signature):
        raise NotReady(name)
    dispatcher.compile(signature)
    return next(iter(dispatcher.overloads.values()))


def _names(char: str) -> dict[str, Any]:
    return {
        "array_at": array_at,
        "boolean": np.bool_,
        "float64": np.float64,
        "int64": np.int64,
        "own": _STORED[_COMPUTED[char]],
        "stored": _STORED[char],
    }


@memoized
def launcher(arguments: str, char: str) -> Callable[..., None]:
    """``launch(*arguments, count, grain, task, pool)``; see ``threads.run``."""
    slots = 2 * len(arguments)
    pack = []
    for i, letter in enumerate(arguments):
        if letter in _ARRAYS:
            pack.append(f"words[{2 * i}] = address_of(p{i}); words[{2 * i + 1}] = p{i}.size")
        else:
            pack.append(f"{'words' if letter == 'n' else 'numbers'}[{2 * i}] = p{i}")
    source = _LAUNCHER.format(
        parameters=", ".join(f"p{i}" for i in range(len(arguments))),
        pack="; ".join(pack),
        slots=slots,
    )
    scope = _names(char) | {
        "address_of": address_of,
        "reserve": stack_words(slots),
        "run": threads.run,
    }
    parameters = [*_signature(arguments, char), *[types.intp] * 4]
    with _lock:
        result = _compile(source, f"launch.{arguments}.{char}", scope, types.void(*parameters))
    entry: Callable[..., None] = result.entry_point
    return entry


def compile_loop(
    name: str, loop: Loop, char: str, cached_only: bool = False
) -> tuple[Callable[..., None], int]:
    """The launcher and the address of the task of ``loop`` for dtype ``char``.

    ``name`` identifies the loop in the disk cache, from which it comes if it is there. Raises
    :class:`NotReady` where it is ``cached_only`` and not there.
    """
    arguments = loop.arguments
    unpacked = []
    for i, letter in enumerate(arguments):
        if letter in _ARRAYS:
            unpacked.append(f"array_at(words[{2 * i}], words[{2 * i + 1}], {_DTYPES[letter]})")
        elif letter == "n":
            unpacked.append(f"words[{2 * i}]")
        else:
            unpacked.append(f"own(numbers[{2 * i}])" if letter == "s" else f"numbers[{2 * i}]")
    source = _TASK.format(unpacked=", ".join(unpacked), slots=2 * len(arguments))
    function = loop.build(_COMPUTED[char])
    # Numba tells functions of one name apart by a number that starts anew in each process. Two
    # loops out of the same factory, compiled in different processes, would get the same symbol,
    # and the one that is loaded second would run the code of the first.
    function.__qualname__ = f"{name}.{char}.loop"
    body = njit(fastmath=set(loop.fastmath), error_model="numpy", no_cpython_wrapper=True)(function)
    with _lock:
        signature = types.intp(types.intp, types.intp, types.intp)
        result = _compile(
            source, f"{name}.{char}", _names(char) | {"loop": body}, signature, cached_only
        )
    _kept.append(result)  # its code must not go away
    address = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    return launcher(arguments, char), address


_kept: list[Any] = []
