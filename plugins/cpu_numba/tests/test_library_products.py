"""Products by a BLAS that the user installed or named, against float64 products by NumPy.

MKL serves where it is installed; else the OpenBLAS in NumPy's wheels stands for any other library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch_cpu_numba as pack
from coredispatch_cpu_numba import blas
from coredispatch_cpu_numba.kernels.linalg import library_products

pytestmark = pytest.mark.once

SIZES = st.sampled_from([64, 65, 96, 130, 257, 700])
DTYPES = st.sampled_from(["float32", "float64"])


def forget() -> None:
    for function in (blas.library, blas._loaded, blas.address):
        function.cache_clear()


def a_library() -> Path:
    found = blas._installed_mkl()
    beside = Path(np.__file__).parent.parent / "numpy.libs"
    libraries = [found] if found else sorted(beside.glob("*openblas*"))
    if not libraries:
        pytest.skip("neither MKL is installed nor does NumPy bring an OpenBLAS")
    return libraries[0]


@pytest.fixture(scope="module", autouse=True)
def named() -> Iterator[None]:
    before = os.environ.get(blas.VARIABLE)
    os.environ[blas.VARIABLE] = str(a_library())
    forget()
    yield
    if before is None:
        del os.environ[blas.VARIABLE]
    else:
        os.environ[blas.VARIABLE] = before
    forget()


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def close(found: Any, wanted: np.ndarray, depth: int) -> None:
    assert found is not NotImplemented
    assert found.shape == wanted.shape
    rounding = np.finfo(found.dtype).eps * depth**0.5
    np.testing.assert_allclose(found, wanted, rtol=0, atol=8 * rounding * np.abs(wanted).max())


@settings(max_examples=25)
@given(SIZES, SIZES, SIZES, DTYPES, st.booleans())
def test_linear(rows: int, depth: int, columns: int, dtype: str, biased: bool) -> None:
    x, w = drawn((2, rows, depth), dtype, 0), drawn((columns, depth), dtype, 1)
    bias = drawn((columns,), dtype, 2) if biased else None
    wanted = x.astype(float) @ w.T.astype(float) + (0 if bias is None else bias)
    close(library_products.FORMS["linear"](x, w, bias), wanted, depth)


@settings(max_examples=25)
@given(SIZES, SIZES, SIZES, DTYPES, st.booleans(), st.booleans())
def test_matrices_lie_either_way(
    rows: int, depth: int, columns: int, dtype: str, left: bool, right: bool
) -> None:
    a, b = drawn((rows, depth), dtype, 0), drawn((depth, columns), dtype, 1)
    wanted = a.astype(float) @ b.astype(float)
    a = np.ascontiguousarray(a.T).T if left else a
    b = np.ascontiguousarray(b.T).T if right else b
    found = library_products.matmul(a, b)
    if found is NotImplemented:
        assert rows * depth * columns < library_products._LEAST_PRODUCTS
    else:
        close(found, wanted, depth)
    weights = library_products.FORMS["linear_weight_grad"](np.ascontiguousarray(a.T), b)
    if weights is not NotImplemented and b.flags.c_contiguous:
        close(weights, wanted, depth)


@settings(max_examples=20)
@given(
    st.sampled_from([(1,), (3,), (2, 5)]), SIZES, SIZES, SIZES, DTYPES, st.booleans(), st.booleans()
)
def test_stacks(
    outer: tuple[int, ...], rows: int, depth: int, columns: int, dtype: str, left: bool, right: bool
) -> None:
    a, b = drawn((*outer, rows, depth), dtype, 0), drawn((*outer, depth, columns), dtype, 1)
    wanted = a.astype(float) @ b.astype(float)
    a = np.ascontiguousarray(a.mT).mT if left else a
    b = np.ascontiguousarray(b.mT).mT if right else b
    found = library_products.stacks(a, b)
    if found is NotImplemented:
        assert np.prod(outer) * rows * depth * columns < library_products._LEAST_PRODUCTS
    else:
        close(found, wanted, depth)


@settings(max_examples=10)
@given(st.sampled_from([(300, 700, 257), (64, 784, 2048), (2048, 64, 130)]), DTYPES)
def test_results_are_the_same_in_any_threads(sizes: tuple[int, int, int], dtype: str) -> None:
    rows, depth, columns = sizes
    x, w = drawn((rows, depth), dtype, 0), drawn((columns, depth), dtype, 1)
    before, found = pack.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            pack.set_num_threads(count)  # of the pack alone: NumPy's own may be the library
            found.append(library_products.FORMS["linear"](x, w, None))
    finally:
        pack.set_num_threads(before)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_rejected_are_calls_that_it_cannot_serve() -> None:
    a, b = drawn((256, 256), "float32", 0), drawn((256, 256), "float32", 1)
    serves = library_products.matmul
    assert serves(a, b.astype("float64")) is NotImplemented
    assert serves(a[:4, :4].copy(), b[:4, :4].copy()) is NotImplemented
    assert serves(a[::2, ::2], b[::2]) is NotImplemented
    assert serves(a.astype("int64"), b.astype("int64")) is NotImplemented
    halves = a.astype("float16"), b.astype("float16")
    assert serves(*halves) is NotImplemented


PROGRAM = """
import os
import numpy as np
import coredispatch as cd

