"""Starting the ranks of a round, watching them, and starting again."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coredispatch.frontend.distributed.backend_names import mpi_is_there
from coredispatch.frontend.distributed.errors import DistError
from coredispatch.frontend.distributed.monitoring import DASHBOARD
from coredispatch.frontend.distributed.run import rank as rank_program
from coredispatch.frontend.distributed.run.arguments import local_ranks, parse_args, streams
from coredispatch.frontend.distributed.run.dashboard import Dashboard
from coredispatch.frontend.distributed.run.membership import Membership, Place, Settings
from coredispatch.frontend.distributed.run.output import Tail, console
from coredispatch.registry.around.loader import plugins

__all__ = ["main", "run"]

_FULL = 64 * 1024  # bytes left on a disk on which ranks can say no more what went wrong


def main(args: Sequence[str] | None = None) -> int:
    """Launch what the command line says; returns the exit status."""
    return run(parse_args(args))


def run(options: argparse.Namespace) -> int:
    """Launch; 0 when all ranks of some round have ended well."""
    try:
        job = _Job(options)
    except ValueError as error:
        print(f"coredispatch launch: {error}", file=sys.stderr)
        return 2
    try:
        with job.folder() as folder, _ends_with_signals():
            return _run_job(job, folder)
    except (KeyboardInterrupt, SystemExit) as end:
        status = end.code if isinstance(end, SystemExit) else None
        number = status - 128 if isinstance(status, int) else int(signal.SIGINT)
        _say(f"ended by {signal.Signals(number).name}, and the ranks with it")
        return 128 + number
    except OSError as error:
        _say(f"{error}\n  fix: free space, or --log-dir on another disk")
        return 1


def _run_job(job: _Job, folder: Path) -> int:
    """Rounds on a fixed number of machines, or on as many as there are."""
    if job.elastic:
        return _run_elastic(job, folder)
    options = job.options
    for attempt in range(options.max_restarts + 1):
        status = _Round(job, folder / f"attempt_{attempt}", job.place(attempt)).run()
        if status == 0:
            return 0
        left = options.max_restarts - attempt
        if left:
            _say(f"starting {job.local_size} ranks again ({left} restarts left)")
    return status


def _run_elastic(job: _Job, folder: Path) -> int:
    """Rounds of as many machines as there are; one that joins later makes another round."""
    restarts = job.options.max_restarts
    try:
        members = Membership(*job.endpoint(), job.options.rdzv_id, job.local_size, job.settings)
        while (place := members.join()) is not None:
            _say(
                f"round {place.number}: machine {place.machine} of {place.machines}, "
                f"{place.world_size} ranks in all"
            )
            status = _Round(job, folder / f"attempt_{place.number}", place, members).run()
            text = f"ranks of machine {place.machine} failed"
            reason = members.failed(text) if status else members.finished()
            if reason == "done":
                break
            left = restarts - members.failures()
            if left < 0:
                _say(f"{members.why()}, and no restarts are left")
                members.leave()
                return status or 1
            _say(f"{members.why()}: starting again ({left} restarts left)")
        members.leave()
    except DistError as error:
        _say(str(error))
        return 1
    return 0


def _say(text: str) -> None:
    print(f"coredispatch launch: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _ends_with_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the ranks as Ctrl-C does."""

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Job:
    """What the command line says, checked."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.local_size = local_ranks(str(options.nproc_per_node))
        least, _, most = str(options.nnodes).partition(":")
        try:
            self.nodes = int(least)
            most_nodes = int(most or least)
        except ValueError:
            raise ValueError(f"--nnodes {options.nnodes!r} is neither N nor MIN:MAX") from None
        if not 1 <= self.nodes <= most_nodes:
            raise ValueError(f"--nnodes {options.nnodes}: the least is not between 1 and the most")
        if options.standalone and self.nodes > 1:
            raise ValueError(
                f"--standalone is one machine, --nnodes {options.nnodes} waits for {self.nodes}\n"
                "  fix: --nnodes 1, or --rdzv-endpoint HOST:PORT in place of --standalone"
            )
        outside = not 0 <= options.node_rank < self.nodes
        if self.nodes == most_nodes > 1 and outside:
            raise ValueError(f"--node-rank {options.node_rank} is not one of {self.nodes} machines")
        self.settings = Settings.read(self.nodes, most_nodes, str(options.rdzv_conf))
        self.elastic = most_nodes > self.nodes and not options.standalone
        self.mpiexec = self._mpiexec()
        self._check_streams()

    def _mpiexec(self) -> str | None:
        wanted = self.options.launcher
        several = self.nodes > 1 or self.elastic
        if wanted == "processes" or (wanted == "auto" and several):
            return None
        found = str(plugins.info("mpi").get("mpiexec", "")) if mpi_is_there() else ""
        if Path(found).exists() and found:
            return found
        if wanted == "mpi":
            raise ValueError(
                "--launcher mpi: there is no mpiexec\n  fix: pip install coredispatch-mpi mpich"
            )
        return None

    def _check_streams(self) -> None:
        for name in ("redirects", "tee"):
            try:
                streams(getattr(self.options, name), 0)
            except ValueError:
                raise ValueError(
                    f"--{name} {getattr(self.options, name)!r}: use 1, 2, 3 or RANK:N,RANK:N"
                ) from None

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """Where the ranks' output goes: below ``--log-dir``, or somewhere temporary."""
        if self.options.log_dir is None:
            with tempfile.TemporaryDirectory(prefix="coredispatch-launch-") as path:
                yield Path(path)
        else:
            kept = Path(self.options.log_dir) / f"{self.options.rdzv_id}_{os.getpid()}"
            kept.mkdir(parents=True)
            yield kept.absolute()

    def endpoint(self) -> tuple[str, int]:
        """Where the ranks meet."""
        options = self.options
        host, port = options.master_addr, options.master_port
        if options.rdzv_endpoint and not options.standalone:
            host, _, text = options.rdzv_endpoint.rpartition(":")
            host, port = (host, int(text)) if host else (options.rdzv_endpoint, 29400)
        if port is None or options.standalone:
            if self.nodes > 1 or self.elastic:
                return host, 29500
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port = int(probe.getsockname()[1])
        return host, port

    def place(self, attempt: int) -> Place:
        """What this machine's ranks are, where the number of machines is fixed."""
        machine, size = self.options.node_rank if self.nodes > 1 else 0, self.local_size
        return Place(
            attempt, attempt, machine, self.nodes, machine * size, self.nodes * size,
            *self.endpoint(),
        )  # fmt: skip


