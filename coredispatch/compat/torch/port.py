"""``coredispatch port FILE``: what a program uses of PyTorch and coredispatch lacks.

The program is read, not run. Names are followed through ``import torch.nn as nn``, ``from torch
import x`` and chains of attributes. Of methods only those are known that PyTorch's ``Tensor`` has,
ours has not, and no container of Python's has either.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import coredispatch
from coredispatch.compat.torch.names import known_names, nearest, record
from coredispatch.compat.torch.paths import is_provided

__all__ = ["Finding", "main", "missing_names"]

_TOP = "torch"


@dataclass(frozen=True, order=True)
class Finding:
    """A name that a program uses and that is not there."""

    file: str
    line: int
    name: str
    reason: str
    nearest: tuple[str, ...]

    def __str__(self) -> str:
        close = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        return f"{self.file}:{self.line}: {self.name} {self.reason}{close}"


def missing_names(source: str | bytes, file: str) -> list[Finding]:
    """What the program `source` uses and coredispatch lacks, in the order of its lines.

    Bytes are decoded as Python does it. Raises SyntaxError or ValueError for what is no Python.
    """
    tree = ast.parse(source, file)
    bound, starred, found = _imports(tree, file)
    bound |= _aliases(tree, bound)
    found |= _chains(tree, bound, file)
    found |= _starred(tree, bound, starred, file)
    found |= _methods(tree, bound, file)
    return sorted(found)


def _imports(tree: ast.AST, file: str) -> tuple[dict[str, str], dict[str, str], set[Finding]]:
    """``{name in the program: what it stands for}``, the same of what ``import *`` brings, and what
    cannot be imported.
    """
    bound: dict[str, str] = {}
    starred: dict[str, str] = {}
    found: set[Finding] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == _TOP:
                    found |= _checked(alias.name, node.lineno, file)
                    bound[alias.asname or _TOP] = alias.name if alias.asname else _TOP
        elif isinstance(node, ast.ImportFrom) and not node.level:
            if (node.module or "").partition(".")[0] != _TOP:
                continue
            module = str(node.module)
            missing = _checked(module, node.lineno, file)
            found |= missing
            for alias in node.names:
                if alias.name == "*":
                    path = module.partition(".")[2]
                    starred |= {name: f"{module}.{name}" for name in known_names(path)}
                elif not missing:
                    name = f"{module}.{alias.name}"
                    bound[alias.asname or alias.name] = name
                    found |= _checked(name, node.lineno, file)
    return bound, starred, found


def _aliases(tree: ast.AST, bound: dict[str, str]) -> dict[str, str]:
    """What ``name = torch.nn`` outside of functions means by ``name``, which nothing else sets."""
    set_once = {
        name for name, count in Counter(n.id for n in _assigned(tree)).items() if count == 1
    }
    found: dict[str, str] = {}
    for node in _within(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, (head, *rest) = node.targets[0], _chain(node.value) or [""]
            known = bound | found
            if isinstance(target, ast.Name) and target.id in set_once and head in known:
                found[target.id] = ".".join([known[head], *rest])
    return found


def _starred(
    tree: ast.AST, bound: dict[str, str], starred: dict[str, str], file: str
) -> set[Finding]:
    """What is missing of the names that ``from torch import *`` is relied on for."""
    own = {n.name for n in ast.walk(tree) if isinstance(n, (*_FUNCTIONS[:2], ast.ClassDef))}
    found: set[Finding] = set()
    for node, meant in _with_names(tree, {**starred, **bound}):
        if isinstance(node, ast.Name) and node.id in starred.keys() - own - bound.keys():
            if node.id in meant and not hasattr(builtins, node.id):
                found |= _checked(meant[node.id], node.lineno, file)
    return found


def _chain(node: ast.AST) -> list[str]:
    """``["torch", "nn", "Linear"]`` for ``torch.nn.Linear``; empty for other expressions."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def _chains(tree: ast.AST, bound: dict[str, str], file: str) -> set[Finding]:
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    found: set[Finding] = set()
    for node, meant in _with_names(tree, bound):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            head, *rest = _chain(node) or [""]
            if head in meant:
                found |= _checked(".".join([meant[head], *rest]), node.lineno, file)
    return found


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _with_names(node: ast.AST, bound: dict[str, str]) -> Iterator[tuple[ast.AST, dict[str, str]]]:
    """Each node below ``node``, with what the imported names mean there.

    A function in which ``data`` is a parameter or a variable does not mean the module by it.
    """
    own: dict[str, int] = {}
    for name in _assigned(node):
        own[name.id] = min(name.lineno, own.get(name.id, name.lineno))
    if isinstance(node, ast.Module):
        # Above the line where the program uses the name for something else, it is the module.
        # ``torch = None`` stands where the import failed, an alias means what it is assigned.
        for name in [n for n in own if n in _fallbacks(node) | _aliases(node, bound).keys()]:
            del own[name]
    else:
        own |= dict.fromkeys(_parameters(node), 0)
        own |= dict.fromkeys(own.keys() & bound.keys(), 0)
    waiting = list(ast.iter_child_nodes(node))
    while waiting:
        part = waiting.pop()
        line = getattr(part, "lineno", 0)
        meant = {name: meaning for name, meaning in bound.items() if line < own.get(name, line + 1)}
        yield part, meant
        if isinstance(part, _FUNCTIONS):
            yield from _with_names(part, meant)
        else:
            waiting += ast.iter_child_nodes(part)


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of ``scope`` itself, those of its inner functions left out, in their order."""
    for part in ast.iter_child_nodes(scope):
        yield part
        if not isinstance(part, _FUNCTIONS):
            yield from _within(part)


def _assigned(scope: ast.AST) -> Iterator[ast.Name]:
    """The names that ``scope`` itself gives a value."""
    for part in _within(scope):
        if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            yield part


def _parameters(scope: ast.AST) -> Iterator[str]:
    for part in _within(scope):
        if isinstance(part, ast.arg):
            yield part.arg


def _fallbacks(scope: ast.AST) -> set[str]:
    """Names that are only ever set to a constant."""
    constant: set[str] = set()
    count: Counter[str] = Counter()
    for part in _within(scope):
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant):
            for target in part.targets:
                if isinstance(target, ast.Name):
                    constant.add(target.id)
                    count[target.id] += 1
    every = Counter(name.id for name in _assigned(scope))
    return {name for name in constant if count[name] == every[name]}


def _methods(tree: ast.AST, bound: dict[str, str], file: str) -> set[Finding]:
    """Calls of what looks like a method of a tensor that our tensors have not."""
    coredispatch.plugins.discover()  # from here on tensors have the methods that plugins bring
    ours = set(dir(coredispatch.Tensor))
    others = {name for cls in (str, bytes, list, tuple, dict, set) for name in dir(cls)}
    theirs = {name for name in known_names("Tensor") if name not in ours | others}
    defined = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    found: set[Finding] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = node.func.attr
        if name in theirs - defined and (_chain(node.func) or [""])[0] not in bound:
            close = tuple(nearest(name, ours))
            found.add(Finding(file, node.lineno, f"Tensor.{name}", "is missing", close))
    return found


def _checked(name: str, line: int, file: str) -> set[Finding]:
    """Nothing, or what is missing of ``torch.a.b.c``; attributes of objects are not followed."""
    holder: Any = coredispatch
    path = ""
    parts = name.split(".")
    # PyTorch's torch has itself for an attribute: torch.torch.Tensor.
    for part in itertools.dropwhile(lambda part: part == _TOP, parts):
        if not isinstance(holder, (ModuleType, type)):
            return set()
        below = f"{path}.{part}".lstrip(".")
        value = _attribute(holder, below, part)
        if value is None:
            shown = f"{_TOP}.{below}"
            reason = "is no name of PyTorch's" if _pytorch_lacks(path, part) else "is missing"
            return {Finding(file, line, shown, reason, tuple(nearest(part, dir(holder))))}
        holder, path = value, below
    fix = getattr(holder, "announced", None) if callable(holder) else None
    return {Finding(file, line, name, f"is not there yet: {fix}", ())} if fix else set()


def _attribute(holder: Any, below: str, part: str) -> Any:
    try:
        found = getattr(holder, part)
    except ImportError:  # there, over a package that is not installed
        return ...
    except RuntimeError:  # torch.classes and torch.ops: what a library of C++ would have brought
        return None
    except AttributeError:
        if isinstance(holder, ModuleType) and below in record() and is_provided(below):
            return importlib.import_module(f"coredispatch.{below}")
        return None
    return ... if found is None else found  # a name that is None, such as version.cuda


def _pytorch_lacks(path: str, part: str) -> bool:
    """Whether ``path`` is a namespace whose names are known, and ``part`` is none of them."""
    known = known_names(path)
    return bool(known) and part not in known and f"{path}.{part}".lstrip(".") not in record()


def _files(paths: Sequence[str]) -> Iterator[Path]:
    for given in paths:
        path = Path(given)
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main(arguments: Sequence[str]) -> int:
    """Print what is missing; 0 where nothing is, 1 where something is.

    2 for a wrong call, and where a file cannot be read: the others are listed all the same.
    """
    parser = argparse.ArgumentParser(
        prog="coredispatch port",
        description="List what programs that were written for PyTorch use and coredispatch lacks.",
    )
    parser.add_argument("paths", nargs="+", metavar="FILE", help="a script, or a folder of them")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    found: list[Finding] = []
    files = list(_files(options.paths))
    unread = 0
    if not files:
        print("coredispatch port: no Python file there", file=sys.stderr)
    for file in files:
        try:
            if file.suffix == ".ipynb":
                raise ValueError("a notebook; save it as a script first, nbconvert does")
            found += missing_names(file.read_bytes(), str(file))
        except (OSError, SyntaxError, ValueError) as error:
            print(f"coredispatch port: {file}: {error}", file=sys.stderr)
            unread += 1
    if options.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        for finding in found:
            print(finding)
        count = len({finding.name for finding in found})
        read = len(files) - unread
        if found:
            print(f"{count} name(s) missing in {read} file(s)")
        elif read:
            print("nothing is missing")
    return 2 if unread or not files else 1 if found else 0
