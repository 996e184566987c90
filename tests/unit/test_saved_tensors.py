"""What a graph saves: only what wanted gradients read; and hooks that pack it."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn as nn
import coredispatch.nn.functional as F
from coredispatch.autograd import Function, graph


def leaf(*shape: int) -> cd.Tensor:
    rng = np.random.default_rng(sum(shape))
    return cd.tensor(rng.uniform(0.5, 2.0, shape), dtype=cd.float64, requires_grad=True)


def saved_elements(run: Any) -> int:
    """Elements of the distinct tensors that ``run`` saves."""
    seen: dict[tuple[int, Any], int] = {}

    def pack(tensor: cd.Tensor) -> cd.Tensor:
        seen[tensor.data_ptr(), tuple(tensor.shape)] = tensor.numel()
        return tensor

    with graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = run()
    del kept
    return sum(seen.values())


# -- only what is read ---------------------------------------------------------------------------

X, W = (6, 5), (4, 5)  # 30 and 20 elements

SAVES: dict[str, tuple[Any, int]] = {
    # name: (what runs on a leaf of 30 elements, a frozen one, a leaf of 20, a frozen one), elements
    "mul by a number": (lambda x, c, w, f: x * 2, 0),
    "div by a number": (lambda x, c, w, f: x / 2, 0),
    "add": (lambda x, c, w, f: x + c, 0),
    "sub": (lambda x, c, w, f: c - x, 0),
    "mul by a constant": (lambda x, c, w, f: x * c, 30),
    "mul of a constant": (lambda x, c, w, f: c * x, 30),
    "square": (lambda x, c, w, f: x**2, 30),
    "exp": (lambda x, c, w, f: x.exp(), 30),
    "sum": (lambda x, c, w, f: x.sum(), 0),
    "mean": (lambda x, c, w, f: x.mean(1), 0),
    "reshape": (lambda x, c, w, f: x.reshape(-1), 0),
    "expand": (lambda x, c, w, f: x.expand(3, 6, 5), 0),
    "index": (lambda x, c, w, f: x[1:3, 2], 0),
    "cat": (lambda x, c, w, f: cd.cat([x, c]), 0),
    "linear": (lambda x, c, w, f: F.linear(x, w), 50),
    "linear, frozen weight": (lambda x, c, w, f: F.linear(x, f), 20),
    "linear, frozen input": (lambda x, c, w, f: F.linear(c, w), 30),
    "matmul, frozen right": (lambda x, c, w, f: x @ f.t(), 20),
    "matmul, frozen left": (lambda x, c, w, f: c @ w.t(), 30),
    "clamp": (lambda x, c, w, f: x.clamp(0, 1), 30),
    "where": (lambda x, c, w, f: cd.where(c > 1, x, 0.0), 30),
    "sort": (lambda x, c, w, f: x.sort()[0], 30),
    "topk": (lambda x, c, w, f: x.topk(2)[0], 12),
    "relu": (lambda x, c, w, f: x.relu(), 30),
    "div": (lambda x, c, w, f: x / c, 30),
    "addcmul": (lambda x, c, w, f: cd.addcmul(x, c, c), 0),
    "lerp": (lambda x, c, w, f: x.lerp(c, 0.5), 0),
    "masked_fill": (lambda x, c, w, f: x.masked_fill(c > 1, 0.0), 30),
    "maximum": (lambda x, c, w, f: cd.maximum(x, c), 60),
    "bias only": (lambda x, c, w, f: F.linear(c, f, w[:, 0]), 0),
    "log_softmax": (lambda x, c, w, f: x.log_softmax(1), 30),
    "batch_norm": (lambda x, c, w, f: F.batch_norm(x, None, None, training=True), 40),
    "batch_norm, frozen": (lambda x, c, w, f: F.batch_norm(x, f[0], f[1], f[2], f[3]), 10),
}


@pytest.mark.parametrize("name", SAVES)
def test_what_is_saved_follows_from_what_requires_grad(name: str) -> None:
    """PyTorch saves as much, by its hooks for the same programs (45 in frozen batch_norm)."""
    run, expected = SAVES[name]
    x, c = leaf(*X), leaf(*X).detach()
    w, f = leaf(*W), leaf(*W).detach()
    assert saved_elements(lambda: run(x, c, w, f)) == expected


def saved_bytes(run: Any) -> int:
    """Bytes of the distinct storages that ``run`` saves."""
    seen: dict[int, int] = {}

    def pack(tensor: cd.Tensor) -> cd.Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        kept = run()
    del kept
    return sum(seen.values())


S, V, ROW = (16, 16), (16, 3), (16,)
PLACES = np.random.default_rng(0).integers(0, 16, S)


def reduced(kind: str) -> Any:
    return lambda a, b: cd.scatter_reduce(a, 1, cd.tensor(PLACES), b, kind)


BYTES: dict[str, tuple[Any, tuple[Any, ...], dict[str, int]]] = {
    # name: (what runs, the shapes of its arguments, PyTorch's bytes by which require grad)
    "cdist": (cd.cdist, (S, S), {"0": 3072, "1": 3072, "01": 3072}),
    "cdist, p=1": (lambda a, b: cd.cdist(a, b, 1.0), (S, S), {"0": 3072, "01": 3072}),
    "cdist, many rows": (cd.cdist, ((40, 16), (40, 16)), {"0": 11520, "01": 11520}),
    "pdist": (F.pdist, (S,), {"0": 1504}),
    "cross": (cd.linalg.cross, (V, V), {"0": 192, "1": 192, "01": 384}),
    "bilinear": (
        F.bilinear,
        ((16, 5), (16, 6), (7, 5, 6), (7,)),
        {"0": 1224, "1": 1160, "2": 704, "3": 0, "0123": 1544},
    ),
    "huber_loss": (F.huber_loss, (S, S), {"0": 2048, "1": 2048, "01": 2048}),
    "smooth_l1_loss": (F.smooth_l1_loss, (S, S), {"0": 2048, "1": 2048, "01": 2048}),
    "mse_loss": (F.mse_loss, (S, S), {"0": 2048, "01": 2048}),
    "glu": (F.glu, (S,), {"0": 1024}),
    "normalize": (F.normalize, (S,), {"0": 1152}),
    "cosine_similarity": (F.cosine_similarity, (S, S), {"0": 2176, "01": 4352}),
    "interpolate": (
        lambda x: [F.interpolate(x, scale_factor=2, mode=mode) for mode in ("nearest", "bicubic")],
        ((2, 4, 8, 8),),
        {"0": 0},
    ),
    "interpolate, antialias": (
        lambda x: F.interpolate(x, size=(5, 5), mode="bilinear", antialias=True),
        ((2, 4, 8, 8),),
        {"0": 0},
    ),
    "fold": (lambda x: F.fold(x, (4, 4), 2), ((2, 8, 9),), {"0": 0}),
    "diag_embed": (cd.diag_embed, (S,), {"0": 0}),
    "kthvalue": (lambda x: x.kthvalue(3, 1), (S,), {"0": 128}),
    "matrix_exp": (cd.linalg.matrix_exp, (S,), {"0": 1024}),
    "cholesky_inverse": (cd.cholesky_inverse, (S,), {"0": 2048}),
    "cholesky_solve": (cd.cholesky_solve, (S, S), {"0": 3072, "01": 3072}),
    "ldexp": (cd.ldexp, (S, S), {"0": 2048, "1": 1024, "01": 2048}),
    "tanhshrink": (F.tanhshrink, (S,), {"0": 1024}),
    "multigammaln": (lambda x: cd.special.multigammaln(x + 2, 3), (S,), {"0": 1024}),
    "polar": (cd.polar, (S, S), {"0": 2048, "1": 2048, "01": 2048}),
    "xlog1py": (cd.special.xlog1py, (S, S), {"0": 2048, "1": 2048, "01": 2048}),
    "scatter_reduce, prod": (reduced("prod"), (S, S), {"0": 5120, "1": 5120, "01": 5120}),
    "scatter_reduce, amax": (reduced("amax"), (S, S), {"0": 5120, "01": 5120}),
    "scatter_reduce, mean": (reduced("mean"), (S, S), {"0": 5120, "01": 5120}),
    "index_reduce": (
        lambda a, b: cd.index_reduce(a, 0, cd.arange(16), b, "prod"),
        (S, S),
        {"0": 3200, "01": 3200},
    ),
}


@pytest.mark.parametrize(
    ("name", "which"), [(name, which) for name, entry in BYTES.items() for which in entry[2]]
)
def test_as_few_bytes_are_saved_as_in_pytorch(name: str, which: str) -> None:
    """PyTorch's bytes are those of its hooks for the same program; a fifth more is allowed."""
    run, shapes, known = BYTES[name]
    arguments = [leaf(*shape).detach().float() for shape in shapes]
    for place in which:
        arguments[int(place)].requires_grad_()
    assert saved_bytes(lambda: run(*arguments)) <= 1.2 * known[which]


