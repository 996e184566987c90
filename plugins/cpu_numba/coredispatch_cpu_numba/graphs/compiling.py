"""From the text of a loop nest to the address of its machine code, through the disk cache."""

from __future__ import annotations

import hashlib
import math
import re
import threading
from typing import Any

import numpy as np
from numba import types

from ..atomics import stack_words
from ..building import address_of_code, build, compiled
from ..compilation import ELEMENTWISE
from ..elementary.derived import elementary
from ..intrinsics import fabs, full_vectors, largest, smallest
from ..loops.elementwise.pointwise import BINARY, UNARY
from .access import accessors, add_up, floating, single_vectors, word
from .source import TILE

__all__ = ["address_of_text"]

_lock = threading.Lock()
_addresses: dict[str, int] = {}
_kept: list[Any] = []
_SIGNATURE = types.intp(types.intp, types.intp, types.intp)
_SCOPE = {
    "add_up": add_up,
    "boolean": np.bool_,
    "compiled": compiled(fastmath=set(ELEMENTWISE)),
    "fabs": fabs,
    "float32": np.float32,
    "float64": np.float64,
    "floating": floating,
    "full_vectors": full_vectors,
    "inf": math.inf,
    "int32": np.int32,
    "int64": np.int64,
    "largest": largest,
    "nan": math.nan,
    "single_vectors": single_vectors,
    "smallest": smallest,
    "sqrt": math.sqrt,
    "word": word,
}


def _scope(text: str) -> dict[str, Any]:
    """The names in ``text``: those above, its operands' accessors, elementary functions."""
    letters = text.split("\n", 1)[0].removeprefix("# operands:").split()
    scope = dict(_SCOPE)
    count = len(letters) + 2
    for index, letter in enumerate(letters):
        scope[f"load_{index}"], scope[f"store_{index}"] = accessors(letter, index, count)
    scope["load_total"], scope["store_total"] = accessors("d", count - 2, count)
    _, scope["store_partial"] = accessors("d", count - 1, count)
    for letter in "fd":
        _, scope[f"store_out_{letter}"] = accessors(letter, count - 1, count)
    _, scope["store_word"] = accessors("i", count - 1, count)
    scope["reserve"] = stack_words(TILE)
    for name, letter in set(re.findall(r"\b([a-z]+[a-z_]*)_([fd])\(", text)):
        make = UNARY.get(name) or BINARY.get(name)
        if make is not None:
            scope[f"{name}_{letter}"] = make(elementary[letter])
    return scope


def address_of_text(text: str) -> int:
    """The address of the C function ``loop(address, lo, hi)`` that ``text`` defines.

    It is compiled the first time; then it is in the disk cache, under a digest of the text.
    """
    with _lock:
        if text not in _addresses:
            _addresses[text] = _compile(text)
        return _addresses[text]


def _compile(text: str) -> int:
    scope = _scope(text)
    exec(compile(text, "<fused loop>", "exec"), scope)
    function = scope["loop"]
    function.__module__ = __name__
    name = f"graph.{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    result = build(function, _SIGNATURE, name, fastmath=ELEMENTWISE)
    _kept.append(result)  # its code must not go away
    return address_of_code(result)
