"""Optimizer steps and cumulative sums and products on the host, beside float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import DTYPES, LENGTHS, close

import coredispatch as cd

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
ADAM = [
    (False, 3, 0.01, 0.9, 0.99, 1e-8, 0.0, False, False),
    (False, 1, 0.01, 0.9, 0.999, 1e-8, 0.1, True, False),
    (True, 7, 0.01, 0.8, 0.9, 1e-6, 0.1, False, True),
]
SGD = [
    (False, 0.1, 0.0, 0.0, 0.01, False, False, True),
    (True, 0.1, 0.9, 0.0, 0.0, False, False, False),
    (True, 0.1, 0.9, 0.1, 0.01, False, True, True),
    (True, 0.1, 0.9, 0.0, 0.0, True, False, False),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", ADAM)
def test_adam(on_host: Any, options: Any, dtype: Any) -> None:
    amsgrad, *numbers = options

    def program(p: Any, g: Any, m: Any, v: Any, top: Any) -> Any:
        changed = [x.clone() for x in (p, m, v, top)]
        cd.ops.adam_step(changed[0], g, *changed[1:3], changed[3] if amsgrad else None, *numbers)
        return changed

    for shape in ((257,), (5, 7), (0,), ()):
        given = [cd.randn(shape, dtype=dtype) for _ in range(3)]
        given += [cd.rand(shape, dtype=dtype) + 0.1 for _ in range(2)]
        on_host(program, *given, launches=int(0 not in shape), **close(dtype, 0.2))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("options", SGD)
def test_sgd(on_host: Any, options: Any, dtype: Any) -> None:
    has_buffer, *numbers = options

    def program(p: Any, g: Any, b: Any) -> Any:
        p, b = p.clone(), b.clone()
        cd.ops.sgd_step(p, g, b if has_buffer else None, *numbers)
        return p, b

    given = [cd.randn(33, 9, dtype=dtype) for _ in range(3)]
    on_host(program, *given, **close(dtype))


def test_a_first_step_does_not_read_the_buffer(on_host: Any) -> None:
    p, g = cd.ones(4).to("cuda"), cd.ones(4).to("cuda")
    b = cd.full((4,), float("nan")).to("cuda")
    cd.ops.sgd_step(p, g, b, 0.1, 0.9, 0.0, 0.0, False, False, True)
    assert b.cpu().tolist() == [1.0] * 4


def test_what_kernels_do_not_take_is_stepped_as_before(on_host: Any) -> None:
    def program(p: Any, g: Any) -> Any:
        p = p.clone()
        cd.ops.sgd_step(p.t(), g, None, 0.1, 0.0, 0.0, 0.0, False, False, True)
        return p

    on_host(program, cd.randn(3, 4), cd.randn(4, 3), launches=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op", "options"), [("adam", o) for o in ADAM] + [("sgd", o) for o in SGD])
def test_steps_over_lists(on_host: Any, op: str, options: Any, dtype: Any) -> None:
    whole, *numbers = options
    shapes, states = [(5,), (3, 70), (), (8200,)], 3 if op == "adam" else 1

    def program(*given: Any) -> Any:
        lists = [[x.clone() for x in given[k :: 2 + states]] for k in range(2 + states)]
        kept = [*lists[:-1], lists[-1] if whole else []]
        getattr(cd.ops, f"{op}_steps")(*kept, *numbers)
        return [x for members in lists for x in members]

    given = []
    for shape in shapes:
        given += [cd.randn(shape, dtype=dtype) for _ in range(3 if op == "adam" else 2)]
        given += [cd.rand(shape, dtype=dtype) + 0.1 for _ in range(states - (op == "adam"))]
    on_host(program, *given, **close(dtype, 0.5))


def test_lists_that_no_kernel_takes_are_stepped_one_by_one(on_host: Any) -> None:
    def program(p: Any, q: Any, g: Any, h: Any) -> Any:
        p, q = p.clone(), q.clone()
        cd.ops.sgd_steps([p, q.t()], [g, h.t()], [], 0.1, 0.0, 0.0, 0.0, False, False, True)
        return p, q

    given = [cd.randn(3, 4) for _ in range(4)]
    on_host(program, given[0], given[1], given[2], given[3], launches=1)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_optimizers_take_one_kernel_for_all_parameters(on_host: Any, name: str) -> None:
    results = []
    for device in ("cpu", "cuda"):
        cd.manual_seed(1)
        model = cd.nn.Linear(5, 3).to(device)
        optimizer = getattr(cd.optim, name)(model.parameters(), lr=0.1)
        x = cd.randn(8, 5).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            before = on_host.library.launches
            optimizer.step()
            assert on_host.library.launches - before == (device == "cuda")
        results.append([p.detach().cpu() for p in model.parameters()])
    for got, wanted in zip(*results, strict=True):
        cd.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("length", "dtype"), [*LENGTHS, (257, cd.int64)], ids=str)
def test_scans(on_host: Any, length: int, dtype: Any) -> None:
    if dtype.is_floating_point:
        x = (cd.rand(3, length, dtype=cd.float64) * 0.1 + 0.95).to(dtype)
    else:
        x = cd.randint(-3, 4, (3, length))
    near = close(dtype, 0.05 * length) if dtype.is_floating_point else {}
    on_host(lambda x: x.cumsum(1), x, **near)
    own = {"launches": int(length <= 1024), **near}
    on_host(lambda x: x.cumprod(1), x, **own)
    on_host(lambda x: x.cumprod(-1), x.expand(15, 3, length).contiguous(), **own)
    for scan in (cd.cumsum, cd.cumprod):
        on_host(lambda x, scan=scan: scan(x, 0), x.t(), **near)
        on_host(lambda x, scan=scan: scan(x, 1), x.view(3, length, 1).expand(3, length, 4), **near)


def test_special_values_and_what_is_left_to_others(on_host: Any) -> None:
    inf, nan = float("inf"), float("nan")
    on_host(lambda x: x.cumsum(0), cd.tensor([1.0, inf, 2, -inf, 3]))
    on_host(lambda x: x.cumprod(0), cd.tensor([[1.0, 0, inf, 2, nan, 1]] * 2).t())
    on_host(lambda x: x.cumprod(0), cd.tensor([1.0, 0, inf, 2, nan, 1]))
    on_host(lambda x: x.cumprod(0), cd.rand(5000), launches=0)
    on_host(lambda x: x.cumsum(0), cd.tensor([True, False]))
    on_host(lambda x: x.cumsum(0), cd.tensor([100, 100, 100], dtype=cd.int8))
    on_host(lambda x: x.cumsum(0, dtype=cd.float64), cd.randn(5), **close(cd.float32))
    on_host(lambda x: x.cumsum(0, dtype=cd.float16), cd.randn(5), launches=0, **close(cd.float16))
    on_host(lambda x: x.cumsum(0), cd.randn(5, dtype=cd.complex64), launches=0)
    on_host(lambda x: x.cumsum(1), cd.zeros(0, 3), launches=0)


#: rows of one part and of some
LONG = [4097, 8192, 8193, 20_000]


@pytest.mark.parametrize("length", LONG)
def test_long_rows_are_scanned_in_parts(on_host: Any, length: int) -> None:
    kernels = 2 if length > 8192 else 1
    x, whole = cd.randn(2, length), cd.randint(-9, 9, (2, length))
    on_host(lambda x: x.cumsum(1), x, launches=kernels, **close(cd.float32, 10))
    on_host(lambda x: x.cumsum(1), whole, launches=kernels)
    on_host(lambda x: x.logcumsumexp(1), x, launches=kernels, **close(cd.float32))
    on_host(lambda x: x.cumsum(0), x.t(), launches=kernels, **close(cd.float32, 10))
    for scan in (cd.cummax, cd.cummin):
        on_host(lambda x, scan=scan: scan(x, 1), x, launches=kernels)
        on_host(lambda x, scan=scan: scan(x, 0), whole.t(), launches=kernels)


@pytest.mark.parametrize(("length", "dtype"), [*LENGTHS, (257, cd.int64), (70, cd.int8)], ids=str)
def test_running_extrema(on_host: Any, length: int, dtype: Any) -> None:
    x = cd.randint(-5, 6, (3, length)).to(dtype)
    if dtype.is_floating_point:
        x = cd.where(cd.rand(3, length) < 0.02, cd.full_like(x, float("nan")), x)
    for scan in (cd.cummax, cd.cummin):
        on_host(lambda x, scan=scan: scan(x, 1), x)
        on_host(lambda x, scan=scan: scan(x, 0), x)
        on_host(lambda x, scan=scan: scan(x, 0), x.t())


@pytest.mark.parametrize(("length", "dtype"), LENGTHS, ids=str)
def test_logarithms_of_running_sums(on_host: Any, length: int, dtype: Any) -> None:
    x = (cd.randn(3, length) * 4).to(dtype)
    on_host(lambda x: x.logcumsumexp(1), x, **close(dtype, 4))
    on_host(lambda x: x.logcumsumexp(0), x.t(), **close(dtype, 4))


def test_logarithms_of_running_sums_of_infinities(on_host: Any) -> None:
    inf, nan = float("inf"), float("nan")
    on_host(lambda x: x.logcumsumexp(0), cd.tensor([-inf, -inf, 2, 1000, inf, inf, -inf]))
    on_host(lambda x: x.logcumsumexp(0), cd.tensor([-inf, 1, nan, 2]))
    on_host(lambda x: x.cummax(0), cd.tensor([1, 3, nan, 5, nan, 2]))
    on_host(lambda x: x.cummin(0), cd.tensor([1, 1, -inf, nan, -inf]))
