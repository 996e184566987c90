"""Convolutions by cuDNN: what is asked of its frontend, over a stand-in that checks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cudnn_stand_in
import pytest
from kernel_fixtures import close

import coredispatch as cd

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
F, attend = cd.nn.functional, cd.ops.attention
DTYPES = [cd.float32, cd.float64, cd.float16, cd.bfloat16]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": 2, "dilation": 2},
    {"groups": 2, "padding": (1, 0)},
    {"groups": 4},
]


@pytest.fixture
def dnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[cudnn_stand_in.Frontend]:
    """The frontend, found when the kernels are registered: before ``on_host``."""
    yield from cudnn_stand_in.installed(monkeypatch)


def calls(dnn: Any) -> list[str]:
    """The operations so far; they are forgotten."""
    found = [name for name, *_ in dnn.calls]
    dnn.calls.clear()
    return found


def with_gradients(program: Any, *shapes: Any) -> Any:
    """The result and the gradients of the program's arguments."""

    def run(*given: Any) -> Any:
        given = tuple(x.detach().clone().requires_grad_() for x in given)
        out = program(*given)
        grad = cd.linspace(-1, 1, out.numel(), dtype=cd.float32).reshape(out.shape)
        out.backward(grad.to(out.dtype).to(out.device))
        return [out.detach(), *(x.grad for x in given)]

    return run


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_two_dimensions(dnn, on_host, options, dtype):
    x = cd.randn(2, 4, 9, 7).to(dtype)
    w = cd.randn(8, 4 // options.get("groups", 1), 3, 3).to(dtype)
    program = with_gradients(lambda x, w: F.conv2d(x, w, **options))
    on_host(program, x, w, launches=None, meta=False, **close(dtype, 8))
    assert calls(dnn) == ["conv_fprop", "conv_dgrad", "conv_wgrad"]


def test_a_bias_is_added(dnn, on_host):
    x, w, b = cd.randn(2, 4, 9, 7), cd.randn(8, 4, 3, 3), cd.randn(8)
    on_host(lambda x, w, b: F.conv2d(x, w, b), x, w, b, launches=0, **close(cd.float32, 8))
    assert calls(dnn) == ["conv_fprop"]


@pytest.mark.parametrize("n", [1, 3])
def test_other_numbers_of_dimensions(dnn, on_host, n):
    convolve = {1: F.conv1d, 3: F.conv3d}[n]
    x, w = cd.randn(2, 4, *(7, 6, 5)[:n]), cd.randn(6, 4, *(3, 2, 3)[:n])
    program = with_gradients(lambda x, w: convolve(x, w, stride=2, padding=1))
    on_host(program, x, w, launches=None, meta=False, **close(cd.float32, 8))
    assert calls(dnn) == ["conv_fprop", "conv_dgrad", "conv_wgrad"]


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "output_padding": 1}, {"groups": 2}], ids=str
)
def test_transposed_convolutions_are_gradients(dnn, on_host, options):
    x, w = cd.randn(2, 4, 5, 6), cd.randn(4, 3, 3, 3)
    program = with_gradients(lambda x, w: F.conv_transpose2d(x, w, **options))
    on_host(program, x, w, launches=None, meta=False, **close(cd.float32, 8))
    assert calls(dnn) == ["conv_dgrad", "conv_fprop", "conv_wgrad"]


def test_channels_last_are_read_where_they_lie(dnn, on_host):
    x = cd.randn(2, 4, 9, 7).to(memory_format=cd.channels_last)
    w = cd.randn(8, 4, 3, 3)
    out = F.conv2d(x.to("cuda").to(memory_format=cd.channels_last), w.to("cuda"), padding=1)
    cd.testing.assert_close(out.cpu(), F.conv2d(x, w, padding=1), **close(cd.float32, 8))
    assert out.is_contiguous(memory_format=cd.channels_last)
    assert calls(dnn) == ["conv_fprop"]


def test_a_graph_is_planned_once_for_shapes_and_layouts(dnn, on_host):
    x, w = cd.randn(2, 4, 9, 7).to("cuda"), cd.randn(8, 4, 3, 3).to("cuda")
    for _ in range(3):
        F.conv2d(x, w)
    assert dnn.graphs == 1
    F.conv2d(x, w, padding=1)
    F.conv2d(x.half(), w.half())
    assert dnn.graphs == 3


