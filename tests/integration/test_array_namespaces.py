"""The array-API base over libraries of other people: five lines each, in ``third_party/``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from certification import HERE, certify, installed, only, run

from coredispatch.backends.array_api import ArrayApiBackend, family_kernels
from coredispatch.registry import DType, RegistrationError

LIBRARIES = {
    "array_api_strict": "array_api_strict",
    "dask": "dask.array",  # which lacks take_along_axis, among others
    "jax": "jax",
    "torch": "torch",
}
# Operators whose kernels take the longest way round what the standard does not have, and
# composites that write to parts of a tensor, which only strided memory takes as it comes.
FURTHER = ("getitem", "index_put", "scatter_add", "gather", "view_dtype")
# A library may add up one by one, as NumPy does along columns: the base accumulates in float64.
ADDING = ("sum", "mean", "cumsum", "mse_loss", "layer_norm")
WRITING = ("linalg_ldl_factor", "linalg_ldl_solve", "gru", "bincount")

pytestmark = [pytest.mark.xdist_group("array_namespaces"), pytest.mark.once]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_namespace_boots_as_it_is(name: str, tmp_path: Path) -> None:
    pytest.importorskip(LIBRARIES[name])
    if name in ("dask", "torch"):
        pytest.importorskip("array_api_compat")
    environment = installed(name, f"over_{name}", tmp_path)
    certify(environment, "--backend", name, "--level", "boot")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_but_the_standard_is_used(tmp_path: Path) -> None:
    pytest.importorskip("array_api_strict")
    environment = installed("array_api_strict", "over_array_api_strict", tmp_path)
    options = ["--backend", "array_api_strict", "--level", "inference"]
    certify(environment, *options, *only(*FURTHER, *ADDING, *WRITING))


# What PyTorch does otherwise than the standard says, and what it leaves open.
OTHERWISE = ("cholesky", "complex", "sqrt", "squeeze", "svd", "to_dtype", "var")
OF_NUMBERS = ("remainder", "floor_divide", "nextafter")  # far quotients, signs of zeros
# bfloat16 moves bit by bit: the sign of a NaN is lost by a conversion through float32.
OF_BITS = ("signbit",)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_torch_does_otherwise(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    environment = installed("torch", "over_torch", tmp_path)
    level = ("--backend", "torch", "--level", "training")
    certify(environment, *level, *only(*OTHERWISE, *OF_NUMBERS, *OF_BITS))


# Kernels that JAX compiles as one program, and one that counts dimensions from the last.
PROGRAMS = ("constant_pad_nd", "conv1d", "scatter_add", "gather", "cumsum", "permute")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kernels_as_one_program(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    environment = installed("jax", "over_jax", tmp_path)
    certify(environment, "--backend", "jax", "--level", "operators", *only(*PROGRAMS))
    special = ("--level", "training", "--check", "special-values")
    certify(environment, "--backend", "jax", *special, *only("floor_divide"))


def test_each_is_a_few_lines() -> None:
    for path in HERE.glob("over_*.py"):
        body = path.read_text().partition("class ")[2].partition("@hookimpl")[0]
        assert len(body.strip().splitlines()) <= 6, path


POOR = """
import types

import array_api_strict

from coredispatch.plugin import ArrayApiBackend, hookimpl

# Twenty functions, of every kind: direct ones, some inside other kernels, an extension.
LACKING = (
    "argmax argsort bitwise_left_shift broadcast_to cumulative_prod cumulative_sum expand_dims "
    "floor floor_divide hypot linalg matmul nonzero prod remainder round squeeze take_along_axis "
    "tril triu"
).split()
assert len(LACKING) == 20
names = [n for n in dir(array_api_strict) if n not in LACKING and not n.startswith("__")]
poor = types.ModuleType("poor")
vars(poor).update({name: getattr(array_api_strict, name) for name in names})
poor.__array_api_version__ = array_api_strict.__array_api_version__
poor.__array_namespace_info__ = array_api_strict.__array_namespace_info__


class Poor(ArrayApiBackend):
    name, xp = "poor", poor
    array_type = type(array_api_strict.zeros(()))


@hookimpl
def coredispatch_register(registrar):
    registrar.backend(Poor())
"""
ON_POOR = """
import pytest
import coredispatch as cd
from coredispatch.plugin import MissingKernel

x = cd.tensor([[1.0, -2.0], [3.0, 4.0]], device="poor")
assert (x + x).sum().item() == 12
assert x.unsqueeze(0).shape == (1, 2, 2) and x.tril().tolist() == [[1, 0], [3, 4]], "decomposed"
for op, *more in (("sort",), ("floor",), ("matmul", x), ("prod",), ("cumsum", 0)):
    with pytest.raises(MissingKernel, match=op):
        getattr(cd, op)(x, *more)
"""


def test_a_function_that_a_library_lacks_costs_its_operator_only(tmp_path: Path) -> None:
    pytest.importorskip("array_api_strict")
    (tmp_path / "poor_namespace.py").write_text(POOR)
    environment = installed("poor", "poor_namespace", tmp_path)
    assert run(environment, "-c", ON_POOR) == ""


def test_nothing_of_the_standard_is_lacking_in_the_standard() -> None:
    strict = pytest.importorskip("array_api_strict")
    every, base = (kernels_over(xp) for xp in (strict, np))
    assert base - every <= {"unfold", "diagonal"}, "views that need strides"


def kernels_over(xp: Any) -> set[str]:
    """The operators that the base serves over a namespace."""
    return set(family_kernels(xp))


FAR = """
import math
import numpy as np
import torch
import coredispatch as cd

