"""Expressions: constants, names, literals, f-strings."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from coredispatch.frontend.jit.compiler.operations import Operations
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    INT,
    STR,
    TENSOR,
    Type,
    dictionary,
    fits,
    join,
    union,
)
from coredispatch.frontend.jit.compiler.values import Items, Missing, Val

__all__ = ["Expressions"]


class Expressions(Operations):
    """The value of an expression."""

    def expr(self, node: ast.expr) -> Any:
        """What ``node`` stands for."""
        self.at = node
        found = getattr(self, f"expr_{type(node).__name__}", None)
        if found is None:
            raise self.unsupported(f"{type(node).__name__} aren't supported", node, kind=True)
        try:
            return found(node)
        finally:
            self.at = node

    def expr_Constant(self, node: ast.Constant) -> Any:
        """A number, text, ``None``, ``...``."""
        if node.value is ...:
            return Val(..., Type("ellipsis"))
        return self.from_python(node.value)

    def expr_Name(self, node: ast.Name) -> Any:
        """A variable, or what the name means outside of the function."""
        name = node.id
        if name in self.frame.env:
            found = self.frame.env[name]
            if isinstance(found, Missing):
                raise self.error(found.problem)
            return found
        if name in self.frame.names:
            return self.from_python(self.frame.names[name])
        if hasattr(builtins, name):
            return self.from_python(getattr(builtins, name))
        raise self.error(f"undefined value {name}")

    def expr_NamedExpr(self, node: ast.NamedExpr) -> Any:
        """``(x := value)``."""
        value = self.expr(node.value)
        self.assign(node.target, value)
        return value

    def expr_Tuple(self, node: ast.Tuple) -> Any:
        """``(a, b)``."""
        hint, self.hint = self.hint, None
        parts = hint.args if hint is not None and hint.name == "Tuple" else ()
        items: list[Any] = []
        for i, part in enumerate(node.elts):
            if isinstance(part, ast.Starred):
                items += self._spread(part)
            else:
                items.append(self.hinted(part, parts[i] if i < len(parts) else None))
        self.hint = hint
        return Items(tuple(items))

    def _spread(self, node: ast.Starred) -> list[Any]:
        known = self.sequence(self.expr(node.value)).items
        if known is None:
            raise self.unsupported("only tuples can be spread with '*'", node)
        return list(known)

    def expr_List(self, node: ast.List) -> Any:
        """``[a, b]``."""
        hint, self.hint = self.hint, None
        inner = hint.args[0] if hint is not None and hint.name == "List" else None
        items: list[Any] = []
        for part in node.elts:
            if isinstance(part, ast.Starred):
                items += self._spread(part)
            else:
                items.append(self.hinted(part, inner))
        self.hint = hint
        self.at = node
        return self.list_literal(items)

    def list_literal(self, items: list[Any]) -> Any:
        """A new list of values; of modules it is a tuple that exists while compiling only."""
        if not all(isinstance(item, (Val, Items)) for item in items):
            return Items(tuple(items))
        hint = self.hint
        wanted = hint.args[0] if hint is not None and hint.name == "List" else None
        if not items:
            return self.as_list([], wanted or TENSOR)
        found: Type | None = None
        for item in items:
            kind = self.type_of(item)
            joined = kind if found is None else join(found, kind)
            found = joined or union((found or kind, kind))
        assert found is not None
        if wanted is not None and found != ANY and not fits(found, wanted):
            raise self.error(
                f"List type annotation List[{wanted}] did not match elements of {found}"
            )
        return self.as_list([self.plain(item) for item in items], wanted or found)

    def expr_Dict(self, node: ast.Dict) -> Any:
        """``{k: v}``."""
        hint, self.hint = self.hint, None
        keys, values = [], []
        told = hint if hint is not None and hint.name == "Dict" else None
        inner = (None, None) if told is None else told.args
        for key, value in zip(node.keys, node.values):
            if key is None:
                raise self.unsupported("'**' in a dict isn't supported", node)
            keys.append(self.hinted(key, inner[0]))
            values.append(self.plain(self.hinted(value, inner[1])))
        self.hint = hint
        self.at = node
        if not keys:
            kind = dictionary(STR, TENSOR) if told is None else told
            return self.call(dict, {}, kind=kind)
        kind = dictionary(self._one(keys), self._one(values)) if told is None else told
        if all(isinstance(k, Val) and k.constant and k.type in (STR, INT) for k in keys):
            return self.call(dict, {k.arg: v for k, v in zip(keys, values)}, kind=kind)
        pairs = [Items((k, v)) for k, v in zip(keys, values)]
        return self.call(dict, list(pairs), kind=kind)

    def _one(self, values: list[Any]) -> Type:
        found = self.type_of(values[0])
        for value in values[1:]:
            joined = join(found, self.type_of(value))
            if joined is None:
                raise self.error(
                    f"Dict values must be of one type, found {found} and {self.type_of(value)}"
                )
            found = joined
        return found

    def expr_JoinedStr(self, node: ast.JoinedStr) -> Any:
        """An f-string."""
        text = ""
        values: list[Any] = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                text += str(part.value).replace("{", "{{").replace("}", "}}")
                continue
            assert isinstance(part, ast.FormattedValue)
            text += self.field(part, values)
        self.at = node
        if all(isinstance(v, Val) and v.constant and v.type in (STR, INT) for v in values):
            return Val(text.format(*(v.arg for v in values)), STR)
        return self.method("format", Val(text, STR), *values, kind=STR)

    def field(self, part: ast.FormattedValue, values: list[Any]) -> str:
        """One ``{...}`` of an f-string for ``str.format``; ``values`` gets what it shows."""
        value = self.expr(part.value)
        words = self.shown(value, "__repr__" if part.conversion == ord("r") else "__str__")
        values.append(words)
        plain = part.conversion == -1 or words is not value
        text = "{" + ("" if plain else f"!{chr(part.conversion)}")
        if part.format_spec is not None:
            assert isinstance(part.format_spec, ast.JoinedStr)
            text += ":"
            for piece in part.format_spec.values:
                if isinstance(piece, ast.Constant):
                    text += str(piece.value)
                else:
                    assert isinstance(piece, ast.FormattedValue)
                    text += self.field(piece, values)
        return text + "}"

    def expr_Starred(self, node: ast.Starred) -> Any:
        """``*xs`` outside of a call or literal."""
        raise self.unsupported("starred expressions aren't supported here", node)
