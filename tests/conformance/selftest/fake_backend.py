"""A backend of the self-test's own, so that faults of *ownership* have somewhere to happen.

The embedded backend cannot pass off the reference's kernels as its own, or fall back to it in
silence: it is the reference. The fake backend is another key with arrays of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import ArrayApiBackend, Backend, hookimpl, numpy_dtype

from ..subject import Subject

__all__ = ["NAME", "Box", "boxed", "loaded", "unboxed"]

NAME = "conformance_fake"


class Box:
    """The fake backend's arrays."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)

    shape = property(lambda self: self.data.shape)
    dtype = property(lambda self: self.data.dtype)
    ndim = property(lambda self: self.data.ndim)


def unboxed(value: Any) -> Any:
    """NumPy's arrays in the place of the fake backend's, lists opened."""
    if isinstance(value, Box):
        return value.data
    if isinstance(value, (list, tuple)):
        return type(value)(unboxed(v) for v in value)
    return value


def boxed(value: Any) -> Any:
    """The fake backend's arrays, with memory of their own, in the place of NumPy's."""
    if isinstance(value, (np.ndarray, np.generic)):
        return Box(np.array(value))
    if isinstance(value, (list, tuple)):
        return type(value)(boxed(v) for v in value)
    return value


def _lifted(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return boxed(kernel(*unboxed(args)))

    return run


class _Namespace(ArrayApiBackend):
    """Where the fake backend's honest kernels come from: the array-API families over NumPy."""

    xp = np


class FakeBackend(Backend):
    """The fake backend: every kernel of its own."""

    name = NAME
    array_type = Box
    kernels = {op: _lifted(kernel) for op, kernel in _Namespace().kernels.items()}

    def from_numpy(self, array: Any) -> Box:
        """A copy."""
        return Box(np.array(array))

    def to_numpy(self, raw: Box) -> Any:
        """A copy."""
        return raw.data.copy()

    def copyto(self, dst: Box, src: Box) -> None:
        """Write in place."""
        np.copyto(dst.data, src.data, casting="unsafe")

    def scalar(self, value: Any, dtype: Any) -> Box:
        """A 0-d array: NumPy would take the number for float32 among bfloat16."""
        return Box(np.asarray(value, numpy_dtype(dtype)))


@contextmanager
def loaded() -> Iterator[Subject]:
    """The fake backend as a subject, for the length of the block."""

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.backend(FakeBackend())

    module = ModuleType(NAME)
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load(NAME, module)
    try:
        yield Subject(NAME)
    finally:
        cd.plugins.unload(NAME)
