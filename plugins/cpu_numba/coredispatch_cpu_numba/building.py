"""A kernel and all that it calls, optimized once and as a whole.

Numba optimizes every compiled function by itself, turns it into machine code and keeps that for
calls from Python, and only then links it into its caller, where it is optimized again. What
kernels are made of is called by nothing but kernels: here it is linked as it is written, and LLVM
works on the whole kernel at once, from the innermost functions to the outermost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from llvmlite.binding import Linkage
from numba import njit
from numba.core import errors
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from . import cache
from .background import NotReady

__all__ = ["address_of_code", "build", "compiled"]

_njit: Any = njit  # its annotations know half of its options
#: the decorator of functions that kernels call: nothing else does
compiled = partial(_njit, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


class _NoEnvironments:
    """A code generator for code that is nowhere in memory, so that no environment can be set."""

    def set_env(self, name: str, environment: Any) -> None:
        """What this is for."""


class _Whole(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        # Symbols of its parts must not be taken for those of other kernels: Numba numbers functions
        # of one name anew in each process. What nobody else sees needs no code of its own, either.
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = Linkage.internal
        super()._optimize_final_module()


class _Part(_Whole):
    """The code of a function that is to be linked into others, not to be run."""

    codegen = _NoEnvironments()

    def _optimize_final_module(self) -> None:
        """Left to the kernel."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """0: there is no machine code."""
        return 0


@contextmanager
def _parts(whole: str) -> Iterator[None]:
    """Compile functions as parts, but for the one of that name."""
    codegen = cpu_target.target_context.codegen()

    def create(name: str, **options: Any) -> Any:
        kind = _Whole if name == whole else _Part
        return kind(codegen, name, **options)

    codegen.create_library = create
    try:
        yield
    finally:
        del codegen.create_library


@contextmanager
def _filters_left_alone() -> Iterator[None]:
    """Compile without ``warnings.catch_warnings``, which Numba enters hundreds of times a kernel.

    It saves the filters of the whole process and puts them back. Where another thread does the same
    at that time, what the program catches is lost, and the process keeps filters that it left.
    Nobody else compiles meanwhile: Numba's lock is held.
    """
    fixer: Any = errors.WarningsFixer
    catch = fixer.catch_warnings
    fixer.catch_warnings = lambda self, filename=None, lineno=None: nullcontext()
    try:
        yield
    finally:
        fixer.catch_warnings = catch


def build(
    function: Callable[..., Any],
    signature: Any,
    name: str,
    *,
    for_python: bool = False,
    keeps_gil: bool = False,
    fastmath: Iterable[str] = (),
    cached_only: bool = False,
) -> Any:
    """Compile a kernel, or load it from the disk cache; returns Numba's compile result.

    Args:
        function: what to compile
        signature: the types of its arguments
        name: a unique one, that of the entry in the cache
        for_python: whether Python calls its ``entry_point``, and not compiled code its C function
        keeps_gil: whether no other thread runs meanwhile. To let one run takes 0.02 us.
        fastmath: the flags of Numba
        cached_only: raise :class:`NotReady` where the disk does not have it
    """
    function.__qualname__ = name
    dispatcher = _njit(
        nogil=not keeps_gil,
        error_model="numpy",
        fastmath=set(fastmath),
        no_cpython_wrapper=not for_python,
        no_cfunc_wrapper=for_python,
    )(function)
    cache.enable(dispatcher)
    if cached_only and not cache.is_cached(dispatcher, signature):
        raise NotReady(name)
    with global_compiler_lock, _parts(name), _filters_left_alone():
        dispatcher.compile(signature)
    return next(iter(dispatcher.overloads.values()))


def address_of_code(result: Any) -> int:
    """The address of the C function of a kernel that is not for Python."""
    address: int = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    return address
