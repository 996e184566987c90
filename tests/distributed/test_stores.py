"""Stores: the same contract for all, from threads that wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import coredispatch.distributed as dist

pytestmark = pytest.mark.once

Make = Callable[[], dist.Store]


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Each call opens the same store, as another process would."""
    if request.param == "file":
        return lambda: dist.FileStore(str(tmp_path / "store"), 2)
    if request.param == "tcp":
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        opened = [server]

        def connect() -> dist.Store:
            opened.append(dist.TCPStore("127.0.0.1", server.port))
            return opened[-1]

        request.addfinalizer(lambda: [store.close() for store in reversed(opened)])
        return connect
    store = dist.HashStore()
    return lambda: dist.PrefixStore("p", store) if request.param == "prefix" else store


def test_values(make: Make) -> None:
    a, b = make(), make()
    a.set("key", "value")
    assert b.get("key") == b"value"
    assert a.add("n", 3) == 3 and b.add("n", -1) == 2 and a.get("n") == b"2"
    a.append("key", b"\0more")
    assert b.get("key") == b"value\0more"
    assert a.compare_set("c", "x", "y") == b"x"  # no such key
    assert a.compare_set("c", "", "first") == b"first"
    assert b.compare_set("c", "no", "z") == b"first" and b.compare_set("c", "first", "z") == b"z"
    assert a.check(["key", "n"]) and not a.check(["key", "absent"])
    assert b.num_keys() == 3 and b.list_keys() == ["c", "key", "n"]
    assert a.delete_key("c") and not b.delete_key("c")
    a.multi_set(["x", "y"], ["1", b"2"])
    assert b.multi_get(["x", "y"]) == [b"1", b"2"]
    a.queue_push("q", "one")
    a.queue_push("q", "two")
    assert b.queue_len("q") == 2 and b.queue_pop("q") == b"one" and a.queue_pop("q") == b"two"
    with pytest.raises(dist.QueueEmptyError):
        a.queue_pop("q", block=False)


def test_waiting(make: Make) -> None:
    a, b = make(), make()
    thread = threading.Thread(target=lambda: b.set("late", "here"))
    thread.start()
    assert a.get("late") == b"here"
    thread.join()
    with pytest.raises(dist.DistStoreError, match="wait timeout after 20ms, keys: (p/)?never"):
        a.wait(["never"], timedelta(milliseconds=20))
    a.set_timeout(timedelta(milliseconds=10))
    assert a.timeout == timedelta(milliseconds=10)
    with pytest.raises(dist.DistStoreError):
        a.get("never")


def test_counting_in_many_threads(make: Make) -> None:
    stores = [make() for _ in range(4)]

    def count(store: dist.Store) -> None:
        for _ in range(25):
            store.add("total", 1)

    threads = [threading.Thread(target=count, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].get("total") == b"100"


@pytest.mark.parametrize("value", [5, None, 1.5, [1, 2], True])
def test_what_is_neither_text_nor_bytes_is_refused(make: Make, value: Any) -> None:
    store = make()
    for call in (
        lambda: store.set("a", value),
        lambda: store.append("a", value),
        lambda: store.compare_set("a", value, "x"),
        lambda: store.compare_set("a", "", value),
        lambda: store.multi_set(["a", "b"], ["x", value]),
        lambda: store.queue_push("a", value),
        lambda: store.set(value, "x"),
        lambda: store.get(value),
        lambda: store.add(value, 1),
        lambda: store.check([value]),
        lambda: store.wait([value]),
        lambda: store.delete_key(value),
    ):
        with pytest.raises(TypeError, match=r"Store\.\w+: keys and values are .*\n  fix: "):
            call()
    assert store.num_keys() == 0


def test_arguments_of_stores(make: Make) -> None:
    store = make()
    store.set("a", bytearray(b"\0x"))
    assert store.get(b"a") == b"\0x"  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the amount is an integer, not 1.5"):
        store.add("n", 1.5)  # type: ignore[arg-type]
    for call in (store.check, store.wait, store.multi_get):
        with pytest.raises(TypeError, match="keys is a list of keys, not 'ab'"):
            call("ab")
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        store.multi_set(["a", "b"], ["x"])
    assert store.list_keys() == ["a"]


def test_keys_of_the_store_itself_are_not_listed() -> None:
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    store.set("a", "x")
    assert store.list_keys() == ["a"]
    store.close()


def test_nobody_serves() -> None:
    with pytest.raises(dist.DistNetworkError, match="rank 0 has started"):
        dist.TCPStore("127.0.0.1", 1, timeout=timedelta(seconds=0.1))


def test_a_port_that_is_taken() -> None:
    first = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(dist.DistNetworkError, match="another port"):
        dist.TCPStore("127.0.0.1", first.port, is_master=True, wait_for_workers=False)
    first.close()
