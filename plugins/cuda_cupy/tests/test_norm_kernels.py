"""layer, rms, group and batch norm with their gradients on the host, beside float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import DTYPES, LENGTHS, close

import coredispatch as cd

F = cd.nn.functional
pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]


@pytest.mark.parametrize(("length", "dtype"), LENGTHS, ids=str)
def test_layer_and_rms_norm(on_host: Any, length: int, dtype: Any) -> None:
    x, g = (cd.randn(35, length) + 2).to(dtype), cd.randn(35, length).to(dtype)
    w, b, o = cd.randn(length).to(dtype), cd.randn(length).to(dtype), cd.ops
    near, shape = close(dtype, 1 + length**0.5), (length,)
    on_host(lambda x, w, b: o.layer_norm(x, shape, w, b, 1e-3), x, w, b, **near)
    on_host(lambda x, w: o.rms_norm(x, shape, w, 1e-3), x, w, **near)
    on_host(
        lambda g, x, w: o.layer_norm_backward(g, x, shape, w, 1e-1), g, x, w, launches=3, **near
    )
    on_host(lambda g, x, w: o.rms_norm_backward(g, x, shape, w, 1e-1), g, x, w, launches=3, **near)


def test_layer_norm_over_several_dimensions_without_parameters_and_of_views(on_host: Any) -> None:
    x = cd.randn(8, 6, 3, 5)
    on_host(lambda x: F.layer_norm(x, (3, 5)), x)
    on_host(lambda x: F.layer_norm(x, (3, 8)), x.permute(3, 1, 2, 0)[1:, ::2])
    on_host(lambda x: F.rms_norm(x, (5,)), x[:, :, 1])
    on_host(lambda x: F.rms_norm(x, (5,)), x.double())
    on_host(lambda x: F.layer_norm(x, (1,)), cd.randn(4, 1))
    on_host(lambda x: F.layer_norm(x, (3,)), cd.zeros(0, 3), launches=0)
    odd = cd.tensor([[float("nan"), 1, 2], [float("inf"), 0, 1], [3.0, 3, 3]])
    on_host(lambda x: F.layer_norm(x, (3,)), odd)
    on_host(lambda x: F.rms_norm(x, (3,)), odd)
    many = cd.randn(3000, 2)
    on_host(
        lambda g, x: cd.ops.layer_norm_backward(g, x, (2,), None, 1e-3),
        many,
        cd.randn(3000, 2),
        launches=3,
        **close(cd.float32, 30),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 6, 5, 7), (3, 4), (1, 4, 300), (2, 2, 1)])
def test_group_norm(on_host: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x, g = (cd.randn(shape) + 1).to(dtype), cd.randn(shape).to(dtype)
    w, b = cd.randn(shape[1]).to(dtype), cd.randn(shape[1]).to(dtype)
    for groups in {1, 2, shape[1]}:
        on_host(lambda x, w, b, n=groups: F.group_norm(x, n, w, b, 1e-2), x, w, b, **close(dtype))
        on_host(
            lambda g, x, w, n=groups: cd.ops.group_norm_backward(g, x, n, w, 1e-1),
            *(g, x, w),
            launches=2,
            **close(dtype, 10),
        )


SHAPES = [(5, 33), (2, 4), (3, 5, 7), (2, 3, 6, 7), (2, 3, 300), (40, 2, 1), (1, 2, 1025)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm(on_host: Any, shape: tuple[int, ...], dtype: Any) -> None:
    x, g, o = (cd.randn(shape) + 1).to(dtype), cd.randn(shape).to(dtype), cd.ops
    wide = dtype if dtype in (cd.float32, cd.float64) else cd.float32
    w, b, m, v = (cd.rand(shape[1]).to(wide) + 0.5 for _ in range(4))
    near = close(dtype, 2)
    own = dtype if wide is dtype else wide
    x64 = x.double()
    for weight, bias in ((w, b), (None, None)):
        on_host(
            lambda x, w, b: o.batch_norm_train(x, w, b, 1e-2), x, weight, bias, launches=2, **near
        )
        on_host(
            lambda x, m, v, w, b: o.batch_norm_inference(x, m, v, w, b, 1e-2),
            *(x, m, v, weight, bias),
            **near,
        )
        _, mean, var = o.batch_norm_train(x64, None, None, 1e-2)
        on_host(
            lambda g, gm, gv, x, w, m, v: o.batch_norm_train_backward(g, gm, gv, x, w, m, v, 1e-2),
            *(g, m, v, x, weight, mean.to(own), var.to(own)),
            launches=2,
            **close(dtype, 20),
        )


def test_modules_train_and_their_gradients_take_the_kernels(on_host: Any) -> None:
    cd.manual_seed(0)
    model = cd.nn.Sequential(
        cd.nn.BatchNorm1d(6), cd.nn.Linear(6, 8), cd.nn.LayerNorm(8), cd.nn.GroupNorm(2, 8)
    )
    x, results = cd.randn(12, 6), []
    for device in ("cpu", "cuda"):
        made = cd.nn.Sequential(*model).to(device)
        made.zero_grad()
        before = on_host.library.launches
        made(x.to(device)).square().mean().backward()
        results.append([p.grad.cpu().clone() for p in made.parameters()])
        assert (on_host.library.launches - before >= 11) == (device == "cuda")
    for got, wanted in zip(*results, strict=True):
        cd.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


def test_wrong_shapes_are_refused_as_before(on_host: Any) -> None:
    x = cd.ones(2, 3, device="cuda")
    for call in (
        lambda: F.layer_norm(x, (2,)),
        lambda: F.layer_norm(x, (3,), cd.ones(2, device="cuda")),
        lambda: F.group_norm(x, 2),
        lambda: F.batch_norm(x[:1], None, None, training=True),
        lambda: F.batch_norm(x, cd.ones(2, device="cuda"), cd.ones(3, device="cuda")),
    ):
        with pytest.raises((cd.ShapeError, cd.OpError, ValueError)):
            call()
