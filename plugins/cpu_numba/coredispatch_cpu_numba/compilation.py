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
from numba import types

from . import threads
from .atomics import address_of, array_at, stack_words, unpacked
from .building import address_of_code, build, compiled
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
_ARRAYS = "abdiuw"
_lock = threading.Lock()


@dataclass(frozen=True)
class Loop:
    """A loop to be compiled.

    Args:
        arguments: one letter each: ``a`` an array of the dtype; ``b``, ``d``, ``i``, ``u`` an array
            of bool, float64, int64, bytes; ``w`` an array of the dtype that is computed with; ``s``
            a scalar of that one; ``e`` a float64; ``n`` an int
        build: takes the character of what is computed with, and returns the function to compile
        fastmath: ELEMENTWISE or REDUCTION
        dtypes: the characters of the dtypes it can be built for; those of half precision where it
            reads and writes its arrays by ``spans.item`` and ``spans.put`` only
    """

    arguments: str
    build: Callable[[str], Callable[..., None]]
    fastmath: Iterable[str] = ELEMENTWISE
    dtypes: str = "fd"


_LAUNCHER = """
def launch({parameters}, count, grain, task, pool):
    address = reserve()
    words = array_at(address, {slots}, int64)
    numbers = array_at(address, {slots}, float64)
    {pack}
    run(pool, task, address, count, grain)
"""


def _array(dtype: types.Type) -> types.Type:
    return types.Array(dtype, 1, "C")


def _types(arguments: str, char: str) -> list[types.Type]:
    """What a loop takes before ``lo`` and ``hi``."""
    computed = _TYPES[_COMPUTED[char]]
    meaning = {
        "a": _array(_TYPES[char]),
        "w": _array(computed),
        "b": _array(types.boolean),
        "d": _array(types.float64),
        "i": _array(types.int64),
        "u": _array(types.uint8),
        "s": computed,
        "e": types.float64,
        "n": types.intp,
    }
    return [meaning[letter] for letter in arguments]


#: to a launcher arrays are places and sizes, and numbers that are not whole are float64
_KINDS = str.maketrans(dict.fromkeys(_ARRAYS, "a") | {"s": "e"})
_KIND_TYPES = {"a": Flat(types.uint8), "e": types.float64, "n": types.intp}


@memoized
def launcher(kinds: str) -> Callable[..., None]:
    """``launch(*arguments, count, grain, task, pool)``; see ``threads.run``.

    ``kinds`` has a letter for each argument, ``a``, ``e`` or ``n``.
    """
    slots = 2 * len(kinds)
    pack = []
    for i, letter in enumerate(kinds):
        if letter == "a":
            pack.append(f"words[{2 * i}] = address_of(p{i}); words[{2 * i + 1}] = p{i}.size")
        else:
            pack.append(f"{'words' if letter == 'n' else 'numbers'}[{2 * i}] = p{i}")
    source = _LAUNCHER.format(
        parameters=", ".join(f"p{i}" for i in range(len(kinds))),
        pack="; ".join(pack),
        slots=slots,
    )
    scope: dict[str, Any] = {
        "__name__": __name__,
        "address_of": address_of,
        "array_at": array_at,
        "float64": np.float64,
        "int64": np.int64,
        "reserve": stack_words(slots),
        "run": threads.run,
    }
    parameters = [*(_KIND_TYPES[letter] for letter in kinds), *[types.intp] * 4]
    exec(compile(source, __file__, "exec"), scope)
    with _lock:
        result = build(scope["launch"], types.void(*parameters), f"launch.{kinds}", for_python=True)
    entry: Callable[..., None] = result.entry_point
    return entry


def compile_loop(
    name: str, loop: Loop, char: str, cached_only: bool = False
) -> tuple[Callable[..., None], int]:
    """The launcher and the address of the task of ``loop`` for dtype ``char``.

    ``name`` identifies the loop in the disk cache, from which it comes if it is there. Raises
    :class:`NotReady` where it is ``cached_only`` and not there.
    """
    function = loop.build(_COMPUTED[char])
    # Numba tells functions of one name apart by a number that starts anew in each process. Two
    # loops out of the same factory, compiled in different processes, would get the same symbol,
    # and the one that is loaded second would run the code of the first.
    function.__qualname__ = f"{name}.{char}.loop"
    body = compiled(fastmath=set(loop.fastmath))(function)
    unpack = unpacked(*_types(loop.arguments, char))

    def task(address, lo, hi):
        body(*unpack(address, lo, hi))
        return 0

    with _lock:
        signature = types.intp(types.intp, types.intp, types.intp)
        result = build(task, signature, f"{name}.{char}", cached_only=cached_only)
    _kept.append(result)  # its code must not go away
    return launcher(loop.arguments.translate(_KINDS)), address_of_code(result)


_kept: list[Any] = []