def test_a_distance_keeps_no_difference_of_rows() -> None:
    """Bytes grow with the rows and the distances, not with rows times rows times columns."""
    for rows in (8, 32, 128):
        x, y = leaf(rows, 16), leaf(rows, 16)
        assert saved_bytes(lambda x=x, y=y: cd.cdist(x, y)) == 8 * (2 * rows * 16 + rows * rows)


def test_what_needs_no_saved_tensor_may_run_twice() -> None:
    x = leaf(3)
    y = (x * 2 + x).reshape(1, 3).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [6, 6, 6]


def test_an_optimizer_in_the_backward_pass_writes_weights_that_are_not_needed() -> None:
    """The first layer's weight is not read for the gradient of an input that wants none."""
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(lambda t: t.data.sub_(t.grad))
    net(leaf(2, 3).detach()).sum().backward()


# -- in place after ------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_a_residual_network_with_writes_in_place_trains(training: bool) -> None:
    def block(inplace: bool) -> Any:
        cd.manual_seed(0)
        parts = [nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(inplace=inplace)]
        body = nn.Sequential(*parts, nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)).double()
        body.train(training)
        x = leaf(2, 2, 4, 4)
        y = body(x)
        if inplace:
            y += x
            y = F.relu(y, inplace=True)
        else:
            y = (y + x).relu()
        y.pow(2).sum().backward()
        return [x.grad, *[p.grad for p in body.parameters()]]

    for a, b in zip(block(True), block(False), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)


