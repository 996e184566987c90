"""The kernels of our own on a real GPU, beside float64 on the CPU; skipped where there is none.

The host runs the same texts in the other tests of kernels. Here it is seen what only a device can
say: that they are launched rightly, and what its conversions, tensor cores and atomics give.
"""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import DTYPES, close

import coredispatch as cd

pytestmark = pytest.mark.gpu
F, ops = cd.nn.functional, cd.ops
#: rows that fill a warp, a block, and many; more of them than a grid has at once
SHAPES = [(3, 33), (65, 1000), (4000, 128), (2, 70_000)]


def agrees(cuda: str, program: Any, *inputs: Any, scale: float = 1.0) -> None:
    """The program on the device gives what float64 on the CPU gives, twice."""
    given = [x.to(cuda) if isinstance(x, cd.Tensor) else x for x in inputs]
    floating = [isinstance(x, cd.Tensor) and x.is_floating_point() for x in inputs]
    wide = [x.double() if is_float else x for x, is_float in zip(inputs, floating, strict=True)]
    own = next(x.dtype for x, is_float in zip(inputs, floating, strict=True) if is_float)
    wanted = program(*wide)
    for _ in range(2):
        got = program(*given)
        for a, b in zip(*(x if isinstance(x, (tuple, list)) else [x] for x in (got, wanted)),
                        strict=True):  # fmt: skip
            assert a.device.type == "cuda"
            cd.testing.assert_close(
                a.cpu().double(), b.double(), equal_nan=True, **close(own, scale)
            )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_and_columns(cuda: str, shape: tuple[int, int], dtype: Any) -> None:
    x, g = cd.randn(shape).to(dtype), cd.randn(shape).to(dtype)
    w, n = cd.randn(shape[1]).to(dtype), shape[1:]
    for dim in (0, 1):
        agrees(cuda, lambda x, d=dim: x.softmax(d), x)
        agrees(cuda, lambda g, y, d=dim: ops.log_softmax_backward(g, y, d), g, x.log_softmax(dim))
        agrees(cuda, lambda x, d=dim: x.cumsum(d), x * 0.1, scale=shape[dim] ** 0.5)
    agrees(cuda, lambda x, w: F.layer_norm(x, n, w, w), x, w)
    agrees(cuda, lambda x, w: F.rms_norm(x, n, w), x, w)
    agrees(
        cuda,
        lambda g, x, w: ops.layer_norm_backward(g, x, n, w, 1e-2),
        g,
        x,
        w,
        scale=shape[0] ** 0.5,
    )
    agrees(cuda, lambda x: F.group_norm(x, 1, eps=1e-2), x)
    agrees(cuda, lambda x, t: F.cross_entropy(x, t), x, cd.randint(0, shape[1], shape[:1]))
    agrees(cuda, lambda x, y: F.mse_loss(x, y), x, g)


