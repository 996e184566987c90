"""The array API namespace where it differs from PyTorch's functions, NumPy functions, einops."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd

xp = cd.array_api
REAL = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32", "float64")


def test_a_tensor_names_its_namespace() -> None:
    x = cd.ones(2)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ValueError, match="1999"):
        x.__array_namespace__(api_version="1999.01")
    assert x.to_device("cpu") is not None
    assert cd.newaxis is None and cd.pi == np.pi and np.isnan(cd.nan) and cd.inf > 1 and cd.e > 2


def test_the_namespace_says_what_it_can_do() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"]
    assert info.default_dtypes()["integral"] is cd.int64
    assert set(info.dtypes(kind="unsigned integer")) == {"uint8", "uint16", "uint32", "uint64"}
    assert info.default_device() in info.devices()


@given(
    a=st.sampled_from(REAL),
    b=st.sampled_from(REAL),
    shapes=st.sampled_from([((), (3,)), ((3,), ()), ((), ()), ((2, 1), (3,))]),
    name=st.sampled_from(["add", "multiply", "maximum", "less"]),
)
@settings(max_examples=80)
def test_arrays_without_dimensions_are_promoted_like_others(
    a: str, b: str, shapes: Any, name: str
) -> None:
    x, y = np.ones(shapes[0], a), np.full(shapes[1], 2, b)
    found = getattr(xp, name)(cd.tensor(x), cd.tensor(y))
    if np.promote_types(a, b) == np.float64 and "float64" not in (a, b):
        return  # a pair of which NumPy knows a common type, the standard none
    wanted = getattr(np, name)(np.atleast_1d(x), np.atleast_1d(y))
    assert str(found.dtype)[3:] == str(wanted.dtype)
    np.testing.assert_array_equal(found.numpy(), wanted.reshape(found.shape))


@pytest.mark.parametrize("dtype", REAL)
def test_sums_of_integers_are_wide_and_deviations_divide_by_n(dtype: str) -> None:
    x = np.array([[1, 2, 4], [3, 5, 7]], dtype)
    t = cd.tensor(x)
    for name in ("sum", "prod", "cumulative_sum", "cumulative_prod"):
        options = {"axis": 1}
        wanted = getattr(np, name)(x, **options)
        found = getattr(xp, name)(t, **options)
        assert str(found.dtype)[3:] == str(wanted.dtype)
        np.testing.assert_allclose(found.numpy(), wanted)
    np.testing.assert_allclose(xp.std(t.double(), axis=0).numpy(), np.std(x, axis=0))
    np.testing.assert_allclose(xp.var(t.double(), correction=1).item(), np.var(x, correction=1))
    start = xp.cumulative_sum(t, axis=0, include_initial=True)
    np.testing.assert_allclose(start.numpy(), np.cumulative_sum(x, axis=0, include_initial=True))


def test_every_nan_is_another_element() -> None:
    x = cd.tensor([2.0, float("nan"), 1.0, 2.0, float("nan")])
    found = xp.unique_all(x)
    np.testing.assert_array_equal(found.values.numpy(), [1, 2, np.nan, np.nan])
    assert found.counts.tolist() == [1, 2, 1, 1]
    assert found.indices.tolist() == [2, 0, 1, 4]
    np.testing.assert_array_equal(found.values[found.inverse_indices].numpy(), x.numpy())
    assert xp.unique_values(cd.tensor([[3, 1], [1, 3]])).tolist() == [1, 3]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (lambda x: xp.permute_dims(x, (2, 0, 1)), lambda x: np.permute_dims(x, (2, 0, 1))),
        (lambda x: xp.expand_dims(x, (0, 2)), lambda x: np.expand_dims(x, (0, 2))),
        (lambda x: xp.concat([x, x], axis=None), lambda x: np.concat([x, x], axis=None)),
        (lambda x: xp.unstack(x, axis=1)[1], lambda x: np.unstack(x, axis=1)[1]),
        (lambda x: xp.flip(x), np.flip),
        (lambda x: xp.roll(x, (1, 2), axis=(0, 2)), lambda x: np.roll(x, (1, 2), (0, 2))),
        (lambda x: xp.argmax(x, axis=1, keepdims=True), lambda x: x.argmax(1, keepdims=True)),
        (lambda x: xp.count_nonzero(x, axis=(0, 1)), lambda x: np.count_nonzero(x, axis=(0, 1))),
        (lambda x: xp.vecdot(x, x), lambda x: np.vecdot(x, x)),
        (lambda x: xp.broadcast_arrays(x, x[:1])[1], lambda x: np.broadcast_to(x[:1], x.shape)),
        (lambda x: xp.take(x, cd.tensor([1, 0]), axis=1), lambda x: np.take(x, [1, 0], 1)),
        (lambda x: xp.clip(x, 3, 7), lambda x: np.clip(x, 3, 7)),
        (lambda x: xp.where(x > 3, x, 0), lambda x: np.where(x > 3, x, 0)),
        (lambda x: xp.diff(x, prepend=x[..., :1]), lambda x: np.diff(x, prepend=x[..., :1])),
        (lambda x: xp.linalg.matrix_norm(x), lambda x: np.linalg.norm(x, axis=(-2, -1))),
        (lambda x: xp.fft.fftn(x, axes=(0, 1)), lambda x: np.fft.fftn(x, axes=(0, 1))),
        (lambda x: xp.all(x > -1, axis=(0, 2)), lambda x: np.all(x > -1, axis=(0, 2))),
        (lambda x: xp.eye(3, 4, k=1) + x[0, 0, 0], lambda x: np.eye(3, 4, k=1) + x[0, 0, 0]),
        (lambda x: xp.linspace(0, 1, 4, endpoint=False), lambda x: np.linspace(0, 1, 4, False)),
        (lambda x: xp.floor_divide(x, xp.inf), lambda x: np.floor(x / np.inf)),
    ],
)
def test_functions_agree_with_numpy(found: Any, wanted: Any) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_allclose(found(cd.tensor(x)).numpy(), wanted(x), rtol=1e-6)


def test_kinds_of_dtypes() -> None:
    assert xp.isdtype(cd.float32, "real floating") and not xp.isdtype(cd.bool_, "numeric")
    assert xp.isdtype(cd.int8, ("unsigned integer", cd.int8))
    assert xp.result_type(cd.float32, 1.0) is cd.float32
    assert xp.result_type(cd.int8, 1.5) is cd.float32
    assert xp.can_cast(cd.int8, cd.int16) and not xp.can_cast(cd.int16, cd.int8)
    with pytest.raises(ValueError, match="kind"):
        xp.isdtype(cd.int8, "odd")
    x = cd.ones(2)
    assert xp.astype(x, cd.float32, copy=False) is x
    assert xp.astype(x, cd.float32) is not x


def test_array_api_compat_finds_the_namespace() -> None:
    compat = pytest.importorskip("array_api_compat")
    assert compat.array_namespace(cd.ones(2)) is xp


def test_numpy_functions_give_tensors() -> None:
    x = cd.arange(6.0).reshape(2, 3)
    for function in (np.sin, np.exp, lambda x: np.add(x, 1), lambda x: np.maximum(x, 3)):
        found = function(x)
        assert isinstance(found, cd.Tensor)
        np.testing.assert_allclose(found.numpy(), function(x.numpy()))
    assert isinstance(np.asarray(x), np.ndarray)
    assert float(np.mean(x)) == 2.5 and np.sum(x, axis=0).tolist() == [3.0, 5.0, 7.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        np.sin(x.requires_grad_())


def test_out_may_be_none() -> None:
    assert cd.add(cd.ones(2), 1, out=None).tolist() == [2, 2]


class TestEinops:
    """einops finds our backend, whichever of the two is imported first."""

    def test_patterns(self) -> None:
        einops = pytest.importorskip("einops")
        x = np.arange(48.0).reshape(2, 6, 4)
        t = cd.tensor(x)
        calls = (
            lambda a: einops.rearrange(a, "b (h w) c -> b c h w", h=2),
            lambda a: einops.repeat(a, "a b c -> a k b c", k=3),
            lambda a: einops.reduce(a, "a (b two) c -> a b", "mean", two=2),
            lambda a: einops.reduce(a, "a b c -> b", "prod"),
            lambda a: einops.rearrange([a, a], "n a b c -> a n b c"),
            lambda a: einops.einsum(a, a, "a b c, a b d -> c d"),
            lambda a: einops.pack([a, a[:, 0]], "a * c")[0],
        )
        for call in calls:
            found = call(t)
            assert isinstance(found, cd.Tensor)
            np.testing.assert_allclose(found.numpy(), call(x))
        leaf = t.clone().requires_grad_()
        einops.reduce(leaf, "a b c -> a", "sum").sum().backward()
        assert leaf.grad.eq(1).all()

    @pytest.mark.parametrize("order", ["coredispatch, einops", "einops, coredispatch"])
    def test_order_of_import(self, order: str) -> None:
        pytest.importorskip("einops")
        program = (
            f"import {order}, gc; gc.collect(); x = coredispatch.ones(2, 3); "
            "assert einops.rearrange(x, 'a b -> b a').shape == (3, 2)"
        )
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_einops_is_not_imported(self) -> None:
        program = "import coredispatch, sys; assert not {'einops', 'scipy'} & {*sys.modules}"
        subprocess.run([sys.executable, "-c", program], check=True)


class TestLibraries:
    """Libraries take tensors as they take PyTorch's."""

    def test_matplotlib(self) -> None:
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("Agg")
        from matplotlib.figure import Figure

        axes = Figure().add_subplot()
        x = cd.linspace(0, 1, 5)
        (line,) = axes.plot(x, x * 2)
        np.testing.assert_allclose(line.get_ydata(), (x * 2).numpy())
        counts, _, _ = axes.hist(cd.tensor([0.1, 0.2, 0.9]), bins=2)
        assert counts.tolist() == [2, 1]
        assert axes.imshow(cd.eye(3)).get_array().shape == (3, 3)

    def test_pandas(self) -> None:
        pandas = pytest.importorskip("pandas")
        x = cd.tensor([1.0, 2.5])
        assert pandas.Series(x).tolist() == [1.0, 2.5]
        assert pandas.DataFrame(cd.ones(2, 3)).shape == (2, 3)
        assert pandas.DataFrame({"a": x, "b": x * 2})["b"].tolist() == [2.0, 5.0]

    def test_scikit_learn_dispatches_to_the_namespace(self) -> None:
        pytest.importorskip("sklearn")
        pytest.importorskip("array_api_compat")
        program = """
import numpy as np, sklearn, coredispatch as cd
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import accuracy_score, mean_squared_error
from sklearn.preprocessing import MinMaxScaler, StandardScaler
cd.manual_seed(0)
x = cd.randn(40, 5, dtype=cd.float64)
y = x[:, 0]
assert abs(LinearRegression().fit(x, y).coef_[0] - 1) < 1e-9
with sklearn.config_context(array_api_dispatch=True):
    assert accuracy_score(y > 0, y > 0) == 1.0 and mean_squared_error(y, y) == 0
    for model in (StandardScaler(), MinMaxScaler(), PCA(2, svd_solver="full")):
        found = model.fit_transform(x)
        assert isinstance(found, cd.Tensor)
        wanted = type(model)(**model.get_params()).fit_transform(np.asarray(x))
        np.testing.assert_allclose(np.abs(found.numpy()), np.abs(wanted), atol=1e-9)
    assert isinstance(Ridge(solver="svd").fit(x, y).coef_, cd.Tensor)
"""
        environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONWARNINGS": "ignore"}
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_diagonals_that_are_not_there() -> None:
    for k in (2**63, -(2**70), 4):
        assert not xp.any(xp.eye(3, k=k)) and xp.eye(0, k=k).shape == (0, 0)
    assert xp.sum(xp.eye(3, 4, k=3)) == 1


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "float32"])
def test_cross_products_of_every_number(dtype: str) -> None:
    a, b = np.array([[1, 2, 3]], dtype), np.array([[4, 5, 6]], dtype)
    found = xp.linalg.cross(cd.tensor(a), cd.tensor(b))
    assert str(found.dtype) == f"cd.{dtype}"
    np.testing.assert_array_equal(found.numpy(), np.cross(a, b))
