"""Bad input: every class of it gets its error, and leaves table, masks and tensors as they were."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.plugin import composite, hookimpl, primitive, rules
from coredispatch.registry.dispatch.masks import MASKS, current_masks
from coredispatch.registry.dispatch.table import TABLE


class Plugin:
    """A plugin that does one thing when it registers."""

    def __init__(self, register: Callable[[Any], Any]) -> None:
        self.register = register

    @hookimpl
    def coredispatch_register(self, registrar: Any) -> None:
        self.register(registrar)


def _raise(error: Exception) -> Any:
    raise error


def _again(registrar: Any) -> None:
    @composite(method=False)
    def softmax(self: cd.Tensor) -> cd.Tensor:
        """A name that is taken."""
        return self

    registrar.op(softmax)


def _schema() -> None:
    @composite(method=False)
    def broken(self: Matrix) -> cd.Tensor:  # noqa: F821
        """A type that no schema has."""
        return self


def _with_vjp(rule: Callable[..., Any]) -> Any:
    """The gradient of an operator with this derivative."""

    @primitive(out=rules.same_shape, dtype=rules.same, method=False)
    def crooked(self: cd.Tensor) -> cd.Tensor:
        """The same elements."""

    crooked.vjp(rule)
    cd.plugins.load("crooked", Plugin(lambda r: (r.op(crooked), _kernel(r))))
    try:
        crooked(X).sum().backward()
    finally:
        cd.plugins.unload("crooked")


def _kernel(registrar: Any) -> None:
    registrar.kernels("cpu", {"crooked": lambda a: a + 0})


def _backward_twice() -> None:
    loss = (X * X).sum()
    cd.autograd.grad(loss, X)
    loss.backward()


def _saved() -> None:
    middle = X.detach().requires_grad_() * 1
    out = middle.exp()
    out.add_(1)
    out.sum().backward()


def _load(register: Callable[[Any], Any]) -> None:
    cd.plugins.load("refused", Plugin(register))


def _without_kernel() -> None:
    @primitive(out=rules.same_shape, dtype=rules.same, differentiable=False, method=False)
    def kernelless(self: cd.Tensor) -> cd.Tensor:
        """Served by nobody."""

    cd.plugins.load("kernelless", Plugin(lambda r: r.op(kernelless)))
    try:
        kernelless(Y)
    finally:
        cd.plugins.unload("kernelless")


X = cd.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
Y = cd.ones(2, 3)
Z = cd.arange(4)

REFUSED: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "shapes": (
        lambda: Y + cd.ones(4),
        cd.ShapeError,
        "add(float32[2, 3] (cpu), float32[4] (cpu)): shapes (2, 3) and (4,) do not broadcast: "
        "they have 3 and 4 elements along dimension -1\n  fix: make the sizes equal",
    ),
    "shapes of a product": (
        lambda: X @ Y,
        cd.ShapeError,
        "matmul(float32[2, 3] (autograd+cpu), float32[2, 3] (cpu)): shapes (2, 3) and (2, 3) "
        "cannot be multiplied: the first has 3 columns and the second 2 rows",
    ),
    "shape written in place": (
        lambda: Y.add_(cd.ones(4, 2, 3)),
        cd.ShapeError,
        "the result has shape (4, 2, 3), but self has shape (2, 3) and cannot be resized",
    ),
    "dim": (
        lambda: X.sum(2),
        cd.DimError,
        "sum(float32[2, 3] (autograd+cpu), (2,)): "
        "Dimension out of range: a 2-d tensor has no dim 2\n"
        "  fix: use a dim from -2 to 1",
    ),
    "index": (lambda: Y[2], IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
    "dtypes": (
        lambda: cd.softmax(Z, 0),
        cd.DTypeError,
        "softmax(int64[4] (cpu), 0): softmax of int64 elements needs a floating dtype\n"
        "  fix: pass dtype=cd.float32, or convert with x.float()",
    ),
    "dtype written in place": (
        lambda: Z.mul_(1.5),
        cd.DTypeError,
        "mul_(int64[4] (cpu), 1.5): the result has dtype cd.float32, which cannot be written "
        "into self of cd.int64",
    ),
    "type of an argument": (
        lambda: F.linear(X, "weight"),
        cd.DTypeError,
        "linear(float32[2, 3] (autograd+cpu), 'weight'): argument 'weight' must be Tensor, "
        "not str ('weight')",
    ),
    "devices": (
        lambda: Y * cd.ones(2, 3, device="meta"),
        cd.DeviceError,
        "mul(float32[2, 3] (cpu), float32[2, 3] (meta)): expected all tensors on one device, but "
        "found float32[2, 3] (cpu) and float32[2, 3] (meta)\n  fix: move one over",
    ),
    "unknown device": (
        lambda: cd.zeros(2, device="tpu"),
        cd.DeviceError,
        "there is no device 'tpu'; known: cpu",
    ),
    "duplicate operator": (
        lambda: _load(_again),
        cd.PluginError,
        "operator 'softmax' of plugin 'refused' is already declared",
    ),
    "duplicate kernel": (
        lambda: _load(lambda r: [r.kernels("cpu", {"add": f}) for f in (min, max)]),
        cd.PluginError,
        "twice",
    ),
    "invalid schema": (
        _schema,
        cd.SchemaError,
        "operator 'broken': parameter 'self' has the unknown type 'Matrix'\n"
        "  fix: use one of Tensor, list[Tensor]",
    ),
    "a plugin that raises": (
        lambda: _load(lambda r: (r.kernels("cpu", {"add": min}), _raise(OSError("no driver")))),
        cd.PluginError,
        "plugin 'refused' could not be loaded: OSError: no driver",
    ),
    "shape of a gradient": (
        lambda: _with_vjp(lambda grad: grad.sum()),
        cd.AutogradError,
        "the vjp of 'crooked' returned a gradient of shape () for input 0 of shape (2, 3)",
    ),
    "count of gradients": (
        lambda: _with_vjp(lambda grad: (grad, grad)),
        cd.AutogradError,
        "returned 2 gradients, expected 1",
    ),
    "backward twice": (
        _backward_twice,
        cd.AutogradError,
        "trying to backward through the graph a second time: the saved tensors of 'mul' have "
        "already been freed\n  fix: pass retain_graph=True to the first backward",
    ),
    "in-place on a saved tensor": (
        _saved,
        cd.AutogradError,
        "the result of 'exp' was modified by an in-place operation after it was saved for the "
        "backward pass: it is at version 1, expected version 0\n  fix: use the out-of-place form",
    ),
    "in-place on a leaf": (
        lambda: X.add_(1),
        cd.AutogradError,
        "add_(float32[2, 3] (autograd+cpu), 1): a leaf tensor that requires grad is being "
        "written in place\n  fix: write under cd.no_grad()",
    ),
    "missing kernel": (
        _without_kernel,
        cd.MissingKernel,
        "kernelless(float32[2, 3] (cpu)): no kernel for keys cpu; no plugin has a kernel for it\n"
        "  fix: see cd.explain('kernelless', ...)",
    ),
}


def _state() -> Any:
    s = TABLE.snapshot
    table = (dict(s.registrations), dict(s.ops), dict(s.backends), dict(s.layouts), dict(s.layers))
    tensors = [(t.tolist(), t._version, t.grad, t.requires_grad) for t in (X, Y, Z)]
    loaded = [p.name for p in cd.plugins if p.status == "loaded"]
    return table, s.order.highest_first, current_masks(), MASKS.active, tensors, loaded


# Under no_grad the walk through the layers is another one; what autograd refuses needs autograd.
CASES = [(name, cd.enable_grad) for name in REFUSED]
CASES += [(name, cd.no_grad) for name, case in REFUSED.items() if case[1] is not cd.AutogradError]


@pytest.mark.parametrize(("name", "within"), CASES)
def test_it_is_explained_and_leaves_nothing_behind(name: str, within: Any) -> None:
    call, wanted, text = REFUSED[name]
    Y + 1  # reads the entry points
    before = _state()
    with within(), pytest.raises(wanted) as caught:
        call()
    shown = str(caught.value)
    if within is cd.enable_grad:
        assert text in shown
    assert isinstance(caught.value, cd.CoreDispatchError)
    assert len(shown.splitlines()) <= 10
    assert _state() == before


# -- a plugin that raises on import --------------------------------------------------------------

BROKEN = {
    "needs_a_library": "import no_such_library",
    "raises": "raise OSError('no driver')",
    "exits": "raise SystemExit(3)",
    "syntax": "def (:",
    "no_hook": "x = 1",
    "registers_wrongly": """
