"""Checks of values that kernels make on the device, without waiting for it.

A kernel that meets an index out of range writes what was wrong into a *flag*, eight numbers in the
device's memory, goes on with a harmless value, and touches no memory beyond its arrays. The flag is
read, and the error raised, where the program waits for the device anyhow: :func:`raise_pending` is
called by reads of values and by ``synchronize``. With ``COREDISPATCH_CHECK=1`` in the environment
it is read after each such kernel, so that the error comes from the call that caused it.

Only the first problem since the last read is kept.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from math import isinf
from typing import Any

import numpy as np

from coredispatch.plugin import ArgumentError, DimError, KernelError, checked_values
from coredispatch_cuda_cupy import capture

__all__ = [
    "CLASS",
    "DIVISOR",
    "INDEX",
    "INTEGER",
    "NO_BOUND",
    "NUMBER",
    "PROBABILITY",
    "ROW",
    "finish",
    "flag",
    "raise_pending",
    "report",
]

#: environment variable; ``1`` reads the flag after each kernel that checks values
VARIABLE = "COREDISPATCH_CHECK"
#: the numbers of a flag: kind (0: nothing is wrong), operator, value, least and largest allowed
_SIZE = 8


def _out_of_bounds(op: str, value: int, low: int, high: int) -> Exception:
    size = high + 1
    fix = f"use indices from {low} to {high}"
    return DimError(f"{op}: index {value} is out of bounds for size {size}", fix=fix)


def _no_row(op: str, value: int, low: int, high: int) -> Exception:
    fix = f"use indices from 0 to {high}"
    return DimError(f"{op}: index {value} is out of range for {high + 1} embeddings", fix=fix)


def _no_class(op: str, value: int, low: int, high: int) -> Exception:
    fix = f"use classes 0 to {high}, or ignore_index"
    return DimError(f"{op}: target {value} is out of bounds for {high + 1} classes", fix=fix)


def _no_probability(op: str, bits: int, low: int, which: int) -> Exception:
    value = _number(bits)
    name = ("input", "target")[which]
    fix = "use binary_cross_entropy_with_logits for logits" if name == "input" else None
    return ArgumentError(
        f"{op}: all elements of {name} must be between 0 and 1, and one is {value:.6g}",
        fix=fix or "give probabilities, or 0 and 1",
    )


class DivisionError(KernelError, ZeroDivisionError):
    """An integer was divided by zero."""

    builtin = ZeroDivisionError


def _division(op: str, value: int, low: int, high: int) -> Exception:
    return DivisionError(
        "integer division or modulo by zero", fix="divide by numbers that are not 0, or by floats"
    )


def _refused_integer(rule: str, value: int, low: int, high: int) -> Exception:
    bounds = (None if abs(bound) == NO_BOUND else bound for bound in (low, high))
    return checked_values.error_of(rule, value, *bounds)


def _refused_number(rule: str, *bits: int) -> Exception:
    value, low, high = (_number(one) for one in bits)
    bounds = (None if isinf(bound) else bound for bound in (low, high))
    return checked_values.error_of(rule, value, *bounds)


def _number(bits: int) -> float:
    """The float64 that these bits are."""
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


#: kinds of problems, as the kernels write them
INDEX, ROW, CLASS, PROBABILITY, DIVISOR, INTEGER, NUMBER = 1, 2, 3, 4, 5, 6, 7
#: a bound that no value passes, in the place of one that is not there
NO_BOUND = 2**62
_ERRORS: dict[int, Callable[[str, int, int, int], Exception]] = {
    INDEX: _out_of_bounds,
    ROW: _no_row,
    CLASS: _no_class,
    PROBABILITY: _no_probability,
    DIVISOR: _division,
    INTEGER: _refused_integer,
    NUMBER: _refused_number,
}


class _Device:
    """The flag of one device, and the streams with kernels that may have written to it."""

    def __init__(self, cupy: Any) -> None:
        self.flag = cupy.zeros(_SIZE, dtype=np.int64)
        # Other streams do not wait for the zeros, and this happens once.
        cupy.cuda.get_current_stream().synchronize()
        #: by address a stream in a tuple of its own for each kernel: what is new is seen by that
        self.pending: dict[int, tuple[Any]] = {}


_lock = threading.Lock()
_devices: dict[tuple[int, int], _Device] = {}
_operators: list[str] = []
_numbers: dict[str, int] = {}
#: what is wrong with results beside what a flag says
_reported: list[tuple[int, str]] = []


def report(cupy: Any, text: str) -> None:
    """Let the next wait for a device raise RuntimeError: what it reads may be no result."""
    _reported.append((id(cupy), text))


def flag(cupy: Any, op: str) -> tuple[Any, int]:
    """The flag of the current device, and the number that stands for operator ``op`` in it.

    To be called before a kernel that writes to the flag is put on the current stream, and followed
    by :func:`finish`.
    """
    index = cupy.cuda.runtime.getDevice()
    found = _devices.get((id(cupy), index))
    if found is None:
        with _lock:
            found = _devices.setdefault((id(cupy), index), _Device(cupy))
    stream = cupy.cuda.get_current_stream()
    if capture.current() is None:  # what is captured runs later, and is announced by the replay
        found.pending[stream.ptr] = (stream,)
    number = _numbers.get(op)
    if number is None:
        with _lock:
            number = _numbers.setdefault(op, len(_operators))
            if number == len(_operators):
                _operators.append(op)
    return found.flag, number


def finish(cupy: Any) -> None:
    """After the kernel: raise at once what it found, where ``COREDISPATCH_CHECK=1`` asks for it."""
    if os.environ.get(VARIABLE) == "1" and capture.current() is None:
        raise_pending(cupy)


def raise_pending(cupy: Any) -> None:
    """Raise what kernels have found wrong on the current device so far.

    To be called where the program waits for the current stream. It costs a copy of 64 bytes where
    a kernel that checks values was launched since the last call, and nothing otherwise. What runs
    on other streams and is not done yet is asked about again the next time.

    Raises :class:`~coredispatch.plugin.DimError`, an ``IndexError``, for an index out of range, and
    :class:`~coredispatch.plugin.ArgumentError` for a number that is no probability. The flag is
    cleared by that. Raises RuntimeError for what :func:`report` was told.
    """
    if _reported:
        _raise_reported(cupy)
    if not _devices:
        return
    found = _devices.get((id(cupy), cupy.cuda.runtime.getDevice()))
    if found is None or not found.pending:
        return
    own = cupy.cuda.get_current_stream().ptr
    # Asked before the flag is read: what was done by then is in it.
    done = [(p, one) for p, one in list(found.pending.items()) if p == own or _is_done(one[0])]
    kind, op, value, low, high = (int(n) for n in cupy.asnumpy(found.flag)[:5])
    if kind:
        found.flag[...] = 0
        raise _ERRORS[kind](_operators[op], value, low, high)
    with _lock:
        for ptr, one in done:
            if found.pending.get(ptr) is one:
                del found.pending[ptr]


def _is_done(stream: Any) -> bool:
    """Whether all work of a stream is done, as far as it may be asked."""
    return not capture.is_captured(stream) and bool(stream.done)


def _raise_reported(cupy: Any) -> None:
    for known, text in _reported:
        if known == id(cupy):
            _reported.remove((known, text))
            raise RuntimeError(text)
