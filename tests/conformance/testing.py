"""The cases as one parametrized test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .case import Status
from .expectations import ExpectedFailure
from .runner import run_case

__all__ = ["conformance_test"]


def conformance_test(
    backend: str | None = None,
    *,
    level: str | None = None,
    profiles: Sequence[str] = (),
    ops: Sequence[str] | None = None,
    ops_of: Sequence[str] | None = None,
    checks: Sequence[str] | None = None,
) -> Callable[[Any], None]:
    """A test function with one test per case; assign it to a name that begins with ``test``.

    What is left out is taken from the command line: ``--backend``, ``--conformance-level``,
    ``--conformance-profile``, ``--conformance-op``, ``--conformance-ops-of``,
    ``--conformance-check``; ``--conformance-shard`` and ``--conformance-changed-since`` leave a
    part of it, and pytest's ``-k`` chooses by the names of cases. Only a pass passes: a waived
    case is an expected failure, a case that cannot be run here a skip, everything else fails.
    """

    def test(conformance_case: Any) -> None:
        import pytest

        subject, case = conformance_case
        if isinstance(case, ExpectedFailure):
            path = subject.expectations.path
            pytest.fail(f"{path}: the expected failure {case.case} names no case", pytrace=False)
        result = run_case(subject, case)
        if result.status is Status.PASS:
            return
        if result.status is Status.WAIVED:
            pytest.xfail(result.message)
        optional = result.status in (Status.UNSUPPORTED, Status.NOT_RUN)
        if optional and not result.mandatory:
            pytest.skip(result.message)
        command = f"coredispatch conformance repro '{case.id}' --backend {subject.name}"
        pytest.fail(f"{result.status}: {result.message}\n{command}", pytrace=False)

    wanted = {"backend": backend, "level": level, "profiles": list(profiles), "ops": ops}
    wanted |= {"ops_of": ops_of, "checks": checks}
    test.conformance = {k: v for k, v in wanted.items() if v}  # type: ignore[attr-defined]
    return test