for dtype, large in ((cd.float32, 3e38), (cd.float64, 1.5e308), (cd.bfloat16, 3e38)):
    a = cd.tensor([large, -large, large, 7.0], dtype=dtype)
    b = cd.tensor([1e-30, 3e-31, -1.1e-3, 4.0], dtype=dtype)
    wanted = np.remainder(a.double().numpy(), b.double().numpy())
    found = cd.remainder(a.to("torch"), b.to("torch"))
    assert cd.equal(found.cpu(), cd.from_numpy(wanted).to(dtype)), (dtype, found)
x = cd.empty(20000, dtype=cd.float16, device="torch").uniform_(96.0, 96.5)
assert x.max().item() < 96.5
"""


def test_remainders_of_far_quotients_are_exact(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    assert run(installed("torch", "over_torch", tmp_path), "-c", FAR) == ""


def test_operators_named_run_on_the_host() -> None:
    strict = pytest.importorskip("array_api_strict")

    class Hosting(ArrayApiBackend):
        name, xp, array_type = "hosting", strict, type(strict.zeros(()))
        on_the_host = ("atan2", "sort")

    kernels = Hosting().kernels
    x = strict.asarray([3.0, -1.0, 2.0])
    found = kernels["atan2"](x, x)
    assert isinstance(found, Hosting.array_type) and found.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(found), np.arctan2(np.asarray(x), np.asarray(x)))
    values, places = kernels["sort"](x, -1, False, True)
    assert np.asarray(values).tolist() == [-1, 2, 3] and np.asarray(places).tolist() == [1, 2, 0]
    Hosting.on_the_host = ("atan2", "no_operator")
    with pytest.raises(RegistrationError, match=r"on_the_host of 'hosting'.*'no_operator'"):
        Hosting().kernels  # noqa: B018
    Hosting.on_the_host = ()
    assert "on_the_host" not in repr(Hosting().kernels["atan2"])


SHORT = """
import coredispatch as cd
from coredispatch.plugin import NoDeviceError

try:
    cd.ones(2, device="short")
except NoDeviceError as error:
    print(error)
"""
LIBRARY = """
import types

import array_api_strict

from coredispatch.plugin import ArrayApiBackend, hookimpl

xp = types.ModuleType({name!r})
vars(xp).update(
    {{n: v for n, v in vars(array_api_strict).items() if n != "int64" and not n.startswith("__")}}
)
xp.__array_api_version__ = array_api_strict.__array_api_version__


class Short(ArrayApiBackend):
    name, xp, array_type = "short", xp, type(array_api_strict.zeros(()))


@hookimpl
def coredispatch_register(registrar):
    registrar.backend(Short())
"""


@pytest.mark.parametrize(
    ("library", "fix"),
    [("jax.numpy", "jax_enable_x64"), ("narrow", "a namespace that has integers of 64 bits")],
)
def test_a_library_without_int64_is_refused_with_the_fix(
    library: str, fix: str, tmp_path: Path
) -> None:
    pytest.importorskip("array_api_strict")
    (tmp_path / "short_namespace.py").write_text(LIBRARY.format(name=library))
    said = run(installed("short", "short_namespace", tmp_path), "-c", SHORT)
    assert f"{library} has no int64" in said and "it has bool, " in said and fix in said, said


def test_the_policies_of_a_library_are_those_of_its_backend() -> None:
    strict = pytest.importorskip("array_api_strict")

    class Strict(ArrayApiBackend):
        name, xp, array_type = "strict", strict, type(strict.zeros(()))

    class Jax(Strict):
        xp = SimpleNamespace(__name__="jax.numpy")

    class Otherwise(Jax):
        policies: ClassVar[dict[str, Any]] = {"tf32": True}

    assert Strict().policies == {}
    known = {"flush_to_zero": ["bfloat16", "float32", "float64"], "compiles": True}
    assert Jax().policies == known
    assert Otherwise().policies == {"tf32": True}


def test_sums_are_accumulated_in_the_wider_dtype_where_there_is_one() -> None:
    strict = pytest.importorskip("array_api_strict")
    kernels = family_kernels(strict)
    n = 100_003
    columns = strict.asarray(np.full((n, 2), 0.1, np.float32))  # which NumPy adds up one by one
    exact = n * float(np.float32(0.1))
    for found in (
        kernels["sum"](columns, 0, False, None)[0],
        kernels["cumsum"](columns, 0, None)[-1, 0],
        kernels["mse_loss"](columns, columns * 0, "sum") / 0.2,
    ):
        assert found.dtype == strict.float32
        assert abs(float(found) - exact) < 1e-6 * exact
    doubles = strict.asarray([1e300, -1e300])  # float32 holds neither
    with np.errstate(all="ignore"):
        assert np.isnan(float(kernels["sum"](doubles, 0, False, DType.of("float32"))))

    class Single:
        """A namespace without double precision."""

        def __getattr__(self, name: str) -> Any:
            if name in ("float64", "complex128", "__array_namespace_info__"):
                raise AttributeError(name)
            return getattr(strict, name)

    found = family_kernels(Single())["sum"](columns, 0, False, None)
    assert found.dtype == strict.float32 and abs(float(found[0]) - exact) < 1e-2 * exact


def test_dtypes_of_two_libraries_are_not_compared() -> None:
    """Those of ``array_api_strict`` have the hash of NumPy's, and warn where they meet them."""
    strict = pytest.importorskip("array_api_strict")
    for _ in range(2):
        for name in ("float32", "int64", "bool"):
            for dtype in (getattr(strict, name), np.dtype(name), getattr(strict, name)):
                assert DType.of(dtype).name == name
