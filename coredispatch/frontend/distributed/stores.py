"""Stores: where processes that start together find each other's addresses and small values.

:class:`HashStore` is for the threads of one process, :class:`FileStore` for processes that see one
file system, :class:`TCPStore` (in ``tcp_store``) for processes that can reach one host.
"""

from __future__ import annotations

import contextlib
import operator
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from coredispatch.frontend.distributed.errors import DistStoreError, QueueEmptyError
from coredispatch.frontend.distributed.store_state import CHANGING, StoreState

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store"]


def _bytes(call: str, value: Any) -> bytes:
    """What a store keeps of a key or a value that was given to `call`."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(
        f"{call}: keys and values are str or bytes, not {type(value).__name__} ({value!r:.60})\n"
        "  fix: pass str(...), or pickle.dumps(...) for what is no text"
    )


def _listed(call: str, keys: Sequence[str]) -> list[bytes]:
    """Several keys. A str would be taken for the keys of its letters."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"{call}: keys is a list of keys, not {keys!r}\n  fix: pass [{keys!r}]")
    return [_bytes(call, key) for key in keys]


class Store:
    """Keys and values that all processes of a job see. Values are ``bytes``; str is encoded.

    A subclass gives ``_call(name, args)``, which carries out an operation at once, and ``_wait``.
    ``get`` and ``wait`` wait for a key as long as ``timeout`` says, then raise DistStoreError.
    """

    __module__ = "coredispatch.distributed"
    _timeout = timedelta(seconds=300)
    #: keys that the store itself has set; ``num_keys`` counts them, as PyTorch's does
    _internal: frozenset[bytes] = frozenset()

    def _call(self, name: str, *args: bytes) -> list[bytes]:
        raise NotImplementedError(f"{type(self).__name__} does not define {name}")

    def _wait(self, ready: Sequence[bytes], seconds: float) -> bool:
        """Whether all keys are there in time."""
        raise NotImplementedError(f"{type(self).__name__} does not define wait")

    @property
    def timeout(self) -> timedelta:
        """How long ``get`` and ``wait`` wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set :attr:`timeout`."""
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Give `key` a value."""
        self._call("set", _bytes("Store.set", key), _bytes("Store.set", value))

    def get(self, key: str) -> bytes:
        """The value of `key`, once it has one."""
        self.wait([key])
        found = self._call("get", _bytes("Store.get", key))
        if not found:
            raise DistStoreError(f"the key {key!r} was deleted while it was read")
        return found[0]

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which begins at 0; returns the sum."""
        try:
            number = operator.index(amount)
        except TypeError:
            raise TypeError(
                f"Store.add: the amount is an integer, not {amount!r}\n  fix: pass int(...)"
            ) from None
        return int(self._call("add", _bytes("Store.add", key), b"%d" % number)[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Put `value` behind what the key has."""
        self._call("append", _bytes("Store.append", key), _bytes("Store.append", value))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set the key if it has the value `expected`, or none and that is ``""``.

        Returns the value that the key has then (`expected` where there is no key).
        """
        args = (_bytes("Store.compare_set", arg) for arg in (key, expected, desired))
        return self._call("compare_set", *args)[0]

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there; does not wait."""
        return self._call("check", *_listed("Store.check", keys)) == [b"1"]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are there; DistStoreError after `timeout`."""
        limit = self._timeout if timeout is None else timeout
        wanted = _listed("Store.wait", keys)
        if self._call("check", *wanted) == [b"1"] or self._wait(wanted, limit.total_seconds()):
            return
        names = ", ".join(str(key) for key in keys)
        raise DistStoreError(
            f"wait timeout after {limit.total_seconds() * 1000:.0f}ms, keys: {names}\n"
            "  fix: see whether the rank that sets them has started, or raise the timeout"
        )

    def delete_key(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return self._call("delete_key", _bytes("Store.delete_key", key)) == [b"1"]

    def num_keys(self) -> int:
        """How many keys there are."""
        return len(self._call("keys"))

    def list_keys(self) -> list[str]:
        """The keys, sorted."""
        return [key.decode() for key in self._call("keys") if key not in self._internal]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, once all are there."""
        _listed("Store.multi_get", keys)
        self.wait(keys)
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several keys: all of them, or none where one cannot be kept."""
        names = _listed("Store.multi_set", keys)
        kept = [_bytes("Store.multi_set", value) for value in values]
        if len(names) != len(kept):
            raise ValueError(
                f"Store.multi_set: {len(names)} keys and {len(kept)} values\n"
                "  fix: give each key a value"
            )
        for name, value in zip(names, kept, strict=True):
            self._call("set", name, value)

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put a value into the queue `key`."""
        self._call("push", _bytes("Store.queue_push", key), _bytes("Store.queue_push", value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the oldest value of the queue; QueueEmptyError where `block` is False."""
        while True:
            found = self._call("pop", _bytes("Store.queue_pop", key))
            if found:
                return found[0]
            if not block:
                raise QueueEmptyError(f"queue {key} is empty")
            self.wait([key])

    def queue_len(self, key: str) -> int:
        """How many values the queue has."""
        return int(self._call("length", _bytes("Store.queue_len", key))[0])

    def has_extended_api(self) -> bool:
        """True: ``append``, ``multi_get`` and ``multi_set`` are there."""
        return True

    def clone(self) -> Store:
        """A store with the same contents that another thread may use: this one, which is safe."""
        return self


class HashStore(Store):
    """A store in this process' memory, for its threads."""

    __module__ = "coredispatch.distributed"

    def __init__(self) -> None:
        self._state = StoreState()
        self._changed = threading.Condition()
        self.threads: Any = None  # what a group of threads shares, made by the first of them

    def _call(self, name: str, *args: bytes) -> list[bytes]:
        with self._changed:
            result = self._state.apply(name, list(args))
            if name in CHANGING:
                self._changed.notify_all()
            return result

    def _wait(self, ready: Sequence[bytes], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: all(self._state.has(key) for key in ready), seconds
            )


class FileStore(Store):
    """A store in a file: a log of operations, read by every process that opens it.

    The file must not exist when the first process begins, or be left by nobody: a file of an
    earlier job has that job's keys. `world_size` is kept for PyTorch's signature.
    """

    __module__ = "coredispatch.distributed"

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self.path = os.fspath(file_name)
        self._state = StoreState()
        self._read = 0
        self._lock = threading.Lock()

    def _call(self, name: str, *args: bytes) -> list[bytes]:
        changing = name in CHANGING
        with self._lock, self._opened(changing) as file:
            self._catch_up(file)
            if changing:
                record = _packed([name.encode(), *args])
                file.seek(0, os.SEEK_END)
                file.write(struct.pack("<Q", len(record)) + record)
                file.flush()
                self._read = file.tell()
            return self._state.apply(name, list(args))

    def _wait(self, ready: Sequence[bytes], seconds: float) -> bool:
        return _poll(lambda: self._call("check", *ready) == [b"1"], seconds)

    @contextlib.contextmanager
    def _opened(self, changing: bool) -> Iterator[Any]:
        import fcntl

        with open(self.path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX if changing else fcntl.LOCK_SH)
            try:
                yield file
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def _catch_up(self, file: Any) -> None:
        file.seek(self._read)
        log = file.read()
        at = 0
        while at + 8 <= len(log):
            (length,) = struct.unpack_from("<Q", log, at)
            name, *args = _unpacked(log[at + 8 : at + 8 + length])
            self._state.apply(name.decode(), args)
            at += 8 + length
        self._read += at


class PrefixStore(Store):
    """Another store, with a prefix in front of each key: ``prefix/key``."""

    __module__ = "coredispatch.distributed"

    def __init__(self, prefix: str, store: Store) -> None:
        self._prefix = _bytes("PrefixStore", prefix) + b"/"
        self.underlying_store = store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        store = self.underlying_store
        return store._underlying_non_prefix_store if isinstance(store, PrefixStore) else store

    @property
    def timeout(self) -> timedelta:
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self.underlying_store.set_timeout(timeout)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        wanted = [(self._prefix + key).decode() for key in _listed("Store.wait", keys)]
        self.underlying_store.wait(wanted, timeout)

    def _call(self, name: str, *args: bytes) -> list[bytes]:
        if name == "keys":
            below = self.underlying_store._call(name)
            return [k[len(self._prefix) :] for k in below if k.startswith(self._prefix)]
        keys = len(args) if name == "check" else 1
        return self.underlying_store._call(
            name, *(self._prefix + arg for arg in args[:keys]), *args[keys:]
        )


def _packed(fields: Sequence[bytes]) -> bytes:
    """Fields of bytes, each after its length."""
    return b"".join(struct.pack("<I", len(field)) + field for field in fields)


def _unpacked(record: bytes) -> list[bytes]:
    fields, at = [], 0
    while at < len(record):
        (length,) = struct.unpack_from("<I", record, at)
        fields.append(record[at + 4 : at + 4 + length])
        at += 4 + length
    return fields


def _poll(ready: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    pause = 0.001
    while not ready():
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return True