a, b = cd.randn(256, 256), cd.randn(256, 256)
winner = cd.explain("matmul", a, b).winner
assert "library_products" in str(winner), winner
step = cd.compile(lambda a, b: (a @ b).relu(), backend="cpu_numba")
wanted = (a.numpy().astype(float) @ b.numpy().astype(float)).clip(0)
for found in (step(a, b), (a @ b).relu(), cd.nn.functional.linear(a, b.T.contiguous()).relu()):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-3)
child = os.fork()
if not child:
    os._exit(0 if np.allclose((a @ b).relu().numpy(), wanted, atol=1e-3) else 1)
assert os.waitpid(child, 0)[1] == 0
"""

INFO = "import coredispatch.__main__ as m, sys; sys.argv[1:] = ['info']; m.main()"


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = os.environ | {"COREDISPATCH_BACKGROUND": "0", "COREDISPATCH_NUM_THREADS": "2"}
    return subprocess.run(
        [sys.executable, "-c", program], env=given | environment, capture_output=True, text=True
    )


def test_a_program_uses_it_eagerly_compiled_and_after_a_fork() -> None:
    done = run(PROGRAM)
    assert done.returncode == 0, done.stderr


def test_it_is_named_and_can_be_refused() -> None:
    assert f"products: {a_library()}" in run(INFO).stdout
    assert "products: NumPy's" in run(INFO, **{blas.VARIABLE: "numpy"}).stdout


def test_a_library_that_is_not_there_is_refused(tmp_path: Path) -> None:
    told = run(INFO, **{blas.VARIABLE: str(tmp_path / "libnone.so")}).stdout
    assert "quarantined" in told
    assert "libnone.so: there is no such file" in told


def test_an_mkl_that_numpy_uses_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = tmp_path / "lib" / "libmkl_rt.so.2"
    installed.parent.mkdir()
    installed.write_bytes(b"")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    for asked, in_use, wanted in (
        ("", False, installed),
        ("", True, None),
        ("mkl", True, installed),
        ("numpy", False, None),
    ):
        monkeypatch.setenv(blas.VARIABLE, asked)
        monkeypatch.setattr(blas, "_is_in_use", lambda in_use=in_use: in_use)
        blas.library.cache_clear()
        assert blas.library() == wanted
    blas.library.cache_clear()


def test_a_library_without_products_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(blas.VARIABLE, str(Path(np._core._multiarray_umath.__file__)))
    forget()
    try:
        with pytest.raises(RuntimeError, match="has no cblas_sfoo"):
            blas.address("sfoo")
    finally:
        monkeypatch.undo()
        forget()
