"""Where the processes of a job meet: ``env://``, ``tcp://host:port``, ``file:///path``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

from coredispatch.frontend.distributed.stores import FileStore, PrefixStore, Store
from coredispatch.frontend.distributed.tcp_store import TCPStore

__all__ = ["register_rendezvous_handler", "rendezvous"]

Handler = Callable[..., Iterator[tuple[Store, int, int]]]
_handlers: dict[str, Handler] = {}
_DEFAULT = timedelta(minutes=30)


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Let ``handler(url, timeout=...)`` serve URLs that begin with ``scheme://``.

    It yields ``(store, rank, world_size)``. Raises RuntimeError where the scheme is taken.
    """
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Any:
    """An iterator of ``(store, rank, world_size)`` for the URL; see the file.

    Raises RuntimeError for an unknown scheme, ValueError for what is missing.
    """
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    parts = urlparse(url)
    handler = _handlers.get(parts.scheme)
    if handler is None:
        raise RuntimeError(
            f"No rendezvous handler for {parts.scheme}://\n"
            f"  fix: use one of {', '.join(f'{s}://' for s in _handlers)}"
        )
    query = dict(parse_qsl(parts.query))
    if rank != -1:
        query["rank"] = str(rank)
    if world_size != -1:
        query["world_size"] = str(world_size)
    text = "&".join(f"{key}={value}" for key, value in query.items())
    return handler(parts._replace(query=text).geturl(), **kwargs)


def _refuse(scheme: str, what: str) -> ValueError:
    return ValueError(f"Error initializing coredispatch.distributed using {scheme}:// rendezvous: "
                      f"{what}")  # fmt: skip


def _numbers(scheme: str, url: str) -> tuple[Any, int, int]:
    parts = urlparse(url)
    query = dict(parse_qsl(parts.query))
    for name in ("rank", "world_size"):
        if name not in query:
            raise _refuse(scheme, f"{name.replace('_', ' ')} parameter missing")
    return parts, int(query["rank"]), int(query["world_size"])


def _file(url: str, timeout: timedelta = _DEFAULT, **kwargs: Any) -> Iterator[Any]:
    parts, rank, size = _numbers("file", url)
    if not parts.path:
        raise _refuse("file", "path missing")
    store = FileStore(parts.path, size)
    store.set_timeout(timeout)
    yield store, rank, size
    raise RuntimeError("Unable to perform rerendezvous using file:// method")


def _tcp(url: str, timeout: timedelta = _DEFAULT, **kwargs: Any) -> Iterator[Any]:
    parts, rank, size = _numbers("tcp", url)
    if not parts.port:
        raise _refuse("tcp", "port number missing")
    # A store that this process serves there already goes on: an earlier group may still hold it.
    store = TCPStore(parts.hostname, parts.port, size, rank == 0, timeout, False, True)
    yield store, rank, size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


def _env(url: str, timeout: timedelta = _DEFAULT, **kwargs: Any) -> Iterator[Any]:
    query = dict(parse_qsl(urlparse(url).query))

    def asked(name: str, variable: str) -> str:
        value = query.get(name) or os.environ.get(variable)
        if value is None:
            raise _refuse("env", f"environment variable {variable} expected, but not set")
        return value

    rank, size = int(asked("rank", "RANK")), int(asked("world_size", "WORLD_SIZE"))
    host, port = asked("", "MASTER_ADDR"), int(asked("", "MASTER_PORT"))
    # The launcher may keep the store itself, so that it outlives a round of processes.
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serves = rank == 0 and not kept
    store: Store = TCPStore(host, port, size, serves, timeout, False, True)
    if kept:  # what an earlier round left is there as well
        store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    yield store, rank, size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


register_rendezvous_handler("tcp", _tcp)
register_rendezvous_handler("env", _env)
register_rendezvous_handler("file", _file)
