"""Which names PyTorch has, and what is said of one that coredispatch has not.

``names.json`` is recorded from PyTorch by ``record.py``. A path is a module's name without
``torch.``: ``""`` is the top level, ``"nn.modules.batchnorm"`` a module.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterable
from pathlib import Path

__all__ = ["PYTORCH", "defined_in", "known_names", "missing", "nearest", "record"]

#: the release whose names are recorded
PYTORCH = "2.13"
_OWN = "-"


@functools.cache
def record() -> dict[str, dict[str, str | None]]:
    """``{path: {name: holder}}``: holder is the path of the nearest package above that has the
    same object under the same name, None where there is none.
    """
    found: dict[str, dict[str, str | None]] = {}
    for path, holders in _recorded().items():
        names = found[path] = {}
        for holder, listed in holders.items():
            for name in listed:
                names[name.rstrip("=")] = None if holder == _OWN else holder
    return found


@functools.cache
def _recorded() -> dict[str, dict[str, list[str]]]:
    text = Path(__file__).with_name("names.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, list[str]]] = json.loads(text)
    return loaded


@functools.cache
def _definitions() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path, holders in _recorded().items():
        for listed in holders.values():
            for name in listed:
                if name.endswith("="):
                    found.setdefault(name[:-1], []).append(path)
    return found


def defined_in(path: str, name: str) -> str | None:
    """The path of the PyTorch module that defines what is called `name`, nearest to `path`."""
    parts = path.split(".")

    def common(candidate: str) -> tuple[int, bool]:
        above = candidate.split(".")
        same = sum(1 for n in range(len(parts)) if parts[: n + 1] == above[: n + 1])
        return same, "._" not in f".{candidate}"

    found = _definitions().get(name, [])
    return max(found, key=common) if found else None


def known_names(path: str) -> dict[str, str | None]:
    """The names that PyTorch's module has, with their holders; empty for a module it has not."""
    return record().get(path, {})


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Up to three of `names` that look like `name`, the nearest first."""
    by_lower = {known.lower(): known for known in names if known[:2] != "__" and known != name}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.7)
    return [by_lower[found] for found in close]


def missing(package: str, path: str, name: str, present: Iterable[str]) -> str:
    """What is said of ``package.path.name``, which is not there although a program asks for it."""
    holder = f"{package}.{path}" if path else package
    close = nearest(name, present)
    text = f"module {holder!r} has no attribute {name!r}"
    if name in known_names(path) or f"{path}.{name}".lstrip(".") in record():
        text += f": PyTorch {PYTORCH} has it, coredispatch does not yet"
    text += f"\n  nearest: {', '.join(close)}" if close else "\n  nothing has a similar name"
    return text + "\n  fix: `coredispatch port FILE` lists all that a program uses and we lack"