def test_settings_act(dnn, on_host):
    x, w = cd.randn(2, 4, 9, 7).to("cuda"), cd.randn(8, 4, 3, 3).to("cuda")
    flags = cd.backends.cudnn.flags
    with flags(enabled=False):
        F.conv2d(x, w)
    assert dnn.calls == []
    with flags(enabled=True, deterministic=True, allow_tf32=False):
        F.conv2d(x, w)
        F.conv2d(x.half(), w.half())
    unwanted = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")
    assert dnn.calls == [
        ("conv_fprop", None, ("NONDETERMINISTIC", *unwanted)),
        ("conv_fprop", None, ("NONDETERMINISTIC",)),
    ]


def test_plans_are_timed_under_benchmark(dnn, on_host):
    x, w = cd.randn(2, 4, 9, 7).to("cuda"), cd.randn(8, 4, 3, 3).to("cuda")
    with cd.backends.cudnn.flags(enabled=True, benchmark=True, benchmark_limit=2):
        F.conv2d(x, w)
        tried = {index for _, index, _ in dnn.calls}
        assert tried == {
            0,
            2,
        }  # of four plans the second cannot be built, the last is past the limit
        before = len(dnn.calls)
        cd.testing.assert_close(F.conv2d(x, w).cpu(), F.conv2d(x.cpu(), w.cpu()))
        assert len(dnn.calls) == before + 1
        assert dnn.calls[-1][1] in tried
    F.conv2d(x, w)
    assert dnn.calls[-1][1] is None


def test_a_device_without_memory_for_a_workspace_is_no_refusal(dnn, on_host, stand_in):
    x, w = cd.randn(2, 4, 9, 7).to("cuda"), cd.randn(8, 4, 3, 3).to("cuda")
    F.conv2d(x, w)
    calls(dnn)

    def exhausted(size: int) -> Any:
        raise cd.OutOfMemoryError("CUDA out of memory")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stand_in.cupy.cuda, "alloc", exhausted)
        with pytest.raises(cd.OutOfMemoryError):
            F.conv2d(x, w)
    F.conv2d(x, w)
    assert calls(dnn) == ["conv_fprop"]


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[cudnn_stand_in.Frontend]:
    """A cuDNN that supports no gradient of a weight."""
    yield from cudnn_stand_in.installed(monkeypatch, refuses=("conv_wgrad",))


def test_what_cudnn_does_not_support_is_a_product_as_before(refusing, on_host):
    x, w = cd.randn(2, 4, 9, 7), cd.randn(8, 4, 3, 3)
    program = with_gradients(lambda x, w: F.conv2d(x, w))
    for _ in range(2):
        on_host(program, x, w, launches=None, meta=False, **close(cd.float32, 8))
    assert calls(refusing) == ["conv_fprop", "conv_dgrad"] * 2
    assert refusing.graphs == 3


def test_what_does_not_fit_is_refused_with_the_reason(dnn, on_host):
    x = cd.randn(2, 4, 9, 7).to("cuda")
    with pytest.raises(cd.ShapeError):
        F.conv2d(x, cd.randn(8, 3, 3, 3).to("cuda"))
    with pytest.raises(RuntimeError):
        F.conv2d(x, cd.randn(8, 4, 11, 3).to("cuda"))
    assert dnn.calls == []


def test_explain_shows_both_ways(dnn, on_host):
    x, w = cd.randn(2, 4, 9, 7).to("cuda"), cd.randn(8, 4, 3, 3).to("cuda")
    args = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    text = str(cd.explain("convolution", x, w, *args))
    assert "convolution.py" in text
    assert "cuda_kernels" in text and "cuda_stand_in" in text


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)], ids=str)
def test_attention(dnn, on_host, heads, causal, dtype):
    q, k, v = (cd.randn(2, n, 7, 16).to(dtype) for n in (heads[0], heads[1], heads[1]))
    grouped = heads[0] != heads[1]
    program = with_gradients(lambda q, k, v: attend(q, k, v, None, causal, None, grouped))
    on_host(program, q, k, v, launches=None, meta=False, **close(dtype, 3))
    assert calls(dnn) == ["sdpa", "sdpa", "sdpa_backward"]


def test_attention_reads_heads_where_they_lie(dnn, on_host):
    q, k, v = (cd.randn(2, 7, 4, 16).half() for _ in range(3))

    def program(q: Any, k: Any, v: Any) -> Any:
        return attend(*(x.transpose(1, 2) for x in (q, k, v)), None, False, 0.3)

    on_host(program, q, k, v, launches=0, **close(cd.float16, 3))
    assert calls(dnn) == ["sdpa"]
    on_host(lambda q: attend(q[0], q[0], q[0]), q, launches=0, **close(cd.float16, 3))
    assert calls(dnn) == ["sdpa"]


