"""Compiles the hot modules with mypyc where that is possible; everything else is pyproject.toml.

COREDISPATCH_COMPILE=0  never compile;  =1  fail the installation when compiling fails;
unset: compile where mypy and a C compiler are there, and otherwise install the same modules
interpreted (`coredispatch info` says which, and why).
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

# setuptools brings distutils: only after it.
from distutils.ccompiler import new_compiler  # isort: skip
from distutils.sysconfig import customize_compiler  # isort: skip

ROOT = Path(__file__).resolve().parent
SETTINGS = runpy.run_path(str(ROOT / "coredispatch" / "_compiled.py"))
MODE = os.environ.get("COREDISPATCH_COMPILE", "auto")
SUITE = "tests/conformance"
NO_COMPILER = "the C compiler failed or is missing"
# Commands that build; the others (metadata, requirements) have no use for extensions.
BUILDING = {"build", "build_ext", "bdist_wheel", "editable_wheel", "develop", "install"}


def note(reason: str) -> None:
    """Say that the hot modules stay interpreted; an error where compiling was demanded."""
    if MODE == "1":
        raise SystemExit(f"coredispatch: COREDISPATCH_COMPILE=1, but {reason}")
    print(f"coredispatch: hot modules stay interpreted: {reason}", file=sys.stderr)


def can_compile() -> bool:
    """Whether a C compiler finds Python's headers: mypyc, which needs it, takes half a minute."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\n")
        compiler = new_compiler()
        customize_compiler(compiler)
        try:
            compiler.compile(
                [str(source)], output_dir=folder, include_dirs=[sysconfig.get_path("include")]
            )
        except Exception:  # each compiler has errors of its own
            return False
    return True


def extensions() -> list[Extension]:
    """The mypyc extensions of the hot modules, each optional; none where they cannot be made."""
    if MODE == "0" or not BUILDING.intersection(sys.argv):
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        note("mypy is not installed")
        return []
    files = [path for path in SETTINGS["HOT_MODULES"] if (ROOT / path).exists()]
    if not files:
        return []
    if not can_compile():
        note(NO_COMPILER)
        return []
    # Not the project's own mypy settings: a stricter mypy of tomorrow must not stop an
    # installation, and numpy is not there to be looked at in an isolated build.
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    try:
        made = mypycify(
            [*options, *files],
            opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"),  # as mypy's own build has it
            debug_level="0",
            group_name=SETTINGS["LIBRARY"],
        )
    except (Exception, SystemExit) as error:  # mypyc exits on type errors
        note(f"mypyc refused them: {error}")
        return []
    for extension in made:
        extension.optional = MODE != "1"
        # A compiler that warns about generated code is still good enough to run it.
        extension.extra_compile_args = [
            argument for argument in extension.extra_compile_args if argument != "-Werror"
        ]
    return made


class BuildExtensions(build_ext):
    """All extensions or none: the compiled modules share one library and one memory layout."""

    def run(self) -> None:
        super().run()
        built = [Path(self.get_ext_fullpath(ext.name)) for ext in self.extensions]
        temporary = [
            Path(self.build_lib, self.get_ext_filename(ext.name)) for ext in self.extensions
        ]
        if all(path.exists() for path in built):
            return
        for path in (*built, *temporary):
            path.unlink(missing_ok=True)
        note(NO_COMPILER)


class Build(build):
    """Start from an empty build folder, so that a module deleted since does not come back."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


packages = find_packages(include=["coredispatch", "coredispatch.*"])
package_dir: dict[str, str] = {}
if (ROOT / SUITE / "__init__.py").exists():
    package_dir["coredispatch.conformance"] = SUITE
    inner = find_packages(SUITE)
    packages += [
        "coredispatch.conformance",
        *(f"coredispatch.conformance.{name}" for name in inner),
    ]

setup(
    packages=packages,
    package_dir=package_dir,
    ext_modules=extensions(),
    cmdclass={"build": Build, "build_ext": BuildExtensions},
)
