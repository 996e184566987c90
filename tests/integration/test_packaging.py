"""Building and installing for real: compiled, without a compiler, with setuptools alone, editable.

Everything happens in copies of the checkout and in fresh environments, offline.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from environments import NEEDED, ROOT, Environment, checkout

PROGRAM = (
    "import coredispatch as cd; x = cd.ones(2, requires_grad=True); (x * x).sum().backward(); "
)
CHECK = PROGRAM + "assert x.grad.tolist() == [2.0, 2.0]"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]


def has(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def can_compile(folder: Path) -> bool:
    """Whether this machine has a C compiler that finds Python's headers."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    source = folder / "probe.c"
    source.write_text("#include <Python.h>\nint probe(void) { return 0; }\n")
    include = f"-I{sysconfig.get_path('include')}"
    command = [*compiler, include, "-c", str(source), "-o", str(folder / "probe.o")]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="session")
def compiling(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not has("mypyc") or not can_compile(tmp_path_factory.mktemp("probe")):
        pytest.skip("needs mypy and a C compiler")


@pytest.fixture(scope="session")
def compiled(
    compiling: None, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    builder = Environment(tmp_path_factory.mktemp("builder"), ("setuptools", "wheel", "mypy"))
    wheels = tmp_path_factory.mktemp("wheels")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "-w", str(wheels))
    done = builder.pip("wheel", *options, str(source), COREDISPATCH_COMPILE="1")
    assert done.returncode == 0, done.stderr
    (wheel,) = wheels.glob("coredispatch-*.whl")
    environment = Environment(tmp_path_factory.mktemp("compiled"), NEEDED)
    environment.install(str(wheel))
    return environment


def test_a_compiled_wheel_needs_its_three_packages_only(compiled: Environment) -> None:
    details = compiled.info()
    assert details["form"]["compiled"], details["form"]
    assert details["form"]["note"] == ""
    compiled.run("-c", CHECK)


def test_the_switch_runs_the_python_files(compiled: Environment) -> None:
    details = compiled.info(COREDISPATCH_INTERPRETED="1")
    assert set(details["form"]["modules"].values()) - {None} == {False}  # None: not loaded yet
    assert details["form"]["note"] == "COREDISPATCH_INTERPRETED is set"
    compiled.run("-c", CHECK, COREDISPATCH_INTERPRETED="1")


def test_both_forms_compute_the_same(compiled: Environment) -> None:
    program = (
        "import coredispatch as cd; cd.manual_seed(0); x = cd.randn(4, 3, requires_grad=True); "
        "y = (x @ x.mT).softmax(1).sum(0); y[0].backward(); "
        "print(*y.tolist(), *x.grad.flatten().tolist())"
    )
    first, second = (
        [float(number) for number in compiled.run("-c", program, **form).split()]
        for form in ({}, {"COREDISPATCH_INTERPRETED": "1"})
    )
    # Two processes: BLAS may round by where in memory its operands lie.
    assert len(first) == 4 + 12 and first == pytest.approx(second, rel=1e-5, abs=1e-6)


def test_a_wheel_holds_the_package_and_nothing_else(compiled: Environment) -> None:
    (record,) = compiled.site.glob("coredispatch-*.dist-info/RECORD")
    files = [line.split(",")[0] for line in record.read_text().splitlines()]
    roots = {name.split("/")[0] for name in files if not name.startswith("..")}
    library = [root for root in roots if root.startswith("coredispatch__mypyc")]
    assert roots - set(library) == {"coredispatch", record.parent.name}
    assert "coredispatch/py.typed" in files
    if (ROOT / "tests" / "conformance" / "__init__.py").exists():
        assert "coredispatch/conformance/__init__.py" in files


def test_without_a_compiler(source: Path, tmp_path: Path) -> None:
    packages = (*NEEDED, "setuptools", "wheel", "mypy")
    environment = Environment(tmp_path / "env", packages)
    environment.install(str(source), CC="/bin/false")
    form = environment.info()["form"]
    assert set(form["modules"].values()) - {None} == {False}
    assert "C compiler" in form["note"]
    environment.run("-c", CHECK)
    if has("mypyc"):
        done = environment.pip(
            "install",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            str(source),
            CC="/bin/false",
            COREDISPATCH_COMPILE="1",
        )
        assert done.returncode != 0, "compiling was demanded"


def test_with_setuptools_alone(source: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env", (*NEEDED, "setuptools"))
    environment.install(str(source))
    assert not environment.info()["form"]["compiled"]
    environment.run("-c", CHECK)


def test_editable(compiling: None, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    project = checkout(tmp_path / "project")
    environment = Environment(tmp_path / "env", (*NEEDED, "setuptools", "wheel", "mypy"))
    environment.install("--editable", str(project))
    where = environment.run("-c", "import coredispatch; print(coredispatch.__file__)")
    assert Path(where.strip()).parent == project / "coredispatch"
    assert environment.info()["form"]["compiled"]
    if (project / "tests" / "conformance" / "__init__.py").exists():
        suite = environment.run(
            "-c", "import coredispatch.conformance as c; print(c.__file__)"
        ).strip()
        assert Path(suite).parent == project / "tests" / "conformance"
    # An edit must be seen at once, although the extension is still there.
    hot = project / "coredispatch" / "registry" / "model" / "value.py"
    hot.write_text(hot.read_text() + "\nEDITED = True\n")
    form = environment.info()["form"]
    assert not form["compiled"]
    assert "coredispatch/registry/model/value.py is newer" in form["note"]
    environment.run("-c", CHECK + "; from coredispatch.registry.model.value import EDITED")
    # Compiling again brings the edit into the extension.
    environment.install("--editable", str(project))
    assert environment.info()["form"]["compiled"]
    environment.run("-c", CHECK + "; from coredispatch.registry.model.value import EDITED")
