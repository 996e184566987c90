"""Which machines take part in a round: they meet at a store, and a round ends for all at once.

With ``--nnodes=MIN:MAX`` the launcher of each machine is a member. A round is open until MIN have
joined and a moment has passed, or MAX have; then the first to join closes it and says who is rank
0. Who comes later asks for another round. A round ends when ranks fail, when a machine falls
silent, when one more may join, or when all are done; who sees it first writes down why, and how
many rounds have failed. The next round begins with that one record: nobody sees half of an end.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from coredispatch.frontend.distributed.errors import DistNetworkError
from coredispatch.frontend.distributed.stores import PrefixStore
from coredispatch.frontend.distributed.tcp_store import TCPStore

__all__ = ["Membership", "Place", "Settings"]

_LOOK = 0.5  # seconds between two looks at the store while ranks run
_PAUSE = 0.05
_LEAVING = 10.0  # seconds to let the others read the end of the job


@dataclass(frozen=True)
class Place:
    """What a machine's ranks are in a round.

    Attributes:
        number: of the round, from 0.
        failures: how many rounds have failed before.
        machine, machines: which machine this is, of how many.
        first_rank: of this machine.
        world_size: ranks in all.
        host, port: where the ranks meet.
    """

    number: int
    failures: int
    machine: int
    machines: int
    first_rank: int
    world_size: int
    host: str
    port: int


@dataclass(frozen=True)
class Settings:
    """Of a job: how many machines, and how long to wait (``--rdzv-conf``, in seconds).

    Attributes:
        join_timeout: for enough machines to join.
        last_call_timeout: for more, once there are enough.
        keep_alive_timeout: for a sign of life of a machine.
    """

    least: int
    most: int
    join_timeout: float = 600.0
    last_call_timeout: float = 5.0
    keep_alive_timeout: float = 30.0

    @classmethod
    def read(cls, least: int, most: int, text: str) -> Settings:
        """``key=value,...`` as torchrun takes it; ValueError for a value that is no number."""
        known = {"join_timeout", "last_call_timeout", "keep_alive_timeout"}
        given = dict(item.partition("=")[::2] for item in text.split(",") if item.strip())
        found = {}
        for name, value in given.items():
            if name.strip() in known:
                try:
                    found[name.strip()] = float(value)
                except ValueError:
                    raise ValueError(f"--rdzv-conf {name}={value!r} is no number") from None
        return cls(least, most, **found)


class Membership:
    """This machine among those of a job. DistNetworkError where the store is gone."""

    def __init__(self, host: str, port: int, job: str, local_size: int, settings: Settings) -> None:
        self._settings, self._local_size = settings, local_size
        self._tcp = self._meet(host, port)
        self._store: Any = PrefixStore(f"launch/{job}", self._tcp)
        self._number = 0
        self._index = 0
        self._size = 0
        self._failures = 0  # before this round
        self._looked = 0.0
        self._signs: dict[int, tuple[int, float]] = {}

    def _meet(self, host: str, port: int) -> TCPStore:
        limit = timedelta(seconds=self._settings.join_timeout)
        try:
            return TCPStore(host, port, None, True, limit, False)
        except DistNetworkError:  # another machine's address, or another launcher was first
            return TCPStore(host, port, None, False, limit, False)

    def _key(self, name: str) -> str:
        return f"{self._number}/{name}"

    def _count(self, name: str) -> int:
        return int(self._store.add(self._key(name), 0))

    # -- before a round -----------------------------------------------------------------------

    def join(self) -> Place | None:
        """Take part in the next round, in which there is room; None where the job has ended."""
        while True:
            while self._store.check([self._key("end")]):
                end = self._found()
                if end["reason"] == "done":
                    return None
                self._number, self._failures = self._number + 1, end["failures"]
            self._index = int(self._store.add(self._key("joined"), 1)) - 1
            if self._index == 0:
                self._close()
            world = self._world()
            if self._index < world["size"]:
                return self._place(world)
            self._store.add(self._key("late"), 1)
            self._store.wait([self._key("end")], timedelta(days=365))

    def _close(self) -> None:
        """Wait for machines, and say how many take part."""
        settings = self._settings
        began = time.monotonic()
        enough: float | None = None
        while True:
            now, joined = time.monotonic(), self._count("joined")
            if joined >= settings.least and enough is None:
                enough = now
            if joined >= settings.most:
                break
            if enough is not None and now - enough > settings.last_call_timeout:
                break
            if enough is None and now - began > settings.join_timeout:
                raise DistNetworkError(
                    f"{joined} of at least {settings.least} machines have joined within "
                    f"{settings.join_timeout:.0f} s\n  fix: start the others, with the same "
                    "--rdzv-endpoint and --rdzv-id"
                )
            time.sleep(_PAUSE)
        address = self._tcp.own_address
        with socket.create_server((address, 0)) as probe:
            port = int(probe.getsockname()[1])
        world = {
            "size": min(joined, settings.most),
            "host": address,
            "port": port,
        }
        self._store.set(self._key("world"), json.dumps(world))

    def _world(self) -> dict[str, Any]:
        """What the first to join has said."""
        limit = self._settings.join_timeout + self._settings.last_call_timeout
        self._store.set(self._key(f"ranks/{self._index}"), str(self._local_size))
        self._store.wait([self._key("world")], timedelta(seconds=limit))
        found: dict[str, Any] = json.loads(self._store.get(self._key("world")))
        return found

    def _place(self, world: dict[str, Any]) -> Place:
        self._size, self._signs, self._looked = world["size"], {}, 0.0
        ranks = [int(self._store.get(self._key(f"ranks/{i}"))) for i in range(self._size)]
        return Place(
            self._number, self._failures, self._index, self._size,
            sum(ranks[: self._index]), sum(ranks), world["host"], world["port"],
        )  # fmt: skip

    # -- during a round -----------------------------------------------------------------------

    def ended(self) -> bool:
        """Whether the round is over, as some machine says; asks now and then."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return False
        self._looked = now
        if self._store.check([self._key("end")]):
            return True
        self._store.add(self._key(f"alive/{self._index}"), 1)
        silent = self._silent(now)
        if silent:
            self._end("failed", f"machine {silent[0]} is silent")
        elif self._size < self._settings.most and self._count("late"):
            self._end("grown", "another machine joins")
        return bool(self._store.check([self._key("end")]))

    def _silent(self, now: float) -> list[int]:
        found = []
        for other in range(self._size):
            signs = self._count(f"alive/{other}")
            before, since = self._signs.get(other, (-1, now))
            if signs != before:
                self._signs[other] = signs, now
            elif now - since > self._settings.keep_alive_timeout:
                found.append(other)
        return found

    def _end(self, reason: str, text: str) -> None:
        """Say why the round is over, unless another has."""
        failures = self._failures + (reason == "failed")
        end = json.dumps({"reason": reason, "text": text, "failures": failures})
        self._store.compare_set(self._key("end"), "", end)

    def _found(self) -> dict[str, Any]:
        """How the round ended."""
        end: dict[str, Any] = json.loads(self._store.get(self._key("end")))
        return end

    # -- after a round ------------------------------------------------------------------------

    def failed(self, text: str) -> str:
        """This machine's ranks have; why the round is over."""
        self._end("failed", text)
        return self.reason()

    def finished(self) -> str:
        """This machine's ranks have ended well: wait for those of the others."""
        if int(self._store.add(self._key("done"), 1)) == self._size:
            self._end("done", "")
        while not self.ended():
            time.sleep(_PAUSE)
        return self.reason()

    def reason(self) -> str:
        """Why the round is over: "done", "failed" or "grown"."""
        return str(self._found()["reason"])

    def why(self) -> str:
        """The same in words."""
        return str(self._found()["text"])

    def failures(self) -> int:
        """How many rounds have failed, with this one, which is over."""
        return int(self._found()["failures"])

    def leave(self) -> None:
        """The job is over; who serves the store waits until the others know."""
        left = int(self._store.add(self._key("left"), 1))
        end = time.monotonic() + _LEAVING
        while self._tcp._server is not None and left < self._size and time.monotonic() < end:
            time.sleep(_PAUSE)
            left = self._count("left")
        self._tcp.close()
