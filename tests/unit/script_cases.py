"""The programs of ``scripted/`` with their inputs, and what the tests of ``jit.script`` share.

Each file there is a text in PyTorch's style, which is run under both names.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import Tensor

FOLDER = Path(__file__).parent / "scripted"
PARTS = ("control_flow", "values", "functions", "modules")
PARTS += ("recurrent", "vision", "tutorials", "language")


def registry(torch: Any) -> tuple[Any, ...]:
    """``FUNCTIONS, MODULES, function, module, ramp`` of one file, over one of the libraries.

    The first two are lists of ``(program, inputs)``, which the decorators add to: functions
    without arguments make the inputs that are tensors.
    """

    def adding(to: list[Any]) -> Any:
        def with_inputs(*inputs: Any) -> Any:
            def add(program: Any) -> Any:
                to.append((program, list(inputs)))
                return program

            return add

        return with_inputs

    def ramp(*shape: int) -> Any:
        count = 1
        for n in shape:
            count *= n
        return (torch.arange(count, dtype=torch.float32).view(*shape) * 0.37).sin()

    functions: list[Any] = []
    modules: list[Any] = []
    return functions, modules, adding(functions), adding(modules), ramp


def imported(name: str, path: Path) -> Any:
    """The module in a file."""
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: under a name of its own: a part of this folder is no module that other tests import
SCRIPTED = {part: imported(f"scripted_{part}", FOLDER / f"{part}.py") for part in PARTS}
FUNCTIONS = [case for part in PARTS for case in SCRIPTED[part].FUNCTIONS]
MODULES = [case for part in PARTS for case in SCRIPTED[part].MODULES]
#: everything that the parts define, by name
programs = SimpleNamespace()
for _part in PARTS:
    vars(programs).update(vars(SCRIPTED[_part]))
#: PyTorch does not compile these: super().forward(x)
OURS_ONLY = {"Square"}

#: these give something else when they are compiled, and say so themselves
COMPILED_ONLY = {"annotated", "shapes"}


def made(values: Any) -> list[Any]:
    """The inputs of a case, made anew."""
    return [value() if callable(value) else plain(value) for value in values]


def plain(value: Any) -> Any:
    """A copy of lists and dicts, with their tensors made."""
    if isinstance(value, (list, dict)):
        return copy.deepcopy(value)
    return value


def filled(module: Any) -> Any:
    """The module with parameters that are the same in every library."""
    lib = sys.modules[type(module).__mro__[-2].__module__.split(".")[0]]
    with lib.no_grad():
        for _, parameter in sorted(module.named_parameters()):
            values = lib.arange(parameter.numel(), dtype=lib.float32) * 0.61
            parameter.copy_(values.view(parameter.shape).sin() * 0.3)
    return module


def shown(value: Any) -> Any:
    """A result as plain Python, which results of two libraries can be compared by."""
    if hasattr(value, "detach"):
        numbers = value.detach().double().reshape(-1).tolist()
        return [list(value.shape), str(value.dtype).split(".")[-1], numbers]
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, *map(shown, value)]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return str(value) if type(value).__name__.lower() == "device" else value


def agree(a: Any, b: Any) -> bool:
    """Whether two shown results are equal, numbers with a fraction nearly."""
    if isinstance(a, float) and isinstance(b, float):
        return bool(a == pytest.approx(b, 1e-3, 1e-4))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(agree(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


def raw(value: Any) -> Any:
    """A result as plain Python data, for another process."""
    if isinstance(value, Tensor):
        return value.detach().double().tolist()
    if isinstance(value, (tuple, list)):
        return [raw(item) for item in value]
    if isinstance(value, dict):
        return {key: raw(item) for key, item in value.items()}
    return str(value) if isinstance(value, cd.device) else value


def reloaded(program: Any) -> Any:
    """What a file of the program gives."""
    file = io.BytesIO()
    cd.jit.save(program, file)
    file.seek(0)
    return cd.jit.load(file)


FUNCTION_CASES = [(fn, i) for fn, inputs in FUNCTIONS for i in range(len(inputs))]
MODULE_CASES = [(cls, i) for cls, inputs in MODULES for i in range(len(inputs))]
INPUTS = dict(FUNCTIONS) | dict(MODULES)


def named(case: Any) -> str:
    return getattr(case, "__name__", str(case))
