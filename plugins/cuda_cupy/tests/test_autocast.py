"""Autocast on CUDA does what PyTorch's lists for CUDA say, which differ from the CPU's."""

from __future__ import annotations

import pytest

import coredispatch as cd

F = cd.nn.functional
half, full = cd.float16, cd.float32


def matrix(dtype=full):
    return cd.full((3, 3), 0.5, dtype=dtype, device="cuda")


def vector(dtype=full):
    return cd.full((3,), 0.5, dtype=dtype, device="cuda")


LOWERED = {
    "matmul": lambda: matrix() @ matrix(),
    "mm": lambda: cd.mm(matrix(), matrix()),
    "mv": lambda: cd.mv(matrix(), vector()),
    "addr": lambda: cd.addr(matrix(), vector(), vector()),
    "addmm": lambda: cd.addmm(matrix(), matrix(), matrix()),
    "bmm": lambda: cd.bmm(matrix()[None], matrix()[None]),
    "linear": lambda: F.linear(matrix(), matrix()),
    "conv1d": lambda: F.conv1d(matrix()[None], matrix()[None]),
    "prelu": lambda: F.prelu(matrix(), vector()),
    "einsum": lambda: cd.einsum("ij,jk->ik", matrix(), matrix()),
    "attention": lambda: F.scaled_dot_product_attention(*[matrix()[None, None]] * 3),
}
RAISED = {
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "pow": lambda x: x**2.0,
    "reciprocal": lambda x: x.reciprocal(),
    "rsqrt": lambda x: x.rsqrt(),
    "softplus": F.softplus,
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "sum": lambda x: x.sum(),
    "prod": lambda x: x.prod(),
    "cumsum": lambda x: x.cumsum(0),
    "norm": lambda x: x.norm(),
    "matrix norm": lambda x: cd.linalg.matrix_norm(x),
    "dist": lambda x: cd.dist(x, x + 1),
    "cdist": lambda x: cd.cdist(x, x + 1),
    "renorm": lambda x: cd.renorm(x, 2, 0, 1.0),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "group_norm": lambda x: F.group_norm(x[None], 3),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "l1_loss": lambda x: F.l1_loss(x, x),
    "cross_entropy": lambda x: F.cross_entropy(x, cd.tensor([0, 1, 2], device="cuda")),
    "interpolate": lambda x: F.interpolate(x[None], scale_factor=2.0),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x + 1),
}
WIDEST = {
    "addcmul": lambda a, b: cd.addcmul(a, b, b),
    "addcdiv": lambda a, b: cd.addcdiv(a, b, b),
    "atan2": cd.atan2,
    "cross": lambda a, b: cd.linalg.cross(a, b),
    "dot": lambda a, b: cd.dot(a[0], b[0]),
    "vdot": lambda a, b: cd.vdot(a[0], b[0]),
    "tensordot": lambda a, b: cd.tensordot(a, b, 1),
    "bilinear": lambda a, b: F.bilinear(a, b, a[None]),
    "index_put": lambda a, b: b.index_put((cd.tensor([0], device="cuda"),), a[:1]),
    "scatter_add": lambda a, b: b.scatter_add(0, cd.zeros_like(a, dtype=cd.int64), a),
    "grid_sample": lambda a, b: F.grid_sample(
        a[None, None], b[None, :, :2].reshape(1, 3, 1, 2), align_corners=False
    ),
    "add": lambda a, b: a + b,
    "cat": lambda a, b: cd.cat([a, b]),
}


@pytest.mark.parametrize("name", LOWERED)
def test_products_are_in_half_precision(stand_in, name):
    with cd.autocast("cuda"):
        assert LOWERED[name]().dtype is half
    with cd.autocast("cuda", enabled=False):
        assert LOWERED[name]().dtype is full


@pytest.mark.parametrize("name", RAISED)
def test_what_loses_precision_is_in_float32(stand_in, name):
    with cd.autocast("cuda"):
        assert RAISED[name](matrix(half)).dtype is full


@pytest.mark.parametrize("name", WIDEST)
def test_operands_of_two_precisions_meet_in_the_wider_one(stand_in, name):
    with cd.autocast("cuda"):
        assert WIDEST[name](matrix(half), matrix(full)).dtype is full
        assert WIDEST[name](matrix(half), matrix(half)).dtype is half


def test_what_no_list_names_stays_as_it_is(stand_in):
    with cd.autocast("cuda"):
        for run in (cd.relu, cd.sin, cd.sqrt, lambda x: x.amax(1), lambda x: x.mean(), F.gelu):
            assert run(matrix(half)).dtype is half
        assert (cd.ones(2, 2) @ cd.ones(2, 2)).dtype is full  # of another device


@pytest.mark.parametrize("enabled", [True, False])
def test_functions_of_ones_own_say_what_they_take(stand_in, enabled):
    seen = []

    class Product(cd.autograd.Function):
        @staticmethod
        @cd.amp.custom_fwd(device_type="cuda", cast_inputs=full)
        def forward(ctx, a, b):
            seen.append((a.dtype, cd.is_autocast_enabled("cuda")))
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @cd.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            seen.append((grad.dtype, cd.is_autocast_enabled("cuda")))
            return grad @ b.t(), a.t() @ grad

    a = matrix(half).requires_grad_()
    with cd.autocast("cuda", enabled=enabled):
        out = Product.apply(a, matrix(half))
        out.sum().backward()
    dtype = full if enabled else half
    assert out.dtype is dtype and a.grad.dtype is half
    assert seen == [(dtype, False), (dtype, False)]
