"""The pack as coredispatch loads it, and the embedded NumPy kernels it stands in for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

import coredispatch as cd
import coredispatch_cpu_numba as pack
from coredispatch.backends.numpy import NumpyBackend

# importlib mode leaves test folders off sys.path
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def loaded() -> None:
    """Load the pack where its entry point is not installed."""
    cd.ones(1)
    if "cpu_numba" not in cd.plugins or cd.plugins["cpu_numba"].status != "loaded":
        cd.plugins.load("cpu_numba", pack, version=pack.__version__)


@pytest.fixture(scope="session")
def reference() -> dict[str, Callable[..., Any]]:
    """The embedded kernels by op name."""
    return dict(NumpyBackend().kernels)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Large kernels run on two threads."""
    before = pack.get_num_threads()
    pack.set_num_threads(2)
    yield
    pack.set_num_threads(before)
