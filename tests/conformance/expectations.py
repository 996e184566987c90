"""What a backend declares about itself: capabilities, and failures it knows of.

Both stand in ``conformance.toml`` inside the backend's own package, never in the suite::

    [capabilities]
    dtypes = ["bool", "uint8", "int32", "int64", "float32", "float64"]
    profiles = ["amp"]
    absent = ["rng-state"]              # named features the backend does not have
    sizes = [4096]                      # numbers of elements from which its code is another

    [policies]
    flush_to_zero = ["float32"]         # what it does otherwise, see :mod:`.policies`

    [[expected_failures]]
    case = "sum/special-values/float32/contiguous/special:0a1b2c3d"
    reason = "the library loses the sign of zero"
    issue = "https://example.org/issues/12"
    expires = 2030-01-01

An expected failure is strict: one that passes, that names no case of its operator at any level, or
whose date is past, is a failure of the run. One of a case outside the run is not looked at.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coredispatch.registry import CoreDispatchError
from coredispatch.registry.model.dtypes import ALL_DTYPES

from .case import Case, Result, Status
from .policies import NONE, Policies

__all__ = ["FEATURES", "Expectations", "ExpectationsError", "ExpectedFailure"]

#: what a backend may declare absent; the cases that need it then must raise
FEATURES = ("rng-state", "dlpack", "out", "autocast", "threads")

#: what an expected failure has to say
ENTRY = ("case", "reason", "issue", "expires")


class ExpectationsError(CoreDispatchError):
    """``conformance.toml`` is malformed; the message names the entry."""


@dataclass(frozen=True)
class ExpectedFailure:
    """One known failure: exact case id, why, where it is tracked, and until when."""

    case: str
    reason: str
    issue: str
    expires: datetime.date


@dataclass
class Expectations:
    """The declarations of one backend. ``dtypes`` None means every dtype."""

    path: Path | None = None
    dtypes: tuple[str, ...] | None = None
    profiles: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    policies: Policies = NONE
    sizes: tuple[int, ...] = ()
    failures: dict[str, ExpectedFailure] = field(default_factory=dict)

    @classmethod
    def load(
        cls, path: Path | None, policies: Mapping[str, Any] | None = None, of: str = ""
    ) -> Expectations:
        """Read a file; None gives the declarations of a backend that has everything.

        ``policies`` are those that the class ``of`` the backend has. A policy that the file names
        is as the file says.
        """
        own = _given(of, dict(policies or {}))
        if path is None:
            return cls(policies=Policies(**own))
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ExpectationsError(f"{path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ExpectationsError(f"{path}: {error}", fix="it must be valid TOML") from None
        capabilities = _capabilities(path, data)
        told = Policies(**own | _given(path, data.get("policies", {})))
        return cls(Path(path), **capabilities, policies=told, failures=_failures(path, data))

    def judge(self, case: Case, result: Result, today: datetime.date | None = None) -> Result:
        """The result with an expected failure taken into account: ``waived`` or ``xpass``."""
        expected = self.failures.get(case.id)
        if expected is None or result.status == Status.NOT_RUN:
            return result
        if expected.expires < (today or datetime.date.today()):
            result.message = f"its waiver expired on {expected.expires}: {result.message}"
            if result.status == Status.PASS:
                result.status = Status.XPASS
        elif result.status in (Status.FAIL, Status.CRASH, Status.TIMEOUT):
            result.status = Status.WAIVED
            result.message = f"{expected.reason} ({expected.issue}): {result.message}"
        elif result.status == Status.PASS:
            result.status = Status.XPASS
            result.message = f"expected to fail ({expected.reason}), but it passes: remove it"
        return result

    def unmatched(self, ids: Iterable[str], ops: Iterable[str]) -> list[ExpectedFailure]:
        """Expected failures of the operators ``ops`` that name none of the cases ``ids``."""
        known, covered = set(ids), set(ops)
        return [
            e
            for e in self.failures.values()
            if e.case not in known and e.case.partition("/")[0] in covered
        ]


def _strings(path: Any, value: Any, what: str, allowed: Iterable[str]) -> tuple[str, ...]:
    allowed = list(allowed)
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ExpectationsError(f"{path}: {what} must be a list of strings, got {value!r}")
    for item in value:
        if item not in allowed:
            raise ExpectationsError(
                f"{path}: {item!r} in {what} is unknown", fix=f"use {', '.join(allowed)}"
            )
    twice = [item for item in value if value.count(item) > 1]
    if twice:
        raise ExpectationsError(f"{path}: {twice[0]!r} stands twice in {what}")
    return tuple(value)


def _sizes(path: Any, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(n) is int and n > 0 for n in value):
        raise ExpectationsError(
            f"{path}: capabilities.sizes must be a list of positive integers, got {value!r}"
        )
    return tuple(sorted(set(value)))


def _capabilities(path: Any, data: dict[str, Any]) -> dict[str, Any]:
    for name in data:
        if name not in ("capabilities", "policies", "expected_failures"):
            raise ExpectationsError(
                f"{path}: unknown table {name!r}",
                fix="use [capabilities], [policies] and [[expected_failures]]",
            )
    from .levels import known_profiles  # asks the loaded plugins

    found = data.get("capabilities", {})
    allowed = {
        "dtypes": [d.name for d in ALL_DTYPES],
        "profiles": known_profiles(),
        "absent": FEATURES,
        "sizes": (),
    }
    if not isinstance(found, dict):
        raise ExpectationsError(f"{path}: capabilities must be a table")
    for name in found:
        if name not in allowed:
            raise ExpectationsError(
                f"{path}: unknown capability {name!r}", fix=f"use {', '.join(allowed)}"
            )
    return {
        name: _sizes(path, value)
        if name == "sizes"
        else _strings(path, value, f"capabilities.{name}", allowed[name])
        for name, value in found.items()
    }


def _given(path: Any, found: Any) -> dict[str, Any]:
    """The policies of a table, once they are seen to be such."""
    if not isinstance(found, dict):
        raise ExpectationsError(f"{path}: policies must be a table")
    floating = [d.name for d in ALL_DTYPES if d.kind == "f"]
    given: dict[str, Any] = {}
    for name, value in found.items():
        if name == "flush_to_zero":
            given[name] = _strings(path, value, f"policies.{name}", floating)
        elif name not in ("tf32", "compiles"):
            raise ExpectationsError(
                f"{path}: unknown policy {name!r}", fix="use flush_to_zero, tf32, compiles"
            )
        elif not isinstance(value, bool):
            raise ExpectationsError(f"{path}: policies.{name} must be true or false, got {value!r}")
        else:
            given[name] = value
    return given


def _failures(path: Any, data: dict[str, Any]) -> dict[str, ExpectedFailure]:
    entries = data.get("expected_failures", [])
    if not isinstance(entries, list):
        raise ExpectationsError(f"{path}: expected_failures must be [[expected_failures]] tables")
    found: dict[str, ExpectedFailure] = {}
    for number, entry in enumerate(entries, 1):
        where = f"{path}: expected_failures[{number}]"
        if not isinstance(entry, dict):
            raise ExpectationsError(f"{where} is no table: write [[expected_failures]]")
        for name in ENTRY:
            if name not in entry:
                raise ExpectationsError(f"{where} has no {name!r}")
        for name in entry:
            if name not in ENTRY:
                raise ExpectationsError(
                    f"{where}: unknown entry {name!r}", fix=f"use {', '.join(ENTRY)}"
                )
        for name in ("case", "reason", "issue"):
            if not isinstance(entry[name], str) or not entry[name].strip():
                raise ExpectationsError(f"{where}: {name} must be a text that is not empty")
        if any(c in entry["case"] for c in "*?[") or ":" not in entry["case"]:
            raise ExpectationsError(
                f"{where}: {entry['case']!r} is no exact case id",
                fix="take the id from the report; patterns are not accepted",
            )
        if type(entry["expires"]) is not datetime.date:
            raise ExpectationsError(f"{where}: expires must be a date such as 2030-01-31")
        if entry["case"] in found:
            raise ExpectationsError(f"{where}: {entry['case']!r} stands there twice")
        found[entry["case"]] = ExpectedFailure(**{k: entry[k] for k in ENTRY})
    return found
