"""Top-level functions that are another form of something, each beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch._late_names import COPIES, INPLACE

X = np.random.default_rng(0).uniform(0.2, 0.9, (2, 6)).astype(np.float32)
X3 = X.reshape(1, 2, 6)
W = np.linspace(-1, 1, 6).astype(np.float32)
UNSIGNED = np.array([4, 6], np.int64)

#: what an in-place function takes beside the tensor, where it takes anything
MORE: dict[str, tuple[Any, ...]] = {
    "clamp_": (0.3, 0.6),
    "clip_": (0.3, 0.6),
    "clamp_max_": (0.5,),
    "clamp_min_": (0.5,),
    "fill_": (3.0,),
    "addmv_": (X, W),
    "gcd_": (UNSIGNED,),
    "lcm_": (UNSIGNED,),
    "ldexp_": (UNSIGNED[:1],),
    "index_put_": ([np.array([0]), np.array([1])], np.array([7.0], np.float32)),
    "resize_as_": (W,),
    "embedding_renorm_": (np.array([0]), 0.5, 2.0),
}
FIRST = {"addmv_": X[:, 0], "gcd_": UNSIGNED + 2, "lcm_": UNSIGNED + 2, "arccosh_": X + 1}
FIRST["acosh_"] = FIRST["arccosh_"]

CALLS: dict[str, tuple[Any, ...]] = {
    "alias_copy": (X,),
    "as_strided_copy": (X, (2, 2), (1, 2)),
    "detach_copy": (X,),
    "diagonal_copy": (X,),
    "expand_copy": (X, (3, 2, 6)),
    "narrow_copy": (X, 1, 1, 3),
    "permute_copy": (X, (1, 0)),
    "select_copy": (X, 1, 2),
    "slice_copy": (X, 1, 1, 5, 2),
    "split_copy": (X, 4, 1),
    "split_with_sizes_copy": (X, [2, 4], 1),
    "squeeze_copy": (X3,),
    "t_copy": (X,),
    "transpose_copy": (X, 0, 1),
    "unbind_copy": (X,),
    "unfold_copy": (X, 1, 3, 2),
    "unsqueeze_copy": (X, 1),
    "view_copy": (X, (3, 4)),
    "view_as_complex_copy": (X.reshape(2, 3, 2),),
    "view_as_real_copy": (X.astype(np.complex64),),
    "adaptive_avg_pool1d": (X3, 3),
    "adaptive_max_pool1d": (X3, 3),
    "avg_pool1d": (X3, 2),
    "max_pool1d": (X3, 2),
    "max_pool1d_with_indices": (X3, 2),
    "max_pool2d": (X3, 2),
    "max_pool3d": (X.reshape(1, 2, 2, 3), 2),
    "bilinear": (X, X, np.ones((3, 6, 6), np.float32)),
    "batch_norm": (X, W, W, W * 0, W * 0 + 1, True, 0.1, 1e-5, True),
    "instance_norm": (X3, None, None, None, None, True, 0.1, 1e-5, True),
    "layer_norm": (X, (6,), W, W),
    "group_norm": (X3, 2),
    "embedding": (X, np.array([1, 0, 1])),
    "binary_cross_entropy_with_logits": (X, X, None, None, 2),
    "cosine_embedding_loss": (X, X * X, np.array([1.0, -1.0], np.float32), 0.1),
    "hinge_embedding_loss": (X, np.sign(X - 0.5), 1.0, 0),
    "kl_div": (np.log(X), X, 2),
    "margin_ranking_loss": (X, X * X, np.sign(X - 0.5), 0.1, 1),
    "poisson_nll_loss": (X, X, True, False, 1e-8, 1),
    "triplet_margin_loss": (X, X * X, X + 1),
    "lstm_cell": (X, (X[:, :3], X[:, 3:]), np.ones((12, 6)) / 9, np.ones((12, 3)) / 7),
    "gru_cell": (X, X[:, :3], np.ones((9, 6)) / 9, np.ones((9, 3)) / 7),
    "rnn_tanh_cell": (X, X[:, :3], np.ones((3, 6)) / 9, np.ones((3, 3)) / 7),
    "rnn_relu_cell": (X, X[:, :3], np.ones((3, 6)) / 9, np.ones((3, 3)) / 7),
    "frobenius_norm": (X, (0, 1), True),
    "nuclear_norm": (X,),
    "norm_except_dim": (X, 2, 1),
    "split_with_sizes": (X, [2, 4], 1),
    "unsafe_chunk": (X, 2, 1),
    "unsafe_split": (X, 4, 1),
    "unsafe_split_with_sizes": (X, [2, 4], 1),
    "native_channel_shuffle": (X3, 2),
    "as_strided_scatter": (X, X[0, :4].reshape(2, 2), (2, 2), (1, 2)),
    "scalar_tensor": (3,),
    "conj_physical_": (X.astype(np.complex64) * 1j,),
    "is_nonzero": (W[:1],),
    "is_signed": (UNSIGNED,),
    "is_conj": (X,),
    "is_neg": (X,),
    "get_device": (X,),
    "resolve_neg": (X,),
}


def given(make: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return make(value.astype(np.float32) if value.dtype == np.float64 else value.copy())
    if isinstance(value, (list, tuple)):
        return type(value)(given(make, item) for item in value)
    return value


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.detach().numpy() if hasattr(value, "detach") else value


@pytest.mark.filterwarnings("ignore:at.*_norm is deprecated")
@pytest.mark.parametrize("name", [*INPLACE, *CALLS])
def test_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    arguments = (FIRST.get(name, X), *MORE.get(name, ())) if name in INPLACE else CALLS[name]
    inputs = given(cd.from_numpy, arguments)
    result = getattr(cd, name)(*inputs)
    expected = getattr(torch, name)(*given(torch.from_numpy, arguments))
    mine, theirs = plain(result), plain(expected)
    if not isinstance(mine, list):
        mine, theirs = [mine], [theirs]
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs):
        assert np.shape(one) == np.shape(other)
        assert getattr(one, "dtype", type(one)) == getattr(other, "dtype", type(other))
        if name != "resize_as_":
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
    if name in INPLACE:
        assert result is inputs[0]


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_shares_no_memory(name: str) -> None:
    x = given(cd.from_numpy, CALLS[name])
    found = getattr(cd, name)(*x)
    for part in found if isinstance(found, (list, tuple)) else [found]:
        assert part.data_ptr() != x[0].data_ptr() and part.is_contiguous()


def test_in_place_functions_are_operators_and_need_no_torch() -> None:
    x = cd.tensor([-1.0, 4.0])
    assert cd.abs_(x) is x and cd.sqrt_(x).tolist() == [1, 2]
    assert {"abs_", "view_copy", "layer_norm"} <= set(dir(cd))
    y = cd.ones(2, 3, requires_grad=True)
    cd.view_copy(y, (6,)).sum().backward()
    assert y.grad.tolist() == [[1] * 3] * 2
    out = cd.empty(0)
    assert cd.t_copy(x.reshape(1, 2), out=out) is out and out.shape == (2, 1)
    assert cd.empty_strided((2, 3), (1, 2)).stride() == (1, 2)
    assert cd.empty_permuted((2, 3, 4), (0, 2, 1)).stride() == (12, 1, 3)
    kept = cd.feature_dropout(cd.ones(4, 50, 3), 0.5, True)
    assert ((kept == 0).all(-1) | (kept == 2).all(-1)).all()


def test_a_late_name_is_no_operator_and_is_there() -> None:
    from coredispatch._late_names import LATE_NAMES

    for name in LATE_NAMES:
        assert name not in vars(cd), name
        assert getattr(cd, name) is not None


def test_norms_of_all_but_one_dimension() -> None:
    """An element of a vector is a norm of its own; a number has no dimension to be left out."""
    v = cd.tensor([3.0, -4.0])
    assert cd.norm_except_dim(v, 2, 0).tolist() == [3.0, 4.0]
    assert cd.norm_except_dim(v[None], 2, 0).tolist() == [[5.0]]
    assert cd.norm_except_dim(v, 2, -1).item() == 5.0
    with pytest.raises(IndexError, match="no dimension 0"):
        cd.norm_except_dim(cd.tensor(3.0), 2, 0)


def test_the_names_of_the_arguments_of_result_type() -> None:
    x = cd.ones(2)
    assert cd.result_type(tensor=x, other=2.5) is cd.float32
    assert cd.result_type(2, tensor=x) is cd.result_type(scalar=2, tensor=x) is cd.float32
    assert cd.result_type(scalar1=2, scalar2=2) is cd.int64
    assert cd.result_type(tensor1=x, tensor2=x.double()) is cd.float64
    for call in (lambda: cd.result_type(x), lambda: cd.result_type(x, scalar1=2)):
        with pytest.raises(TypeError, match="two tensors or numbers"):
            call()


def test_a_mode_of_grid_sampler_is_one_of_three_numbers() -> None:
    image, grid = cd.ones(1, 1, 2, 2), cd.zeros(1, 1, 1, 2)
    assert cd.grid_sampler(image, grid, 1, 0, False).item() == 1.0
    for wrong in (3, -1):
        with pytest.raises(ValueError, match=f"interpolation_mode={wrong} is no mode"):
            cd.grid_sampler_2d(image, grid, wrong, 0, False)
        with pytest.raises(ValueError, match=f"padding_mode={wrong} is no mode"):
            cd.grid_sampler_2d(image, grid, 0, wrong, False)


def test_feature_dropout_looks_at_its_probability_whenever_called() -> None:
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        cd.feature_dropout(cd.ones(2, 3), 2.5, False)
    with pytest.raises(TypeError, match="must be float"):
        cd.feature_dropout(cd.ones(2, 3), None, False)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        cd.feature_dropout(cd.ones(3), 0.5, True)


def test_what_fake_quantization_takes() -> None:
    """The zero point is one of the steps; a float zero point, which is learned, may be anywhere."""
    x, scale = cd.ones(2, 3), cd.full((2,), 0.5)
    with pytest.raises(RuntimeError, match="zero_point"):
        cd.fake_quantize_per_tensor_affine(x, 0.5, 300, 0, 255)
    with pytest.raises(RuntimeError, match="zero_point"):
        points = cd.tensor([0, -1], dtype=cd.int32)
        cd.fake_quantize_per_channel_affine(x, scale, points, 0, 0, 255)
    with pytest.raises(RuntimeError, match="counted from 0"):
        points = cd.zeros(2, dtype=cd.int32)
        cd.fake_quantize_per_channel_affine(x, scale, points, -2, 0, 255)
    learned = cd.fake_quantize_per_channel_affine(x, scale, cd.tensor([-1.0, 0.0]), 0, 0, 255)
    assert learned.tolist() == [[1.0] * 3] * 2