@pytest.mark.parametrize("dtype", [cd.float32, cd.float16], ids=str)
@pytest.mark.parametrize("shape", [(7, 33), (32, 64, 28, 28), (2, 3, 100_000)], ids=str)
def test_batch_norm(cuda: str, shape: tuple[int, ...], dtype: Any) -> None:
    x, g, w = cd.randn(shape).to(dtype), cd.randn(shape).to(dtype), cd.rand(shape[1]) + 0.5
    agrees(cuda, lambda x, w: ops.batch_norm_train(x, w, w, 1e-3), x, w)
    agrees(cuda, lambda x, w: ops.batch_norm_inference(x, w, w, w, w, 1e-3), x, w)
    _, mean, var = ops.batch_norm_train(x.float(), None, None, 1e-3)
    agrees(
        cuda,
        lambda g, x, w, m, v: ops.batch_norm_train_backward(g, w, w, x, w, m, v, 1e-3),
        *(g, x, w, mean, var),
        scale=(x.numel() / shape[1]) ** 0.5,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_indices(cuda: str, dtype: Any) -> None:
    table, index = cd.randint(-3, 4, (1000, 96)).to(dtype), cd.randint(0, 1000, (50_000,))
    rows = cd.randint(-1, 2, (50_000, 96)).to(dtype)
    agrees(cuda, lambda t, i: F.embedding(i, t), table, index)
    agrees(cuda, lambda t, i: t[i - 1000], table, index)
    agrees(cuda, lambda t, i, r: t.index_put((i,), r), table, index, rows)
    agrees(cuda, lambda r, i: ops.embedding_backward(r, i, 1000, 7, False), rows, index)
    wide = index.view(-1, 1).expand(50_000, 96)
    agrees(cuda, lambda t, i: cd.gather(t, 0, i), table, wide)
    agrees(cuda, lambda t, i, r: t.scatter_add(0, i, r), table, wide, rows)
    agrees(cuda, lambda t, i, r: t.scatter(0, i, r), table, wide, rows)
    cube, short = table.view(1000, 8, 12), index[:500]
    agrees(cuda, lambda t, i: t[i, :, i % 12], cube, short)
    agrees(cuda, lambda t, i: t[..., i % 8, i % 12], cube, short)
    agrees(cuda, lambda t: t[[0, 999], :, [11, 0]], cube)
    agrees(
        cuda,
        lambda r, i: ops.getitem_backward(r, (i, slice(None), i % 12), (1000, 8, 12)),
        *(rows[:500, :8], short),
    )
    agrees(cuda, lambda t: t.diagonal().diag_embed(), cube[0])


def test_complex_numbers_are_added_at_places_that_repeat(cuda: str) -> None:
    index = cd.randint(0, 50, (5000,))
    rows = cd.complex(cd.randint(-3, 4, (5000, 7)).float(), cd.randint(-3, 4, (5000, 7)).float())
    wanted = cd.zeros(50, 7, dtype=cd.complex64).index_add(0, index, rows)
    there = cd.zeros(50, 7, dtype=cd.complex64, device=cuda)
    added = there.index_put((index.to(cuda),), rows.to(cuda), accumulate=True)
    assert cd.equal(added.cpu(), wanted)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_out_of_bounds_come_with_the_next_wait(cuda: str, dtype: Any) -> None:
    p = cd.full((70_001,), 0.5, dtype=dtype, device=cuda)
    drawn = p.bernoulli()
    assert set(drawn.unique().tolist()) == {0, 1} and abs(drawn.float().mean().item() - 0.5) < 0.02
    p[70_000] = float("nan")
    p.bernoulli()
    with pytest.raises(cd.ArgumentError, match="between 0 and 1, and one is nan"):
        cd.cuda.synchronize()
    cd.normal(p * 0, 1 - 4 * p.nan_to_num(1.0))
    with pytest.raises(cd.ArgumentError, match="one is -[13]"):
        cd.cuda.synchronize()


def test_bad_indices_come_with_the_next_wait(cuda: str) -> None:
    x, bad = cd.ones(4, 3, device=cuda), cd.tensor([0, 9]).to(cuda)
    for op, call in (
        ("gather", lambda: cd.gather(x, 0, bad.view(2, 1))),
        ("index_select", lambda: x.index_select(0, bad)),
        ("embedding", lambda: F.embedding(bad, x)),
        ("cross_entropy", lambda: F.cross_entropy(x[:2], bad)),
    ):
        call()
        with pytest.raises(IndexError, match=rf"{op}.*9 is out of"):
            cd.cuda.synchronize()
    assert (x + 1).sum().item() == 24


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "depth"), [(7, 9, 8), (257, 129, 64), (1000, 1000, 128)]
)
def test_attention(cuda: str, queries: int, keys: int, depth: int, dtype: Any) -> None:
    q, g = (cd.randn(2, 4, queries, depth).to(dtype) for _ in range(2))
    k, v = (cd.randn(2, 2, keys, depth).to(dtype) for _ in range(2))
    mask = cd.rand(queries, keys) > 0.3
    mask[1] = False
    back = ops.attention_backward
    for m, causal in ((None, False), (None, True), (mask, False)):
        agrees(
            cuda, lambda q, k, v, m, c=causal: ops.attention(q, k, v, m, c, None, True), q, k, v, m
        )
        agrees(
            cuda,
            lambda g, q, k, v, m, c=causal: back(g, q, k, v, m, c, None, True),
            *(g, q, k, v, m),
            scale=3.0,
        )


@pytest.mark.parametrize("dtype", [cd.float32, cd.bfloat16], ids=str)
def test_pooling(cuda: str, dtype: Any) -> None:
    x = cd.randn(16, 32, 57, 56).to(dtype)

    def with_gradient(pool: Any) -> Any:
        def program(x: Any) -> Any:
            x = x.detach().requires_grad_()
            out = pool(x)
            out.sum().backward()
            return out.detach(), x.grad

        return program

    for pool in (
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        lambda x: F.adaptive_avg_pool2d(x, 1),
    ):
        agrees(cuda, with_gradient(pool), x)