class _Round:
    """The ranks, from their start until all have ended."""

    def __init__(
        self, job: _Job, folder: Path, place: Place, members: Membership | None = None
    ) -> None:
        self.job, self.folder, self.members = job, folder, members
        folder.mkdir()
        self.first_rank = place.first_rank
        self.specification = folder / "round.json"
        self.specification.write_text(json.dumps(self._details(place)))
        self.tails = list(self._tails())
        self.dashboard = Dashboard(folder) if job.options.dashboard else None
        self.processes: list[subprocess.Popen[bytes]] = []

    def _details(self, place: Place) -> dict[str, Any]:
        job, options = self.job, self.job.options
        size = str(place.world_size)
        environment = {
            "MASTER_ADDR": place.host,
            "MASTER_PORT": str(place.port),
            "WORLD_SIZE": size,
            "ROLE_WORLD_SIZE": size,
            "ROLE_NAME": options.role,
            "GROUP_RANK": str(place.machine),
            "GROUP_WORLD_SIZE": str(place.machines),
            "TORCHELASTIC_RESTART_COUNT": str(place.failures),
            "TORCHELASTIC_MAX_RESTARTS": str(options.max_restarts),
            "TORCHELASTIC_RUN_ID": options.rdzv_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "PYTHONUNBUFFERED": "1",
        }
        if options.dashboard:
            environment[DASHBOARD] = str(self.folder)
        if job.local_size > 1:  # ranks that each use all cores would only fight
            environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
        return {
            "folder": str(self.folder),
            "environment": environment,
            "local_size": job.local_size,
            "first_rank": self.first_rank,
            "command": [options.training_script, *options.training_script_args],
            "module": options.module,
            "no_python": options.no_python,
            "pass_local_rank": options.pass_local_rank,
        }

    def _tails(self) -> Iterator[Tail]:
        options = self.job.options
        shown = {int(r) for r in options.local_ranks_filter.split(",") if r}
        for local in range(self.job.local_size):
            if shown and local not in shown:
                continue
            for bit, stream in ((1, "stdout"), (2, "stderr")):
                tee = streams(options.tee, local) & bit
                if streams(options.redirects, local) & bit and not tee:
                    continue
                prefix = f"[{options.role}{local}]:" if tee else ""
                path = self.folder / str(local) / f"{stream}.log"
                yield Tail(path, console(stream), prefix, local)

    def _start(self) -> None:
        command = [sys.executable, "-u", rank_program.__file__, str(self.specification)]
        environment = os.environ | json.loads(self.specification.read_text())["environment"]
        if self.job.mpiexec is not None:
            extra = _options_of(self.job.mpiexec)
            full = [self.job.mpiexec, *extra, "-n", str(self.job.local_size), *command]
            self._popen(full, environment, self.folder / "mpiexec.log")
            return
        for local in range(self.job.local_size):
            own = environment | {"COREDISPATCH_LOCAL_RANK": str(local)}
            self._popen(command, own, self.folder / f"start_{local}.log")

    def _popen(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        launcher = os.getpid()

        def end_with_launcher() -> None:  # one that is killed leaves no ranks behind
            rank_program.end_with_parent(launcher, signal.SIGTERM)

        with open(log, "wb") as file:
            self.processes.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=end_with_launcher,
                )
            )

    def run(self) -> int:
        """Start, watch, end; the exit status of the round."""
        try:
            self._start()
            status = self._watch()
        finally:
            self._end()
            for tail in self.tails:
                tail.show(all_of_it=True)
        if status:
            self._leave_ends()
            self._explain(status)
            if shutil.disk_usage(self.folder).free < _FULL:
                _say(
                    f"there is no space left in {str(self.folder)!r}, where the ranks' output "
                    "goes\n  fix: free space, or --log-dir on another disk"
                )
        return status

    def _leave_ends(self) -> None:
        """Notes of ranks that ended without a word; under mpiexec their supervisors leave them."""
        if self.job.mpiexec is None:
            for rank, code in self._codes():
                rank_program.leave(self.folder / f"{rank}.end", rank=rank, code=code)

    def _watch(self) -> int:
        pause = min(max(self.job.options.monitor_interval, 0.01), 0.1)
        while True:
            codes = [process.poll() for process in self.processes]
            for tail in self.tails:
                tail.show()
            if self.dashboard is not None:
                self.dashboard.show(now=all(code == 0 for code in codes))
            if any(codes):
                return self._status(codes)
            if all(code == 0 for code in codes):
                return 0
            if self.members is not None and self.members.ended():
                return 0  # elsewhere, or one more machine joins: nothing to explain here
            if any(self.folder.glob("*.error")):
                self._let_end(1.0)  # the rank, or mpiexec, is about to say so itself
                return self._status([process.poll() for process in self.processes])
            time.sleep(pause)

    def _status(self, codes: list[int | None]) -> int:
        """The exit status of a rank that failed by itself, rather than because of another."""
        reports = self._reports("error")
        own = [report for report in reports if not report["follows"]]
        follows = {report["rank"] for report in reports}
        if own:
            status: int = own[0]["status"]
        elif self.job.mpiexec is not None:
            # mpiexec's own status joins those of all ranks, also of those that it killed.
            status = next((end["code"] for end in self._reports("end")), 1)
        else:
            ends = [(self.first_rank + i in follows, code) for i, code in enumerate(codes) if code]
            _, status = min(ends, key=lambda rank: rank[0], default=(False, 1))
        return status if 0 < status < 256 else 1

    def _let_end(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(p.poll() is None for p in self.processes):
            time.sleep(0.02)

    def _end(self) -> None:
        """End what still runs: SIGTERM, and SIGKILL when that was not enough."""
        for number, seconds in (
            (signal.SIGTERM, self.job.options.shutdown_timeout),
            (signal.SIGKILL, 5.0),
        ):
            running = [p for p in self.processes if p.poll() is None]
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            if running:
                self._let_end(seconds)
        self._end_ranks()

    def _end_ranks(self) -> None:
        """Ranks whose launcher was killed live on without it."""
        if self.job.mpiexec is None:
            return
        for path in self.folder.glob("*.pid"):
            pid = int(path.read_text() or 0)
            with contextlib.suppress(OSError, ValueError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if str(self.specification).encode() in command:
                    os.kill(pid, signal.SIGKILL)

    # -- saying what happened -----------------------------------------------------------------

    def _explain(self, status: int) -> None:
        reports = self._reports("error")
        own = [report for report in reports if not report["follows"]]
        killed = [] if own else list(self._killed())
        if killed:
            rank, what = killed[0]
            _say(f"rank {rank} {what}; the others were ended (exit status {status})")
            return
        if reports:
            first = (own or reports)[0]
            if first["text"]:
                print(f"[rank {first['rank']}]: {first['text']}", file=sys.stderr, end="")
            _say(f"rank {first['rank']} failed; the others were ended (exit status {status})")
            return
        logs = [p for p in sorted(self.folder.glob("*.log")) if p.stat().st_size]
        for path in logs[:1]:
            sys.stderr.write(path.read_text(errors="replace")[-4000:])
        _say(f"the ranks ended with status {status}")

    def _reports(self, kind: str) -> list[dict[str, Any]]:
        """What ranks left of their errors, or their supervisors of their ends; the first first."""
        reports = []
        for path in self.folder.glob(f"*.{kind}"):
            with contextlib.suppress(ValueError):
                reports.append(json.loads(path.read_text()))
        return sorted(reports, key=lambda report: float(report["time"]))

    def _killed(self) -> Iterator[tuple[int, str]]:
        """Ranks that ended without a word: by a signal, or an exit status."""
        if self.job.mpiexec is not None:
            for end in self._reports("end"):
                yield end["rank"], _how(end["code"])
            return
        for rank, code in self._codes():
            yield rank, _how(code)

    def _codes(self) -> Iterator[tuple[int, int]]:
        """Ranks that failed without a word, where each is a process of the launcher."""
        for local, process in enumerate(self.processes):
            code, rank = process.returncode, self.first_rank + local
            ended_here = code in (0, None, -signal.SIGTERM)
            if not ended_here and not (self.folder / f"{rank}.error").exists():
                yield rank, code


def _how(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit status {code}"


def _options_of(mpiexec: str) -> list[str]:
    """What Open MPI needs for more ranks than cores, and for root; other MPIs need nothing."""
    said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False)
    text = said.stdout + said.stderr
    if "Open MPI" in text or "OpenRTE" in text:
        return ["--oversubscribe", *(["--allow-run-as-root"] if os.getuid() == 0 else [])]
    return []
