"""What holds for every test of the checkout, those of the plugins included."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

import coredispatch as cd
from coredispatch._warnings import WARN

#: how a file says that its tests share what takes long to make
GROUP = re.compile(r'^pytestmark = .*xdist_group\("(\w+)"\)', re.MULTILINE)

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist=loadgroup``, with any pytest and for very many tests."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    @cache
    def group_of(path: str) -> str | None:
        """The group that all tests of a file belong to; pytest 9.2 drops what xdist 3.8 says.

        Kernels that a file of cpu_numba asks for are compiled, and loaded, by one process.
        """
        if path.startswith("plugins/cpu_numba/"):
            return path
        found = GROUP.search((config.rootpath / path).read_text("utf-8"))
        return None if found is None else found[1]

    class Scheduler(LoadGroupScheduling):
        """Forgets what is done: xdist's looks at all of it after each of 25,000 tests."""

        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0]) or super()._split_scope(nodeid)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            scope = self._split_scope(self.registered_collections[node][item_index])
            super().mark_test_complete(node, item_index, duration)
            if all(self.assigned_work[node][scope].values()):
                del self.assigned_work[node][scope]

    return Scheduler(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several workers run them: long tests first and short ones last, so that none waits."""
    if getattr(config.option, "loadgroup", False):
        items.sort(
            key=lambda item: 0 if item.get_closest_marker("slow") else 1 + ("/unit/" in item.nodeid)
        )


# The tests themselves are a million objects, compiled kernels are more: a collection that looks at
# all of them takes seconds, and hundreds of tests ask for one.
def _keep_out_of_collections() -> None:
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """What was collected stays."""
    _keep_out_of_collections()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """So does what the tests of a file have left."""
    yield
    if nextitem is not None and nextitem.path != item.path:
        _keep_out_of_collections()


def pytest_runtest_setup() -> None:
    """What is said once in a process is said once in each test, and each draws the same numbers.

    A test that fails for one draw of thousands is found by Hypothesis, which then shows the draw.
    """
    WARN.given.clear()
    cd.manual_seed(0)
