"""The programs on the front page do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from environments import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    """The Python programs of a page."""
    return BLOCK.findall((ROOT / page).read_text())


def run(program: str, folder: Path, **variables: str) -> str:
    """Run a program in a process of its own, warnings being errors; what it printed."""
    path = folder / "program.py"
    path.write_text(program)
    command = [sys.executable, "-W", "error", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_twenty_lines_train_a_network(tmp_path: Path) -> None:
    program = blocks("README.md")[0]
    assert len(program.splitlines()) <= 20
    out = run(program, tmp_path)
    assert "accuracy" in out
    assert "key set   cpu" in out


def test_thirty_lines_make_a_backend(tmp_path: Path) -> None:
    program = blocks("README.md")[1]
    assert sum(bool(line.strip()) for line in program.splitlines()) <= 35
    out = run(program, tmp_path, COREDISPATCH_PLUGINS="none")
    assert out.startswith("tensor([ 0.0819, -0.0220, -0.0599])")


def test_the_op_of_the_contributing_page_is_accepted(tmp_path: Path) -> None:
    check = """
import coredispatch as cd
from coredispatch.plugin import hookimpl

class Plugin:
    @hookimpl
    def coredispatch_register(self, registrar):
        registrar.op(binary_sigmoid)

cd.plugins.load("page", Plugin())
x = cd.tensor([0.0, 1.0], dtype=cd.float64, requires_grad=True)
cd.testing.assert_close(x.binary_sigmoid().detach(), cd.tensor([0.5, 2 / 3], dtype=cd.float64))
assert cd.autograd.gradcheck(cd.binary_sigmoid, (x,))
"""
    run(blocks("CONTRIBUTING.md")[0] + check, tmp_path, COREDISPATCH_PLUGINS="none")


def test_the_array_api_backend_of_the_contributing_page(tmp_path: Path) -> None:
    check = """
import sys
import coredispatch as cd

cd.plugins.load("mine", sys.modules[__name__])
x = cd.tensor([[1.0, 2.0], [3.0, 4.0]]).to("mine").requires_grad_()
cd.softmax(x @ x, 1).pow(2).sum().backward()
assert x.grad.device.type == "mine"
"""
    (backend,) = (text for text in blocks("CONTRIBUTING.md") if "ArrayApiBackend" in text)
    run(backend + check, tmp_path, COREDISPATCH_PLUGINS="none")
