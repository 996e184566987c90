"""The conformance suite: one command certifies any backend.

``coredispatch conformance run --backend NAME --level LEVEL``, or ``pytest --pyargs
coredispatch.conformance --backend=NAME``, or a test file of two lines in a plugin's repository::

    from coredispatch.conformance import conformance_test
    test_conformance = conformance_test("mydevice", level="training")

Cases come from the operator definitions, the reference is NumPy in float64; see
``docs/conformance.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .case import BACKEND, CHECKS, Case, Result, Status
    from .expectations import Expectations, ExpectationsError
    from .levels import LEVELS, PROFILES
    from .runner import plan, plan_op, run_case, run_op
    from .subject import Subject, SuiteError
    from .testing import conformance_test

__all__ = [
    "BACKEND",
    "CHECKS",
    "LEVELS",
    "PROFILES",
    "Case",
    "Expectations",
    "ExpectationsError",
    "Result",
    "Status",
    "Subject",
    "SuiteError",
    "conformance_test",
    "plan",
    "plan_op",
    "run_case",
    "run_op",
]

_HOMES = {
    "case": ("BACKEND", "CHECKS", "Case", "Result", "Status"),
    "expectations": ("Expectations", "ExpectationsError"),
    "levels": ("LEVELS", "PROFILES"),
    "runner": ("plan", "plan_op", "run_case", "run_op"),
    "subject": ("Subject", "SuiteError"),
    "testing": ("conformance_test",),
}


def __getattr__(name: str) -> Any:
    # On demand: pytest loads this package's plugin in every run, also where nobody certifies.
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
