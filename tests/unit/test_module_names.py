"""A module has one object, by whatever name and in whatever order it is imported."""

from __future__ import annotations

import ast
import json
import os
import pkgutil
import random
import subprocess
import sys
from pathlib import Path

import pytest

import coredispatch
from coredispatch._namespaces import NAMESPACES

pytestmark = pytest.mark.once

ROOT = Path(coredispatch.__file__).parent

# Runs in a process in which no public namespace has been imported yet: imports the names that it
# reads, in their order. The first line has public names; then a line is a name to import, and the
# name below frontend of the same module.
ORDER = """
import importlib, sys, types
import coredispatch

assert not [name for name in sys.stdin.readline().split() if name in sys.modules]
found, pairs = {}, []
for line in sys.stdin:
    name, real = line.split()
    pairs.append((name, real))
    module = importlib.import_module(name)
    assert found.setdefault(real, module) is module, (name, real)

for name, real in pairs:
    assert sys.modules[name] is sys.modules[real] is found[real], (name, real)
    value = coredispatch
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    # cd.amp.autocast is the class, as in PyTorch, although a module is called so, too.
    assert value is found[real] or not isinstance(value, types.ModuleType), name

objects = {}
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] == "coredispatch":
        assert "frontend" in module.__name__ or module.__name__ == name, name
        file = getattr(module, "__file__", None)
        assert objects.setdefault(file, module) is module, (name, module.__name__)
"""


def names() -> list[tuple[str, str]]:
    """``(public name, name below frontend)`` of every module that has both."""
    found = []
    for namespace, real in NAMESPACES.items():
        found.append((f"coredispatch.{namespace}", real))
        folder = ROOT.parent.joinpath(*real.split("."))
        for info in pkgutil.walk_packages([str(folder)] if folder.is_dir() else [], f"{real}."):
            if not info.name.endswith(".__main__"):  # a program: its module has no second name
                found.append((f"coredispatch.{namespace}{info.name.removeprefix(real)}", info.name))
    return found


def python(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COREDISPATCH_PLUGINS": "none"}
    return subprocess.run(
        [sys.executable, *arguments], input=text, capture_output=True, text=True, env=environment
    )


def test_there_are_modules_of_two_names() -> None:
    assert len(names()) > 60
    assert ("coredispatch.nn.parameter", "coredispatch.frontend.nn.parameter") in names()
    assert ("coredispatch.utils.data.sampler", "coredispatch.frontend.data.sampler") in names()


def test_importing_a_program_does_not_run_it() -> None:
    files = [path.relative_to(ROOT.parent) for path in ROOT.rglob("__main__.py")]
    programs = sorted(".".join(path.with_suffix("").parts) for path in files)
    assert "coredispatch.frontend.distributed.run.__main__" in programs
    done = python("-c", "\n".join(f"import {name}" for name in programs))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# By which name a module is imported first decides how it is found.
@pytest.mark.parametrize("first", ["public", "real", "drawn 1", "drawn 2"])
def test_both_names_give_one_object(first: str) -> None:
    draw = random.Random(first)
    pairs = names()
    draw.shuffle(pairs)
    public, real = [(p, r) for p, r in pairs], [(r, r) for _, r in pairs]
    spellings = real + public if first == "real" else public + real
    if first.startswith("drawn"):
        draw.shuffle(spellings)
    lines = [" ".join(p for p, _ in pairs), *(f"{name} {real}" for name, real in spellings)]
    done = python("-c", ORDER, text="\n".join(lines))
    assert done.returncode == 0, done.stderr[-3000:]


# Programs whose first statement is the spelling in question.
PROGRAMS = {
    "a module, as": "import coredispatch.nn.functional as F; import coredispatch as cd;"
    " assert F is cd.nn.functional",
    "a package": "import coredispatch.optim; import coredispatch.frontend.optim as real;"
    " assert coredispatch.optim is real",
    "from a package": "from coredispatch.nn import functional; import coredispatch.nn.functional"
    " as F; assert F is functional",
    "from the top": "from coredispatch import nn; import coredispatch.frontend.nn.modules.linear"
    " as real; import coredispatch.nn.modules.linear as M; assert M is real;"
    " assert nn.modules.linear is real",
    "from a module": "from coredispatch.optim.lr_scheduler import StepLR; import coredispatch as"
    " cd; assert StepLR is cd.optim.lr_scheduler.StepLR",
    "by attribute": "import coredispatch as cd; data = cd.utils.data; from"
    " coredispatch.utils.data.dataloader import DataLoader; assert data.DataLoader is DataLoader;"
    " from coredispatch.data.dataloader import DataLoader; assert data.DataLoader is DataLoader",
    "by importlib": "from importlib import import_module;"
    " f = import_module('coredispatch.autograd.function');"
    " import coredispatch as cd; assert f.Function is cd.autograd.Function",
    "all": "from coredispatch.linalg import *; import coredispatch as c; assert qr is c.linalg.qr",
    "by pickle": "import pickle, coredispatch.nn.modules.linear as m; from coredispatch.frontend"
    " import nn; assert pickle.loads(pickle.dumps(m.Linear)) is nn.Linear;"
    " assert pickle.loads(b'ccoredispatch.nn.modules.linear\\nLinear\\n.') is nn.Linear",
    "the finder": "from importlib.util import find_spec; import coredispatch.nn.functional as F;"
    " assert find_spec('coredispatch.nn.functional') is F.__spec__;"
    " assert F.__spec__.name == F.__name__",
    "a reload": "import importlib, coredispatch.nn.init as i; assert importlib.reload(i) is i;"
    " import coredispatch.frontend.nn.init as j; assert i is j",
}


# Each program is a fork of a process that has imported coredispatch alone, which each would begin
# with: importing a module imports the package above it.
FORKS = """
import json, os, sys, traceback
import coredispatch

failed = 0
for spelling, program in json.load(sys.stdin).items():
    child = os.fork()
    if not child:
        try:
            exec(program, {"__name__": "__main__"})
        except BaseException:
            print(spelling, traceback.format_exc(), sep="\\n", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    failed += os.waitpid(child, 0)[1] != 0
sys.exit(failed != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each program is a fork of a fresh process")
def test_spellings() -> None:
    done = python("-c", FORKS, text=json.dumps(PROGRAMS))
    assert done.returncode == 0, done.stderr


def test_a_parameter_is_trained_by_whatever_name_its_class_was_imported() -> None:
    program = """
from coredispatch.nn.parameter import Parameter
import coredispatch as cd

class Scale(cd.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = Parameter(cd.ones(3))

model = Scale()
assert [name for name, _ in model.named_parameters()] == ["factor"]
optimizer = cd.optim.SGD(model.parameters(), lr=0.5)
(model.factor * 2).sum().backward()
optimizer.step()
assert model.factor.tolist() == [0, 0, 0]
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


def test_a_name_below_a_public_name_that_is_no_module() -> None:
    for name in ("coredispatch.nn.absent", "coredispatch.absent", "coredispatch.fft.absent"):
        with pytest.raises(ModuleNotFoundError, match=name):
            __import__(name)


def test_threads_that_import_at_once_see_one_object() -> None:
    # Packages only: CPython itself may report a deadlock where one thread imports a package and
    # another a module that the package imports.
    program = """
import importlib, sys, threading
import coredispatch
names = ["coredispatch.nn", "coredispatch.frontend.nn"] * 12
found, barrier = [], threading.Barrier(len(names))
def load(name):
    barrier.wait()
    package = importlib.import_module(name)
    found.append((package, importlib.import_module(name + ".functional")))
threads = [threading.Thread(target=load, args=(name,)) for name in names]
sys.setswitchinterval(1e-5)
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == len(names) and len(set(found)) == 1, found
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


def test_another_package_may_publish_the_modules_under_its_own_name(tmp_path: Path) -> None:
    for name in ("other", "other/nn", "other/utils"):
        (tmp_path / name).mkdir()
        text = "from coredispatch._namespaces import publish; publish(__name__)"
        (tmp_path / name / "__init__.py").write_text(text if "/" in name else "")
    program = """
import other.nn.functional as F, other.utils.data.sampler as S
from other.nn.parameter import Parameter
import coredispatch as cd
assert F is cd.nn.functional and Parameter is cd.nn.Parameter
assert S.Sampler is cd.utils.data.Sampler
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "COREDISPATCH_PLUGINS": "none"},
    )
    assert done.returncode == 0, done.stderr


