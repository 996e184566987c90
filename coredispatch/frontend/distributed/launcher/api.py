"""``elastic_launch``: what ``coredispatch launch`` does, from a program, with a function."""

from __future__ import annotations

import multiprocessing.spawn
import pickle
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coredispatch.frontend.distributed.elastic.multiprocessing.errors import (
    ChildFailedError,
    failures_in,
)
from coredispatch.frontend.distributed.launcher import function
from coredispatch.frontend.distributed.run.agent import run
from coredispatch.frontend.distributed.run.arguments import parse_args

__all__ = ["LaunchConfig", "elastic_launch"]


@dataclass
class LaunchConfig:
    """What is launched, as on the command line of ``coredispatch launch``.

    Attributes:
        min_nodes, max_nodes: machines.
        nproc_per_node: ranks on this one.
        run_id: a name for the job; of its own by default.
        role: a name for messages.
        rdzv_endpoint: host:port where several machines meet.
        rdzv_backend: ``"static"`` or ``"c10d"``.
        rdzv_configs: ``join_timeout``, ``last_call_timeout``, ``keep_alive_timeout``; ``rank`` is
            which machine this is.
        max_restarts: how often to start again after a failure.
        monitor_interval: seconds between looks at the ranks.
        shutdown_timeout: seconds from SIGTERM to SIGKILL.
        start_method, local_addr: kept for PyTorch's signature.
        launcher: ``"processes"``, or ``"mpi"`` for ``mpiexec``.
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "static"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    local_addr: str | None = None
    shutdown_timeout: int | None = None
    launcher: str = "processes"

    def __post_init__(self) -> None:
        if self.shutdown_timeout is not None and self.shutdown_timeout < 0:
            raise ValueError(f"shutdown_timeout must be non-negative, got {self.shutdown_timeout}")

    def _arguments(self) -> list[str]:
        known = {"join_timeout", "last_call_timeout", "keep_alive_timeout"}
        settings = ",".join(f"{k}={v}" for k, v in self.rdzv_configs.items() if k in known)
        return [
            f"--nnodes={self.min_nodes}:{self.max_nodes}",
            f"--nproc-per-node={self.nproc_per_node}",
            f"--node-rank={self.rdzv_configs.get('rank', 0)}",
            f"--rdzv-id={self.run_id or uuid.uuid4().hex}",
            f"--rdzv-endpoint={self.rdzv_endpoint}",
            f"--rdzv-backend={self.rdzv_backend}",
            f"--rdzv-conf={settings}",
            f"--role={self.role}",
            f"--max-restarts={self.max_restarts}",
            f"--monitor-interval={self.monitor_interval}",
            f"--shutdown-timeout={30 if self.shutdown_timeout is None else self.shutdown_timeout}",
            f"--launcher={self.launcher}",
        ]


class elastic_launch:
    """``elastic_launch(config, fn)(*args)``: ``fn(*args)`` on all ranks of a job.

    `fn` is a function that can be pickled, whose results come back as ``{rank: result}`` for the
    ranks of this machine; or a program, whose arguments are given, and the results are None. Called
    in the main thread. Raises ChildFailedError where the ranks fail, and no restarts are left.

    Example::

        results = elastic_launch(LaunchConfig(1, 1, 4, max_restarts=0), train)("data", 0.1)
    """

    def __init__(self, config: LaunchConfig, entrypoint: Callable[..., Any] | str) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        with tempfile.TemporaryDirectory(prefix="coredispatch-elastic-") as path:
            folder = Path(path)
            options = [*self._config._arguments(), f"--log-dir={folder / 'log'}"]
            if isinstance(self._entrypoint, str):
                name = self._entrypoint
                options += ["--no-python", name, *map(str, args)]
            else:
                name = getattr(self._entrypoint, "__qualname__", repr(self._entrypoint))
                self._leave(folder, args)
                options += [str(function.__file__), str(folder)]
            status = run(parse_args(options))
            if status:
                raise ChildFailedError(name, failures_in(folder / "log", status))
            results = {
                int(found.stem): pickle.loads(found.read_bytes())
                for found in folder.glob("*.result")
            }
        return dict(sorted(results.items())) or dict.fromkeys(range(self._config.nproc_per_node))

    def _leave(self, folder: Path, args: tuple[Any, ...]) -> None:
        """Leave the call where the ranks find it, and the program that it comes from."""
        preparation = multiprocessing.spawn.get_preparation_data("rank")
        preparation.pop("authkey", None)
        (folder / "program").write_bytes(pickle.dumps(preparation))
        try:
            call = pickle.dumps((self._entrypoint, args))
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise TypeError(
                f"elastic_launch: {self._entrypoint!r} cannot be sent to the ranks: {error}\n"
                "  fix: a function at the top level of a module, and arguments that pickle takes"
            ) from error
        (folder / "call").write_bytes(call)
