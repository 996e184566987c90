"""What holds for every test of the checkout, those of the plugins included."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest

import coredispatch as cd
from coredispatch._warnings import WARN

# A test that asks for a kernel waits until it is compiled.
os.environ.setdefault("COREDISPATCH_BACKGROUND", "0")

# The second run of `make test` takes PyTorch's recorded answers: the first has asked itself.
if os.environ.get("COREDISPATCH_COMPARE") == "recorded":
    _importorskip = pytest.importorskip

    def importorskip(modname: str, *args: Any, **options: Any) -> Any:
        """``pytest.importorskip``, for which there is no PyTorch."""
        if modname.partition(".")[0] == "torch":
            pytest.skip("the recorded answers serve", allow_module_level=True)
        return _importorskip(modname, *args, **options)

    pytest.importorskip = importorskip

if find_spec("hypothesis") is not None:  # a machine with a GPU may have pytest alone
    from coredispatch.conformance.hypothesis_profile import use

    use()


def pytest_runtest_setup() -> None:
    """What is said once in a process is said once in each test, and each draws the same numbers.

    A test that fails for one draw of thousands is found by Hypothesis, which then shows the draw.
    """
    WARN.given.clear()
    cd.manual_seed(0)