def test_importing_coredispatch_imports_no_public_namespace() -> None:
    program = "import sys, coredispatch; print(*sys.modules)"
    loaded = python("-c", program).stdout.split()
    assert not [n for n in NAMESPACES if f"coredispatch.{n}" in loaded]
    assert "multiprocessing" not in loaded


#: what a program that only calculates does not use, and what takes long to import
LATE = (
    "asyncio decimal email fractions importlib.metadata multiprocessing numba numpy.ma "
    "numpy.random numpy.testing platform scipy secrets shutil tempfile typing_extensions "
    "unittest zipfile coredispatch.conformance coredispatch.stubs"
).split()


def test_importing_coredispatch_imports_nothing_that_is_used_rarely() -> None:
    program = "import numpy, sys; of_numpy = {*sys.modules}; import coredispatch; "
    program += "print(*{*sys.modules} - of_numpy)"
    loaded = {*python("-c", program).stdout.split()}
    assert loaded.isdisjoint(LATE), loaded.intersection(LATE)


@pytest.mark.parametrize("before", ["enable", "disable", "freeze"])
def test_importing_coredispatch_leaves_the_garbage_collector_as_it_was(before: str) -> None:
    program = f"import gc; gc.{before}(); import coredispatch; "
    program += "print(gc.isenabled(), gc.get_freeze_count() > 0, gc.get_count()[0] < 10_000)"
    enabled, frozen, few = python("-c", program).stdout.split()
    assert enabled == str(before != "disable")
    assert frozen == str(before == "freeze")
    assert few == "True" or before == "freeze"  # the first collection does not see our operators


def test_the_package_itself_uses_the_names_below_frontend() -> None:
    """A public name imported half way through its own module would see half a module."""
    public = {f"coredispatch.{namespace}" for namespace in NAMESPACES}
    generated = [ROOT / namespace.partition(".")[0] for namespace in NAMESPACES]
    for path in ROOT.rglob("*.py"):
        if any(path.is_relative_to(f) or path == f.with_suffix(".py") for f in generated):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported = [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
            else:
                continue
            for name in imported:
                assert not any(name == p or name.startswith(p + ".") for p in public), (path, name)
