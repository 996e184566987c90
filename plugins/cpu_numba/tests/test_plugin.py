"""The pack inside coredispatch: which kernel serves, loading, unloading, laziness, the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch_cpu_numba as pack

pytestmark = pytest.mark.once

LARGE = (300, 300)


@pytest.fixture
def unloaded() -> Iterator[None]:
    cd.plugins.unload("cpu_numba")
    yield
    cd.plugins.load("cpu_numba", None if cd.plugins["cpu_numba"].entry_point else pack)


def test_explain_names_the_kernel_that_serves() -> None:
    large, small = cd.randn(*LARGE), cd.randn(2, 2)
    for name in ("exp", "sigmoid", "add", "mean"):
        rest = (large,) if name == "add" else ()
        explanation = cd.explain(name, large, *rest)
        assert "cpu_numba" in explanation.winner, explanation
        rest = (small,) if name == "add" else ()
        explanation = cd.explain(name, small, *rest)
        assert "kernels/small" in explanation.winner, explanation
    assert "kernels/strided" in cd.explain("exp", large.t()).winner
    assert "kernels/small_pointwise" in cd.explain("exp", large[:, ::2]).winner  # and on from there
    whole = cd.arange(5000)
    assert "numpy" in cd.explain("add", whole, whole).winner


def test_unloading_restores_numpy(unloaded: None) -> None:
    large = cd.randn(*LARGE)
    for name in ("exp", "sigmoid", "mean"):
        explanation = cd.explain(name, large)
        assert "numpy" in explanation.winner
        assert "cpu_numba" not in str(explanation)
    assert cd.exp(large).shape == LARGE


def test_loading_again_brings_it_back() -> None:
    cd.plugins.unload("cpu_numba")
    cd.plugins.load("cpu_numba", None if cd.plugins["cpu_numba"].entry_point else pack)
    assert "cpu_numba" in cd.explain("exp", cd.randn(*LARGE)).winner


@settings(max_examples=60)
@given(data=st.data())
def test_operators_agree_with_and_without(data: st.DataObject) -> None:
    """Random shapes on both sides of the thresholds, contiguous and not, all dtypes."""
    shape = data.draw(st.sampled_from([(3,), (40, 7), (17, 129), (260, 300), (2, 41, 1000)]))
    dtype = data.draw(st.sampled_from([cd.float16, cd.bfloat16, cd.float32, cd.float64]))
    seed = data.draw(st.integers(0, 99))
    array = np.random.default_rng(seed).standard_normal(shape)
    x = cd.tensor(array).to(dtype)
    if data.draw(st.booleans()) and x.ndim > 1:
        x = x.transpose(0, -1)
    dim = data.draw(st.integers(-x.ndim, x.ndim - 1))
    F = cd.nn.functional
    calls = {
        "exp": lambda: x.exp(),
        "tanh": lambda: x.tanh(),
        "gelu": lambda: F.gelu(x),
        "silu": lambda: F.silu(x),
        "add": lambda: x + x * 0.5,
        "row": lambda: x + x[..., :1, :] if x.ndim > 1 else x,
        "sum": lambda: x.sum(dim),
        "mean": lambda: x.mean(),
        "amax": lambda: x.amax(dim),
        "argmax": lambda: x.argmax(dim),
        "softmax": lambda: F.softmax(x, dim),
        "log_softmax": lambda: F.log_softmax(x, dim),
        "layer_norm": lambda: F.layer_norm(x, x.shape[-1:]),
        "in place": lambda: x.clone().mul_(2).exp_(),
    }
    call = calls[data.draw(st.sampled_from(sorted(calls)))]
    with_pack = call()
    cd.plugins.unload("cpu_numba")
    try:
        without = call()
    finally:
        cd.plugins.load("cpu_numba", None if cd.plugins["cpu_numba"].entry_point else pack)
    assert (with_pack.dtype, with_pack.shape) == (without.dtype, without.shape)
    unit = 2.0 ** {"float16": -10, "bfloat16": -7, "float32": -23, "float64": -52}.get(
        without.dtype.name, 0
    )
    ours, theirs = (t.to(cd.float64).numpy() for t in (with_pack, without))
    scale = float(np.abs(theirs).max(initial=0.0)) + 1
    np.testing.assert_allclose(ours, theirs, rtol=64 * unit, atol=64 * unit * scale)


def test_gradients_through_fused_kernels() -> None:
    """Backward kernels of the pack give NumPy's gradients."""
    F = cd.nn.functional
    rng = np.random.default_rng(0)
    data, weight = rng.standard_normal((64, 300)), rng.standard_normal((300,))

    def gradients() -> list[np.ndarray]:
        x = cd.tensor(data, requires_grad=True)
        w = cd.tensor(weight, requires_grad=True)
        y = F.layer_norm(F.gelu(F.silu(x)), (300,), w).tanh()
        loss = F.cross_entropy(y, cd.arange(64)) + F.softmax(y, -1).square().sum()
        (loss + y.sigmoid().relu().mean()).backward()
        return [x.grad.numpy(), w.grad.numpy()]

    with_pack = gradients()
    cd.plugins.unload("cpu_numba")
    try:
        without = gradients()
    finally:
        cd.plugins.load("cpu_numba", None if cd.plugins["cpu_numba"].entry_point else pack)
    for ours, theirs in zip(with_pack, without, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_adam_with_and_without() -> None:
    def train() -> np.ndarray:
        parameter = cd.tensor(np.linspace(-1, 1, 2000), requires_grad=True)
        optimizer = cd.optim.AdamW([parameter], lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            (parameter * parameter).sum().backward()
            version = parameter._version
            optimizer.step()
            assert parameter._version > version
        return parameter.detach().numpy().copy()

    with_pack = train()
    cd.plugins.unload("cpu_numba")
    try:
        without = train()
    finally:
        cd.plugins.load("cpu_numba", None if cd.plugins["cpu_numba"].entry_point else pack)
    np.testing.assert_allclose(with_pack, without, rtol=1e-12)


def run_python(program: str, **environment: str) -> str:
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LOAD = """
    import sys
    import coredispatch as cd
    import coredispatch_cpu_numba as pack
    cd.ones(1)
    if "cpu_numba" not in cd.plugins or cd.plugins["cpu_numba"].status != "loaded":
        cd.plugins.load("cpu_numba", pack)
"""


def test_numba_is_imported_by_the_first_kernel_only() -> None:
    program = (
        LOAD
        + """
    assert cd.explain("exp", cd.ones(300, 300)).winner
    print(cd.plugins.info("cpu_numba")["imported"], "numba" in sys.modules)
    cd.ones(300, 300).exp()
    print(cd.plugins.info("cpu_numba")["imported"], "numba" in sys.modules)
    """
    )
    assert run_python(program) == "False False\nTrue True\n"


def test_without_numba(tmp_path: Path) -> None:
    """The pack then registers nothing and says why."""
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text(
        textwrap.dedent(
            """
            import importlib.util
            find = importlib.util.find_spec
            importlib.util.find_spec = lambda n, p=None: None if n == "numba" else find(n, p)
            """
        )
    )
    program = (
        LOAD
        + """
    assert cd.plugins["cpu_numba"].status == "loaded"
    print(cd.plugins.info("cpu_numba"))
    assert "numpy" in cd.explain("exp", cd.ones(300, 300)).winner
    cd.ones(300, 300).exp()
    """
    )
    path = os.pathsep.join([str(tmp_path), *[p for p in sys.path if p]])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "numba is not installed: pip install" in done.stdout


CACHED = """
    import sys
    import numpy as np
    from numba.core import event
    from coredispatch_cpu_numba import cache
    from coredispatch_cpu_numba.kernels.elementwise import pointwise
    x = np.linspace(-1, 1, 5000, dtype=np.float32)
    with event.install_recorder("numba:compile") as recorder:
        for name in sys.argv[1].split(","):
            np.testing.assert_allclose(
                pointwise.KERNELS[name](x), getattr(np, name)(x), rtol=1e-6
            )
    print(cache.directory(), len(recorder.buffer) // 2)
"""


def run_cached(names: str, **environment: str) -> tuple[str, int]:
    program = CACHED.replace("sys.argv[1]", repr(names))
    directory, compiled = run_python(program, **environment).split()
    return directory, int(compiled)


def test_disk_cache(tmp_path: Path) -> None:
    """The second process compiles nothing; loops compiled in different processes keep apart."""
    place = {"COREDISPATCH_NUMBA_CACHE_DIR": str(tmp_path)}
    for name in ("exp", "tanh", "square"):
        directory, compiled = run_cached(name, **place)
        assert directory == str(tmp_path) and compiled > 0
    assert run_cached("exp,tanh,square", **place) == (str(tmp_path), 0)
    assert run_cached("square,exp,tanh", **place) == (str(tmp_path), 0)


def test_cache_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COREDISPATCH_NUMBA_CACHE_DIR", raising=False)  # ``make test-machines``
    wide = tmp_path / "wide"
    wide.mkdir()
    directory, _ = run_cached("square", NUMBA_CACHE_DIR=str(wide))
    assert directory == str(wide / "coredispatch_cpu_numba")
    _, first = run_cached("square", COREDISPATCH_NUMBA_CACHE_DIR="")
    _, second = run_cached("square", COREDISPATCH_NUMBA_CACHE_DIR="")
    assert first > 0 and second == first  # no cache at all: compiled in each process


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_cache_others_can_write_is_not_trusted(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    program = """
    from coredispatch_cpu_numba import cache
    print(cache.directory())
    """
    assert run_python(program, COREDISPATCH_NUMBA_CACHE_DIR=str(tmp_path)) == "None\n"
