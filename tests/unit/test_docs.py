"""The written pages are true: links lead somewhere, programs run, commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "plugins/*/*.md", "examples/**/*.md")
    for page in ROOT.glob(pattern)
)
PROGRAMS = sorted((ROOT / "docs").glob("*.py"))
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_blocks_are_python(page: Path) -> None:
    for number, block in enumerate(BLOCK.findall(page.read_text())):
        compile(block, f"{name(page)}, block {number}", "exec")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_commands_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in re.findall(r"`make ([a-z-]+)", page.read_text()):
        assert command in targets, f"{name(page)} names `make {command}`"


#: pages whose blocks run in order, as one program
TUTORIALS = [
    ROOT / "docs" / "write_a_layer.md",
    ROOT / "docs" / "write_a_backend.md",
    ROOT / "docs" / "compile.md",
    ROOT / "docs" / "graphs.md",
    ROOT / "docs" / "script.md",
    ROOT / "docs" / "transforms.md",
]


#: warnings are errors, but for PyTorch's word that `jit` is deprecated
STRICT = ("-W", "error", "-W", "ignore:`torch.jit:DeprecationWarning")


@pytest.mark.parametrize("page", TUTORIALS, ids=name)
def test_tutorials_run(page: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert blocks
    program = tmp_path / "tutorial.py"  # a file: jit.script reads the source
    program.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, *STRICT, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


#: pages whose blocks are passages of a program that has tests of its own, but for one that uses it
PASSAGES = {
    "docs/write_a_layout.md": "examples/diagonal_layout/coredispatch_diagonal.py",
    "docs/write_a_backend.md": "tests/meta/fake_devices.py",
}


@pytest.mark.parametrize("page", PASSAGES)
def test_passages_are_from_the_program(page: str) -> None:
    program = (ROOT / PASSAGES[page]).read_text()
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for block in blocks:
        if "cd.plugins.load(" not in block:
            assert block.strip() in program, f"{page} shows what {PASSAGES[page]} has not:\n{block}"


@pytest.mark.parametrize("program", PROGRAMS, ids=name)
def test_programs_run(program: Path) -> None:
    done = subprocess.run([sys.executable, *STRICT, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