MASKS = [(7, 9), (2, 1, 1, 9), (1, 4, 7, 9), (2, 4, 7, 9), (9,)]


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16], ids=str)
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_attention_with_masks(dnn, on_host, shape, additive, dtype):
    q, k, v = cd.randn(2, 4, 7, 16).to(dtype), *(cd.randn(2, 2, 9, 16).to(dtype) for _ in "kv")
    mask = cd.rand(shape) > 0.4
    mask[..., 0] = True
    if shape[-2:] == (7, 9):
        mask[..., 3, :] = False  # a query to which no key belongs
    if additive:
        mask = cd.where(mask, cd.randn(shape), float("-inf")).to(dtype)

    def attended(q: Any, k: Any, v: Any) -> Any:
        return attend(
            q, k, v, mask.to(q.device).to(q.dtype if additive else cd.bool), False, None, True
        )

    program = with_gradients(attended)
    out = on_host(program, q, k, v, launches=None, meta=False, **close(dtype, 3))[0]
    assert calls(dnn) == ["sdpa", "sdpa", "sdpa_backward"]
    if shape[-2:] == (7, 9):
        assert (out[..., 3, :] == 0).all()


def test_attention_that_cudnn_is_not_asked_for(dnn, on_host):
    q = cd.randn(2, 4, 7, 16).half()
    mask = cd.randn(7, 7)
    on_host(lambda q, m: attend(q, q, q, m), q, mask, launches=None, **close(cd.half, 3))
    on_host(lambda q: attend(q, q, q), q.float(), launches=None, **close(cd.float32, 3))
    narrow = q[..., :9]
    on_host(lambda q: attend(q, q, q), narrow, launches=None, **close(cd.half, 3))
    cd.backends.cuda.enable_cudnn_sdp(False)
    try:
        on_host(lambda q: attend(q, q, q), q, launches=1, **close(cd.half, 3))
    finally:
        cd.backends.cuda.enable_cudnn_sdp(True)
    assert calls(dnn) == []
    text = str(cd.explain("attention", *[q.to("cuda")] * 3, None, False, None, False))
    assert "sdpa.py" in text and "attention.py" in text


def test_questions_about_cudnn_are_answered(dnn, on_host):
    cudnn = cd.backends.cudnn
    assert cudnn.version() == 91000 and cudnn.is_available()
    assert cudnn.is_acceptable(cd.ones(2, device="cuda"))
    assert not cudnn.is_acceptable(cd.ones(2))


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16], ids=str)
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_of_images_with_channels_last(dnn, on_host, affine, dtype):
    x = (cd.randn(3, 8, 5, 4) * 2 + 1).to(dtype)
    w, b = cd.rand(8) + 0.5, cd.randn(8)

    def program(x: Any, w: Any, b: Any) -> Any:
        x = x.to(memory_format=cd.channels_last)
        parameters = (w, b) if affine else (None, None)
        return F.batch_norm(x, None, None, *parameters, training=True, eps=1e-3)

    run = with_gradients(program) if affine else program
    on_host(run, x, w, b, launches=None, meta=False, **close(dtype, 4))
    assert calls(dnn) == ["batchnorm"]  # gradients are the kernels of our own


def test_statistics_of_batch_norm(dnn, on_host):
    x = (cd.randn(3, 8, 5, 4) * 2 + 1).half().to(memory_format=cd.channels_last)
    given = x.to("cuda").to(memory_format=cd.channels_last)
    out, mean, var = cd.ops.batch_norm_train(given, None, None, 1e-3)
    assert calls(dnn) == ["batchnorm"]
    wide = x.double()
    cd.testing.assert_close(mean.cpu(), wide.mean((0, 2, 3)).float(), rtol=1e-5, atol=1e-5)
    cd.testing.assert_close(
        var.cpu(), wide.var((0, 2, 3), correction=0).float(), rtol=1e-5, atol=1e-5
    )
    assert out.is_contiguous(memory_format=cd.channels_last)


def test_batch_norm_that_cudnn_is_not_asked_for(dnn, on_host):
    x, last = cd.randn(3, 8, 5, 4), cd.channels_last
    for given in (x, x.half(), x.to(memory_format=last), x[:, :6].half().to(memory_format=last)):
        cd.ops.batch_norm_train(given.to("cuda"), None, None, 1e-3)
    assert calls(dnn) == []
