"""CUDA C++ run by the host's compiler, and compiled by NVRTC where its library is there.

A block's threads are threads of the host that meet at a barrier, so the kernels run as they are
written: reductions over a block, the steps of a grid. What a device adds, memory that is not
coherent and warps above all, is not seen.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["compile_for", "nvrtc", "raw_module"]

_SHIM = """
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>
using std::exp; using std::log; using std::sqrt; using std::tanh; using std::erf;
using std::fabs; using std::pow;
struct Place { unsigned int x; };
static thread_local Place threadIdx, blockIdx;
static Place blockDim, gridDim;
static std::barrier<>* meeting;
#define __global__
#define __device__
#define __shared__ static
static void __syncthreads() { meeting->arrive_and_wait(); }
static float __int_as_float(int bits) { float x; std::memcpy(&x, &bits, 4); return x; }
"""
_LAUNCH = """
extern "C" void launch(unsigned int grid, unsigned int block, void** args) {
    std::barrier<> barrier(block);
    meeting = &barrier;
    gridDim.x = grid;
    blockDim.x = block;
    std::vector<std::thread> threads;
    for (unsigned int t = 0; t < block; t++)
        threads.emplace_back([=] {
            threadIdx.x = t;
            for (unsigned int b = 0; b < grid; b++) {
                blockIdx.x = b;
                fused(ARGUMENTS);
                __syncthreads();
            }
        });
    for (auto& thread : threads) thread.join();
}
"""


def raw_module(folder: Path, codes: list[str]) -> Any:
    """A class in the place of ``cupy.RawModule``; the texts it gets are appended to ``codes``."""

    class RawModule:
        def __init__(self, code: str, options: tuple[str, ...]) -> None:
            codes.append(code)
            types = [
                part.rpartition(" ")[0].replace("__restrict__", "")
                for part in re.search(r"fused\((.*?)\) \{", code)[1].split(", ")  # type: ignore[index]
            ]
            given = ", ".join(f"({kind})args[{k}]" for k, kind in enumerate(types))
            source, library = folder / f"k{len(codes)}.cc", folder / f"k{len(codes)}.so"
            source.write_text(_SHIM + code + _LAUNCH.replace("ARGUMENTS", given))
            command = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-o"]
            subprocess.run([*command, str(library), str(source)], check=True)
            self.library = ctypes.CDLL(str(library))

        def get_function(self, name: str) -> Any:
            assert name == "fused"

            def run(grid: tuple[int], block: tuple[int], args: tuple[np.ndarray, ...]) -> None:
                addresses = [array.__array_interface__["data"][0] for array in args]
                packed = (ctypes.c_void_p * len(args))(*addresses)
                self.library.launch(min(grid[0], 3), block[0], packed)

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
