"""``import torch`` means coredispatch: each program runs in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import coredispatch as cd
from coredispatch.compat.torch.version import TorchVersion

pytestmark = pytest.mark.once


def python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COREDISPATCH_PLUGINS": "none"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=cwd
    )


def shim(program: str) -> str:
    """What a program that imports torch prints."""
    done = python("-c", f"import coredispatch as cd\ncd.compat.torch.install()\n{program}")
    assert done.returncode == 0, done.stderr
    return done.stdout


SPELLINGS = """
import torch, torch.nn as nn; assert nn is torch.nn is cd.nn
import torch.nn.functional as F; assert F is cd.nn.functional
from torch import nn, optim; assert optim.SGD is cd.optim.SGD
from torch.optim.lr_scheduler import StepLR; assert StepLR is cd.optim.lr_scheduler.StepLR
from torch.nn.modules.container import Sequential; assert Sequential is cd.nn.Sequential
from torch.nn.modules.batchnorm import BatchNorm2d; assert BatchNorm2d is cd.nn.BatchNorm2d
import torch; assert torch.nn.modules.sparse.Embedding is cd.nn.Embedding
from torch.utils.data.dataloader import DataLoader; assert DataLoader is cd.data.DataLoader
from torch.utils.data.dataset import Dataset; assert Dataset is cd.data.Dataset
from torch.optim.adam import Adam; assert Adam is cd.optim.Adam
import sys, torch.nn; assert sys.modules['torch.nn'] is torch.nn is cd.nn
import sys, torch.nn; assert sys.modules['torch.nn.init'] is torch.nn.init
from torch.nn.modules.activation import MultiheadAttention; assert MultiheadAttention
from torch.cuda.amp.grad_scaler import GradScaler; assert GradScaler is cd.cuda.amp.GradScaler
from torch.nn.modules.module import _IncompatibleKeys, _addindent
from torch.torch_version import TorchVersion as V; import torch; assert torch.__version__ > (2,)
from torch import *; assert ones is cd.ones
from torch.nn.functional import *; assert relu is cd.nn.functional.relu
"""


def test_a_spelling_means_the_same_object() -> None:
    lines = SPELLINGS.strip().splitlines()
    shim(f"for line in {lines!r}:\n    exec(line, {{'cd': cd}})")


def test_old_paths_are_there_outside_the_shim() -> None:
    from coredispatch.nn.modules.normalization import LayerNorm

    assert LayerNorm is cd.nn.LayerNorm
    assert cd.nn.modules.batchnorm.BatchNorm2d is cd.nn.BatchNorm2d
    assert "BatchNorm2d" in dir(cd.nn.modules.batchnorm)
    with pytest.raises(ModuleNotFoundError):
        import coredispatch.nn.modules.absent  # noqa: F401


def test_texts_are_torchs_while_the_names_are_on() -> None:
    program = """
import torch, torch.nn as nn
print(torch.float32, str(torch.device("cpu")), torch.strided, torch.channels_last)
print(torch.Size([2, 3]), torch.ones(2).type(), torch.ones(2, dtype=torch.int16))
print(type(torch.ones(1)), type(torch.float32), torch.dtype, torch.device, torch.Size)
print(nn.Linear, nn.BatchNorm2d, nn.Embedding, nn.Parameter, torch.optim.Adam, nn.__name__)
print(torch.Generator, torch.OutOfMemoryError, torch.UntypedStorage)
print(torch.utils.hooks.RemovableHandle)
print(repr(torch.ones(1).layout), f"{torch.ones(1).dtype}", torch.no_grad.__module__)
try:
    torch.tensor([1.0], requires_grad=True).numpy()
except RuntimeError as error:
    print("cd." in str(error))
cd.compat.torch.uninstall()
print(cd.float32, type(cd.ones(1)), nn.Linear, cd.Size([2]), cd.strided, nn.__name__)
"""
    assert shim(program).splitlines() == [
        "torch.float32 cpu torch.strided torch.channels_last",
        "torch.Size([2, 3]) torch.FloatTensor tensor([1, 1], dtype=torch.int16)",
        "<class 'torch.Tensor'> <class 'torch.dtype'> <class 'torch.dtype'> <class 'torch.device'>"
        " <class 'torch.Size'>",
        "<class 'torch.nn.modules.linear.Linear'> <class 'torch.nn.modules.batchnorm.BatchNorm2d'>"
        " <class 'torch.nn.modules.sparse.Embedding'> <class 'torch.nn.parameter.Parameter'>"
        " <class 'torch.optim.adam.Adam'> torch.nn",
        "<class 'torch.Generator'> <class 'torch.OutOfMemoryError'>"
        " <class 'torch.storage.UntypedStorage'>",
        "<class 'torch.utils.hooks.RemovableHandle'>",
        "torch.strided torch.float32 torch.autograd.grad_mode",
        "False",
        "cd.float32 <class 'coredispatch.frontend.tensor.Tensor'>"
        " <class 'coredispatch.frontend.nn.modules.linear.Linear'> cd.Size([2]) strided"
        " coredispatch.frontend.nn",
    ]


def test_modules_are_modules() -> None:
    shim("""
