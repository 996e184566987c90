"""``init_process_group`` after ``destroy_process_group``: the ranks find each other again."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist

pytestmark = pytest.mark.once

PROGRAM = str(Path(__file__).parent / "rejoining_program.py")


@pytest.mark.parametrize(
    ("launcher", "where"),  # MPI meets by itself, and makes a store when it is asked for
    [("processes", ""), ("processes", "file"), ("processes", "tcp"), ("mpi", ""), ("mpi", "file")],
)
def test_processes(
    launcher: str, where: str, run_program: Any, request: Any, tmp_path: Path
) -> None:
    if launcher == "mpi":
        request.getfixturevalue("mpirun")  # skips where there is none
    address = {"": [], "file": [f"file://{tmp_path / 'store'}"], "tcp": [f"tcp://{_free()}"]}
    done = run_program(
        sys.executable, "-m", "coredispatch", "launch", "--launcher", launcher,
        "--nproc-per-node", "3", PROGRAM, *address[where],
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} joined 6 times" for rank in range(3)]


def _free() -> str:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.close()
    return f"127.0.0.1:{store.port}"


@pytest.mark.parametrize("kind", ["local", "socket"])
def test_one_store_for_several_groups(kind: str, tmp_path: Path) -> None:
    shared = dist.HashStore() if kind == "local" else dist.FileStore(str(tmp_path / "store"))

    def program(rank: int) -> None:
        dist.destroy_process_group()
        for size in (2, 2, 3, 2):
            if rank >= size:
                continue
            dist.init_process_group(kind, store=shared, rank=rank, world_size=size)
            total = cd.tensor([rank])
            dist.all_reduce(total)
            assert total.item() == sum(range(size))
            dist.destroy_process_group()

    dist.threads.spawn(program, nprocs=3)


def test_who_was_not_met_may_come_again() -> None:
    store = dist.HashStore()

    def program(rank: int) -> None:
        dist.destroy_process_group()
        if rank == 1:
            with pytest.raises(dist.DistStoreError):
                dist.init_process_group(
                    "socket", store=store, rank=1, world_size=2, timeout=timedelta(seconds=0.05)
                )
            store.set("failed", "")
        store.wait(["failed"])
        dist.init_process_group("socket", store=store, rank=rank, world_size=2)
        dist.barrier()
        dist.destroy_process_group()

    dist.threads.spawn(program, nprocs=2)


def test_a_store_is_served_until_all_of_the_process_that_use_it_are_closed() -> None:
    first = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, multi_tenant=True)
    again = dist.TCPStore(
        "127.0.0.1", first.port, is_master=True, wait_for_workers=False, multi_tenant=True
    )
    client = dist.TCPStore("127.0.0.1", first.port)
    first.set("a", "x")
    first.close()
    first.close()
    assert again.get("a") == client.get("a") == b"x"
    again.close()
    with pytest.raises(dist.DistNetworkError, match="the store at .* is gone.*\n  fix: "):
        client.get("a")
    client.close()
