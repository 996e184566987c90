"""Fixtures: a real device, or the reason why there is none; and a stand-in made of NumPy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd

# importlib mode leaves test folders off sys.path
sys.path.insert(0, str(Path(__file__).parent))
if find_spec("coredispatch_cuda_cupy") is None:  # not installed: test the checkout
    sys.path.append(str(Path(__file__).parents[1]))

from kernel_fixtures import library, on_host
from numpy_stand_in import MACHINE, make_cupy, module_for

if find_spec("hypothesis") is not None:  # a machine with a GPU may have pytest alone
    from coredispatch.conformance.hypothesis_profile import use

    use()

__all__ = ["cuda", "key_cuda_is_free", "library", "on_host", "stand_in"]


@pytest.fixture(scope="session")
def cuda() -> str:
    """``"cuda"`` where there is a device; otherwise the test is skipped with the reason."""
    from coredispatch_cuda_cupy import detect

    found = detect()
    if found.reason is not None:
        pytest.skip(f"no CUDA device: {found.reason}")
    return "cuda"


@pytest.fixture
def key_cuda_is_free() -> Iterator[None]:
    """The installed plugin steps aside while a test registers the key itself."""
    installed = "cuda_cupy" in cd.plugins and cd.plugins["cuda_cupy"].status == "loaded"
    if installed:
        cd.plugins.unload("cuda_cupy")
    yield
    if installed:
        cd.plugins.load("cuda_cupy")


@pytest.fixture(params=[(1, "13.3.0"), (2, "14.2.0")], ids=["one_device", "two_devices"])
def stand_in(request: pytest.FixtureRequest, key_cuda_is_free: None) -> Iterator[Any]:
    """The plugin's backend under the key ``cuda``, over NumPy dressed as CuPy.

    With one device it is CuPy 13, which has no bfloat16, with two devices CuPy 14.
    """
    import coredispatch_cuda_cupy as plugin

    cupy, cupyx = make_cupy(*request.param)
    found = plugin.Detection(cupy, request.param[0])
    # Undone before the installed plugin comes back: the test's own fixture may end later.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupyx", cupyx)
        patch.setattr(plugin, "_found", found)
        backend = plugin.CudaBackend(found)
        patch.setattr(plugin, "_backend", backend)
        cd.plugins.load("cuda_stand_in", module_for(backend))
        yield backend
        MACHINE.drain()
        cd.plugins.unload("cuda_stand_in")