# -- hooks ---------------------------------------------------------------------------------------


def test_hooks_pack_leaves_inputs_and_results_and_give_them_back() -> None:
    stored: dict[int, cd.Tensor] = {}

    def pack(tensor: cd.Tensor) -> int:
        assert not tensor.requires_grad
        stored[len(stored)] = tensor.clone()
        return len(stored) - 1

    def program(x: cd.Tensor, w: cd.Tensor) -> cd.Tensor:
        h = (x @ w).tanh()
        return (h.sort(1)[0] * x).exp().sum() + h[cd.tensor([0, 1]), cd.tensor([1, 2])].sum()

    x, w = leaf(5, 5), leaf(5, 5)
    program(x, w).backward()
    expected = x.grad, w.grad
    x.grad = w.grad = None
    with graph.saved_tensors_hooks(pack, stored.pop):
        out = program(x, w)
    packed = len(stored)
    out.backward()
    assert packed > 6 and not stored
    cd.testing.assert_close((x.grad, w.grad), expected)


def test_what_is_unpacked_has_its_history() -> None:
    x = leaf(4)
    with graph.saved_tensors_hooks(lambda t: t.numpy().copy(), cd.from_numpy):
        y = (x * x * x).exp().sum()
    (g,) = cd.autograd.grad(y, x, create_graph=True)
    (gg,) = cd.autograd.grad(g.sum(), x)
    a = x.detach()
    second = (6 * a + 9 * a**4) * (a**3).exp()
    np.testing.assert_allclose(gg.numpy(), second.numpy(), rtol=1e-12)


def test_hooks_nest_and_end_with_their_block() -> None:
    calls: list[str] = []

    def hooks(name: str) -> Any:
        return graph.saved_tensors_hooks(lambda t: calls.append(name) or t, lambda t: t)

    x = leaf(3)
    with hooks("outer"):
        x.exp()
        with hooks("inner"):
            x.exp()
        x.exp()
    x.exp()
    assert calls == ["outer", "inner", "outer"]


def test_hooks_are_those_of_their_thread() -> None:
    calls: list[str] = []
    x = leaf(3)

    def other() -> None:
        (x * x).sum().backward()

    with graph.saved_tensors_hooks(lambda t: calls.append("here") or t, lambda t: t):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert not calls


def test_a_function_packs_what_it_saves() -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            out = x * x
            ctx.save_for_backward(x, out, None)
            return out, "no tensor"

        @staticmethod
        def backward(ctx: Any, grad: Any, nothing: Any) -> Any:
            x, out, none = ctx.saved_tensors
            assert nothing is None and none is None
            return grad * out / x * 2

    shapes: list[Any] = []
    x = leaf(3)
    with graph.saved_tensors_hooks(lambda t: shapes.append(t.shape) or t, lambda t: t.clone()):
        y, _ = Square.apply(x)
    (g,) = cd.autograd.grad(y.sum(), x, create_graph=True)
    (gg,) = cd.autograd.grad(g.sum(), x)
    assert len(shapes) == 2
    np.testing.assert_allclose(g.detach().numpy(), 2 * x.detach().numpy())
    np.testing.assert_allclose(gg.numpy(), [2.0, 2.0, 2.0])


def test_packed_tensors_are_freed_with_the_data() -> None:
    x = leaf(3)
    with graph.saved_tensors_hooks(lambda t: None, lambda _: cd.zeros(3, dtype=cd.float64)):
        h = x * 2
        y = h * h
    gone = weakref.ref(h)
    del h
    gc.collect()
    assert gone() is None
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_save_on_cpu_copies() -> None:
    x = leaf(3)
    h = x * 2
    with graph.save_on_cpu():
        y = h * h
    with cd.no_grad():
        h.zero_()  # the copy is not written
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 8 * x.detach().numpy())


def test_wrong_hooks_are_named() -> None:
    x = leaf(3)
    with (
        graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t),
        pytest.raises(RuntimeError, match="modifying its input in place"),
    ):
        x.exp()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.exp().sum()
    with pytest.raises(TypeError, match="expected to be a Tensor but got result of type int"):
        y.backward()
    with (
        graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
        graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass
    with (
        graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        pytest.raises(RuntimeError, match="not here"),
        graph.disable_saved_tensors_hooks("not here"),
    ):
        pass
    assert saved_elements(lambda: x.exp()) == 3
