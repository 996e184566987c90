"""What ``jit.script`` refuses, the lines of errors at run time, and what a program tells of itself.

Beside torch where it is there.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, List  # noqa: UP035

import pytest

import coredispatch as cd
from coredispatch import nn

LIST = List[int]  # noqa: UP006

RAISES = """
def text(a):
    raise "a"
    return a

def number(a):
    raise 3
    return a

def value(a):
    raise a
    return a

def no_exception(a):
    raise dict
    return a

def fine(a):
    raise ValueError
    return a

def called(a, told: str):
    raise RuntimeError(told)
    return a

def few(a, n: int):
    assert n > 2, "too few"
    return a

def product(a, n: int):
    if n > 1:
        a = a @ a
    return a
"""


@pytest.fixture
def programs(tmp_path: Path) -> Any:
    file = tmp_path / "raising_programs.py"
    file.write_text(RAISES)
    spec = importlib.util.spec_from_file_location("raising_programs", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["text", "number", "value", "no_exception"])
def test_what_is_no_exception_cannot_be_raised(programs: Any, name: str) -> None:
    with pytest.raises(RuntimeError, match="exceptions must derive from BaseException") as caught:
        cd.jit.script(getattr(programs, name))
    assert "raising_programs.py" in str(caught.value) and "HERE" in str(caught.value)
    assert "fix: raise a class of exceptions" in str(caught.value)
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError, match="exceptions must derive from BaseException"):
        torch.jit.script(getattr(programs, name))


@pytest.mark.parametrize(
    ("name", "args", "text", "line"),
    [
        ("fine", (), "ValueError", "raise ValueError"),
        ("called", ("no",), "RuntimeError: no", "raise RuntimeError(told)"),
        ("few", (1,), "AssertionError: too few", 'assert n > 2, "too few"'),
    ],
)
def test_an_error_of_the_program_names_its_line(
    programs: Any, name: str, args: Any, text: str, line: str
) -> None:
    scripted = cd.jit.script(getattr(programs, name))
    for _ in range(2):  # each error is told of once
        with pytest.raises(cd.jit.Error) as caught:
            scripted(cd.ones(2, 3), *args)
        shown = str(caught.value)
        number = RAISES.splitlines().index(f"    {line}") + 1
        assert f'raising_programs.py", line {number}, in {name}' in shown
        assert line in shown and text in shown
        assert shown.count("The following operation failed") == 1


def test_an_error_of_an_operator_names_the_line(programs: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        cd.jit.script(programs.product)(cd.ones(2, 3), 2)
    shown = str(caught.value)
    assert 'raising_programs.py", line' in shown and "a = a @ a" in shown and "fix:" in shown


@pytest.mark.parametrize("cls", [dict, int, list, ValueError])
def test_pythons_own_classes_are_refused(cls: type) -> None:
    with pytest.raises(RuntimeError, match=f"Python's own class '{cls.__name__}'.*\n.*fix:"):
        cd.jit.script(cls)


class Old(cd.jit.ScriptModule):
    def __init__(self) -> None:
        super().__init__()
        self.a = cd.jit.Attribute(4, int)
        self.parts = cd.jit.Attribute([1, 2], LIST)
        self.unused = cd.jit.Attribute("kept", str)

    @cd.jit.script_method
    def forward(self, x):  # type: ignore[no-untyped-def]
        self.a = self.a + 1
        return x + self.a + self.parts[0]


def test_attributes_of_an_old_script_module_are_their_values(tmp_path: Path) -> None:
    module: Any = Old()
    assert (module.a, module.parts, module.unused) == (4, [1, 2], "kept")
    assert module(cd.ones(2)).tolist() == [7.0, 7.0]
    assert module.a == 5
    cd.jit.save(module, tmp_path / "old.pt")
    loaded: Any = cd.jit.load(tmp_path / "old.pt")
    assert loaded(cd.ones(2)).tolist() == [8.0, 8.0]
    assert (loaded.a, loaded.parts, loaded.unused) == (6, [1, 2], "kept")


class Plain(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + cd.tensor([3.0, 4.0])


def test_code_with_constants() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    scripted = cd.jit.script(module)
    code, constants = scripted.code_with_constants
    assert code == scripted.code and constants.const_mapping == {}
    traced = cd.jit.trace(Plain(), cd.ones(2))
    code, constants = traced.code_with_constants
    ((name, tensor),) = constants.const_mapping.items()
    assert name in code and tensor.tolist() == [3.0, 4.0]
    assert getattr(constants, name) is tensor
    with pytest.raises(AttributeError, match=f"'other'.*{name}"):
        _ = constants.other
