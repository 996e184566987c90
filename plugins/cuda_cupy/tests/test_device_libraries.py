"""cuBLASLt, cuDNN and cuSPARSE on a real GPU, beside the CPU; skipped where there is none.

Stand-ins check the arguments in other tests. Here it is seen whether the libraries take them, and
what they give. A test says so when the library is not found: what is computed then is CuPy's.
"""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import close
from test_device_kernels import agrees

import coredispatch as cd

pytestmark = pytest.mark.gpu
F, ops = cd.nn.functional, cd.ops
DTYPES = [cd.float32, cd.float16, cd.bfloat16]


@pytest.fixture
def cublaslt(cuda: str) -> Any:
    """The library; the test is skipped without it."""
    import coredispatch_cuda_cupy as plugin
    from coredispatch_cuda_cupy import cublaslt

    found = cublaslt.library(plugin.detect().cupy)
    if found is None:
        pytest.skip("libcublasLt is not found")
    return found


@pytest.fixture
def cudnn(cuda: str) -> int:
    """The version of cuDNN; the test is skipped without it."""
    version = cd.backends.cudnn.version()
    if version is None:
        pytest.skip("cuDNN or nvidia-cudnn-frontend is not installed")
    return version


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [(7, 24, 40), (512, 1024, 768), (33, 17, 9)], ids=str)
def test_linear_and_sums(cuda: str, cublaslt: Any, size: Any, dtype: Any) -> None:
    rows, depth, columns = size
    x, w = cd.randn(rows, depth).to(dtype), cd.randn(columns, depth).to(dtype)
    b, c = cd.randn(columns).to(dtype), cd.randn(rows, columns).to(dtype)
    scale = depth**0.5
    agrees(cuda, lambda x, w, b: F.linear(x, w, b), x, w, b, scale=scale)
    agrees(cuda, lambda c, x, w: cd.addmm(c, x, w.t(), beta=0.5), c, x, w, scale=scale)
    agrees(cuda, lambda b, x, w: cd.addmm(b, x, w.t()), b, x, w, scale=scale)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_many_products(cuda: str, cublaslt: Any, dtype: Any) -> None:
    a, b = cd.randn(3, 4, 65, 72).to(dtype), cd.randn(3, 4, 56, 72).to(dtype)
    agrees(cuda, lambda a, b: a @ b.mT, a, b, scale=9)
    agrees(cuda, lambda a, b: a @ b[0, 0].mT, a, b, scale=9)
    agrees(cuda, lambda a, b: a[:1, :, :, ::2] @ b[..., ::2].mT, a, b, scale=9)
    c = cd.randn(4, 65, 56).to(dtype)
    agrees(cuda, lambda c, a, b: cd.baddbmm(c, a[0], b[0].mT), c, a, b, scale=9)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_epilogues_of_compiled_programs(cuda: str, cublaslt: Any, dtype: Any) -> None:
    x, w, b = (cd.randn(s).to(dtype) for s in ((256, 128), (512, 128), (512,)))
    g, h = cd.randn(256, 512).to(dtype), cd.randn(256, 128).to(dtype)

    def pair(x: Any, w: Any, b: Any) -> Any:
        before = F.linear(x, w, b)
        return F.gelu(before, approximate="tanh"), before

    def slope(g: Any, w: Any, h: Any) -> Any:
        found = ops.gelu_backward(g.matmul(w), h, "tanh")
        return found, found.sum(0)

    for program, given in (
        (lambda x, w, b: F.linear(x, w, b).relu(), (x, w, b)),
        (pair, (x, w, b)),
        (slope, (g, w, h)),
        (lambda g, x: (ops.linear_weight_grad(g, x), g.sum(0)), (g, x)),
    ):
        fast = cd.compile(program, backend="cuda")
        wanted = program(*[y.double() for y in given])
        got = fast(*[y.to(cuda) for y in given])
        for a, exact in zip(*(y if isinstance(y, tuple) else (y,) for y in (got, wanted)),
                            strict=True):  # fmt: skip
            cd.testing.assert_close(a.cpu().double(), exact, **close(dtype, 24))


