"""Devices that no machine has: ``cards``, two with memory of their own, and ``delayed``.

Plugins as a third party would write them (they import ``coredispatch.plugin`` only), for what the
framework promises of devices with an index and of devices that compute later.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch.plugin as cdp


class _Host(cdp.ArrayApiBackend):
    """Where the kernels of both come from; it is not registered."""

    name, array_type, xp = "host_of_fakes", np.ndarray, np


def _silently(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return run


HOST = _Host()
KERNELS = {name: _silently(function) for name, function in HOST.kernels.items()}


def each(function: Callable[[Any], Any], kind: type, item: Any) -> Any:
    """``item`` with every ``kind`` in it replaced by ``function`` of it."""
    if isinstance(item, kind):
        return function(item)
    if isinstance(item, (list, tuple)) and not hasattr(item, "_fields"):
        return type(item)([each(function, kind, inner) for inner in item])
    return item


# -- two cards -----------------------------------------------------------------------------------


class Current(threading.local):
    """The current card of a thread: card 1, so that code that forgets an index is found out."""

    card = 1


CURRENT = Current()


class Card:
    """An array in the memory of one card; only that card may touch it."""

    def __init__(self, array: np.ndarray, card: int) -> None:
        self.array, self.card = np.array(array, order="C"), card
        self.shape, self.dtype, self.ndim = self.array.shape, self.array.dtype, self.array.ndim
        self.size, self.itemsize = self.array.size, self.array.itemsize


def touched(raw: Card) -> np.ndarray:
    """The memory of ``raw``, as the current card sees it: not at all where it is another's."""
    if raw.card != CURRENT.card:
        raise RuntimeError(f"illegal access to memory of card {raw.card} by card {CURRENT.card}")
    return raw.array


