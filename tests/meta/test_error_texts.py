"""Every error that an operator raises says how to mend the call."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import coredispatch
from coredispatch.registry.model import errors

OPS = Path(coredispatch.__file__).parent / "ops"
OURS = frozenset(errors.__all__)


def _raised(path: Path) -> list[ast.Call]:
    """The calls of our error classes in a file."""
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OURS
    ]


@pytest.mark.parametrize("path", sorted(OPS.rglob("*.py")), ids=lambda p: str(p.relative_to(OPS)))
def test_an_error_of_an_operator_names_a_fix(path: Path) -> None:
    without = [
        f"line {call.lineno}: {ast.unparse(call.args[0])}"
        for call in _raised(path)
        if all(keyword.arg != "fix" for keyword in call.keywords)
    ]
    assert not without, "give fix=, what the caller would write instead"


def test_there_are_errors_to_look_at() -> None:
    assert sum(len(_raised(path)) for path in OPS.rglob("*.py")) > 200
