"""What ``pytest --pyargs coredispatch.conformance --backend=NAME`` collects."""

from __future__ import annotations

from coredispatch.conformance.testing import conformance_test

test_conformance = conformance_test()
