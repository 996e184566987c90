"""Python functions that are written for one program: their lines, and the objects they name."""

from __future__ import annotations

import types
from typing import Any

__all__ = ["Text"]


class Text:
    """A function in the making.

    Attributes:
        lines: of its body, without the first level of indentation.
        scope: its globals: what :meth:`name` gave names to.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {}
        self._known: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """A name for an object that is there already."""
        if value is None or value is True or value is False:
            return repr(value)
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = f"c{len(self.scope)}"
            self.scope[known] = value
        return known

    def key(self, value: Any) -> str:
        """The text of a dict's key: words stand in the text, where their hash is at hand."""
        return repr(value) if type(value) is str and value.isidentifier() else self.name(value)

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)

    def function(self, signature: str) -> types.FunctionType:
        """The function ``signature`` with these lines."""
        body = "".join(f"    {line}\n" for line in self.lines)
        exec(compile(f"def {signature}:\n{body}", "<compiled program>", "exec"), self.scope)
        made: types.FunctionType = self.scope.pop(signature.partition("(")[0])
        return made
