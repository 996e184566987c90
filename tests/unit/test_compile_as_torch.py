"""Programs that import the library as ``torch``: its modules and classes then say that name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import coredispatch as cd

pytestmark = pytest.mark.once

TRAINING = """
import torch

def steps(make, compiled, order):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    def step(x):
        if order:
            optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        if not order:
            optimizer.zero_grad()
        return loss.detach()
    run = torch.compile(step) if compiled else step
    losses = []
    for seed in range(6):
        torch.manual_seed(seed)
        losses.append(run(torch.randn(4, 6)).item())
        schedule.step()
    states = [dict(optimizer.state[p]) for p in model.parameters()]
    counts = [float(s["step"]) for s in states if "step" in s]
    return losses, counts, [p.tolist() for p in model.parameters()]

for make in (
    lambda p: torch.optim.Adam(p, lr=0.05),
    lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True),
    lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    lambda p: torch.optim.RMSprop(p, lr=0.01),
    lambda p: torch.optim.NAdam(p, lr=0.01),
):
    for order in (True, False):
        eager, compiled = (steps(make, flag, order) for flag in (False, True))
        assert all(count == 6 for count in compiled[1]), compiled[1]
        for found, wanted in zip(compiled[0], eager[0]):
            assert abs(found - wanted) < 1e-5, (found, wanted)
        for found, wanted in zip(compiled[2], eager[2]):
            assert torch.allclose(torch.tensor(found), torch.tensor(wanted), atol=1e-5)
"""

PATCHED = """
import torch
import torch.nn.functional as F

run = torch.compile(lambda x: F.relu(x) + 1)
x = torch.tensor([-1.0, 2.0])
assert run(x).tolist() == run(x).tolist() == [1.0, 3.0]
before, F.relu = F.relu, lambda x: -x
assert run(x).tolist() == [2.0, -1.0]
F.relu = before
assert run(x).tolist() == [1.0, 3.0]

class Scaled(torch.nn.Module):
    def forward(self, x):
        return x * self.factor

told = torch.compile(lambda x: (x + 1, x.dtype, x.device, torch.float16), fullgraph=True)
for _ in range(3):
    assert told(x)[1:] == (torch.float32, torch.device("cpu"), torch.float16)
assert torch.compiler.explain(told, x).graph_count == 1

def strided(x):
    y = x * 1
    y.as_strided((2,), (1,)).add_(1)
    return y

assert torch.func.functionalize(strided)(x).tolist() == [0.0, 3.0]

model = Scaled()
model.factor = 2.0
run = torch.compile(model)
assert run(x).tolist() == [-2.0, 4.0]
model.factor = 3.0
assert run(x).tolist() == [-3.0, 6.0]
"""

SAVED = """
import importlib, sys
import torch

class Strided(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros(2, layout=torch.strided)
        return x.contiguous(memory_format=torch.channels_last) + y

program = torch.export.export(Strided(), (torch.ones(1, 3, 4, 2),))
torch.export.save(program, "program.pt2")
assert torch.export.load("program.pt2").module()(torch.ones(1, 3, 4, 2)).sum().item() == 24.0

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
    def forward(self, x):
        return torch.relu(x * self.weight)

torch.fx.symbolic_trace(Net()).to_folder("written", "Net")
sys.path.insert(0, ".")
assert importlib.import_module("written").Net()(torch.tensor([-1.0, 2.0, 3.0])).tolist() == [0.0, 2.0, 3.0]
"""  # noqa: E501


@pytest.mark.parametrize(
    "program", [TRAINING, PATCHED, SAVED], ids=["training", "patched", "saved"]
)
def test_what_is_compiled_is_what_runs(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "coredispatch", "run", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_was_written_as_torch_is_read_without(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SAVED)
    command = [sys.executable, "-m", "coredispatch", "run", "program.py"]
    subprocess.run(command, cwd=tmp_path, check=True)
    read = (
        "import coredispatch as cd; from written import Net; "
        "assert Net()(cd.tensor([-1.0, 2.0, 3.0])).tolist() == [0.0, 2.0, 3.0]; "
        "assert cd.export.load('program.pt2').module()(cd.ones(1, 3, 4, 2)).sum() == 24"
    )
    subprocess.run([sys.executable, "-c", read], cwd=tmp_path, check=True)


def test_what_is_compiled_twice_has_one_prefix() -> None:
    module = cd.nn.Sequential(cd.nn.Linear(2, 3), cd.nn.ReLU())
    once = cd.compile(module)
    twice = cd.compile(cd.compile(once, dynamic=True))
    names = ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    assert list(once.state_dict()) == list(twice.state_dict()) == names
    assert [name for name, _ in twice.named_parameters()] == names
    assert twice._orig_mod is module
    once.load_state_dict(twice.state_dict())
    x = cd.ones(4, 2)
    assert twice(x).tolist() == module(x).tolist() == once(x).tolist()
    inner = cd.nn.Sequential(cd.compile(cd.nn.Linear(2, 2)))
    assert list(cd.compile(inner).state_dict())[0] == "_orig_mod.0._orig_mod.weight"
