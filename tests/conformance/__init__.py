"""The conformance suite: one command certifies any backend.

``coredispatch conformance run --backend NAME --level LEVEL``, or ``pytest --pyargs
coredispatch.conformance --backend=NAME``, or a test file of two lines in a plugin's repository::

    from coredispatch.conformance import conformance_test
    test_conformance = conformance_test("mydevice", level="training")

Cases come from the op blocks, the reference is NumPy in float64; see ``docs/conformance.md``.
"""

from __future__ import annotations

from .case import CHECKS, Case, Result, Status
from .expectations import Expectations, ExpectationsError
from .levels import LEVELS, PROFILES
from .runner import plan, plan_op, run_case, run_op
from .subject import Subject, SuiteError

__all__ = [
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
    "plan",
    "plan_op",
    "run_case",
    "run_op",
]
