"""``--nnodes=MIN:MAX``: launchers that meet, a machine that joins later, one that is lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from coredispatch.frontend.distributed.errors import DistNetworkError
from coredispatch.frontend.distributed.run.membership import Membership, Place, Settings

pytestmark = pytest.mark.once

PROGRAM = str(Path(__file__).parent / "joining_program.py")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Machine:
    """A launcher without ranks, in a thread of its own."""

    def __init__(self, port: int, settings: Settings, ranks: int = 1) -> None:
        self.members = Membership("127.0.0.1", port, "job", ranks, settings)

    def join_until(self, count: int) -> Place:
        """Join rounds until one has ``count`` machines: one may be slower than others wait."""
        while (place := self.members.join()) is not None and place.machines < count:
            until_ended(self)
        assert place is not None
        return place

    def begin(self, name: str, *args: Any) -> Machine:
        function = getattr(self, name, None) or getattr(self.members, name)

        def run() -> None:
            self.result = function(*args)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        return self

    def end(self) -> Any:
        self.thread.join()
        return self.result


def until_ended(*machines: Machine) -> list[str]:
    for machine in machines:  # those behind it wait less: each looks at the store by itself
        while not machine.members.ended():
            time.sleep(0.02)
    return [machine.members.reason() for machine in machines]


def together(*machines: Machine) -> list[Place]:
    """Let them join until all are in one round."""
    for machine in machines:
        machine.begin("join_until", len(machines))
    return [machine.end() for machine in machines]


def test_rounds(port: int) -> None:
    settings = Settings(1, 2, last_call_timeout=0.5)
    first, second = Machine(port, settings, 2), Machine(port, settings, 3)
    alone = first.begin("join").end()
    assert (alone.number, alone.machines, alone.first_rank, alone.world_size) == (0, 1, 0, 2)
    second.begin("join_until", 2)
    assert until_ended(first) == ["grown"] and "joins" in first.members.why()
    places = [first.begin("join_until", 2).end(), second.end()]
    assert {(p.machine, p.first_rank) for p in places} in ({(0, 0), (1, 2)}, {(0, 0), (1, 3)})
    assert {p.world_size for p in places} == {5} and {p.failures for p in places} == {0}
    assert len({(p.host, p.port, p.number) for p in places}) == 1
    third = Machine(port, settings).begin("join")  # there is no room for it
    assert second.members.failed("a rank was lost") == "failed"
    assert until_ended(first) == ["failed"] and first.members.why() == "a rank was lost"
    assert first.members.failed("another as well") == "failed" and first.members.failures() == 1
    after = third.end()
    assert (after.number, after.machines, after.failures) == (places[0].number + 1, 1, 1)


def test_whoever_sees_the_end_of_a_round_sees_all_of_it(port: int, monkeypatch: Any) -> None:
    """A machine that falls silent while it ends a round leaves no half of an end behind."""
    settings = Settings(1, 2, last_call_timeout=5.0)
    machines = [Machine(port, settings) for _ in range(2)]
    number = together(*machines)[0].number
    monkeypatch.setattr(machines[1].members._store, "add", lambda *_: 1)  # its last word
    assert machines[1].members.failed("a rank was lost") == "failed"
    assert until_ended(machines[0]) == ["failed"] and machines[0].members.failures() == 1
    settings = Settings(1, 1)  # nobody to wait for
    monkeypatch.setattr(machines[0].members, "_settings", settings)
    place = machines[0].begin("join").end()
    assert (place.number, place.failures, place.machines) == (number + 1, 1, 1)


def test_a_job_ends_for_all_at_once(port: int) -> None:
    settings = Settings(2, 3, last_call_timeout=0.2)
    machines = [Machine(port, settings) for _ in range(2)]
    assert [p.failures for p in together(*machines)] == [0, 0]
    machines[0].begin("finished")
    assert machines[0].thread.is_alive()
    machines[1].begin("finished")
    assert [machine.end() for machine in machines] == ["done", "done"]
    assert Machine(port, settings).begin("join").end() is None
    for machine in machines:
        machine.begin("leave")
    for machine in machines:
        machine.end()
    socket.create_server(("127.0.0.1", port)).close()  # nobody listens there any more


def test_a_silent_machine_ends_the_round(port: int) -> None:
    settings = Settings(1, 2, last_call_timeout=5.0, keep_alive_timeout=0.3)
    machines = [Machine(port, settings) for _ in range(2)]
    places = together(*machines)
    assert until_ended(machines[0]) == ["failed"]
    assert machines[0].members.why() == f"machine {places[1].machine} is silent"


def test_too_few_machines(port: int) -> None:
    with pytest.raises(DistNetworkError, match="1 of at least 2 machines have joined"):
        Membership("127.0.0.1", port, "job", 1, Settings(2, 3, join_timeout=0.2)).join()


def test_settings() -> None:
    found = Settings.read(1, 4, "join_timeout=7, last_call_timeout=2,is_host=0")
    assert found == Settings(1, 4, 7.0, 2.0, 30.0)
    with pytest.raises(ValueError, match="--rdzv-conf join_timeout='x' is no number"):
        Settings.read(1, 4, "join_timeout=x")


def test_a_machine_that_joins_later(port: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "coredispatch", "launch", "--nnodes", "1:2"]
    command += ["--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", "last_call_timeout=3"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    jobs: list[subprocess.Popen[str]] = []

    def start() -> None:
        jobs.append(subprocess.Popen(
            [*command, PROGRAM, str(tmp_path)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ))  # fmt: skip

    try:
        start()
        while not (tmp_path / "begun").exists() and jobs[0].poll() is None:
            time.sleep(0.02)
        start()
        said = [job.communicate() for job in jobs]
    finally:
        for job in jobs:
            if job.poll() is None:
                job.terminate()
                job.communicate()
    assert [job.returncode for job in jobs] == [0, 0], said
    out, err = ("".join(texts) for texts in zip(*said, strict=True))
    assert out.count("from 1 ranks to 2") == 2
    for rank in range(2):
        assert f"rank {rank} of 2 ended 5 steps later, 0 restarts" in out
    assert "round 0: machine 0 of 1, 1 ranks in all" in err and "another machine joins" in err
