"""Overloaded functions and methods in compiled programs."""

# ruff: noqa: F811  one name for all signatures
# mypy: disable-error-code="no-redef, empty-body, no-untyped-def"

from __future__ import annotations

from typing import Any, List, Tuple  # noqa: UP035  what programs say

import pytest
from script_cases import reloaded

import coredispatch as cd
from coredispatch import Tensor, nn


@cd.jit._overload
def more(x: int, by: str = "a") -> int: ...
@cd.jit._overload
def more(x: Tensor, by: str = "a") -> Tensor: ...
def more(x, by="a"):
    if isinstance(x, int):
        return x + len(by)
    else:
        return x * 2


class Layer(nn.Module):
    """Takes a tensor or a list of them, as the layers of a DenseNet do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    @cd.jit._overload_method
    def forward(self, x: List[Tensor]) -> Tensor:  # noqa: UP006
        pass

    @cd.jit._overload_method
    def forward(self, x: Tensor) -> Tensor:
        pass

    def forward(self, x):
        parts = [x] if isinstance(x, Tensor) else x
        return self.fc(cd.cat(parts, 0))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    @cd.jit._overload_method
    def step(self, x: int) -> int:
        pass

    @cd.jit._overload_method
    def step(self, x: float) -> float:
        pass

    def step(self, x):
        return x + 1

    def forward(self, x, n: int) -> Tuple[Tensor, Tensor, int, float]:  # noqa: UP006
        return self.layer(x), self.layer([x, x]), self.step(n), self.step(0.5)


def test_a_call_gets_the_first_signature_that_fits() -> None:
    @cd.jit.script
    def use(x, n: int):
        return more(x), more(n), more(n, by="long")

    for program in (use, reloaded(use)):
        tensor, one, four = program(cd.ones(2), 3)
        assert (tensor.tolist(), one, four) == ([2.0, 2.0], 4, 7)


def test_overloaded_methods_and_submodules() -> None:
    net = Net()
    scripted = cd.jit.script(net)
    x = cd.randn(3, 2)
    for program in (scripted, reloaded(scripted)):
        for found, wanted in zip(program(x, 2), net(x, 2)):
            assert found.equal(wanted) if isinstance(wanted, Tensor) else found == wanted
        assert program.layer.forward__0([x]).equal(net.layer([x]))


def test_what_overloads_refuse() -> None:
    with pytest.raises(RuntimeError, match="cannot be directly compiled because it is overloaded"):
        cd.jit.script(more)

    def of_text(x: str):
        return more(x)

    with pytest.raises(RuntimeError, match=r"no overload of more\(\) takes \(str\)"):
        cd.jit.script(of_text)
    with pytest.raises(RuntimeError, match="can be the body of overload declaration"):

        @cd.jit._overload
        def empty(x: int) -> int:
            return x


def test_a_declaration_without_a_definition() -> None:
    @cd.jit._overload
    def missing(x: int) -> int: ...

    def use(x: int):
        return missing(x)

    with pytest.raises(RuntimeError, match='Implementation for the function ".*missing" is miss'):
        cd.jit.script(use)


def test_defaults_of_a_declaration_are_those_of_the_definition() -> None:
    @cd.jit._overload
    def shifted(x: int, by: int = 3) -> int: ...
    def shifted(x: Any, by: int = 5) -> Any:
        return x + by

    def use(x: int):
        return shifted(x)

    with pytest.raises(RuntimeError, match="Found on parameter by"):
        cd.jit.script(use)
