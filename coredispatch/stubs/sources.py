"""Signatures that are written by hand, read from the source: compiled classes do not show them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Imports", "Source", "function", "header", "installed", "members"]

#: name -> (module, name in it); the module is empty where the name is a module itself
Imports = dict[str, tuple[str, str]]

_BUILTINS = frozenset(
    "bool bytes complex dict float frozenset int list object set slice str tuple type".split()
)


class _Qualify(ast.NodeTransformer):
    """``int`` -> ``builtins.int``: a stub of tensors has methods and dtypes of these names."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in _BUILTINS:
            return ast.Attribute(ast.Name("builtins", ast.Load()), node.id, ast.Load())
        return node


class Source:
    """A module's text: its top-level functions and classes, and where its names come from."""

    def __init__(self, module: Any) -> None:
        path = Path(module.__file__ or "")
        if path.suffix != ".py":  # compiled: the Python file stands beside the extension
            path = path.with_name(path.name.partition(".")[0] + ".py")
        self.tree = ast.parse(path.read_text("utf-8"))
        self.functions = [n for n in self.tree.body if isinstance(n, ast.FunctionDef)]
        self.classes = {n.name: n for n in self.tree.body if isinstance(n, ast.ClassDef)}
        #: name -> (module, name in it), also of what is imported below ``if TYPE_CHECKING``
        self.imports: Imports = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module or "", alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = ("", alias.name)


def header(lines: list[str], *tables: Imports) -> list[str]:
    """The import lines that bring the names a stub's ``lines`` use; the first table wins."""
    tree = ast.parse("\n".join(lines))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    known: Imports = {}
    for table in tables:
        known = table | known
    plain: list[str] = []
    grouped: dict[str, list[str]] = {}
    for name in sorted(used & set(known)):
        module, original = known[name]
        text = original if original == name else f"{original} as {name}"
        if module:
            grouped.setdefault(module, []).append(text)
        else:
            plain.append(f"import {text}")
    return [*plain, *(f"from {m} import {', '.join(grouped[m])}" for m in sorted(grouped)), ""]


def function(node: ast.FunctionDef, *, name: str | None = None, indent: str = "") -> list[str]:
    """The lines of a function: its decorators and signature, without body and defaults."""
    decorators = [f"{indent}@{ast.unparse(decorator)}" for decorator in node.decorator_list]
    returns = "Any" if node.returns is None else _annotation(node.returns)
    signature = f"def {name or node.name}({_arguments(node.args)}) -> {returns}: ..."
    return [*decorators, indent + signature]


def _annotation(node: ast.expr | None) -> str:
    return "Any" if node is None else ast.unparse(_Qualify().visit(node))


def _arguments(arguments: ast.arguments) -> str:
    """Parameters with their annotations; defaults become ``...``."""
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    parts = []
    for index, a in enumerate(positional):
        bound = index == 0 and a.arg in ("self", "cls")
        text = a.arg if bound else f"{a.arg}: {_annotation(a.annotation)}"
        parts.append(text + (" = ..." if index >= first_default else ""))
        if index + 1 == len(arguments.posonlyargs):
            parts.append("/")
    if arguments.vararg is not None:
        parts.append(f"*{arguments.vararg.arg}: {_annotation(arguments.vararg.annotation)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parts.append(f"{a.arg}: {_annotation(a.annotation)}" + (" = ..." if default else ""))
    if arguments.kwarg is not None:
        parts.append(f"**{arguments.kwarg.arg}: {_annotation(arguments.kwarg.annotation)}")
    return ", ".join(parts)


#: names with an underscore that PyTorch's own tutorials use
_READ_BY_PROGRAMS = ("_version",)


def members(cls: ast.ClassDef) -> Iterator[tuple[str, list[str]]]:
    """``(name, lines)`` of the public methods and properties that a class defines."""
    lines: dict[str, list[str]] = {}
    overloaded: set[str] = set()
    for node in cls.body:
        if isinstance(node, ast.FunctionDef):
            marks = [ast.unparse(decorator) for decorator in node.decorator_list]
            if "overload" in marks:
                overloaded.add(node.name)
            elif node.name in overloaded:
                continue  # the implementation: its overloads are what a caller sees
            lines.setdefault(node.name, []).extend(function(node, indent="    "))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            for target in node.targets:
                if isinstance(target, ast.Name) and node.value.id in lines:
                    old, new = f"def {node.value.id}(", f"def {target.id}("
                    lines[target.id] = [line.replace(old, new) for line in lines[node.value.id]]
    for name, found in lines.items():
        if not name.startswith("_") or name.startswith("__") or name in _READ_BY_PROGRAMS:
            yield name, found


def installed(name: str, value: Any) -> list[str]:
    """The line of a function that another module set on the class."""
    source = Source(inspect.getmodule(value))
    written = [n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef)]
    named = [n for n in written if n.name == value.__code__.co_name]
    # Functions that one function makes have one name: the line tells which it is.
    named.sort(key=lambda n: n.lineno != value.__code__.co_firstlineno)
    if named:
        node = named[0]
        node.args.args[0].arg, node.args.args[0].annotation = "self", None
        return function(node, name=name, indent="    ")
    raise LookupError(f"{value} is written nowhere in {value.__module__}")
