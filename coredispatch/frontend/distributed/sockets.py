"""The backend ``socket``: processes connected in pairs, where no launcher of MPI joined them.

``init_process_group("gloo")`` takes it in processes that ``mpiexec`` did not start, such as those
of ``multiprocessing.spawn``. The sockets listen on the address by which the process reaches the
store: on loopback where the store is on loopback. Who connects must know a secret from the store.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
import threading
from datetime import timedelta
from typing import Any

from coredispatch.frontend.distributed.communicator import GroupInfo
from coredispatch.frontend.distributed.errors import DistNetworkError
from coredispatch.frontend.distributed.labels import WIDTH
from coredispatch.frontend.distributed.mailboxes import Mailboxes
from coredispatch.frontend.distributed.peers import PeerCommunicator, Transport
from coredispatch.frontend.distributed.stores import PrefixStore
from coredispatch.frontend.distributed.tcp_store import TCPStore, receive_exactly

__all__ = ["SocketTransport", "socket_communicator"]

#: length of the channel's name, tag, length of the message, label
_HEADER = struct.Struct(f"<HqQ{WIDTH}s")
_SECRET = 32


class SocketTransport(Transport):
    """A connection to each other rank; a thread for each takes in what comes."""

    def __init__(self, rank: int, size: int, store: Any, seconds: float) -> None:
        self.rank = rank
        self.boxes = Mailboxes()
        self._connections: dict[int, socket.socket] = {}
        self._closing = threading.Lock()
        self._closed = False
        self._ended: set[int] = set()  # peers from which nothing more comes
        self._locks = {peer: threading.Lock() for peer in range(size)}
        self._meet(size, store, seconds)
        for peer in self._connections:
            threading.Thread(
                target=self._read, args=(peer,), daemon=True, name=f"messages of rank {peer}"
            ).start()

    def _meet(self, size: int, store: Any, seconds: float) -> None:
        limit = timedelta(seconds=seconds)
        if self.rank == 0:
            store.set("secret", secrets.token_bytes(_SECRET))
        store.wait(["secret"], limit)
        secret = store.get("secret")
        with socket.create_server((_own_address(store), 0), backlog=size) as listening:
            listening.settimeout(seconds)
            host, port = listening.getsockname()[:2]
            store.set(f"address/{self.rank}", f"{host} {port}")
            for peer in range(self.rank):
                store.wait([f"address/{peer}"], limit)
                where, number = store.get(f"address/{peer}").decode().split()
                try:
                    connection = socket.create_connection((where, int(number)), seconds)
                    connection.sendall(secret + struct.pack("<I", self.rank))
                except OSError as error:
                    raise DistNetworkError(
                        f"rank {self.rank} could not connect to rank {peer} at {where}:{number}: "
                        f"{error}\n  fix: see whether that rank has ended, and whether its address "
                        "can be reached from here"
                    ) from error
                self._keep(peer, connection)
            while len(self._connections) < size - 1:
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    absent = set(range(size)) - self._connections.keys() - {self.rank}
                    raise DistNetworkError(
                        f"rank {self.rank} waited {seconds:.0f} s for ranks {sorted(absent)} to "
                        "connect\n  fix: see whether they have started"
                    ) from None
                connection.settimeout(seconds)
                greeting = receive_exactly(connection, _SECRET + 4)
                if hmac.compare_digest(greeting[:_SECRET], secret):
                    self._keep(struct.unpack("<I", greeting[_SECRET:])[0], connection)
                else:
                    connection.close()
        # Who serves the store may leave the group at once: the others need it no more then.
        if self.rank:
            store.set(f"met/{self.rank}", "")
        else:
            store.wait([f"met/{peer}" for peer in range(1, size)], limit)

    def _keep(self, peer: int, connection: socket.socket) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[peer] = connection

    def _read(self, peer: int) -> None:
        connection = self._connections[peer]
        try:
            while True:
                header = receive_exactly(connection, _HEADER.size)
                name, tag, length, label = _HEADER.unpack(header)
                channel = receive_exactly(connection, name).decode()
                self.boxes.put(peer, channel, tag, receive_exactly(connection, length), label)
        except (OSError, DistNetworkError) as error:
            self.boxes.gone(peer, str(error))
        with self._closing:
            self._ended.add(peer)
            if self._closed:
                connection.close()

    def post(self, dst: int, channel: str, tag: int, data: memoryview, label: bytes) -> None:
        if dst == self.rank:
            self.boxes.put(dst, channel, tag, bytes(data), label)
            return
        name = channel.encode()
        header = _HEADER.pack(len(name), tag, len(data), label) + name
        connection = self._connections[dst]
        try:
            with self._locks[dst]:
                if len(data) < 65536:
                    connection.sendall(header + data)
                else:
                    connection.sendall(header)
                    connection.sendall(data)
        except OSError as error:
            raise ConnectionError(f"rank {dst} is gone: {error}") from error

    def take(
        self, src: int | None, channel: str, tag: int, seconds: float
    ) -> tuple[int, bytes | bytearray, bytes]:
        return self.boxes.take(src, channel, tag, seconds)

    def ready(self, src: int | None, channel: str, tag: int) -> bool:
        return self.boxes.ready(src, channel, tag)

    def close(self) -> None:
        """Say that nothing more comes. What the others still send is read until they close, too."""
        with self._closing:
            self._closed = True
            for peer, connection in self._connections.items():
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
                if peer in self._ended:
                    connection.close()


def _own_address(store: Any) -> str:
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store.own_address if isinstance(store, TCPStore) else "127.0.0.1"


def socket_communicator(info: GroupInfo) -> PeerCommunicator:
    """Connect this process with the others of the job, which find each other by the store."""
    transport = SocketTransport(info.rank, info.size, info.store, info.timeout)
    return PeerCommunicator("socket", transport, range(info.size), channel="")
