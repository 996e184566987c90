"""``coredispatch launch``: environment, output, failures, restarts."""

from __future__ import annotations

import io
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.distributed.run import parse_args
from coredispatch.frontend.distributed.run import agent
from coredispatch.frontend.distributed.run.output import Tail

pytestmark = pytest.mark.once

PROGRAM = str(Path(__file__).parent / "launched_program.py")


@pytest.fixture(params=["mpi", "processes"])
def launch(request: pytest.FixtureRequest, run_program: Any) -> Any:
    if request.param == "mpi":
        request.getfixturevalue("mpirun")  # skips where there is none

    def run(*arguments: str, ok: bool = True, nproc: int = 2) -> Any:
        command = [sys.executable, "-m", "coredispatch", "launch", "--launcher", request.param]
        return run_program(*command, "--nproc-per-node", str(nproc), *arguments, ok=ok)

    run.kind = request.param
    return run


def test_ranks_and_their_output(launch: Any, tmp_path: Path) -> None:
    done = launch("--tee", "1", "--log-dir", str(tmp_path), PROGRAM)
    lines = sorted(done.stdout.splitlines())
    engine = "mpi" if launch.kind == "mpi" else "socket"
    for rank in range(2):
        assert f"[default{rank}]:rank {rank} of 2 sees 3 over {engine}" in lines
        assert f"to stderr from {rank}" in done.stderr.splitlines()
        (log,) = tmp_path.glob(f"*/attempt_0/{rank}/stdout.log")
        assert f"rank {rank} of 2" in log.read_text()
    assert not any("Warning" in line for line in done.stderr.splitlines()), done.stderr


def test_an_exception_is_shown_once_with_its_rank(launch: Any) -> None:
    done = launch(PROGRAM, "--fail", "raise", ok=False)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "[rank 1]: Traceback" in done.stderr and "this rank cannot go on" in done.stderr
    assert "rank.py" not in done.stderr and "runpy" not in done.stderr


def test_the_exit_status_is_the_one_of_the_rank_that_failed(launch: Any) -> None:
    # not the one of a rank that was ended for it: mpiexec joins the bits of both
    done = launch(PROGRAM, "--fail", "exit", ok=False)
    assert done.returncode == 7, done.stderr


def test_a_killed_rank_and_a_restart(launch: Any, tmp_path: Path) -> None:
    arguments = [PROGRAM, "--fail", "kill", "--once", str(tmp_path / "killed")]
    done = launch("--max-restarts", "1", *arguments)
    assert "rank 1 was killed by SIGKILL; the others were ended" in done.stderr
    assert "restarts 0" in done.stdout and "restarts 1" in done.stdout


def test_the_older_module_and_exit_statuses(run_program: Any) -> None:
    command = [sys.executable, "-m", "coredispatch.distributed.launch", "--launcher", "processes"]
    done = run_program(*command, "--nproc_per_node=2", PROGRAM, "--fail", "exit", ok=False)
    assert done.returncode == 7
    assert "local rank 0" in done.stdout and "local rank 1" in done.stdout
    assert "RuntimeWarning" not in done.stderr


def test_any_program(run_program: Any) -> None:
    command = [sys.executable, "-m", "coredispatch.distributed.run", "--launcher", "processes"]
    done = run_program(*command, "--nproc-per-node=2", "--no-python", "printenv", "RANK")
    assert sorted(done.stdout.split()) == ["0", "1"] and "Warning" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--nproc-per-node", "many"], "neither a number nor auto"),
        (["--nnodes", "3:2"], "the least is not between"),
        (["--tee", "x"], "--tee 'x'"),
        (["--standalone", "--nnodes", "2:3"], "--standalone is one machine, --nnodes 2:3 waits"),
    ],
)
def test_a_wrong_command_line(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cd.distributed.run.main([*arguments, "script.py"]) == 2
    assert text in capsys.readouterr().err


def test_torchruns_arguments_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    line = "--standalone --nnodes=1:2 --max_restarts 2 --rdzv-backend c10d -m pkg.train --lr 3"
    found = parse_args(line.split())
    assert (found.nproc_per_node, found.max_restarts, found.module) == ("3", 2, True)
    assert found.training_script_args == ["--lr", "3"]


def test_a_progress_bar_is_shown_while_it_grows(tmp_path: Path) -> None:
    shown = io.StringIO()
    tail = Tail(tmp_path / "log", shown, "", 0)
    for new, expected in (
        (b"\r 5%", "\r"),
        (b"\r10%", "\r 5%\r"),
        (b"\r20%\r", "\r 5%\r10%\r"),
        (b"\nend\r\nun", "\r 5%\r10%\r20%\r\nend\r\n"),
    ):
        with open(tmp_path / "log", "ab") as file:
            file.write(new)
        tail.show()
        assert shown.getvalue() == expected
    tail.show(all_of_it=True)
    tail.show(all_of_it=True)
    assert shown.getvalue().endswith("\r20%\r\nend\r\nun\n")
    prefixed = io.StringIO()
    Tail(tmp_path / "log", prefixed, "[default0]:", 0).show()
    assert prefixed.getvalue().endswith("[default0]:20%\r\n[default0]:end\r\n")


@pytest.mark.parametrize(
    ("end", "status", "text"),
    [
        (KeyboardInterrupt(), 130, "ended by SIGINT, and the ranks with it"),
        (SystemExit(128 + signal.SIGTERM), 143, "ended by SIGTERM, and the ranks with it"),
        (OSError(28, "No space left on device"), 1, "fix: free space, or --log-dir on another"),
    ],
)
def test_a_launcher_that_is_ended_says_so_in_a_line(
    end: BaseException,
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ended(*_: Any) -> int:
        raise end

    monkeypatch.setattr(agent, "_run_job", ended)
    assert cd.distributed.run.main(["script.py"]) == status
    assert text in capsys.readouterr().err


def test_a_full_disk_below_the_ranks_output_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    line = ["--launcher", "processes", "--log-dir", str(tmp_path), "--no-python", "false"]
    assert cd.distributed.run.main(line) == 1
    assert f"no space left in '{tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "status", "text"),
    [
        ("import sys; sys.exit(3)", 3, "coredispatch launch: rank 0 failed; "),
        ("raise SystemExit('no such model')", 1, "[rank 0]: no such model\n"),
        (None, 1, "[rank 0]: FileNotFoundError: "),
    ],
)
def test_an_end_that_is_no_error_of_the_program_has_no_traceback(
    program: str | None, status: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    if program is not None:
        script.write_text(program)
    assert cd.distributed.run.main(["--launcher", "processes", str(script)]) == status
    shown = capsys.readouterr().err
    assert shown.startswith(text) and "Traceback" not in shown


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to tell of a parent's end")
def test_a_launcher_that_is_killed_leaves_no_ranks_behind(launch: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "coredispatch", "launch", "--launcher", launch.kind]
    command += ["--log-dir", str(tmp_path), "--nproc-per-node", "2", "--no-python", "sleep", "999"]
    job = subprocess.Popen(command)
    ranks: list[int] = []
    while len(ranks) < 2 and job.poll() is None:
        texts = [path.read_text() for path in tmp_path.glob("*/attempt_0/*.pid")]
        ranks = [int(text) for text in texts if text]
    job.kill()
    job.wait()
    assert len(ranks) == 2
    for rank in ranks:
        while _runs(rank):
            time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return "(sleep) Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it ended before, or while it was read
        return False
