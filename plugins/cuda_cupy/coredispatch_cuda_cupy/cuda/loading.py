"""The texts of the kernels, compiled by NVRTC for an element type when it is first asked for.

A *family* is one file ``*.cu`` of this folder. CuPy compiles it for the device at hand and keeps
the machine code on disk, in ``$CUPY_CACHE_DIR`` (``~/.cupy/kernel_cache`` without it), by a hash
of text, options, architecture and version of the compiler.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

__all__ = ["FLOATS", "OPTIONS", "WORDS", "Family", "code_of", "is_float", "text", "wide"]

OPTIONS = ("--std=c++17",)
#: dtype's name -> the type of its elements in memory, and the one it is computed with
_TYPES = {
    "float32": ("float", "float"),
    "float64": ("double", "double"),
    "float16": ("Half", "float"),
    "bfloat16": ("BFloat16", "float"),
    "int64": ("long long", "long long"),
    "int32": ("int", "int"),
    # elements that are moved only, by their bytes
    "word1": ("unsigned char", "unsigned char"),
    "word2": ("unsigned short", "unsigned short"),
    "word4": ("unsigned int", "unsigned int"),
    "word8": ("unsigned long long", "unsigned long long"),
    "word16": ("Pair", "Pair"),
}
#: texts that another one stands behind
_BEHIND = {
    "flash": ("tensor_cores",),
    "grouped": ("eight_bits", "groups"),
    "grouped_floats": ("groups", "tensor_cores"),
    "optim_steps": ("parts",),
    "tensor_lists": ("parts",),
}
FLOATS = ("float32", "float64", "float16", "bfloat16")
WORDS = (1, 2, 4, 8, 16)


@cache
def text(name: str) -> str:
    """The text of a file of this folder, by its name without the ending."""
    return files(__package__).joinpath(f"{name}.cu").read_text(encoding="utf-8")


@cache
def code_of(family: str, dtype: str) -> str:
    """The whole CUDA C++ of a family for elements of the dtype of this name."""
    element, wide = _TYPES[dtype]
    head = "struct Half;\nstruct BFloat16;\nstruct Pair;\n"
    head += f"typedef {element} E;\ntypedef {wide} A;\n"
    return head + "".join(map(text, ("halves", "common", *_BEHIND.get(family, ()), family)))


@cache
def is_float(dtype: Any) -> bool:
    """Whether kernels take elements of this dtype as floating-point numbers."""
    return dtype.name in FLOATS


@cache
def wide(dtype: Any) -> Any:
    """The dtype that is computed with for elements of this one."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and is_float(dtype) else dtype


class Family:
    """The kernels of one text: ``family(name, dtype, grid, block, args)`` launches one.

    They are put on the current stream of the current device. Arguments are arrays, ints (``i64``,
    or 0 for a pointer to nothing) and floats (``double``). ``dtype`` may be a number of bytes, for
    elements that are moved only.
    """

    def __init__(self, cupy: Any, name: str) -> None:
        self.cupy = cupy
        self.name = name
        self.functions: dict[tuple[str, Any], Any] = {}

    def __call__(self, name: str, dtype: Any, grid: int, block: int, args: tuple[Any, ...]) -> None:
        function = self.functions.get((name, dtype))
        if function is None:
            kind = f"word{dtype}" if type(dtype) is int else dtype.name
            module = self.cupy.RawModule(code=code_of(self.name, kind), options=OPTIONS)
            function = self.functions[name, dtype] = module.get_function(name)
        function((grid,), (block,), args)
