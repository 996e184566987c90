"""The typing stubs say what the operator definitions say."""

from __future__ import annotations

import ast
import builtins
import itertools
import pickle
import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch._namespaces import NAMESPACES
from coredispatch.frontend.operators import operators
from coredispatch.ops.support.samples import Make
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


def declared_results(stub: str) -> dict[str, str]:
    """Function -> what the stub says that it returns; those of one signature only."""
    tree = ast.parse((PACKAGE / f"{stub}.pyi").read_text("utf-8"))
    functions = [f for f in tree.body if isinstance(f, ast.FunctionDef) and not f.decorator_list]
    return {f.name: ast.unparse(f.returns) for f in functions if f.returns is not None}


def fits(result: object, declared: str) -> bool:
    if declared.startswith("return_types."):
        return type(result) is getattr(cd.return_types, declared.removeprefix("return_types."))
    plain = getattr(builtins, declared.removeprefix("builtins."), None)
    if plain in (bool, int, float, str):
        return type(result) is plain
    if not declared.startswith("builtins.tuple"):
        return isinstance(result, cd.Tensor) if declared == "Tensor" else result is None
    count = declared.count("Tensor")
    return (
        type(result) is tuple
        and all(isinstance(item, cd.Tensor) for item in result)
        and ("..." in declared or len(result) == count)
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("stub", "namespace"),
    [
        ("__init__", ""),
        ("frontend/nn/functional", "nn.functional"),
        ("frontend/linalg", "linalg"),
        ("frontend/special", "special"),
    ],
)
def test_functions_return_what_the_stub_says(stub: str, namespace: str) -> None:
    found, wrong = set(), []
    public = operators(namespace)
    for name, declared in declared_results(stub).items():
        function = public.get(name)
        op = getattr(function, "operator", function)
        if op is None or op.samples is None:
            continue
        for sample in itertools.islice(op.samples(Make(_dtype(op), values=op.values)), 40):
            call = sample.map(lambda array: cd.from_numpy(array.copy()))
            try:
                result = function(*call.args, **call.kwargs)
            except cd.CoreDispatchError:
                continue  # an in-place form does not write what broadcast
            found.add(name)
            if not fits(result, declared):
                wrong.append(f"{name}{sample}: {type(result).__name__}, not {declared}")
    assert not wrong, wrong[:5]
    assert len(found) > 20


def _dtype(op: cd.Operator) -> np.dtype[Any]:
    known = op.dtypes if not isinstance(op.dtypes, str) else (cd.float32,)
    integral = op.dtypes in ("int", "bool+int") or cd.float32 not in known
    return np.dtype("int64" if integral else "float32")
