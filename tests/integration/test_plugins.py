"""The plugin distributions, installed into an empty environment and found by entry points only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from environments import NEEDED, ROOT, Environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("plugins")]

#: entry point -> (folder, distribution, keys it brings)
PLUGINS: dict[str, tuple[str, str, set[str]]] = {
    "cpu_numba": ("plugins/cpu_numba", "coredispatch-cpu-numba", set()),
    "cuda_cupy": ("plugins/cuda_cupy", "coredispatch-cuda-cupy", {"cuda"}),
    "sparse": ("plugins/sparse", "coredispatch-sparse", {"sparse_csr"}),
    "quant": ("plugins/quant", "coredispatch-quant", {"quantized"}),
    "mpi": ("plugins/mpi", "coredispatch-mpi", set()),
    "flat": ("examples/third_party_backend", "coredispatch-flat", {"flat"}),
}
BUILTIN = {"cpu", "meta", "autograd", "autocast", "inference", "inference_mode", "wrapped"}
BUILTIN |= {"torch_function", "torch_function_mode", "torch_dispatch", "torch_dispatch_mode"}

REPORT = """
import json
import coredispatch as cd
from coredispatch.registry.dispatch.table import TABLE

plugins = {p.name: [p.status, p.distribution, p.error] for p in cd.plugins}
print(json.dumps([plugins, sorted(TABLE.snapshot.order.by_name)]))
"""


def copied(folder: str, where: Path) -> str:
    """A copy of a distribution, so that building leaves nothing behind in the checkout."""
    ignore = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "tests")
    return str(shutil.copytree(ROOT / folder, where / Path(folder).name, ignore=ignore))


def report(environment: Environment, **variables: str) -> tuple[dict[str, Any], set[str]]:
    """The plugins that coredispatch finds there, and the keys of its table."""
    plugins, keys = json.loads(environment.run("-c", REPORT, **variables))
    return plugins, set(keys)


@pytest.fixture(scope="module")
def environment(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """coredispatch and all six plugins, on numpy, pluggy, ml_dtypes and numba."""
    made = Environment(tmp_path_factory.mktemp("plugins"), (*NEEDED, "numba", "setuptools"))
    made.install(str(source))
    builds = tmp_path_factory.mktemp("builds")
    made.install(*(copied(folder, builds) for folder, _, _ in PLUGINS.values()))
    return made


def test_nothing_but_the_core_brings_no_plugin(source: Path, tmp_path: Path) -> None:
    bare = Environment(tmp_path / "bare", (*NEEDED, "setuptools"))
    bare.install(str(source))
    plugins, keys = report(bare)
    assert not plugins.keys() & PLUGINS.keys()
    assert keys == BUILTIN


def test_all_five_are_found_and_loaded(environment: Environment) -> None:
    plugins, keys = report(environment)
    for name, (_, distribution, own) in PLUGINS.items():
        assert plugins[name] == ["loaded", distribution, None]
        assert own <= keys
    assert keys == BUILTIN.union(*(own for _, _, own in PLUGINS.values()))


def test_nobody_imports_them_before_a_key_is_needed(environment: Environment) -> None:
    modules = [f"coredispatch_{name}" for name in PLUGINS]
    environment.run(
        "-c", f"import sys, coredispatch; assert not set({modules!r}) & set(sys.modules)"
    )


@pytest.mark.parametrize("selection", ["sparse,flat", "none"])
def test_the_environment_variable_selects(environment: Environment, selection: str) -> None:
    plugins, keys = report(environment, COREDISPATCH_PLUGINS=selection)
    for name, (_, _, own) in PLUGINS.items():
        chosen = name in selection.split(",")
        assert plugins[name][0] == ("loaded" if chosen else "disabled")
        assert bool(own & keys) == (chosen and bool(own))


def test_the_key_cuda_says_why_there_is_no_device(environment: Environment) -> None:
    program = """
import coredispatch as cd
if not cd.cuda.is_available():
    try:
        cd.zeros(1, device="cuda")
    except cd.DeviceError as error:
        assert "no CUDA device: " in str(error), error
    else:
        raise AssertionError("a tensor without a device")
"""
    environment.run("-c", program)


def test_uninstalling_one_takes_its_keys_away(environment: Environment) -> None:
    program = "import coredispatch as cd; print(cd.ones(2, device='flat').sum().item())"
    assert environment.run("-c", program).strip() == "2.0"
    done = environment.pip("uninstall", "--yes", "coredispatch-flat")
    assert done.returncode == 0, done.stderr
    try:
        plugins, keys = report(environment)
        assert "flat" not in plugins
        assert "flat" not in keys
        assert {"sparse_csr", "quantized", "cuda"} <= keys
        refused = """
import coredispatch as cd
try:
    cd.ones(2, device="flat")
except cd.DeviceError as error:
    print(error)
"""
        assert "there is no device 'flat'" in environment.run("-c", refused)
    finally:
        builds = environment.folder / "again"
        builds.mkdir()
        environment.install(copied(PLUGINS["flat"][0], builds))


def test_unloading_in_a_process_takes_keys_and_operators_away(environment: Environment) -> None:
    program = (
        f"BUILTIN = {BUILTIN}"
        + """
import coredispatch as cd
from coredispatch.registry.dispatch.table import TABLE

before = set(TABLE.snapshot.order.by_name), cd.plugins.discover()
for name in ("flat", "sparse", "quant", "cuda_cupy", "cpu_numba"):
    cd.plugins.unload(name)
assert set(TABLE.snapshot.order.by_name) == BUILTIN
assert {op.plugin for op in TABLE.snapshot.ops.values()} <= {"ops", "transfer", "frontend"}, {
    op.plugin for op in TABLE.snapshot.ops.values()
}
assert (cd.ones(3) + 1).tolist() == [2, 2, 2]
cd.plugins.load("flat")
assert cd.ones(2, device="flat").sum().item() == 2
"""
    )
    environment.run("-c", program)
