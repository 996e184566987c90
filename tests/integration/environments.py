"""Fresh virtual environments, made without a network: what is installed for real goes here.

The packages that coredispatch needs are linked in from the environment that runs the tests, so an
environment costs a second and sees nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["NEEDED", "ROOT", "Environment", "checkout"]

ROOT = Path(__file__).resolve().parents[2]
#: all that coredispatch needs
NEEDED = ("numpy", "ml_dtypes", "pluggy")


class Environment:
    """A fresh virtual environment that sees only what is linked into it."""

    def __init__(self, folder: Path, packages: tuple[str, ...]) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(command, check=True)
        (self.site,) = folder.glob("lib/python*/site-packages")
        for name in with_requirements(packages):
            for entry in top_level(name):
                link = self.site / entry.name
                if not link.exists():
                    link.symlink_to(entry)

    def pip(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the tests' own pip for this environment."""
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=clean(**variables))

    def install(self, *what: str, **variables: str) -> None:
        options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
        done = self.pip("install", *options, *what, **variables)
        assert done.returncode == 0, done.stderr

    def run(self, *arguments: str, **variables: str) -> str:
        command = [str(self.python), *arguments]
        environment = clean(**variables)
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def info(self, **variables: str) -> dict[str, Any]:
        script = str(self.folder / "bin" / "coredispatch")
        return json.loads(self.run(script, "info", "--json", **variables))  # type: ignore[no-any-return]


def clean(**variables: str) -> dict[str, str]:
    """The environment variables without those that change what is tested.

    What is compiled is asked whether it works, and not how fast: an optimizer would take minutes.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COREDISPATCH_", "PYTHON", "VIRTUAL_ENV"))
    }
    return kept | {"MYPYC_OPT_LEVEL": "0"} | variables


def with_requirements(names: tuple[str, ...]) -> set[str]:
    """The installed distributions among `names` and all they need."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            requirements = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        waiting += [re.split(r"[^\w.-]", r)[0] for r in requirements if "extra ==" not in r]
    return found


def top_level(name: str) -> Iterator[Path]:
    """What a distribution put into site-packages."""
    distribution = metadata.distribution(name)
    entries = {file.parts[0] for file in distribution.files or []}
    for entry in entries - {"..", "__pycache__"}:
        yield Path(str(distribution.locate_file(entry)))


def checkout(folder: Path) -> Path:
    """A copy of what an installation reads, without anything that was built."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    shutil.copytree(ROOT / "coredispatch", folder / "coredispatch", ignore=ignore)
    suite = ROOT / "tests" / "conformance"
    if suite.exists():
        shutil.copytree(suite, folder / "tests" / "conformance", ignore=ignore)
    return folder