@pytest.mark.parametrize("dtype", [cd.uint8, cd.int8], ids=str)
def test_bytes(cuda: str, dtype: Any) -> None:
    from test_quantized_kernels import channels, drawn, ending

    x, w = drawn(dtype, 300, 500), drawn(cd.int8, 130, 500)
    given = (x, w, *channels(130, 500, cd.int8))
    wanted = ops.requantized_linear(*given, *ending(dtype))
    got = ops.requantized_linear(*[y.to(cuda) for y in given], *ending(dtype))
    cd.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0)
    for groups, outputs in ((1, 40), (2, 40), (16, 16)):
        image, kernel = drawn(dtype, 4, 16, 15, 14), drawn(cd.int8, outputs, 16 // groups, 3, 3)
        given = (image, kernel, *channels(outputs, kernel[0].numel(), cd.int8))
        options = (*ending(dtype), (2, 1), (1, 1), (1, 1), groups)
        wanted = ops.requantized_conv2d(*given, *options)
        got = ops.requantized_conv2d(*[y.to(cuda) for y in given], *options)
        cd.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("benchmark", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_convolutions(cuda: str, cudnn: int, last: bool, dtype: Any, benchmark: bool) -> None:
    from test_cudnn_rows import with_gradients

    layout = cd.channels_last if last else cd.contiguous_format
    for options, inner in (({"padding": 1}, 16), ({"stride": 2, "groups": 4}, 4)):
        x, w = cd.randn(4, 16, 29, 31).to(dtype), cd.randn(32, inner, 3, 3).to(dtype)
        program = with_gradients(
            lambda x, w, o=options: F.conv2d(x.to(memory_format=layout), w, **o)
        )
        with cd.backends.cudnn.flags(enabled=True, benchmark=benchmark, allow_tf32=False):
            agrees(cuda, program, x, w, scale=30)


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(cuda: str, cudnn: int, causal: bool, dtype: Any) -> None:
    from test_cudnn_rows import with_gradients

    q = cd.randn(2, 4, 257, 64).to(dtype)
    k, v = (cd.randn(2, 2, 257, 64).to(dtype) for _ in range(2))
    program = with_gradients(lambda q, k, v: ops.attention(q, k, v, None, causal, None, True))
    agrees(cuda, program, q, k, v, scale=3)


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16], ids=str)
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("shape", [(257, 130), (2, 1, 1, 130), (2, 4, 257, 130)], ids=str)
def test_attention_with_masks(
    cuda: str, cudnn: int, shape: Any, additive: bool, dtype: Any
) -> None:
    from test_cudnn_rows import with_gradients

    q = cd.randn(2, 4, 257, 64).to(dtype)
    k, v = (cd.randn(2, 2, 130, 64).to(dtype) for _ in range(2))
    mask = cd.rand(shape) > 0.4
    mask[..., 0] = True
    if shape[-2] > 1:
        mask[..., 3, :] = False  # a query to which no key belongs
    if additive:
        mask = cd.where(mask, cd.randn(shape), float("-inf")).to(dtype)

    def attended(q: Any, k: Any, v: Any) -> Any:
        kept = mask.to(q.dtype) if additive else mask
        return ops.attention(q, k, v, kept.to(q.device), False, None, True)

    agrees(cuda, with_gradients(attended), q, k, v, scale=3)


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16], ids=str)
def test_batch_norm(cuda: str, cudnn: int, dtype: Any) -> None:
    x, w, b = (cd.randn(8, 32, 29, 31) * 2 + 1).to(dtype), cd.rand(32) + 0.5, cd.randn(32)

    def program(x: Any, w: Any, b: Any) -> Any:
        x = x.to(memory_format=cd.channels_last)
        return ops.batch_norm_train(x, w, b, 1e-3)

    agrees(cuda, program, x, w, b)


# cuSPARSE takes the first two, the last is left to core operators.
@pytest.mark.parametrize("dtype", [cd.float32, cd.complex64, cd.float16], ids=str)
def test_sparse_matrices(cuda: str, dtype: Any) -> None:
    pytest.importorskip("coredispatch_sparse")

    def thin(*shape: int) -> Any:
        return cd.where(cd.rand(shape) < 0.2, cd.randn(shape), 0.0).to(dtype)

    a, b, factor = thin(70, 130), thin(70, 130), cd.randn(130, 9).to(dtype)

    def program(a: Any, b: Any, factor: Any) -> Any:
        one, other = a.to_sparse_csr(), b.to_sparse()
        parts = one.crow_indices(), one.col_indices(), one.values()
        again = cd.sparse_csr_tensor(*parts, size=one.shape)
        assert one.device.type == again.device.type == factor.device.type
        total = one + other
        return (
            again.to_dense(),
            total.to_dense(),
            one @ factor,
            factor.mT @ total.mT,
            one.mT.to_dense(),
        )

    for found, wanted in zip(
        program(*(x.to(cuda) for x in (a, b, factor))), program(a, b, factor), strict=True
    ):
        cd.testing.assert_close(found.cpu(), wanted, **close(dtype, 10.0))


def test_quantized_tensors(cuda: str) -> None:
    pytest.importorskip("coredispatch_quant")
    from test_quantized_rows import activations, quant, same, weights

    x, w, bias = activations(quant.quint8, 2, 3, 64), weights(True, 9, 64), cd.randn(9)
    same(lambda x, w, b: quant.quantized_linear(x, w, b, 0.1, 7, relu=True), x, w, bias)
    image, filters = activations(quant.quint8, 2, 4, 6, 5), weights(True, 8, 4, 3, 3)
    same(lambda x, w: quant.quantized_conv2d(x, w, None, 0.2, 90, 2, 1), image, filters)
