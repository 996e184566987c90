"""The check of import directions has teeth; importing brings in three packages and does little."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
before = set(sys.modules)
import coredispatch
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(r for r in roots if r not in sys.stdlib_module_names and not r.startswith("_")))
"""


@pytest.fixture
def contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the check, looking at an empty checkout."""
    path = ROOT / "tests" / "unit" / "test_import_contract.py"
    spec = importlib.util.spec_from_file_location("import_contract_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def write(root: Path, name: str, text: str) -> None:
    """A source file in the checkout that is looked at."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("coredispatch/registry", "import numpy"),
        ("coredispatch/registry", "from coredispatch.ops import add"),
        ("coredispatch/registry", "from ..frontend.tensor import Tensor"),
        ("coredispatch/registry", "def late():\n    import coredispatch.frontend"),
        ("coredispatch/ops", "from coredispatch.frontend import nn"),
        ("coredispatch/ops", "from coredispatch import backends"),
        ("coredispatch/ops", "import scipy.special"),
        ("coredispatch/backends", "from coredispatch.frontend.tensor import Tensor"),
        ("coredispatch/backends", "from ..ops import rules"),
    ],
)
def test_an_import_in_the_wrong_direction_is_found(
    contract: ModuleType, tmp_path: Path, package: str, line: str
) -> None:
    write(
        tmp_path, f"{package}/inner/module.py" if ".." not in line else f"{package}/module.py", line
    )
    found = contract.violations(
        tmp_path / package, contract.ALLOWED[package], package.replace("/", ".")
    )
    assert len(found) == 1, found


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("coredispatch/registry", "from . import keys"),
        ("coredispatch/registry", "import pluggy, threading"),
        ("coredispatch/ops", "import numpy as np\nfrom coredispatch.registry import primitive"),
        ("coredispatch/backends", "from coredispatch.registry.model.backend import Backend"),
    ],
)
def test_an_allowed_import_is_not(
    contract: ModuleType, tmp_path: Path, package: str, line: str
) -> None:
    write(tmp_path, f"{package}/module.py", line)
    assert not contract.violations(
        tmp_path / package, contract.ALLOWED[package], package.replace("/", ".")
    )


def test_importing_coredispatch_brings_three_packages() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    beside = {name for name in done.stdout.split() if not name.startswith("coredispatch")}
    # NumPy's compiled modules announce Cython's runtime.
    assert beside - {"cython_runtime"} == {"numpy", "pluggy", "ml_dtypes"}


#: what a program may never need, and is imported by what needs it
LATER = (
    *("asyncio", "concurrent", "multiprocessing", "subprocess", "logging", "argparse"),
    *("unittest", "doctest", "pdb", "ssl", "http", "sqlite3", "xml", "tkinter"),
    *("numpy.testing", "numpy.f2py", "numpy.fft", "numpy.polynomial"),
    *("coredispatch.cli", "coredispatch.stubs", "coredispatch.conformance"),
)
#: Python calls while importing; about 120,000 of them are the declarations of the operators
CALLS = 250_000
COUNTED = """
import sys
import numpy, pluggy, ml_dtypes
before, calls = set(sys.modules), 0

def count(frame, event, argument):
    global calls
    calls += event == "call"

sys.setprofile(count)
import coredispatch
sys.setprofile(None)
print(calls, *sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("interpreted", ["", "1"], ids=["as installed", "interpreted"])
def test_importing_does_little(interpreted: str) -> None:
    """How long that takes depends on the machine: benchmarks/import_time.py measures it."""
    environment = {**os.environ, "COREDISPATCH_INTERPRETED": interpreted}
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    calls, *modules = done.stdout.split()
    early = [m for m in modules if any(m == name or m.startswith(name + ".") for name in LATER)]
    assert early == []
    plugins = [m for m in modules if m.startswith("coredispatch_") and "__mypyc" not in m]
    assert plugins == [], "a plugin is imported when one of its keys is needed first"
    assert int(calls) < CALLS, "python benchmarks/import_time.py lists the slowest modules"


@pytest.mark.parametrize("collects", ["enable", "disable"])
def test_importing_leaves_the_garbage_collector_as_it_was(collects: str) -> None:
    program = f"import gc; gc.{collects}(); import coredispatch; print(gc.isenabled())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [str(collects == "enable")], done.stderr
