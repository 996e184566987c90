"""CUDA C++ run by the host's compiler, and compiled by NVRTC where its library is there.

A block's threads take turns where they wait for each other (``host_cuda.h``), forwards in one
launch and backwards in the next. What a device adds, memory that is not coherent and real
concurrency above all, is not seen.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from stand_in_arrays import launch

__all__ = ["Library", "compile_for", "has_host_compiler", "nvrtc", "raw_module"]

_HEADER = Path(__file__).with_name("host_cuda.h")
_HEAD = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\([\w, ]+\) )?(\w+)\((.*?)\)\s*\{', re.DOTALL
)
#: so many blocks of a grid are run at most: kernels go through their work in steps of the grid
_BLOCKS = 3
_DTYPES = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "Half": np.dtype(np.float16),
    "BFloat16": np.dtype(ml_dtypes.bfloat16),
    "long long": np.dtype(np.int64),
    "int": np.dtype(np.int32),
    "bool": np.dtype(np.bool_),
}
_NUMBERS: dict[str, Any] = {
    "long long": ctypes.c_longlong,
    "double": ctypes.c_double,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
}
_CLASSES: dict[str, type] = {
    "long long": int,
    "double": float,
    "int": np.int32,
    "float": np.float32,
}


class Kernel(NamedTuple):
    """A kernel of a library: its place there, and by parameter the type and if it is a pointer."""

    number: int
    name: str
    parameters: list[tuple[str, bool]]


class Library:
    """Texts compiled together, in one call of the compiler.

    Args:
        folder: where to put the library.
        codes: the texts of modules.
    """

    count = 0

    def __init__(self, folder: Path, codes: Iterable[str]) -> None:
        self.modules: dict[str, dict[str, Kernel]] = {}
        parts, number = [f'#include "{_HEADER}"'], 0
        calls: list[str] = []
        for k, code in enumerate(dict.fromkeys(codes)):
            plain = code.replace('extern "C" __global__', "__global__")
            parts.append(f"namespace m{k} {{\n{plain}\n}}")
            kernels: dict[str, Kernel] = {}
            for name, text in _HEAD.findall(code):
                parameters = [_parameter(part, code) for part in text.split(",")]
                given = ", ".join(
                    f"*({_spelled(part)}*)args[{j}]" for j, part in enumerate(text.split(","))
                )
                calls.append(f"[](void** args) {{ using namespace m{k}; m{k}::{name}({given}); }}")
                kernels[name] = Kernel(number, name, parameters)
                number += 1
            self.modules[code] = kernels
        parts.append(f"static void (*kernels[])(void**) = {{{', '.join(calls)}}};")
        parts.append(
            'extern "C" int launch(int kernel, unsigned int grid, unsigned int block, void** args,'
            " int backward) { return run_grid(kernels[kernel], grid, block, args, backward); }\n"
        )
        Library.count += 1
        source = folder / f"kernels{Library.count}.cc"
        source.write_text("\n".join(parts))
        target = source.with_suffix(".so")
        command = ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o"]
        subprocess.run([*command, str(target), str(source)], check=True)
        self.library = ctypes.CDLL(str(target))
        self.launches = 0
        self.lock = threading.Lock()  # there is one set of fibers

    def launch(self, kernel: Kernel, grid: int, block: int, args: tuple[Any, ...]) -> None:
        """Run a kernel as CuPy would launch it; AssertionError for arguments that do not fit."""
        assert len(args) == len(kernel.parameters), (kernel, args)
        assert 0 < block <= 1024 and 0 < grid < 2**31, (grid, block)
        kept = [_packed(kernel.name, *p, a) for p, a in zip(kernel.parameters, args, strict=True)]
        packed = (ctypes.c_void_p * len(kept))(*[ctypes.addressof(value) for value in kept])
        with self.lock:
            self.launches += 1
            stuck = self.library.launch(
                kernel.number, min(grid, _BLOCKS), block, packed, self.launches % 2
            )
        assert not stuck, f"threads of {kernel.name} wait at different places"


def _spelled(part: str) -> str:
    """The type of a parameter, without its name."""
    return part.replace("__restrict__", "").strip().rpartition(" ")[0]


def _parameter(part: str, code: str) -> tuple[str, bool]:
    kind = _spelled(part).replace("const ", "").strip()
    pointer, kind = kind.endswith("*"), kind.rstrip("* ")
    aliases = dict(re.findall(r"typedef ([\w ]+?) (\w+);", code)[::1])
    names = {alias: meant for meant, alias in aliases.items()}
    while kind in names:
        kind = names[kind]
    return kind, pointer


def _packed(kernel: str, kind: str, pointer: bool, value: Any) -> Any:
    """An argument in memory, as the type of the parameter says."""
    if not pointer:
        assert type(value) is _CLASSES[kind], (kernel, kind, value)
        return _NUMBERS[kind](value)
    if type(value) is int:
        assert value == 0, (kernel, kind, value)
        return ctypes.c_void_p(0)
    assert isinstance(value, np.ndarray), (kernel, kind, value)
    wanted = _DTYPES.get(kind)
    assert wanted in (None, value.dtype), (kernel, kind, value.dtype)
    return ctypes.c_void_p(value.__array_interface__["data"][0])


def raw_module(folder: Path, codes: list[str], known: Library | None = None) -> Any:
    """A class in the place of ``cupy.RawModule``; the texts it gets are appended to ``codes``.

    What is in the library ``known`` is not compiled again.
    """

    class RawModule:
        def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
            assert all(option.startswith("-") for option in options)
            codes.append(code)
            found = known is not None and code in known.modules
            self.library = known if known is not None and found else Library(folder, [code])
            self.kernels = self.library.modules[code]

        def get_function(self, name: str) -> Any:
            kernel, library = self.kernels[name], self.library

            def run(grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
                # What a device refuses as an invalid configuration.
                assert 1 <= grid[0] < 2**31 and 1 <= block[0] <= 1024, (name, grid, block)
                launch(lambda found: library.launch(kernel, grid[0], block[0], found), args)

            return run

    return RawModule


def has_host_compiler() -> bool:
    """Whether there is a C++ compiler."""
    return shutil.which("g++") is not None


@cache
def nvrtc() -> Any:
    """NVIDIA's run-time compiler, None where its library is not installed."""
    found = find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*")):
            return ctypes.CDLL(str(path))
    return None


def compile_for(code: str, arch: str) -> int:
    """How many bytes of machine code NVRTC makes of a text for an architecture."""
    library, program = nvrtc(), ctypes.c_void_p()
    text = code.encode()
    assert not library.nvrtcCreateProgram(ctypes.byref(program), text, b"k.cu", 0, None, None)
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17"]
    status = library.nvrtcCompileProgram(program, 2, (ctypes.c_char_p * 2)(*options))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert status == 0, log.value.decode()
    assert not library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return size.value
