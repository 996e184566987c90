"""From a loop to callable entries: one serial and one parallel per (loop, dtype), made lazily.

A *loop* is a Python function ``loop(*arguments, lo, hi)`` that does the part ``[lo, hi)`` of
the work; what is counted (elements, rows, blocks) is the loop's affair. Compiled, it becomes

* a serial entry ``entry(*arguments, lo, hi)`` and
* a parallel entry ``entry(*arguments, count, grain)``, which has ``threads`` do ``[0, count)``
  in parts of ``grain``.

Both call the bare C functions behind Numba's dispatchers: the predicates have already checked
what Numba's type dispatch would check again. Nothing that a loop computes may depend on where
it is cut, so results are the same for every number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, types

from . import cache, threads
from .atomics import address_of, array_at
from .flat import Flat, as_array

__all__ = ["ELEMENTWISE", "REDUCTION", "Loop", "compile_loop"]

#: ``x * y + z`` may round once. Nothing that could touch NaN, infinity or the sign of zero.
ELEMENTWISE = frozenset({"contract"})
#: sums may also be reordered, or they would not vectorize
REDUCTION = frozenset({"contract", "reassoc"})

_TYPES = {"f": types.float32, "d": types.float64}
_ARRAYS = "abdi"
_lock = threading.Lock()


@dataclass(frozen=True)
class Loop:
    """A loop to be compiled.

    Args:
        arguments: one letter each: ``a`` an array of the dtype; ``b``, ``d``, ``i`` an array of
            bool, float64, int64; ``s`` a scalar of the dtype; ``e`` a float64; ``n`` an int
        build: takes ``"f"`` or ``"d"`` and returns the function to compile
        fastmath: ELEMENTWISE or REDUCTION
    """

    arguments: str
    build: Callable[[str], Callable[..., None]]
    fastmath: Iterable[str] = ELEMENTWISE


def _signature(arguments: str, dtype: types.Type) -> list[types.Type]:
    meaning = {
        "a": Flat(dtype),
        "b": Flat(types.boolean),
        "d": Flat(types.float64),
        "i": Flat(types.int64),
        "s": dtype,
        "e": types.float64,
        "n": types.intp,
    }
    return [meaning[letter] for letter in arguments]


_SERIAL = """
def entry({parameters}, lo, hi):
    loop({plain}, lo, hi)
"""
_TASK = """
def task(arguments, lo, hi):
    words = array_at(arguments, {slots}, int64)
    numbers = array_at(words[0], {slots}, float64)
    loop({unpacked}, lo, hi)
    return 0
"""
_PARALLEL = """
def entry({parameters}, count, grain, task, pool):
    words = np.empty({slots}, np.int64)
    numbers = np.empty({slots}, np.float64)
    words[0] = address_of(numbers)
    {pack}
    run(pool, task, address_of(words), count, grain)
    words[0] = 0
    numbers[0] = 0.0
"""
_DTYPES = {"b": "boolean", "d": "float64", "i": "int64", "a": "own"}


def _compiled(source: str, name: str, scope: dict[str, Any], parameters: list[types.Type]) -> Any:
    """Compile the function in ``source``; returns its dispatcher."""
    exec(compile(source, __file__, "exec"), scope)
    function = scope["task" if "def task" in source else "entry"]
    function.__module__ = __name__
    function.__qualname__ = name
    dispatcher = njit(nogil=True, error_model="numpy")(function)
    cache.enable(dispatcher)
    result = types.intp if "def task" in source else types.void
    dispatcher.compile(result(*parameters))
    return dispatcher


def compile_loop(name: str, loop: Loop, char: str, parallel: bool) -> Callable[..., None]:
    """The serial or parallel entry of ``loop`` for dtype ``char``, from disk if it is there.

    ``name`` identifies the loop in the cache.
    """
    letters = loop.arguments
    own = _TYPES[char]
    body = njit(fastmath=set(loop.fastmath), error_model="numpy", no_cpython_wrapper=True)(
        loop.build(char)
    )
    scope: dict[str, Any] = {
        "address_of": address_of,
        "array_at": array_at,
        "as_array": as_array,
        "boolean": np.bool_,
        "float64": np.float64,
        "int64": np.int64,
        "loop": body,
        "np": np,
        "own": np.float32 if char == "f" else np.float64,
        "run": threads.run,
    }
    plain = [f"as_array(p{i})" if c in _ARRAYS else f"p{i}" for i, c in enumerate(letters)]
    slots = 2 * len(letters) + 1
    pack, unpacked = [], []
    for i, letter in enumerate(letters):
        at = 2 * i + 1
        if letter in _ARRAYS:
            pack.append(f"words[{at}] = address_of({plain[i]}); words[{at + 1}] = p{i}.size")
            unpacked.append(f"array_at(words[{at}], words[{at + 1}], {_DTYPES[letter]})")
        elif letter == "n":
            pack.append(f"words[{at}] = p{i}")
            unpacked.append(f"words[{at}]")
        else:
            pack.append(f"numbers[{at}] = p{i}")
            unpacked.append(f"own(numbers[{at}])" if letter == "s" else f"numbers[{at}]")
    fields = {
        "parameters": ", ".join(f"p{i}" for i in range(len(letters))),
        "plain": ", ".join(plain),
        "pack": "; ".join(pack),
        "unpacked": ", ".join(unpacked),
        "slots": slots,
    }
    name = f"{name}.{char}"
    own_signature = _signature(letters, own)
    with _lock:
        if not parallel:
            parameters = [*own_signature, types.intp, types.intp]
            serial = _compiled(_SERIAL.format(**fields), name, scope, parameters)
            return next(iter(serial.overloads.values())).entry_point
        task = _compiled(_TASK.format(**fields), f"{name}.task", scope, [types.intp] * 3)
        result = next(iter(task.overloads.values()))
        pointer = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
        parameters = [*own_signature, *[types.intp] * 4]
        launcher = _compiled(_PARALLEL.format(**fields), f"{name}.parallel", scope, parameters)
    launch = next(iter(launcher.overloads.values())).entry_point
    address = threads.address

    def entry(*arguments: Any) -> None:
        launch(*arguments, pointer, address())

    entry.keep_alive = (task, launcher)  # type: ignore[attr-defined]
    return entry
