"""Products by cuBLASLt: what is asked of the library, over a stand-in that checks it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cublaslt_stand_in as stand_in_library
import pytest
from kernel_fixtures import close

import coredispatch as cd

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
F = cd.nn.functional
DTYPES = [cd.float32, cd.float64, cd.float16, cd.bfloat16]
BIAS = stand_in_library.BIAS


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch) -> Iterator[stand_in_library.CublasLt]:
    """The library, found when the kernels are registered: before ``on_host``."""
    yield from stand_in_library.installed(monkeypatch)


def epilogues(lt: Any) -> list[int]:
    """What the calls so far asked for; they are forgotten."""
    found = [call["epilogue"] for call in lt.calls]
    lt.calls.clear()
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(7, 24), (2, 5, 24), (1, 24), (24,)], ids=str)
def test_linear_adds_its_bias_in_the_product(lt, on_host, shape, dtype):
    x, w, b = cd.randn(shape).to(dtype), cd.randn(40, 24).to(dtype), cd.randn(40).to(dtype)
    if len(shape) > 1:
        on_host(F.linear, x, w, b, launches=0, **close(dtype, 5))
        assert epilogues(lt) == [BIAS]
    turned = cd.randn(24, 40).to(dtype)
    on_host(lambda x, w, b: F.linear(x, w.t(), b), x, turned, b, launches=0, **close(dtype, 5))
    on_host(lambda x, w: F.linear(x, w), x, w, launches=0, **close(dtype, 5))


@pytest.mark.parametrize("dtype", [*DTYPES, cd.complex64], ids=str)
def test_many_products_read_matrices_where_they_lie(lt, on_host, dtype):
    a, b = cd.randn(2, 3, 5, 8, dtype=cd.float32), cd.randn(2, 3, 8, 6, dtype=cd.float32)
    a, b = a.to(dtype), b.to(dtype)
    near = close(dtype if dtype in DTYPES else cd.float32, 5)
    programs = (
        lambda a, b: a @ b,
        lambda a, b: a @ b.mT.contiguous().mT,
        lambda a, b: a.mT.contiguous().mT @ b,
        lambda a, b: a @ b[0, 0],
        lambda a, b: a[:1] @ b,
        lambda a, b: a[0, 0] @ b,
        lambda a, b: a[:, :, :, :6] @ b[:, :, :6, :4],
        lambda a, b: a[:, :1] @ b[:1],
        lambda a, b: a.transpose(0, 1).contiguous().transpose(0, 1) @ b,
        lambda a, b: a[..., ::2] @ b[..., ::2, :],
        lambda a, b: a[:1, :1, :, ::2] @ b[..., ::2, :],
        lambda a, b: a.expand(2, 3, 5, 8) @ b.reshape(6, 8, 6)[:3],
    )
    for number, program in enumerate(programs):
        lt.calls.clear()
        on_host(program, a, b, launches=0, **near)
        assert [call["epilogue"] for call in lt.calls] == [1], number


def test_products_of_two_matrices_are_cupy_s(lt, on_host):
    a, b = cd.randn(5, 8), cd.randn(8, 6)
    on_host(lambda a, b: a @ b, a, b, launches=0, **close(cd.float32, 5))
    assert lt.calls == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_with_products(lt, on_host, dtype):
    a, b = cd.randn(5, 8).to(dtype), cd.randn(8, 6).to(dtype)
    near = {"launches": 0, **close(dtype, 5)}
    for c in (cd.randn(5, 6).to(dtype), cd.randn(5, 1).to(dtype), cd.randn(6).to(dtype)):
        on_host(lambda c, a, b: cd.addmm(c, a, b), c, a, b, **near)
        on_host(lambda c, a, b: cd.addmm(c, a, b, beta=0.5, alpha=2), c, a, b, **near)
        expected = [BIAS, 1] if c.ndim == 1 else [1, 1]
        assert epilogues(lt) == expected
    nothing = cd.full((5, 6), float("nan")).to(dtype)
    on_host(lambda c, a, b: cd.addmm(c, a, b, beta=0), nothing, a, b, **near)
    c, many = cd.randn(3, 5, 6).to(dtype), cd.randn(3, 5, 8).to(dtype)
    others = cd.randn(3, 8, 6).to(dtype)
    on_host(lambda c, a, b: cd.baddbmm(c, a, b, beta=2), c, many, others, **near)
    assert lt.calls[-1]["batch"] == 3


def test_tf32_is_asked_for_where_it_is_allowed(lt, on_host):
    x, w, b = cd.randn(4, 8).to("cuda"), cd.randn(8, 8).to("cuda"), cd.randn(8).to("cuda")
    F.linear(x, w, b)
    before = cd.get_float32_matmul_precision()
    cd.set_float32_matmul_precision("high")
    try:
        F.linear(x, w, b)
        F.linear(x.half(), w.half(), b.half())
    finally:
        cd.set_float32_matmul_precision(before)
    F.linear(x, w, b)
    assert [call["types"][0] for call in lt.calls] == [68, 77, 68, 68]


def test_a_plan_is_made_once_for_a_layout(lt, on_host):
    x, w, b = cd.randn(4, 8).to("cuda"), cd.randn(8, 8).to("cuda"), cd.randn(8).to("cuda")
    for _ in range(3):
        F.linear(x, w, b)
    assert (lt.heuristics, len(lt.calls)) == (1, 3)
    F.linear(x[:2], w, b)
    assert lt.heuristics == 2


def test_a_bias_that_lies_elsewhere_is_the_one_that_is_added(lt, on_host):
    x, w = cd.randn(4, 8).to("cuda"), cd.randn(8, 8).to("cuda")
    results = [F.linear(x, w, cd.full((8,), value).to("cuda")).cpu() for value in (0.0, 1.0, 2.0)]
    cd.testing.assert_close(results[1] - results[0], cd.ones(4, 8))
    cd.testing.assert_close(results[2] - results[0], cd.full((4, 8), 2.0))


def test_a_bias_that_is_a_part_of_another_array(lt, on_host):
    x, w, b = cd.randn(4, 8).half(), cd.randn(8, 8).half(), cd.randn(24).half()
    near_half = close(cd.float16, 5)
    for first in (0, 3, 8):
        part = slice(first, first + 8)
        on_host(lambda x, w, b, p=part: F.linear(x, w, b[p]), x, w, b, **near_half, launches=0)
    assert epilogues(lt) == [BIAS] * 3


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[stand_in_library.CublasLt]:
    """A library that has no algorithm with a bias."""
    yield from stand_in_library.installed(monkeypatch, refuses=(BIAS,))


def test_what_the_library_refuses_is_computed_as_before(refusing, on_host):
    x, w, b = cd.randn(4, 8), cd.randn(8, 8), cd.randn(8)
    for _ in range(2):
        on_host(F.linear, x, w, b, launches=0, **close(cd.float32, 5))
    assert refusing.heuristics and refusing.calls == []


def test_explain_shows_both_ways(lt, on_host):
    x, w, b = cd.randn(4, 8).to("cuda"), cd.randn(8, 8).to("cuda"), cd.randn(8).to("cuda")
    text = str(cd.explain("linear", x, w, b))
    assert "products.py" in text
    assert "cuda_kernels" in text and "cuda_stand_in" in text


def test_gradients(lt, on_host):
    gradients = []
    for device in ("cpu", "cuda"):
        cd.manual_seed(0)
        model = cd.nn.Sequential(cd.nn.Linear(8, 16), cd.nn.ReLU(), cd.nn.Linear(16, 4)).to(device)
        x = cd.randn(6, 8, device="cpu").to(device).requires_grad_()
        (model(x) ** 2).sum().backward()
        gradients.append([p.grad.cpu() for p in [x, *model.parameters()]])
    for here, there in zip(*gradients, strict=True):
        cd.testing.assert_close(there, here, rtol=1e-4, atol=1e-5)
    assert epilogues(lt) == [BIAS, BIAS]


def test_without_the_library_there_are_no_such_rows(on_host):
    text = str(cd.explain("linear", *(cd.randn(4, 4).to("cuda") for _ in range(2))))
    assert "products.py" not in text


def test_threads_share_a_plan_and_not_a_bias(lt, on_host):
    x, w = cd.randn(4, 8).to("cuda"), cd.randn(8, 8).to("cuda")
    biases = [cd.full((8,), float(k)).to("cuda") for k in range(4)]
    F.linear(x, w, biases[0])
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda k: F.linear(x, w, biases[k % 4]).cpu(), range(64)))
    for k, result in enumerate(results):
        cd.testing.assert_close(result - results[0], cd.full((4, 8), float(k % 4)))