from coredispatch.plugin import hookimpl
@hookimpl
def coredispatch_register(registrar):
    registrar.kernels("cpu", {"add": min}, priority=99)
    registrar.kernels("cpu", {"no_such_op": min})
""",
}
PROGRAM = """
import coredispatch as cd
assert (cd.ones(2) + 1).tolist() == [2, 2]
for plugin in cd.plugins:
    if plugin.name.startswith("broken_"):
        assert plugin.status == "quarantined", plugin
        print(plugin.name, "|", " ".join(str(plugin.error).split()), "|", plugin.hint)
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on the path with distributions whose plugins cannot be loaded."""
    folder = tmp_path_factory.mktemp("broken")
    for name, source in BROKEN.items():
        (folder / f"broken_{name}.py").write_text(source)
        details = folder / f"broken_{name}-1.0.dist-info"
        details.mkdir()
        (details / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: broken-{name}\nVersion: 1.0\n"
        )
        (details / "entry_points.txt").write_text(
            f"[coredispatch.plugins]\nbroken_{name} = broken_{name}\n"
        )
    return folder


def _run(broken: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(broken), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_broken_plugin_is_quarantined_with_its_cause(broken: Path) -> None:
    found = dict(line.split(" | ", 1) for line in _run(broken, "-c", PROGRAM).splitlines())
    assert set(found) == {f"broken_{name}" for name in BROKEN}
    for name, text in {
        "needs_a_library": "No module named 'no_such_library'",
        "raises": "OSError: no driver",
        "exits": "SystemExit: 3",
        "syntax": "SyntaxError",
        "no_hook": "no coredispatch_register hook",
        "registers_wrongly": "no_such_op",
    }.items():
        assert text in found[f"broken_{name}"], found


def test_the_command_line_shows_it_and_the_environment_leaves_it_out(broken: Path) -> None:
    shown = _run(broken, "-m", "coredispatch", "info")
    line = next(line for line in shown.splitlines() if "broken_raises" in line)
    assert "quarantined" in line
    assert "no driver" in shown
    shown = _run(broken, "-m", "coredispatch", "info", COREDISPATCH_PLUGINS="none")
    assert "quarantined" not in shown
    shown = _run(broken, "-m", "coredispatch", "info", COREDISPATCH_PLUGINS="broken_raises")
    assert shown.count("quarantined") == 1


@pytest.mark.parametrize("dtype", [cd.float32, cd.bfloat16])
def test_text_in_the_place_of_a_number_does_not_reach_a_kernel(dtype: Any) -> None:
    x = cd.ones(3, dtype=dtype)
    calls = (
        lambda: F.leaky_relu(x, "a"),
        lambda: F.elu(x, alpha="a"),
        lambda: cd.full((2,), "a", dtype=dtype),
        lambda: x.clamp("a"),
    )
    for call in calls:
        with pytest.raises(cd.DTypeError, match="must be .* not str"):
            call()


@pytest.mark.parametrize("dtype", [cd.float32, cd.float16, cd.int64])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_number_is_no_tensor_where_the_signature_has_only_tensors(
    dtype: Any, requires_grad: bool
) -> None:
    x = cd.ones(2, dtype=dtype, requires_grad=requires_grad and dtype.is_floating_point)
    names = ("atan2", "hypot", "fmax", "logaddexp", "nextafter")
    for name in names if dtype is not cd.int64 else ("gcd", "fmax"):
        with pytest.raises(cd.DTypeError, match="argument 'other' must be Tensor, not"):
            getattr(cd, name)(x, 2)
    assert (x + 2).dtype is dtype and cd.maximum(x, x).dtype is dtype


def test_a_number_does_not_reach_the_kernel_of_an_operator_that_takes_tensors() -> None:
    """NumPy made float64 of a float32 tensor beside the logarithm of a number."""

    @primitive(out=rules.broadcast, dtype=rules.promote_float, namespace=(), samples=None)
    def times_log(self: cd.Tensor, other: cd.Tensor) -> cd.Tensor:
        """``self * log(other)``."""

    times_log.vjp(self=lambda grad, other: grad * other.log(), other=lambda grad, self: None)

    def register(registrar: Any) -> None:
        registrar.op(times_log)
        registrar.kernels("cpu", {"times_log": lambda x, y: x * np.log(y)})

    cd.plugins.load("times_log", Plugin(register))
    try:
        assert cd.ops.times_log(cd.ones(2), cd.ones(2)).dtype is cd.float32
        with pytest.raises(cd.DTypeError, match="'other' must be Tensor, not int"):
            cd.ops.times_log(cd.ones(2), 2)
    finally:
        cd.plugins.unload("times_log")