def test_dropout_is_the_same_function_of_its_seed_as_on_the_host(cuda: str) -> None:
    generator = cd.Generator(cuda).manual_seed(3)
    out, mask = ops.native_dropout(cd.ones(1_000_003, device=cuda), 0.25, generator)
    assert abs(mask.float().mean().item() - 0.75) < 0.002
    cd.testing.assert_close(out.cpu(), mask.cpu().float() / 0.75)
    # Philox 4x32-10 of counter 0 and key 3, found with the definition in test_dropout_kernels.
    from test_dropout_kernels import mask_of

    assert mask.cpu()[:64].tolist() == mask_of(3, 0, 64, 0.25).tolist()


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_optimizers(cuda: str, name: str) -> None:
    results = []
    for device in ("cpu", cuda):
        cd.manual_seed(0)
        model = cd.nn.Sequential(cd.nn.Linear(64, 200), cd.nn.ReLU(), cd.nn.Linear(200, 8))
        x = cd.randn(32, 64)
        model, x = model.to(device), x.to(device)
        optimizer = getattr(cd.optim, name)(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        results.append([p.detach().cpu() for p in model.parameters()])
    for got, wanted in zip(*results, strict=True):
        cd.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [*DTYPES, cd.int64, cd.int32, cd.uint8, cd.bool], ids=str)
@pytest.mark.parametrize("shape", [(3000, 60), (300, 3000), (2, 1_000_003)], ids=str)
def test_order(cuda: str, shape: tuple[int, int], dtype: Any) -> None:
    x = (cd.randn(shape) * 50 if dtype.is_floating_point else cd.randint(0, 90, shape)).to(dtype)
    if dtype.is_floating_point:
        x[:, 7], x[:, 11] = float("nan"), -float("inf")
    given = x.to(cuda)
    for dim in (0, 1):
        for descending in (False, True):
            for program in (
                lambda x, a=dim, d=descending: x.sort(a, d),
                lambda x, a=dim, d=descending: x.topk(2, a, d),
                lambda x, a=dim: x.cummax(a),
            ):
                for got, wanted in zip(program(given), program(x), strict=True):
                    cd.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0, equal_nan=True)
    for got, wanted in zip(given.topk(700), x.topk(700), strict=True) if shape[1] > 700 else ():
        cd.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0, equal_nan=True)
    if not dtype.is_floating_point:
        found, expected = (
            cd.unique(y, return_inverse=True, return_counts=True) for y in (given, x)
        )
        for got, wanted in zip(found, expected, strict=True):
            cd.testing.assert_close(got.cpu(), wanted)


def test_long_scans(cuda: str) -> None:
    x = cd.randn(2, 3_000_001)
    agrees(cuda, lambda x: x.cumsum(1), x, scale=1e3)
    agrees(cuda, lambda x: x.logcumsumexp(1), x)
    agrees(cuda, lambda x: x.cumsum(0), x.t(), scale=1e3)
    agrees(cuda, lambda x: x.cummin(1), x)


EIGHT_BITS = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split()


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_8_bit_floats_are_converted_and_moved(cuda, name):
    dtype = getattr(cd, name)
    x = cd.arange(2**16, dtype=cd.int32).to(cd.int16).view(cd.float16).reshape(256, 256)
    mine, exact = x.to(cuda).to(dtype), x.to(dtype)
    assert cd.equal(mine.cpu().view(cd.uint8), exact.view(cd.uint8))
    cd.testing.assert_close(mine.float().cpu(), exact.float(), rtol=0, atol=0, equal_nan=True)
    index = cd.tensor([5, 0, 255])
    for move in (
        lambda t, i: t.t().contiguous(),
        lambda t, i: t[i],
        lambda t, i: cd.cat([t, t[:3]]),
        lambda t, i: t.flip(0)[::2, 1:],
        lambda t, i: t.index_put((i,), t[:3]),
    ):
        found = move(mine, index.to(cuda)).contiguous().cpu()
        assert cd.equal(found.view(cd.uint8), move(exact, index).contiguous().view(cd.uint8))


@pytest.mark.parametrize("out", [cd.float32, cd.bfloat16, cd.float16, cd.float8_e5m2], ids=str)
def test_products_of_8_bit_floats(cuda, out):
    a = cd.randn(64, 256).to(cd.float8_e4m3fn)
    b = cd.randn(48, 256).to(cd.float8_e4m3fn).t()
    scalings = [
        (cd.tensor(0.5), cd.tensor(0.25), None),
        (cd.rand(64, 1), cd.rand(1, 48), cd.randn(48).bfloat16()),
    ]
    near = 2**-2 if out.itemsize == 1 else 2**-7
    for given in scalings:
        there = [None if x is None else x.to(cuda) for x in given]
        for fast in (False, True):
            found = cd._scaled_mm(
                a.to(cuda), b.to(cuda), *there, out_dtype=out, use_fast_accum=fast
            )
            wanted = cd._scaled_mm(a, b, *given, out_dtype=out)
            cd.testing.assert_close(found.float().cpu(), wanted.float(), rtol=near, atol=0.1)
