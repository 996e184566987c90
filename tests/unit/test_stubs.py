"""The typing stubs say what the op blocks say."""

from __future__ import annotations

import ast
import pickle
import re
import types
from pathlib import Path

import pytest

import coredispatch as cd
from coredispatch._namespaces import NAMESPACES
from coredispatch.stubs import main, render

PACKAGE = Path(cd.__file__).parent
TENSOR = PACKAGE / "frontend" / "tensor.pyi"


def test_the_stubs_are_fresh() -> None:
    assert main(["--check"]) == 0, "run `python -m coredispatch.stubs`"


def test_the_stubs_are_python() -> None:
    for text in render().values():
        ast.parse(text)


def test_the_stubs_name_whatever_there_is() -> None:
    own = ("coredispatch", "builtins")
    for path, holder in ((PACKAGE / "__init__.pyi", cd), (TENSOR, cd.Tensor)):
        text = path.read_text("utf-8")
        for name in dir(holder):
            value = getattr(holder, name, None)
            module = (getattr(value, "__module__", None) or "coredispatch").partition(".")[0]
            op = getattr(value, "__wrapped__", value)
            plugin = getattr(op, "plugin", "ops") if isinstance(op, cd.Operator) else "ops"
            if name.startswith("_") or module not in own or plugin not in ("ops", "transfer"):
                continue
            if isinstance(value, types.ModuleType) and name not in NAMESPACES:
                continue
            assert re.search(rf"\b{name}\b", text), (path.name, name)


def test_named_results_are_the_classes_the_stub_has() -> None:
    stub = ast.parse((PACKAGE / "frontend" / "return_types.pyi").read_text("utf-8"))
    classes = [node for node in stub.body if isinstance(node, ast.ClassDef)]
    assert {node.name for node in classes} == set(dir(cd.return_types))
    for node in classes:
        fields = [f.target.id for f in node.body if isinstance(f, ast.AnnAssign)]
        assert getattr(cd.return_types, node.name)._fields == tuple(fields)
    result = cd.rand(3, 2).max(1)
    assert type(result) is cd.return_types.max
    assert type(pickle.loads(pickle.dumps(result))) is cd.return_types.max
    with pytest.raises(AttributeError, match="add"):
        cd.return_types.add  # noqa: B018