import importlib, importlib.metadata, importlib.util, inspect, pickle
import torch, torch.nn as nn
assert importlib.reload(torch) is torch and importlib.reload(torch.nn.init) is torch.nn.init
for value in (nn.Linear, torch.float32, nn.Linear(2, 2).weight, torch.Size([2]), torch.strided):
    back = pickle.loads(pickle.dumps(value))
    assert type(back) is type(value), value
assert pickle.loads(b"ctorch.nn.modules.linear\\nLinear\\n.") is nn.Linear
assert inspect.getmodule(nn.Linear) is nn.modules.linear
assert importlib.metadata.version("torch") == torch.__version__
assert importlib.util.find_spec("torch") and importlib.util.find_spec("torch.nn.functional")
assert torch.__name__ == "torch" and torch.nn.functional.__name__ == "torch.nn.functional"
torch.nn.functional.marker = 1
assert cd.nn.functional.marker == 1
""")


MISSING = [
    ("torch.onez", "AttributeError", ["'onez'", "nearest: ones", "coredispatch port"]),
    ("torch.nn.Lienar", "AttributeError", ["torch.nn", "Linear"]),
    ("torch.nn.functional.reluu(1)", "AttributeError", ["reluu", "relu"]),
    ("from torch import onez", "ImportError", ["onez", "ones"]),
    ("from torch.nn import Linaer", "ImportError", ["torch.nn", "Linaer", "Linear"]),
    ("from torch.nn.modules.linear import Lin", "ImportError", ["torch.nn.modules.linear"]),
    ("import torch.nn.functionl", "ModuleNotFoundError", ["functionl", "functional"]),
    ("import torch.frontend", "ModuleNotFoundError", ["frontend"]),
]


def test_a_missing_name_is_named_with_the_nearest() -> None:
    shim(f"""
import torch
for statement, kind, texts in {MISSING!r}:
    try:
        exec(statement)
    except Exception as error:
        assert type(error).__name__ == kind, (statement, error)
        assert all(text in str(error) for text in texts), (statement, error)
    else:
        raise AssertionError(statement)
""")


def test_run_gives_a_script_its_names_arguments_and_children(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import multiprocessing, subprocess, sys
import torch
import beside

def work(queue):
    queue.put(str(torch.ones(2).dtype))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
    program = "import torch; print(torch.ones(1).type())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    print(done.stdout.strip(), beside.LAYER, sys.argv[1:], __file__.endswith("script.py"))
    sys.exit(3)
""")
    (tmp_path / "beside.py").write_text("from torch.nn import Linear\nLAYER = Linear(1, 2)\n")
    arguments = ("-m", "coredispatch", "run")
    done = python(*arguments, str(script), "--epochs", "-m")
    assert done.stdout.splitlines() == [
        "torch.float32",
        "torch.FloatTensor Linear(in_features=1, out_features=2, bias=True)"
        " ['--epochs', '-m'] True",
    ], done.stderr
    assert done.returncode == 3
    (tmp_path / "module.py").write_text("import sys, torch; print(torch.int8, sys.argv[1:])")
    done = python(*arguments, "-m", "module", "x", cwd=tmp_path)
    assert done.stdout == "torch.int8 ['x']\n", done.stderr
    assert python(*arguments, str(tmp_path / "absent.py")).returncode == 2


def test_what_is_saved_under_one_name_loads_under_the_other(tmp_path: Path) -> None:
    path = tmp_path / "saved.cd"
    shim(f"""
import torch
model = torch.nn.Linear(2, 3)
torch.save({{"model": model.state_dict(), "p": torch.nn.Parameter(torch.ones(2))}}, {str(path)!r})
""")
    loaded = cd.load(path)
    assert type(loaded["p"]) is cd.nn.Parameter
    assert list(loaded["model"]) == ["weight", "bias"]


def test_versions_compare_by_their_numbers() -> None:
    version = TorchVersion("2.13.0+cpu")
    assert version >= "2.9" and version > (2, 9) and version < "2.20" and version < (3,)
    assert version > "2.13" and version != "2.13.0" and version == "2.13.0+cpu"
    assert TorchVersion("2.13.0") == (2, 13) == TorchVersion("2.13")
    assert TorchVersion("2.13.0") > "2.13.0a1" and version.split(".")[0] == "2"


