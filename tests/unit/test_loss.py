"""Losses, linear maps, embedding, attention and resampling against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.autograd import gradcheck, gradgradcheck
from coredispatch.registry.dispatch.table import TABLE

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def positive(*shape: int) -> Any:
    return RNG.uniform(0.1, 0.9, shape)


def signs(*shape: int) -> Any:
    return np.where(RNG.random(shape) < 0.5, -1.0, 1.0)


def compare(
    mine: Any, theirs: Any, inputs: list[Any], options: dict[str, Any], trained: int | None = None
) -> None:
    """Results, and the gradients of the first ``trained`` floating inputs (all unless given)."""
    torch = pytest.importorskip("torch")

    def convert(value: Any, make: Any) -> Any:
        return make(value) if isinstance(value, np.ndarray) else value

    a = [convert(x, lambda v: cd.from_numpy(v.copy())) for x in inputs]
    b = [convert(x, lambda v: torch.tensor(v)) for x in inputs]
    floating = [i for i, x in enumerate(inputs) if getattr(x, "dtype", None) == np.float64]
    for i in floating[:trained]:
        a[i].requires_grad_(), b[i].requires_grad_()
    other = {k: convert(v, lambda x: torch.tensor(x)) for k, v in options.items()}
    options = {k: convert(v, cd.from_numpy) for k, v in options.items()}
    y, expected = mine(*a, **options), theirs(*b, **other)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), 1e-10, 1e-10)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    for i in floating[:trained]:
        np.testing.assert_allclose(a[i].grad.numpy(), b[i].grad.numpy(), 1e-8, 1e-9)


def by_name(name: str, inputs: list[Any], options: dict[str, Any], trained: Any = None) -> None:
    torch = pytest.importorskip("torch")
    compare(getattr(F, name), getattr(torch.nn.functional, name), inputs, options, trained)


REDUCTIONS = ("mean", "sum", "none")
SHAPES = ((5,), (4, 3), (8, 8), (2, 3, 4), (2, 5, 2, 3))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(shape: Any, reduction: str, smoothing: float, weighted: bool) -> None:
    classes = shape[0] if len(shape) == 1 else shape[1]
    rest = () if len(shape) == 1 else (shape[0], *shape[2:])
    options = {"reduction": reduction, "label_smoothing": smoothing}
    if weighted:
        options["weight"] = positive(classes)
    target = np.asarray(RNG.integers(0, classes, rest))
    by_name("cross_entropy", [array(*shape), target], options)
    if rest:
        ignored = target.copy()
        ignored.flat[:2] = 1
        by_name("cross_entropy", [array(*shape), ignored], {**options, "ignore_index": 1})
    share = positive(*shape)
    by_name("cross_entropy", [array(*shape), share], options)
    if smoothing == 0:
        options.pop("label_smoothing")
        by_name("nll_loss", [array(*shape), target], options)


def test_cross_entropy_body_and_second_derivative() -> None:
    x = cd.from_numpy(array(4, 3)).requires_grad_()
    target = cd.tensor([0, 2, -100, 1])
    args = (target, cd.from_numpy(positive(3)), -100, "mean", 0.1)
    op = TABLE.operator("cross_entropy")
    np.testing.assert_allclose(op(x, *args).item(), op.decomposition(x, *args).item(), 1e-12)
    assert gradcheck(lambda x: op(x, *args), (x,))
    assert gradgradcheck(lambda x: op(x, *args), (x,))
    plain = cd.tensor([0, 2, 0, 1])
    assert gradgradcheck(lambda x: F.cross_entropy(x, plain), (x,))


def test_cross_entropy_of_large_logits() -> None:
    x = cd.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    loss = F.cross_entropy(x, cd.tensor([1]))
    loss.backward()
    assert loss.item() == 1e4
    np.testing.assert_array_equal(x.grad.numpy(), [[1, -1, 0]])


def test_no_target_left_is_nan() -> None:
    x, target = cd.zeros(2, 3), cd.tensor([-100, -100])
    x.requires_grad_()
    loss = F.cross_entropy(x, target)
    loss.backward()
    assert np.isnan(loss.item()) and not x.grad.numpy().any()
    assert F.cross_entropy(x, target, reduction="sum").item() == 0


@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        ([0, 3], IndexError, "out of bounds"),
        ([0, -1], IndexError, "out of bounds"),
        ([0, 1, 2], RuntimeError, "target of shape"),
        ([0.0, 1.0], TypeError, "class indices"),
    ],
)
def test_target_errors(target: list[Any], error: type[Exception], text: str) -> None:
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(error, match=text):
            loss(cd.zeros(2, 3), cd.tensor(target))
    with pytest.raises(ValueError, match="reduction"):
        F.cross_entropy(cd.zeros(2, 3), cd.tensor([0, 1]), reduction="median")
    weight = cd.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="no derivative"):
        F.cross_entropy(cd.zeros(2, 3), cd.tensor([0, 1]), weight).backward()


@pytest.mark.filterwarnings("ignore:reduction")  # PyTorch about the mean of kl_div
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_elementwise_losses(reduction: str) -> None:
    pair = [array(3, 4), array(3, 4)]
    options = {"reduction": reduction}
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        by_name(name, pair, options)
    by_name("smooth_l1_loss", pair, {**options, "beta": 0.3})
    by_name("huber_loss", pair, {**options, "delta": 0.3})
    by_name("kl_div", [array(3, 4), positive(3, 4)], options)
    by_name("kl_div", pair, {**options, "log_target": True})
    by_name("poisson_nll_loss", [array(3, 4), positive(3, 4) * 4], options, 1)
    by_name("poisson_nll_loss", [positive(3, 4), positive(3, 4)], {**options, "log_input": False})
    by_name("poisson_nll_loss", [array(3, 4), positive(3, 4) * 4], {**options, "full": True}, 1)
    by_name("gaussian_nll_loss", [*pair, positive(3, 4)], options)
    by_name("gaussian_nll_loss", [*pair, positive(3, 1)], {**options, "full": True})
    by_name("soft_margin_loss", [array(3, 4), signs(3, 4)], options, 1)
    by_name("hinge_embedding_loss", [array(3, 4), signs(3, 4)], options, 1)
    by_name("margin_ranking_loss", [array(4), array(4), signs(4)], {**options, "margin": 0.3}, 2)
    by_name("cosine_embedding_loss", [*pair, signs(3)], {**options, "margin": 0.1}, 2)
    by_name("multi_margin_loss", [array(3, 4), np.array([0, 3, 1])], options)
    by_name("multi_margin_loss", [array(3, 4), np.array([0, 3, 1])], {**options, "p": 2})
    by_name("multilabel_soft_margin_loss", [array(3, 4), positive(3, 4)], options, 1)
    triplet = [array(3, 4), array(3, 4), array(3, 4)]
    by_name("triplet_margin_loss", triplet, options)
    by_name("triplet_margin_loss", triplet, {**options, "swap": True, "p": 1})


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_losses(reduction: str, weighted: bool) -> None:
    options: dict[str, Any] = {"reduction": reduction}
    if weighted:
        options["weight"] = positive(3, 4)
    by_name("binary_cross_entropy", [positive(3, 4), positive(3, 4)], options)
    by_name("binary_cross_entropy_with_logits", [array(3, 4), positive(3, 4)], options)
    options["pos_weight"] = positive(4) * 3
    by_name("binary_cross_entropy_with_logits", [array(3, 4) * 20, positive(3, 4)], options)


@pytest.mark.parametrize("wrong", [-0.5, 1.5, float("nan"), float("inf")])
@pytest.mark.parametrize("argument", ["input", "target"])
def test_binary_cross_entropy_takes_probabilities_only(wrong: float, argument: str) -> None:
    given = {"input": cd.tensor([0.5, 0.5]), "target": cd.tensor([1.0, 0.0])}
    given[argument] = cd.tensor([0.5, wrong])
    with pytest.raises(RuntimeError, match=f"all elements of {argument} must be between 0 and 1"):
        F.binary_cross_entropy(**given)


def test_binary_cross_entropy_stays_finite() -> None:
    x = cd.tensor([0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(x, cd.tensor([1.0, 0.0]))
    loss.backward()
    assert loss.item() == 100 and np.isfinite(x.grad.numpy()).all()


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_mse_broadcasts() -> None:
    x = cd.from_numpy(array(3, 1)).requires_grad_()
    y = cd.from_numpy(array(3, 4)).requires_grad_()
    assert gradcheck(F.mse_loss, (x, y))
    assert gradgradcheck(F.mse_loss, (x, y))


@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
def test_linear_and_bilinear(lead: Any) -> None:
    by_name("linear", [array(*lead, 5), array(3, 5), array(3)], {})
    by_name("linear", [array(*lead, 5), array(3, 5)], {})
    if lead:
        by_name("linear", [array(*lead, 5), array(5)], {})
    by_name("bilinear", [array(*lead, 5), array(*lead, 2), array(3, 5, 2), array(3)], {})
    x, w = (cd.from_numpy(a).requires_grad_() for a in (array(*lead, 3), array(2, 3)))
    assert gradgradcheck(lambda x, w: F.linear(x, w), (x, w), nondet_tol=1e-11)


def test_linear_errors() -> None:
    with pytest.raises(RuntimeError, match="weight"):
        F.linear(cd.zeros(4, 5), cd.zeros(3, 4))
    with pytest.raises(RuntimeError, match="bias"):
        F.linear(cd.zeros(4, 5), cd.zeros(3, 5), cd.zeros(1))


def test_embedding() -> None:
    indices = RNG.integers(0, 7, (3, 4))
    for options in ({}, {"padding_idx": 2}, {"padding_idx": -1, "scale_grad_by_freq": True}):
        by_name("embedding", [indices, array(7, 5)], options)
    many = RNG.integers(0, 50, (400,))
    by_name("embedding", [many, array(50, 8)], {"scale_grad_by_freq": True})
    table = cd.from_numpy(array(4, 3) * 5)
    F.embedding(cd.tensor([0, 2, 2]), table, max_norm=1.0)
    norms = np.linalg.norm(table.numpy(), axis=1)
    assert (norms[[0, 2]] <= 1).all() and (norms[[1, 3]] > 1).all()
    for bad in ([0, 4], [-1, 0]):
        with pytest.raises(IndexError, match="out of range"):
            F.embedding(cd.tensor(bad), table)
    with pytest.raises(TypeError, match="indices"):
        F.embedding(cd.tensor([0.5]), table)


def test_embedding_gradient_body() -> None:
    op = TABLE.operator("embedding_backward")
    grad, indices = cd.from_numpy(array(6, 3)), cd.tensor([0, 2, 2, 1, 0, 2])
    for options in ((4, None, False), (4, 2, True)):
        a, b = op(grad, indices, *options), op.decomposition(grad, indices, *options)
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-12)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str) -> None:
    torch = pytest.importorskip("torch")

    def theirs(indices: Any, weight: Any, **options: Any) -> Any:
        return torch.nn.functional.embedding_bag(indices, weight, mode=mode, **options)

    def mine(indices: Any, weight: Any, **options: Any) -> Any:
        return F.embedding_bag(indices, weight, mode=mode, **options)

    weight = array(6, 3)
    compare(mine, theirs, [RNG.integers(0, 6, (3, 4)), weight], {})
    compare(mine, theirs, [RNG.integers(0, 6, (3, 4)), weight], {"padding_idx": 1})
    offsets = np.array([0, 3, 3, 5])
    compare(mine, theirs, [RNG.integers(0, 6, (8,)), weight], {"offsets": offsets})


def test_attention() -> None:
    for options in ({}, {"is_causal": True}, {"scale": 0.7}, {"attn_mask": array(5, 5)}):
        by_name("scaled_dot_product_attention", [array(2, 3, 5, 4) for _ in range(3)], options)
    mask = RNG.random((5, 7)) < 0.7
    mask[:, 0] = True
    mask[3] = False  # a query without any key gives 0, and so does its gradient
    inputs = [array(2, 5, 4), array(2, 7, 4), array(2, 7, 3)]
    by_name("scaled_dot_product_attention", inputs, {"attn_mask": mask})
    grouped = [array(2, 4, 5, 3), array(2, 2, 5, 3), array(2, 2, 5, 3)]
    by_name("scaled_dot_product_attention", grouped, {"enable_gqa": True})


def test_interpolate() -> None:
    x = array(2, 3, 5, 7)
    for size in ((10, 14), (3, 4), 6, (1, 1)):
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
            by_name("interpolate", [x], {"size": size, "mode": mode})
        by_name("interpolate", [x], {"size": size, "mode": "bilinear", "align_corners": True})
    for factor in (2, 1.5, (0.6, 2.3)):
        for mode in ("nearest", "bilinear", "bicubic", "area"):
            by_name("interpolate", [x], {"scale_factor": factor, "mode": mode})
    recomputed = {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}
    by_name("interpolate", [x], recomputed)
    by_name("interpolate", [array(2, 3, 5)], {"size": 8, "mode": "linear"})
    by_name("interpolate", [array(1, 2, 3, 4, 5)], {"scale_factor": 2, "mode": "trilinear"})
    with pytest.raises(ValueError, match="mode"):
        F.interpolate(cd.zeros(1, 1, 4, 4), 8, mode="lanczos")
    with pytest.raises(ValueError, match="size"):
        F.interpolate(cd.zeros(1, 1, 4, 4))


def test_rearranging_and_distances() -> None:
    by_name("pixel_shuffle", [array(2, 8, 3, 5)], {"upscale_factor": 2})
    by_name("pixel_unshuffle", [array(2, 3, 4, 6)], {"downscale_factor": 2})
    by_name("channel_shuffle", [array(2, 6, 3, 5)], {"groups": 3})
    for options in ({"kernel_size": (3, 2)}, {"kernel_size": 2, "padding": 1, "stride": 2}):
        by_name("unfold", [array(2, 3, 6, 5)], options)
    by_name("fold", [array(2, 12, 20)], {"output_size": (6, 5), "kernel_size": 2})
    by_name("cosine_similarity", [array(4, 3), array(4, 3)], {"dim": 1})
    for p in (1.0, 2.0, 3.0):
        by_name("pairwise_distance", [array(4, 3), array(4, 3)], {"p": p})
        by_name("normalize", [array(4, 3)], {"p": p})
    by_name("local_response_norm", [array(2, 5, 4, 3)], {"size": 3})
    by_name("lp_pool2d", [positive(1, 2, 4, 4)], {"norm_type": 2.0, "kernel_size": 2})


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_weights_of_elements_as_in_torch(name: str, reduction: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 4)), rng.standard_normal((3, 4)), rng.random((3, 4))]
    found = []
    for lib, functional in ((cd, F), (torch, torch.nn.functional)):
        x, y, w = (lib.from_numpy(a.copy()) for a in arrays)
        x.requires_grad_()
        loss = getattr(functional, name)(x, y, reduction=reduction, weight=w)
        loss.sum().backward()
        found.append((loss.detach().numpy(), x.grad.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-12)
    with pytest.raises(cd.ShapeError, match="weight of shape"):
        getattr(F, name)(cd.ones(3), cd.ones(3), weight=cd.ones(2))


def test_embedding_bag_takes_all_of_pytorchs_arguments() -> None:
    torch = pytest.importorskip("torch")
    rows = np.random.default_rng(0).standard_normal((5, 3))
    options = {"include_last_offset": True, "max_norm": 1.0, "mode": "sum"}
    found = []
    for lib, functional in ((cd, F), (torch, torch.nn.functional)):
        weight = lib.from_numpy(rows.copy())
        out = functional.embedding_bag(
            lib.tensor([0, 1, 2, 3, 1]), weight, lib.tensor([0, 2, 5]), **options
        )
        found.append((out.numpy(), weight.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)
    with pytest.raises(cd.ArgumentError, match="no sparse gradient"):
        F.embedding_bag(cd.tensor([0]), cd.ones(1, 1), cd.tensor([0]), mode="max", sparse=True)


@pytest.mark.parametrize("size", [3, 5000])
def test_huber_without_a_bound_is_half_the_square(size: int) -> None:
    x = cd.linspace(-9, 9, size).requires_grad_()
    loss = F.huber_loss(x, cd.zeros(size), reduction="none", delta=float("inf"))
    cd.testing.assert_close(loss, x.detach() ** 2 / 2)
    (grad,) = cd.autograd.grad(loss.sum(), x)
    cd.testing.assert_close(grad, x.detach())
