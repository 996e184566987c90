"""What Python does while a program is captured: which code runs, and which C functions it calls.

A profile function hears of every Python frame before it runs, and of every call of a function
written in C. Code hands its names to :class:`~coredispatch.frontend.compiling.state.State`. C
functions cannot be looked into: those that are known to depend on their arguments only may be
called, any other one ends the capture. What runs because Python collects garbage meanwhile is no
part of the program.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import types
from typing import Any

import numpy as np

from coredispatch._frames import in_standard_library
from coredispatch.frontend.compiling.recording import Recorder
from coredispatch.frontend.compiling.state import State
from coredispatch.frontend.ownership import is_library_name, of_library
from coredispatch.plugin import Backend, Value, is_masked

__all__ = ["Watch"]

_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_NUMPY = os.path.dirname(np.__file__) + os.sep

#: modules whose C functions depend on their arguments only
_PURE_MODULES = set(
    "math cmath _operator operator itertools _functools functools _collections collections _bisect "
    "_heapq _struct _abc _string re _sre unicodedata numpy numpy.core._multiarray_umath "
    "numpy._core._multiarray_umath binascii _json _typing".split()
)
_IMPURE_BUILTINS = set(
    "print input open id exec eval compile __import__ globals locals vars dir breakpoint".split()
)
_BY_NAME = {"getattr", "hasattr", "setattr", "delattr"}
_BY_NAME |= {"__getattribute__", "__setattr__", "__delattr__"}
#: types whose methods do nothing but what the records of their values show
_KNOWN_TYPES = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    list,
    dict,
    set,
    frozenset,
    tuple,
    slice,
    range,
    property,
    types.FunctionType,
    types.CodeType,
    types.MappingProxyType,
    BaseException,
)
_KNOWN_MODULES = {"builtins", "collections", "numpy", "re", "decimal", "fractions", "datetime"}
_CLASS_METHODS = {"__new__", "mro", "fromkeys", "fromhex", "from_bytes", "maketrans"}
_CLASS_METHODS |= {"__subclasshook__", "__init_subclass__", "__prepare__", "__instancecheck__"}
#: parts of the package that reach beyond tensors, modules and optimizers
_PARTS = "data serialization multiprocessing profiler hub. package. distributed. fx jit"
_OUTSIDE = tuple(os.path.join(_HERE, "frontend", name) for name in _PARTS.split())
#: functions of the package that change what no record shows
_SETTINGS = set(
    "manual_seed manual_seed_all seed initial_seed set_rng_state get_rng_state fork_rng "
    "set_default_dtype set_default_device set_num_threads use_deterministic_algorithms "
    "set_printoptions register_hook register_forward_hook register_forward_pre_hook "
    "register_full_backward_hook register_full_backward_pre_hook register_module_forward_hook "
    "register_post_accumulate_grad_hook register_step_pre_hook register_step_post_hook "
    "set_grad_enabled retain_grad share_memory_ compile set_stance reset load unload "
    "get_num_threads get_num_interop_threads get_float32_matmul_precision is_warn_always_enabled "
    "is_autocast_cache_enabled register_kl set_default_validate_args cached".split()
)


#: what is asked of a tensor that no guard holds
_UNGUARDED = {
    "grad_fn",
    "is_leaf",
    "is_shared",
    "output_nr",
    "retains_grad",
    "storage_offset",
    "_version",
}

#: what makes a text, or another library's array, of a tensor
_TEXTS = {"__repr__", "__format__", "__dlpack__"}

#: what every import runs that finds its module missing
_FIND_AND_LOAD = importlib._bootstrap._find_and_load.__code__  # type: ignore[attr-defined]


def _of_values(frame: Any) -> bool:
    """Whether a method of a tensor runs, which is not formatted as a number."""
    tensor = frame.f_locals.get("self")
    if not isinstance(tensor, Value):
        return False
    return bool(tensor.raw.shape) or frame.f_code.co_name != "__format__"


class Watch:
    """The profile function of one capture. A context manager: what was set before comes back."""

    def __init__(self, recorder: Recorder, state: State) -> None:
        self.recorder, self.state = recorder, state
        self.kinds: dict[Any, str] = {}
        self.before: Any = None
        self.optimizes = False
        self.differentiates = False
        self.thread = threading.get_ident()
        self.collecting = False
        # What the package began and is no part of the program: an import, a method of a backend.
        self.apart: Any = None

    def __enter__(self) -> Watch:
        self.before = sys.getprofile()
        gc.callbacks.insert(0, self.collection_begins)
        gc.callbacks.append(self.collection_ends)
        sys.setprofile(self.heard)
        return self

    def __exit__(self, *error: Any) -> None:
        if self.before is None or callable(self.before):
            sys.setprofile(self.before)
        else:  # a profiler written in C, as cProfile's before Python 3.12
            sys.setprofile(None)
            self.before.enable()
        gc.callbacks.remove(self.collection_begins)
        gc.callbacks.remove(self.collection_ends)
        created = None if any(error) else self.state.created()
        if created is not None:
            self.recorder.refuse(created)

    def collection_begins(self, phase: str, info: Any) -> None:
        """Called before every other callback of the garbage collector."""
        if phase == "start" and threading.get_ident() == self.thread:
            self.collecting = True

    def collection_ends(self, phase: str, info: Any) -> None:
        """Called after every other callback of the garbage collector."""
        if phase == "stop" and threading.get_ident() == self.thread:
            self.collecting = False

    def heard(self, frame: Any, event: str, argument: Any) -> None:
        """A frame begins, or a C function is called."""
        recorder = self.recorder
        if recorder.busy or recorder.problem is not None or not recorder.alive:
            return
        if self.collecting:
            return
        if self.apart is not None:
            if event == "return" and frame is self.apart:
                self.apart = None
            return
        if event == "call":
            self.entered(frame)
        elif event == "c_call" and self.kind_of(frame) == "program":
            self.called(frame, argument)

    def kind_of(self, frame: Any) -> str:
        """``program`` or ``package``: the standard library is a part of who calls it."""
        while True:
            kind = self.kinds.get(frame.f_code)
            if kind is None:
                kind = self.kinds[frame.f_code] = _kind(frame)
            if kind != "library":
                return kind
            frame = frame.f_back
            if frame is None:
                return "program"

    def entered(self, frame: Any) -> None:
        """Code is about to run."""
        code = frame.f_code
        kind = self.kind_of(frame)
        if code is _FIND_AND_LOAD and kind == "package":
            self.apart = frame  # finders that somebody installed are no part of the program
            return
        if kind == "program" and self.is_machinery(frame):
            self.apart = frame
            return
        if kind == "program":
            if not self.state.knows(code):
                self.recorder.refuse(
                    f"{code.co_name}() is kept where what it closes over cannot be looked up",
                    _place(frame),
                )
            self.state.add_code(code, frame.f_globals)
            return
        name, file = code.co_name, code.co_filename
        if name in _SETTINGS and self.kind_of(frame.f_back) == "program":
            self.recorder.refuse(f"{name}() changes or reads a setting", _place(frame.f_back))
        elif name in _UNGUARDED and self.kind_of(frame.f_back) == "program":
            self.recorder.refuse(
                f"it reads {name} of a tensor, which differs from call to call",
                _place(frame.f_back),
            )
        elif name in _TEXTS and _of_values(frame) and self.kind_of(frame.f_back) == "program":
            self.recorder.refuse(f"it reads the values of a tensor by {name}", _place(frame.f_back))
        elif name == "__enter__" and _sees_operators(frame):
            self.recorder.refuse("it enters a mode that sees operators", _place(frame.f_back))
        elif file.startswith(_OUTSIDE) and self.kind_of(frame.f_back) == "program":
            self.recorder.refuse(f"{name}() reaches beyond tensors", _place(frame.f_back))
        if name == "load_state_bytes" and not _by_compiler(frame.f_back):
            self.recorder.rewound()
        if "schedule" in os.path.basename(file) and name != "_count":
            self.state.schedule_runs()
        # `zero_grad`, clipping, scalers and conversions ask for gradients on the program's behalf
        if f"{os.sep}optim{os.sep}" in file or name == "backward" or "grad" in code.co_names:
            self.optimizes = True
        if name in ("backward", "grad") and f"{os.sep}frontend{os.sep}" in file:
            self.differentiates = True

    def is_machinery(self, frame: Any) -> bool:
        """Whether code of a plugin runs for the package: a method of a backend, or its kernel.

        Kernels of recorded calls are not heard of at all; these are of calls by the compiler.
        """
        if frame.f_back is None or self.kind_of(frame.f_back) != "package":
            return False
        return is_masked("compile") or isinstance(frame.f_locals.get("self"), Backend)

    def called(self, frame: Any, function: Any) -> None:
        """The program calls a C function."""
        name = getattr(function, "__name__", "?")
        if name in _BY_NAME:
            self.state.widen()
        owner = getattr(function, "__self__", None)
        if owner is None:
            owner = getattr(function, "__objclass__", None)
        if isinstance(owner, types.ModuleType) or owner is None:
            home = owner.__name__ if owner is not None else str(function.__module__)
            if home == "builtins":
                fine = name not in _IMPURE_BUILTINS
            else:
                fine = home in _PURE_MODULES or is_library_name(home)
        elif isinstance(owner, type):
            fine = name in _CLASS_METHODS or issubclass(owner, _KNOWN_TYPES) or of_library(owner)
        else:
            fine = isinstance(owner, _KNOWN_TYPES) or of_library(type(owner))
            fine = fine or type(owner).__module__ in _KNOWN_MODULES or _stepped(owner)
            if of_library(type(owner)) and name in _SETTINGS:
                fine = False
        if not fine:
            shown = f"{type(owner).__name__}.{name}" if owner is not None else name
            if isinstance(owner, types.ModuleType):
                shown = f"{owner.__name__}.{name}"
            self.recorder.refuse(
                f"{shown.removeprefix('builtins.')}() is written in C, and what it reads or does "
                "cannot be seen",
                _place(frame),
            )


def _stepped(owner: Any) -> bool:
    """An iterator or generator: what it goes through was recorded, or was made in the call."""
    kind = type(owner)
    return kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")


def _sees_operators(frame: Any) -> bool:
    """Whether a ``TorchDispatchMode`` is entered: what it sees depends on each call."""
    own = frame.f_locals.get("self")
    return any(
        base.__name__ == "TorchDispatchMode" and of_library(base) for base in type(own).__mro__
    )


def _by_compiler(frame: Any) -> bool:
    """Whether code of this folder calls."""
    return bool(frame.f_code.co_filename.startswith(os.path.dirname(__file__) + os.sep))


def _kind(frame: Any) -> str:
    file = frame.f_code.co_filename
    if file.startswith(_HERE):
        return "package"
    if file.startswith("<") and is_library_name(frame.f_globals.get("__name__")):
        return "package"  # made by exec, as dataclasses make methods
    if file.startswith(_NUMPY):
        return "library"
    if in_standard_library(file):
        return "library"
    return "program"


def _place(frame: Any) -> tuple[str, int, str]:
    return (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