def on_card(function: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of the cards that computes as a NumPy kernel does."""

    def kernel(*args: Any) -> Any:
        for argument in args:
            if isinstance(argument, cdp.Device):
                assert argument.index == CURRENT.card, "a kernel is told the current device"
        out = function(*each(touched, Card, args))
        return each(lambda array: Card(array, CURRENT.card), np.ndarray, _arrays(out))

    return kernel


def _arrays(out: Any) -> Any:
    return each(np.asarray, np.generic, out)


class Cards(cdp.Backend):
    """Two devices. ``by_host`` counts what went through main memory, ``across`` what did not."""

    name, array_type = "cards", Card
    kernels = {name: on_card(function) for name, function in KERNELS.items()}
    by_host = across = 0

    def device_count(self) -> int:
        return 2

    def device_index(self, raw: Card) -> int:
        return raw.card

    def check_device(self, index: int | None) -> int:
        return CURRENT.card if index is None else super().check_device(index)

    def set_current_device(self, index: int) -> None:
        CURRENT.card = index

    @contextlib.contextmanager
    def on(self, index: int) -> Iterator[None]:
        before, CURRENT.card = CURRENT.card, index
        try:
            yield
        finally:
            CURRENT.card = before

    def transfer(self, raw: Any, source: Any, index: int, non_blocking: bool = False) -> Any:
        assert index == CURRENT.card, "the target is current"
        if source is self:
            self.across += 1
            return Card(raw.array, index)
        return super().transfer(raw, source, index, non_blocking)

    def from_numpy(self, array: Any) -> Card:
        self.by_host += 1
        return Card(array, CURRENT.card)

    def to_numpy(self, raw: Card) -> np.ndarray:
        self.by_host += 1
        return raw.array.copy()

    def copyto(self, dst: Card, src: Card) -> None:
        np.copyto(touched(dst), touched(src), casting="unsafe")

    def scalar(self, value: Any, dtype: cdp.DType) -> Any:
        return Card(np.asarray(value, cdp.numpy_dtype(dtype)), CURRENT.card)


# -- a device that computes later ----------------------------------------------------------------


class Queue:
    """Work not done yet, in order; ``waits`` counts how often somebody waited for it."""

    def __init__(self) -> None:
        self.work: list[Promise] = []
        self.waits = 0
        self.lock = threading.RLock()

    def drain(self) -> None:
        """Do all of it; the error of a kernel names the call that caused it."""
        with self.lock:
            self.waits += 1
            work, self.work = self.work, []
            for promise in work:
                promise.keep()


QUEUE = Queue()


class Promise:
    """An array whose shape and dtype are known and whose elements may not be yet."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype, self.ndim = tuple(shape), dtype, len(shape)
        self.array: np.ndarray | None = None
        self.error: Exception | None = None
        self.keep: Callable[[], None] = lambda: None

    def read(self) -> np.ndarray:
        """The elements; waits for them, and raises what made them impossible."""
        if self.array is None and self.error is None:
            QUEUE.drain()
        if self.error is not None:
            raise self.error
        assert self.array is not None
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """What NumPy reads: shape rules of operators such as ``nonzero`` look at elements."""
        return np.array(self.read(), dtype, copy=copy)


def kept(array: np.ndarray) -> Promise:
    """An array that is there already."""
    promise = Promise(array.shape, cdp.DType.of(array.dtype))
    promise.array = np.array(array, order="C")
    return promise


def later(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel that puts the work of a NumPy kernel into the queue where shapes are known."""

    def kernel(*args: Any) -> Any:
        op = cdp.operator(name)
        cdp.check(name, args)
        shape, dtype = op.out_rule(*args), cdp.result_dtype(op, args)
        single = isinstance(shape, tuple) and all(isinstance(n, int) for n in shape)
        if not single or not isinstance(dtype, cdp.DType) or op.random or op.lists:
            out = function(*each(Promise.read, Promise, args))  # its shape depends on the elements
            return each(kept, np.ndarray, _arrays(out))
        return promised(
            f"{name}({', '.join(map(described, args))})",
            Promise(shape, dtype),
            lambda: np.asarray(function(*each(Promise.read, Promise, args))),
        )

    return kernel


def described(argument: Any) -> str:
    """An argument of a kernel as an error shows it."""
    if isinstance(argument, Promise):
        return f"{argument.dtype.name}[{', '.join(map(str, argument.shape))}]"
    return repr(argument)


def promised(call: str, promise: Promise, work: Callable[[], np.ndarray]) -> Promise:
    """``promise``, which ``work`` will keep; its error says which call it was."""

    def keep() -> None:
        try:
            promise.array = work()
        except Exception as error:
            # Of the same class, so that a program that expects the error finds it later too.
            kind = type(error) if isinstance(error, cdp.CoreDispatchError) else cdp.KernelError
            promise.error = kind(f"{call}, called earlier, failed: {error}")

    promise.keep = keep
    with QUEUE.lock:
        QUEUE.work.append(promise)
    return promise


class Delayed(cdp.Backend):
    """One device that computes when somebody reads or waits."""

    name, array_type = "delayed", Promise
    kernels = {name: later(name, function) for name, function in KERNELS.items()}
    from_numpy = staticmethod(kept)
    to_numpy = staticmethod(lambda raw: raw.read().copy())

    def synchronize(self, index: int = 0) -> None:
        waiting = list(QUEUE.work)
        QUEUE.drain()
        for promise in waiting:
            if promise.error is not None:
                raise promise.error

    def copyto(self, dst: Promise, src: Promise) -> Promise:
        """A promise that takes the place of ``dst``: promises are not written to."""
        dtype = cdp.numpy_dtype(dst.dtype)
        return promised(
            "a write in place",
            Promise(dst.shape, dst.dtype),
            lambda: np.broadcast_to(src.read(), dst.shape).astype(dtype),
        )

    def scalar(self, value: Any, dtype: cdp.DType) -> Any:
        return kept(np.asarray(value, cdp.numpy_dtype(dtype)))


@cdp.hookimpl
def coredispatch_register(registrar: cdp.Registrar) -> None:
    """Register both."""
    registrar.backend(Cards())
    registrar.backend(Delayed())
