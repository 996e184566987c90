"""The text of what is compiled, and errors that point into it."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Any

from coredispatch.frontend.jit.frontend import NotSupportedError, UnsupportedNodeError
from coredispatch.plugin import OpError

__all__ = ["CompileError", "Source", "source_of"]


class CompileError(OpError):
    """A program that has no meaning as a graph: a wrong type, an unknown name."""


class Source:
    """The definition of one function.

    Attributes:
        tree: its syntax tree.
        file, name: where it stands, and what it is called.
        first: the line of the file on which ``text`` begins.
        indent: the number of columns that were cut from each line.
    """

    def __init__(
        self, tree: ast.FunctionDef, text: str, file: str, first: int, indent: int
    ) -> None:
        self.tree, self.text, self.file, self.first, self.indent = tree, text, file, first, indent
        self.name = tree.name

    def place(self, node: Any) -> tuple[str, int, str]:
        """File, line and function, as a graph notes them."""
        return (self.file, self.first + getattr(node, "lineno", 1) - 1, self.name)

    def highlight(self, node: Any) -> str:
        """The place with some lines around and a caret below the text."""
        line = getattr(node, "lineno", self.tree.lineno)
        begin = getattr(node, "col_offset", 0)
        lines = self.text.splitlines()
        end = getattr(node, "end_col_offset", begin + 1)
        if getattr(node, "end_lineno", line) != line:
            end = len(lines[line - 1])
        shown = [f"{text}" for text in lines[max(0, line - 3) : line]]
        shown.append(" " * begin + "~" * max(1, end - begin) + " <--- HERE")
        shown += lines[line : line + 1]
        where = (
            f'  File "{self.file}", line {self.first + line - 1}, column {self.indent + begin + 1}'
        )
        return "\n".join([where, *shown])

    def error(self, node: Any, problem: str, fix: str = "") -> CompileError:
        """A :class:`CompileError` that points at ``node``."""
        made = CompileError(f"\n{problem}:\n{self.highlight(node)}", fix=fix or None)
        made._located = True  # type: ignore[attr-defined]
        return made

    def unsupported(self, node: Any, problem: str, *, kind: bool = False) -> NotSupportedError:
        """A :class:`NotSupportedError` that points at ``node``."""
        error = UnsupportedNodeError if kind else NotSupportedError
        return error(f"{problem}:\n{self.highlight(node)}")


def source_of(fn: Any) -> Source:
    """The definition of a Python function.

    Raises ``OSError`` where its source is not to be had, :class:`CompileError` for what is no
    ``def`` of its own, a lambda for instance.
    """
    return _source(inspect.unwrap(fn).__code__)


@functools.lru_cache(maxsize=4096)
def _source(code: Any) -> Source:
    try:
        raw, first = inspect.getsourcelines(code)
    except OSError as error:
        raise OSError(
            f"Can't get source for {code.co_name!r}, which jit.script compiles from its text: "
            f"{error}. Define it in a file; a REPL and generated code have none"
        ) from None
    file = code.co_filename
    text = "".join(raw)
    plain = textwrap.dedent(text)
    indent = len(raw[0]) - len(raw[0].lstrip())
    try:
        tree = ast.parse(plain, file, type_comments=True)
    except SyntaxError:
        tree = None
    found = tree.body[0] if tree is not None and len(tree.body) == 1 else None
    if isinstance(found, ast.AsyncFunctionDef):
        raise UnsupportedNodeError(f"async functions aren't supported: {file}:{first}")
    if not isinstance(found, ast.FunctionDef) or found.name != code.co_name:
        raise CompileError(
            f"Expected a single top-level function: {file}:{first}",
            fix="a lambda has no definition of its own; write it as a def",
        )
    return Source(found, plain, file, first, indent)
