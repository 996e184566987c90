"""``coredispatch new-backend NAME``: a working plugin project to start from.

The project's tests pass as written at level ``boot``; filling in the primitives that its README
lists takes it to ``training``.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import coredispatch as cd
from coredispatch.registry import TABLE, CoreDispatchError, plugins

from .subject import SuiteError

__all__ = ["main", "write_project"]

#: file of the template -> where it goes; @name@ is replaced in both
FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "ci.yml": ".github/workflows/conformance.yml",
    "__init__.py": "coredispatch_@name@/__init__.py",
    "array.py": "coredispatch_@name@/array.py",
    "kernels.py": "coredispatch_@name@/kernels.py",
    "conformance.toml": "coredispatch_@name@/conformance.toml",
    "test_backend.py": "tests/test_backend.py",
    "test_conformance.py": "tests/test_conformance.py",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the project; 0 when it is written, 2 when it cannot be."""
    parser = argparse.ArgumentParser(
        prog="coredispatch new-backend", description="Write a working plugin project."
    )
    parser.add_argument("name", help="key of the backend, such as mydevice")
    parser.add_argument("--dir", type=Path, help="where to write it (default: coredispatch-NAME)")
    options = parser.parse_args(argv)
    try:
        folder = write_project(options.name, options.dir)
    except CoreDispatchError as error:
        print(f"coredispatch new-backend: {error}", file=sys.stderr)
        return 2
    print(f"written: {folder}")
    print(f"next:    cd {folder} && pip install -e '.[dev]' && pytest")
    return 0


def write_project(name: str, folder: Path | None = None) -> Path:
    """Write the project of backend ``name`` and return its folder.

    Raises :class:`SuiteError` for a name that is taken or no lower-case identifier, for a folder
    that is not empty, and for one that cannot be written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise SuiteError(
            f"{name!r} is no name for a backend", fix="use lower-case letters, digits and _"
        )
    plugins.discover()
    if name in TABLE.snapshot.order.by_name or name in plugins:
        raise SuiteError(f"there is a key or plugin {name!r} already", fix="choose another name")
    folder = folder or Path(f"coredispatch-{name}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SuiteError(f"{folder} exists and is not an empty folder")
    source = resources.files(__package__).joinpath("template")
    texts = {
        target: source.joinpath(f"{file}.template").read_text(encoding="utf-8")
        for file, target in FILES.items()
    }
    listed = _missing(texts["coredispatch_@name@/kernels.py"])
    try:
        for target, text in texts.items():
            path = folder / target.replace("@name@", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = text.replace("@missing@", listed).replace("@name@", name)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SuiteError(f"cannot write {error.filename}: {error.strerror}") from None
    return folder


def _missing(kernels: str) -> str:
    """The primitives that the template has no kernel for, with their signatures."""
    have = set(re.findall(r'^    "(\w+)":', kernels, re.MULTILINE))
    ops = [getattr(cd.ops, name) for name in sorted(dir(cd.ops))]
    primitives = [op for op in ops if op.kind == "primitive" and op.plugin == "ops"]
    return "\n".join(f"   - `{op.signature}`" for op in primitives if op.name not in have)
