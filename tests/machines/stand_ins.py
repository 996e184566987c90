"""The machines that this one can stand in for: environments, and why one cannot be had here."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

__all__ = ["SETTINGS", "Setting", "Unavailable"]

SOURCE = Path(__file__).with_name("another_order.c")
#: kernels of OpenBLAS, oldest first, and the instructions that each needs
CORES = {
    "Prescott": set[str](),
    "Haswell": {"AVX2", "FMA3"},
    "Zen": {"AVX2", "FMA3"},
    "SkylakeX": {"AVX512F"},
}
BUSY = """
import os, sys, time
parent, end = os.getppid(), time.monotonic() + 3600
while os.getppid() == parent and time.monotonic() < end:
    sum(range(100_000))
"""


class Unavailable(Exception):
    """This machine cannot stand in for that one; the message says why."""


@dataclass(frozen=True)
class Setting:
    """One machine.

    Attributes:
        name: as ``run.py`` takes it.
        about: what is different there.
        enter: a context that gives the environment variables; raises :class:`Unavailable`. It
            gets a folder that is its own.
    """

    name: str
    about: str
    enter: Callable[[Path], contextmanager[dict[str, str]]]


def features() -> set[str]:
    """The instructions that NumPy finds on this processor."""
    from numpy._core import _multiarray_umath as core

    return {name for name, there in core.__cpu_features__.items() if there}


def openblas() -> Path:
    """The OpenBLAS that NumPy brings. Raises :class:`Unavailable` where it is another BLAS."""
    installed = Path(np.__file__).parent
    folders = (installed.with_name("numpy.libs"), installed / ".dylibs")
    found = [path for folder in folders for path in sorted(folder.glob("*openblas*"))]
    if not found:
        raise Unavailable("NumPy's BLAS is no OpenBLAS of its own here")
    return found[0]


def core_name(path: Path) -> str:
    """The kernels that OpenBLAS took in this process."""
    library = ctypes.CDLL(str(path))
    for name in ("scipy_openblas_get_corename64_", "openblas_get_corename"):
        if hasattr(library, name):
            function = getattr(library, name)
            function.restype = ctypes.c_char_p
            return str(function().decode())
    raise Unavailable(f"{path.name} does not say which kernels it takes")


def blas(core: str) -> Callable[[Path], contextmanager[dict[str, str]]]:
    """NumPy's OpenBLAS with the kernels for another processor."""

    @contextmanager
    def enter(folder: Path) -> Iterator[dict[str, str]]:
        path = openblas()
        missing = CORES[core] - features()
        if missing:
            raise Unavailable(f"this processor has no {', '.join(sorted(missing))}")
        variables = {"OPENBLAS_CORETYPE": core}
        program = f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); import stand_ins; "
        program += f"print(stand_ins.core_name(stand_ins.Path({str(path)!r})))"
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, **variables},
        )
        if done.returncode:
            raise Unavailable(f"OpenBLAS does not take them: {done.stderr.strip()[-200:]}")
        # Prescott's go by another name in builds that leave out the oldest ones.
        if done.stdout.strip() == core_name(path) != core:
            raise Unavailable(f"OpenBLAS keeps to {done.stdout.strip()}")
        yield variables

    return enter


def numpy_without(what: str) -> Callable[[Path], contextmanager[dict[str, str]]]:
    """NumPy's own loops without some of the instructions that it chooses among when imported."""

    @contextmanager
    def enter(folder: Path) -> Iterator[dict[str, str]]:
        from numpy._core import _multiarray_umath as core

        chosen = [name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)]
        if what == "AVX-512":
            chosen = [name for name in chosen if name.startswith(("AVX512", "X86_V4"))]
        if not chosen:
            raise Unavailable(f"this NumPy takes no {what} here")
        yield {"NPY_DISABLE_CPU_FEATURES": " ".join(chosen)}

    return enter


@contextmanager
def numba_generic(folder: Path) -> Iterator[dict[str, str]]:
    """Numba for any processor of the architecture, with a cache of its own."""
    if find_spec("numba") is None:
        raise Unavailable("Numba is not installed")
    cache = {"NUMBA_CACHE_DIR": str(folder), "COREDISPATCH_NUMBA_CACHE_DIR": str(folder)}
    yield {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", **cache}


@contextmanager
def another_order(folder: Path) -> Iterator[dict[str, str]]:
    """A library before NumPy's OpenBLAS that permutes the terms of every inner product."""
    path = openblas()
    if not sys.platform.startswith("linux"):
        raise Unavailable("a library is preloaded on Linux only")
    if not hasattr(ctypes.CDLL(str(path)), "scipy_cblas_sgemm64_"):
        raise Unavailable(f"{path.name} has names that another_order.c does not know")
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    if shutil.which(compiler[0]) is None:
        raise Unavailable("there is no C compiler")
    library = folder / "another_order.so"
    command = [*compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"the C compiler refuses another_order.c: {done.stderr.strip()[-200:]}")
    yield {"LD_PRELOAD": str(library), "ORDER_OF": str(path)}


@contextmanager
def busy(folder: Path) -> Iterator[dict[str, str]]:
    """Every core at work already, twice over. What works ends with the tests, or after an hour."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2 * (cores or 1))]
    try:
        yield {}
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


@contextmanager
def no_compiler(folder: Path) -> Iterator[dict[str, str]]:
    """No C compiler to be found: a PATH with everything else."""
    names = {"cc", "gcc", "clang", "c++", "g++", "clang++", "c99", "c89"}
    for entry in os.environ.get("PATH", "").split(os.pathsep)[::-1]:
        for program in sorted(Path(entry).glob("*")) if entry else ():
            if program.name.split("-")[-1] in names or program.name.startswith(("gcc", "clang")):
                continue
            link = folder / program.name
            link.unlink(missing_ok=True)
            link.symlink_to(program)
    yield {"PATH": str(folder), "CC": "cc"}


SETTINGS = (
    *(
        Setting(f"openblas-{core.lower()}", f"OpenBLAS with the kernels for {core}", blas(core))
        for core in CORES
    ),
    Setting("numpy-no-avx512", "NumPy without AVX-512", numpy_without("AVX-512")),
    Setting("numpy-baseline", "NumPy with its oldest loops", numpy_without("newer instructions")),
    Setting("numba-generic", "Numba for any processor", numba_generic),
    Setting("another-order", "a BLAS that sums in another order each time", another_order),
    Setting("busy", "every core busy", busy),
    Setting("no-compiler", "no C compiler", no_compiler),
)
