"""Runs in a file: to go on where one was ended, to compare two, and to see how a backend went.

One SQLite file holds any number of runs. A result is written when it comes, so that a run that is
killed can be resumed with what it had.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coredispatch as cd
from coredispatch.registry import plugins

from .case import Result
from .shards import Options
from .subject import Subject, SuiteError

__all__ = ["DEFAULT", "Database", "Row", "fingerprint"]

#: the file of `--resume` where no other is named
DEFAULT = Path("conformance.sqlite")
FORMAT = 1
_SCHEMA = """
create table if not exists runs (
    run integer primary key, started text not null, backend text not null,
    fingerprint text not null, finished integer not null default 0, document text
);
create table if not exists results (
    run integer not null references runs, case_id text not null, result text not null,
    primary key (run, case_id)
) without rowid;
create index if not exists by_backend on runs (backend, run);
"""
#: results that may be lost with the power
_BATCH = 50
_SOURCES = frozenset((".py", ".toml", ".so", ".pyd", ".cl", ".cu", ".c", ".cpp", ".h", ".hpp"))


@dataclass(frozen=True)
class Row:
    """One run in the file; ``document`` is the report without its results."""

    run: int
    started: str
    backend: str
    finished: bool
    document: dict[str, Any]


class Database:
    """The runs in a file, which is made where it is missing.

    Raises :class:`SuiteError` where the file cannot be used, or is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Threads that serve workers record results, one at a time.
            self._held = sqlite3.connect(path, check_same_thread=False)
            version = self._held.execute("pragma user_version").fetchone()[0]
            if version not in (0, FORMAT):
                raise SuiteError(f"{path} is a database of another version of the suite")
            self._held.executescript(_SCHEMA)
            self._held.execute(f"pragma user_version = {FORMAT}")
        except (OSError, sqlite3.Error) as error:
            raise SuiteError(f"{path} cannot be used as a database of runs: {error}") from None
        self._run = 0
        self._waiting = 0

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.commit()
        self._held.close()

    # -- writing ---------------------------------------------------------------------------

    def begin(self, subject: Subject, options: Options, *, resume: bool) -> dict[str, Result]:
        """Start a run, or go on with the last one if that did not end; what it has by case.

        It must be a run of the same cases, the same backend, and the same code:
        :func:`fingerprint`.
        """
        mark = fingerprint(subject, options)
        found = None
        if resume:
            found = self._held.execute(
                "select run from runs where fingerprint = ? and not finished "
                "order by run desc limit 1",
                (mark,),
            ).fetchone()
        if found is None:
            row = (time.strftime("%Y-%m-%d %H:%M:%S"), subject.name, mark)
            added = self._held.execute(
                "insert into runs (started, backend, fingerprint) values (?, ?, ?)", row
            )
            self._run = int(added.lastrowid or 0)
        else:
            self._run = int(found[0])
        self._held.commit()
        return {r["case"]: Result.from_dict(r) for r in self._results(self._run)}

    def add(self, result: Result) -> None:
        """Keep one result of the run."""
        text = json.dumps(result.to_dict())
        self._held.execute(
            "insert or replace into results values (?, ?, ?)", (self._run, result.case, text)
        )
        self._waiting += 1
        if self._waiting >= _BATCH:
            self._waiting = 0
            self._held.commit()

    def finish(self, document: dict[str, Any], *, finished: bool) -> None:
        """Keep what the run came to; one that is not ``finished`` can be resumed."""
        text = json.dumps({k: v for k, v in document.items() if k != "results"})
        self._held.execute(
            "update runs set document = ?, finished = ? where run = ?",
            (text, int(finished), self._run),
        )
        self._held.commit()

    # -- reading ---------------------------------------------------------------------------

    def rows(self, backend: str | None = None) -> list[Row]:
        """The runs that gave a report, the oldest first."""
        found = self._held.execute(
            "select run, started, backend, finished, document from runs "
            "where document is not null and (? is null or backend = ?) order by run",
            (backend, backend),
        )
        return [Row(r, s, b, bool(f), json.loads(d)) for r, s, b, f, d in found]

    def document(self, run: int) -> dict[str, Any]:
        """The report of a run; raises :class:`SuiteError` where there is none of that number."""
        for row in self.rows():
            if row.run == run:
                return {**row.document, "results": [*self._results(run)]}
        known = ", ".join(str(r.run) for r in self.rows()) or "none"
        raise SuiteError(f"{self.path} has no run {run}", fix=f"its runs: {known}")

    def statuses(self, run: int) -> dict[str, str]:
        """The status of each case of a run."""
        query = "select case_id, json_extract(result, '$.status') from results where run = ?"
        return dict(self._held.execute(query, (run,)).fetchall())

    def _results(self, run: int) -> Iterator[dict[str, Any]]:
        found = self._held.execute("select result from results where run = ?", (run,))
        for (text,) in found:
            yield json.loads(text)


def fingerprint(subject: Subject, options: Options) -> str:
    """What a run depends on, as a short text.

    What is asked for, the versions, the plugins that are loaded, the fresh seed, what is declared,
    and the files of coredispatch, of the suite and of the backend's package. A library that the
    backend loads from elsewhere is not seen.
    """
    mark = hashlib.sha256()
    loaded = [f"{p.name} {p.version}" for p in plugins if p.status == "loaded"]
    path = options.expectations or subject.expectations.path
    declared = Path(path).read_bytes() if path else b""
    metadata = (subject.name, subject.backend.device_name(), cd.__version__, loaded)
    asked = (options.level, options.profiles, options.ops, options.ops_of, options.checks)
    mark.update(repr((metadata, asked, options.shard, options.fresh)).encode() + declared)
    homes = {Path(cd.__file__).parent, Path(__file__).parent}
    homes |= {subject.home} if subject.home is not None else set()
    for home in sorted(homes):
        files = [home] if home.is_file() else sorted(home.rglob("*"))
        for file in files:
            if file.suffix in _SOURCES:
                mark.update(str(file.relative_to(home)).encode())
                with contextlib.suppress(OSError):
                    mark.update(file.read_bytes())
    return mark.hexdigest()[:16]