def test_installing_is_refused_where_pytorch_was_imported_before(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    done = python("-c", "import torch, coredispatch as cd; cd.compat.torch.install()", cwd=tmp_path)
    assert "PyTorch was imported before" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_pytorch_beside_the_shim() -> None:
    shim("""
import io, sys
import torch
real = cd.compat.real_torch()
assert real is not torch and real is cd.compat.real_torch() and sys.modules["torch"] is torch
model = real.nn.Sequential(real.nn.Linear(2, 3), real.nn.BatchNorm1d(3))
optimizer = real.optim.Adam(model.parameters())
model(real.randn(4, 2)).sum().backward()
optimizer.step()
assert isinstance(real.ones(2).sum() / 2, real.Tensor) and "tensor" in repr(real.ones(2) / 3)
assert real.func.vmap(real.sin)(real.randn(3)).shape == (3,)
assert torch.from_numpy(real.ones(2).numpy()).tolist() == [1, 1]
with cd.compat.torch.paused():
    import torch as other
    assert other is real
    stream = io.BytesIO()
    real.save(model.state_dict(), stream)
import torch as again
assert again is torch and torch.nn is cd.nn
stream.seek(0)
assert len(real.load(stream)) == 7
stream = io.BytesIO()
real.save(model, stream)  # it looks its classes up in sys.modules, where ours are
stream.seek(0)
again = real.load(stream, weights_only=False)
assert type(again[0]) is real.nn.Linear and type(again[0].weight) is real.nn.Parameter
stream.seek(0)
mine = torch.load(stream, weights_only=False)
assert type(mine[0]) is torch.nn.Linear and torch.nn is cd.nn
stream = io.BytesIO()
torch.save(mine.state_dict(), stream, format="torch")
stream.seek(0)
assert isinstance(real.load(stream)["0.weight"], real.Tensor)
""")


def test_the_package_beside_torch_has_the_transforms_and_their_older_spellings() -> None:
    said = shim(
        """
import torch, functorch, functorch.einops
from functorch import combine_state_for_ensemble, grad, make_functional, vmap
from functorch.experimental import functionalize
model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
import warnings; warnings.simplefilter("ignore", FutureWarning)
function, params = make_functional(model)
assert torch.allclose(function(params, x), model(x)) and params[0] is not model.weight
each = vmap(grad(lambda p, x: function(p, x).sum()), in_dims=(None, 0))(params, x)
print(tuple(each[0].shape), functorch.vmap is torch.func.vmap)
models = [torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval() for _ in "ab"]
function, params, buffers = combine_state_for_ensemble(models)
both = vmap(function, in_dims=(0, 0, None))(params, buffers, x)
assert torch.allclose(both[1], models[1](x))
try:
    make_functional(models[0])
except RuntimeError as error:
    print(str(error)[:37])
cd.compat.torch.uninstall()
import sys; print("functorch" in sys.modules)
"""
    )
    assert said.split("\n")[:3] == [
        "(4, 2, 3) True",
        "make_functional(model): `model` has b",
        "False",
    ]


def test_generated_code_says_torch() -> None:
    program = """
import torch
from torch import fx
gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
assert "relu = torch.relu(x)" in gm.code, gm.code
assert "target=torch.relu" in str(gm.graph)
assert gm(torch.ones(2)).tolist() == [2, 2]
cd.compat.torch.uninstall()
gm.recompile()
print("cd.relu(x)" in gm.code)
"""
    assert shim(program).strip() == "True"


NODES = """
import torch
x = torch.ones(2, requires_grad=True)
leaf = (x * 2).grad_fn.next_functions[0][0]
written = x * 2
written[0] = 1
copied = torch.zeros(2).copy_(x)
for node in (leaf, written.grad_fn, copied.grad_fn):
    print(node.name(), repr(node).partition(" ")[0])
print(written)
"""


def test_a_node_has_the_name_of_its_class_in_c() -> None:
    assert shim(NODES).splitlines() == [
        "torch::autograd::AccumulateGrad <AccumulateGrad",
        "torch::autograd::CopySlices <CopySlices",
        "torch::autograd::CopyBackwards <CopyBackwards",
        "tensor([1., 2.], grad_fn=<CopySlices>)",
    ]
    node = (cd.ones(2, requires_grad=True) * 2).grad_fn.next_functions[0][0]
    assert node.name() == "AccumulateGrad"


def test_a_storage_prints_under_the_name_in_force() -> None:
    program = """
import warnings, torch
warnings.simplefilter("ignore")
print(torch.ones(1).storage())
"""
    assert "[torch.storage.TypedStorage(dtype=torch.float32" in shim(program)
