"""``coredispatch port`` lists what a program uses and coredispatch lacks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from coredispatch.cli import main
from coredispatch.compat.torch.port import missing_names

PROGRAM = """
import torch, numpy as np
import torch.nn as nn
import torch.nn.functional as F
from torch.nn import Linear, Linaer
import torch.distributed as dist
from torch.utils.data.dataloader import DataLoader
import torch.no.such.module

x = torch.onez(3)
model = nn.Sequential(nn.Linear(2, 3), nn.NoSuch())
dist.shrink_group([1])
F.relu(x); torch.nn.functional.gumbel_sofmax(x)
x.sparse_resize_and_clear_("a").split(".")
torch.float32.whatever, torch.version.cuda.split, np.ones(3), model.onez
"""


def test_it_names_lines_reasons_and_the_nearest() -> None:
    found = {(f.line, f.name): f for f in missing_names(PROGRAM, "p.py")}
    assert set(found) == {
        (5, "torch.nn.Linaer"),
        (8, "torch.no"),
        (10, "torch.onez"),
        (11, "torch.nn.NoSuch"),
        (12, "torch.distributed.shrink_group"),
        (13, "torch.nn.functional.gumbel_sofmax"),
        (14, "Tensor.sparse_resize_and_clear_"),
    }
    assert found[10, "torch.onez"].nearest[0] == "ones"
    assert "no name of PyTorch's" in found[10, "torch.onez"].reason
    assert "not there yet" in found[12, "torch.distributed.shrink_group"].reason
    assert str(found[13, "torch.nn.functional.gumbel_sofmax"]).startswith("p.py:13: torch.nn.fun")


def test_variables_are_no_modules_and_what_is_not_known_is_missing() -> None:
    source = """
import torch.utils.data as data
import torch

def read(path, loader):
    with open(path) as data:
        data.read()
    for data in loader:
        [data.sort() for data in loader]

class Reader:
    def __call__(self, data): return (lambda: data.read())()

data.nothing
torch.classes.Native.interpreter
torch.distributed.fsdp.no_such_class
torch.zeros(2, 2).to_sparse()._indices()
"""
    found = {f.name: f.reason for f in missing_names(source, "p.py")}
    assert found == {
        "torch.utils.data.nothing": "is no name of PyTorch's",
        "torch.classes.Native": "is missing",
        "torch.distributed.fsdp.no_such_class": "is missing",
    }


def test_the_exit_status_says_whether_something_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, broken = tmp_path / "good.py", tmp_path / "bad.py", tmp_path / "broken.py"
    good.write_text("import torch\nprint(torch.ones(3).sum())\n")
    assert main(["port", str(good)]) == 0
    assert "nothing is missing" in capsys.readouterr().out
    bad.write_text("from torch import onez\n")
    assert main(["port", str(tmp_path)]) == 1
    assert "1 name(s) missing in 2 file(s)" in capsys.readouterr().out
    assert main(["port", "--json", str(bad)]) == 1
    assert json.loads(capsys.readouterr().out)[0]["name"] == "torch.onez"
    broken.write_text("def")
    assert main(["port", str(broken)]) == 2


def test_our_own_programs_lack_nothing() -> None:
    programs = Path(__file__).parents[1] / "integration" / "programs"
    for path in programs.glob("*.py"):
        assert not missing_names(path.read_text(), path.name)


def test_a_name_over_a_package_that_is_not_installed_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert not missing_names("from torch.utils.tensorboard import SummaryWriter", "p.py")


def test_torch_has_itself_for_an_attribute() -> None:
    assert not missing_names("import torch\nx: torch.torch.Tensor = torch.torch.ones(2)", "p.py")


def test_a_name_means_the_module_until_it_is_used_for_something_else() -> None:
    program = """
try:
    import torch
except ImportError:
    torch = None
from torch import optim
torch.bar
optim.Adamx
optim = optim.Adam([torch.ones(1)])
optim.zero_grad(), optim.whatever
def parameter(torch): return torch.fine
def variable():
    torch = 3
    return torch.fine
def outer(): return torch.baz
lib = torch.nn
functional = lib.functional
functional.relux
twice = torch.nn
twice = 3
twice.fine
"""
    found = [(finding.line, finding.name) for finding in missing_names(program, "p.py")]
    assert found == [
        (7, "torch.bar"),
        (8, "torch.optim.Adamx"),
        (15, "torch.baz"),
        (18, "torch.nn.functional.relux"),
    ]


def test_names_of_star_imports() -> None:
    program = """
from torch.distributed import *
from torch import *
def ones(n): return n
shrink_group(1)
x = zeros(2) + max([1, 2])
def own(shrink_group): return shrink_group
"""
    found = missing_names(program, "p.py")
    assert [(finding.line, finding.name) for finding in found] == [
        (5, "torch.distributed.shrink_group")
    ]


def test_a_file_that_cannot_be_read_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("def f(:")
    (tmp_path / "b.py").write_bytes(b"# coding: latin-1\nimport torch\ns = '\xe9'\ntorch.onez\n")
    (tmp_path / "c.py").write_bytes(b"\xef\xbb\xbfimport torch\ntorch.zeross\n")
    (tmp_path / "d.py").write_bytes(b"\xff\xfe")
    (tmp_path / "e.ipynb").write_text("{}")
    assert main(["port", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert "b.py:4: torch.onez" in output.out and "c.py:2: torch.zeross" in output.out
    assert "2 name(s) missing in 2 file(s)" in output.out
    assert "a.py: invalid syntax" in output.err and "d.py: " in output.err
    assert main(["port", str(tmp_path / "e.ipynb")]) == 2
    output = capsys.readouterr()
    assert "notebook" in output.err and "nothing is missing" not in output.out
    (tmp_path / "empty").mkdir()
    assert main(["port", str(tmp_path / "empty")]) == 2
    assert "no Python file" in capsys.readouterr().err
