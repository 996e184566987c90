"""``TCPStore``: one process keeps the values, the others ask it over a connection."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

from coredispatch.frontend.distributed.errors import DistNetworkError
from coredispatch.frontend.distributed.stores import HashStore, Store, _packed, _unpacked

__all__ = ["StoreGoneError", "TCPStore"]

_GREETING = b"coredispatch store 1\n"
_WORKERS = "worker count"  # how many processes have connected


class StoreGoneError(DistNetworkError):
    """The process that served a store serves it no more."""

    __module__ = "coredispatch.distributed"


def receive_exactly(connection: socket.socket, count: int) -> bytearray:
    """`count` bytes; DistNetworkError where the other side closes before."""
    parts = bytearray(count)
    view = memoryview(parts)
    while view:
        got = connection.recv_into(view)
        if not got:
            raise DistNetworkError("the connection was closed by the other side")
        view = view[got:]
    return parts


def _send(connection: socket.socket, fields: Sequence[bytes]) -> None:
    record = _packed(fields)
    connection.sendall(struct.pack("<I", len(record)) + record)


def _receive(connection: socket.socket) -> list[bytes]:
    (length,) = struct.unpack("<I", receive_exactly(connection, 4))
    return _unpacked(bytes(receive_exactly(connection, length)))


class _Server:
    """Answers the clients of one store, a thread for each: a request that waits delays nobody.

    It serves until the last of the stores that this process opened of it is closed. Its clients
    are told then, so that none of them waits for what will not come.
    """

    def __init__(self, host: str, port: int, listening: socket.socket | None) -> None:
        self.values = HashStore()
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        self._clients: set[socket.socket] = set()
        self.socket = listening or socket.create_server((host, port), backlog=1024)
        self.port = int(self.socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True, name="TCPStore").start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:  # closed
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._closed:
                    connection.close()
                    return
                self._clients.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), daemon=True, name="TCPStore client"
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, DistNetworkError):
            self._answer(connection)
        with self._lock:
            self._clients.discard(connection)

    def _answer(self, connection: socket.socket) -> None:
        if receive_exactly(connection, len(_GREETING)) != _GREETING:
            return
        while True:
            name, *args = _receive(connection)
            if name == b"wait":
                seconds, *keys = args
                there = self.values._wait(keys, float(seconds))
                _send(connection, [b"1" if there else b"0"])
            else:
                _send(connection, self.values._call(name.decode(), *args))

    def open(self) -> bool:
        """One more store of this process uses it; False where it has just been closed."""
        with self._lock:
            self._users += not self._closed
            return not self._closed

    def close(self) -> None:
        """One of them uses it no more."""
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._closed:
                return
            self._closed = True
            # shutdown wakes the threads that accept and receive; close alone does not
            for connection in (self.socket, *self._clients):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self.socket.close()


class TCPStore(Store):
    """A store that one process serves and the others reach at ``host_name:port``.

    Args:
        host_name: the host of the process that serves; a loopback address stays on this machine.
        port: its port; 0 takes a free one, which ``port`` then says.
        world_size: how many processes use it; None where that is not known.
        is_master: whether this process serves it.
        timeout: how long to try to connect, and how long ``get`` and ``wait`` wait.
        wait_for_workers: return when `world_size` processes are connected.
        multi_tenant: take the store that this process serves at that port already.
        master_listen_fd: a listening socket to use.
        use_libuv: kept for PyTorch's signature.

    Raises:
        DistNetworkError: the port is taken, or nobody answers there in time.
    """

    __module__ = "coredispatch.distributed"

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = timedelta(seconds=300),
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        self._timeout = timeout
        self.host = host_name
        self.libuvBackend = False
        self._server: _Server | None = None
        if is_master:
            self._server = self._serve(host_name, port, multi_tenant, master_listen_fd)
            port = self._server.port
        self.port = int(port)
        self._lock = threading.Lock()
        self._connection = self._connect()
        if wait_for_workers and world_size is not None and world_size > 0:
            self._wait_for_workers(world_size)

    _internal = frozenset((_WORKERS.encode(),))
    _tenants: dict[int, _Server] = {}

    def _serve(self, host: str, port: int, shared: bool, listening: int | None) -> _Server:
        if shared and port in self._tenants and self._tenants[port].open():
            return self._tenants[port]
        given = None if listening is None else socket.socket(fileno=listening)
        try:
            server = _Server(host, port, given)
        except OSError as error:
            raise DistNetworkError(
                f"The server socket has failed to listen on {host}:{port}: {error.strerror}\n"
                "  fix: choose another port (MASTER_PORT), or 0 for a free one"
            ) from error
        server.open()
        if shared:
            self._tenants[server.port] = server
        return server

    def _connect(self) -> socket.socket:
        end = time.monotonic() + self._timeout.total_seconds()
        pause = 0.01
        while True:
            left = end - time.monotonic()
            try:
                connection = socket.create_connection((self.host, self.port), max(left, 0.1))
                connection.sendall(_GREETING)
                break
            except OSError as error:
                if left <= pause:
                    raise DistNetworkError(
                        f"The client socket has failed to connect to {self.host}:{self.port} "
                        f"within {self._timeout.total_seconds():.0f} s: {error}\n"
                        "  fix: see whether rank 0 has started, and whether MASTER_ADDR and "
                        "MASTER_PORT are the same everywhere"
                    ) from error
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _wait_for_workers(self, world_size: int) -> None:
        self.add(_WORKERS, 1)
        if self._server is None:
            return
        end = time.monotonic() + self._timeout.total_seconds()
        while self.add(_WORKERS, 0) < world_size:
            if time.monotonic() > end:
                raise DistNetworkError(
                    f"{self.add(_WORKERS, 0)} of {world_size} processes have joined the store"
                    f" within {self._timeout.total_seconds():.0f} s\n"
                    "  fix: start the others, or raise the timeout"
                )
            time.sleep(0.005)

    @property
    def own_address(self) -> str:
        """The address by which this process reaches the store: others reach it by the same."""
        return str(self._connection.getsockname()[0])

    def _ask(self, *fields: bytes) -> list[bytes]:
        with self._lock:
            try:
                _send(self._connection, fields)
                return _receive(self._connection)
            except (OSError, DistNetworkError) as error:
                raise StoreGoneError(
                    f"the store at {self.host}:{self.port} is gone: {error}\n"
                    "  fix: the process that serves it (rank 0) must live as long as the others"
                ) from error

    def _call(self, name: str, *args: bytes) -> list[bytes]:
        return self._ask(name.encode(), *args)

    def _wait(self, ready: Sequence[bytes], seconds: float) -> bool:
        # In slices: another thread of this process that asks in between gets its turn.
        end = time.monotonic() + seconds
        while True:
            left = max(end - time.monotonic(), 0.0)
            if self._ask(b"wait", b"%f" % min(left, 0.05), *ready) == [b"1"]:
                return True
            if left == 0.0:
                return False

    def close(self) -> None:
        """Leave the store; the process that serves it stops serving, unless it has others of it."""
        self._connection.close()
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
