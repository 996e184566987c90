"""Norms, clipping, unscaling and updates of lists on the host, beside float64 on the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
from kernel_fixtures import DTYPES, close

import coredispatch as cd
from coredispatch import nn

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
SHAPES: list[tuple[int, ...]] = [(5,), (3, 70), (), (0, 2), (8200,), (20_000,)]
UPDATES: list[tuple[str, int, list[float]]] = [
    ("add", 1, [1.0]),
    ("add", 1, [-0.3]),
    ("mul", 0, [0.7]),
    ("lerp", 1, [0.1]),
    ("lerp", 1, [0.8]),
    ("lerp", 1, [-0.7]),
    ("addcmul", 2, [0.4]),
    ("addcdiv", 2, [-0.4]),
    ("clamp", 0, [-0.5, 0.25]),
]
inf, nan = math.inf, math.nan


def drawn(dtype: Any, shapes: Any = SHAPES) -> list[Any]:
    return [cd.randn(shape).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("function", "operands", "numbers"), UPDATES)
def test_updates(on_host: Any, function: str, operands: int, numbers: Any, dtype: Any) -> None:
    def program(*given: Any) -> Any:
        lists = [list(given[k :: 1 + operands]) for k in range(1 + operands)]
        lists[0] = [x.clone() for x in lists[0]]
        rest: list[Any] = [[] for _ in range(2 - operands)]
        cd.ops.update_each(*lists, *rest, function, numbers)
        return lists[0]

    given = []
    for shape in SHAPES:
        given += [cd.randn(shape).to(dtype) for _ in range(min(operands, 1) + 1)]
        given += [(cd.rand(shape) + 0.5).to(dtype)] * (operands == 2)
    on_host(program, *given, **close(dtype))


def test_a_weight_far_from_0_counts_from_the_end(on_host: Any) -> None:
    """As the operator has it, and PyTorch: else a large start leaves no digit of the end."""

    def program(x: Any, end: Any, weight: float) -> Any:
        x = x.clone()
        cd.ops.update_each([x], [end], [], "lerp", [weight])
        return x

    big, one = cd.full((3,), 1e8), cd.ones(3)
    assert program(big.cuda(), one.cuda(), 1.0).tolist() == [1] * 3
    eager = cd.lerp(big, one, -0.7)
    assert program(big.cuda(), one.cuda(), -0.7).cpu().equal(eager)


def test_bounds_and_numbers_that_are_not_finite(on_host: Any) -> None:
    def program(x: Any, bounds: list[float]) -> Any:
        x = x.clone()
        cd.ops.update_each([x], [], [], "clamp", bounds)
        return x

    x = cd.tensor([nan, inf, -inf, 0.0, 2.0, -2.0])
    for bounds in ([-1.0, 1.0], [1.0, -1.0], [nan, 1.0], [-1.0, nan], [-inf, inf]):
        on_host(program, x, bounds)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", [2.0, 1.0, inf, 3.0])
def test_norms(on_host: Any, order: float, dtype: Any) -> None:
    shapes = [shape for shape in SHAPES if order != inf or 0 not in shape]
    given = [0.1 * x for x in drawn(dtype, shapes)]
    near = close(dtype)
    on_host(lambda *x: cd.ops.norm_of_each(list(x), order), *given, launches=2, **near)
    for value in (inf, nan):
        given[-1][11_111] = value
        on_host(lambda *x: cd.ops.norm_of_each(list(x), order), *given, launches=2, **near)


def test_norms_of_nothing_and_what_is_left_to_others(on_host: Any) -> None:
    def norms(*given: Any, order: float = 2.0) -> Any:
        return cd.ops.norm_of_each(list(given), order)

    on_host(norms, cd.zeros(0), cd.zeros(0, 3), launches=1)
    on_host(lambda x: norms(x, order=0.0), cd.tensor([1.0, 0, 2]), launches=0)
    on_host(lambda x: norms(x, order=-inf), cd.tensor([1.0, 0, 2]), launches=0)
    on_host(lambda x: norms(x.t()), cd.randn(3, 4), launches=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("most", [0.5, 100.0, inf])
def test_clipping(on_host: Any, most: float, dtype: Any) -> None:
    def program(norm: Any, *given: Any) -> Any:
        changed = [x.clone() for x in given]
        cd.ops.clip_each(changed, norm, most)
        return changed

    for norm in (3.0, 0.0, inf, nan):
        on_host(program, cd.tensor(norm, dtype=dtype), *drawn(dtype), **close(dtype))


def test_lists_of_several_dtypes_take_a_kernel_for_each(on_host: Any) -> None:
    def clip(norm: Any, *given: Any) -> Any:
        changed = [x.clone() for x in given]
        cd.ops.clip_each(changed, norm, 0.25)
        return changed

    near, norm = close(cd.bfloat16), cd.tensor(2.0)
    given = [cd.randn(5), cd.randn(7).bfloat16(), cd.randn(3, 3), cd.randn(2).double()]
    on_host(clip, norm, *given, launches=3, **near)
    # one that no kernel takes, and nothing is written twice
    on_host(lambda n, x, y: clip(n, x, y.t()), norm, cd.randn(5), cd.randn(2, 3), launches=1)
    on_host(clip, norm, *given[:2], cd.randn(2, 3, 4)[:, 1], launches=2, **near)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [1.0, inf, -inf, nan])
def test_unscaling(on_host: Any, value: float, dtype: Any) -> None:
    def program(*given: Any, inverse: Any = None) -> Any:
        scale, *given = given
        changed, found = [x.clone() for x in given], cd.zeros((), device=scale.device)
        cd.ops.unscale_each(changed, found, scale if inverse is None else inverse)
        cd.ops.unscale_each(changed[:1], found, 1.0)  # a flag stays raised
        return [found.double(), *changed]

    for place in (0, 1, 2, 4, 5):
        given = drawn(dtype)
        given[place].view(-1)[-1] = value
        given[5][7777] = 3.0
        found = on_host(program, cd.tensor(0.25), *given, launches=2, meta=False, **close(dtype))
        assert found[0].item() == (not math.isfinite(value))
    on_host(lambda *x: program(*x, inverse=0.3), cd.tensor(0.0), *given, launches=2, **close(dtype))


def test_tensors_that_share_memory_are_updated_in_their_order(on_host: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        x, y = x.clone(), y.clone()
        cd.ops.update_each([x, y], [y, x], [], "add", [1.0])
        cd.ops.update_each([x, x], [], [], "mul", [3.0])
        cd.ops.update_each([x[:3], x[2:]], [], [], "mul", [0.5])
        return x, y

    on_host(program, cd.randn(5), cd.randn(5), launches=0, **close(cd.float32))

    def read_twice(x: Any, y: Any) -> Any:
        x = x.clone()
        cd.ops.update_each([x], [y], [y], "addcmul", [0.5])
        return x

    on_host(read_twice, cd.randn(5), cd.randn(5), **close(cd.float32))


@pytest.mark.parametrize("order", [2.0, 1.0, inf])
def test_clip_grad_norm_takes_three_kernels_whatever_the_number_of_gradients(
    on_host: Any, order: float
) -> None:
    results = []
    for device in ("cpu", "cuda"):
        cd.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(9))).to(device)
        model(cd.randn(4, 6).to(device)).square().sum().backward()
        before = on_host.library.launches
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.1, order)
        assert on_host.library.launches - before == (3 if device == "cuda" else 0)
        results.append([total.cpu(), *(p.grad.cpu() for p in model.parameters())])
    for got, wanted in zip(*results, strict=True):
        cd.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_values_are_clipped_and_gradients_unscaled_by_one_kernel(on_host: Any) -> None:
    parameters = [nn.Parameter(cd.ones(n, device="cuda")) for n in range(1, 20)]
    optimizer = cd.optim.SGD(parameters, lr=1.0)
    scaler = cd.amp.GradScaler("cuda", init_scale=8.0)
    cd.stack([scaler.scale((p * p).sum()) for p in parameters]).sum().backward()
    before = on_host.library.launches
    scaler.unscale_(optimizer)
    assert on_host.library.launches == before + 1
    assert parameters[3].grad.tolist() == [2.0] * 4
    nn.utils.clip_grad_value_(parameters, 0.5)
    assert on_host.library.launches == before + 2
    assert parameters[18].grad.tolist() == [0.5] * 19


def test_gradients_of_two_devices_are_clipped_together(on_host: Any) -> None:
    parameters = [nn.Parameter(cd.full((4,), 1.0, device=f"cuda:{i}")) for i in (0, 1)]
    for p in parameters:
        p.grad = cd.full_like(p, 3.0).detach()
    total = nn.utils.clip_grad_norm_(parameters, 1.0)
    assert total.item() == pytest.approx(72**0.5)
    for p in parameters:
        assert p.grad.device == p.device
        assert p.grad.norm().item() == pytest.approx(0.5**0.5, rel=1e-4)
    cd._foreach_mul_([p.grad for p in parameters for _ in range(1)] * 8, 1.0)


def test_a_captured_graph_has_tables_of_its_own(on_host: Any) -> None:
    """Blocks of its pool are written to by kernels before: a table of those would be lost."""
    tensors = [cd.full((3,), 8.0, device="cuda") for _ in range(5)]
    found, small = cd.zeros((), device="cuda"), cd.ones(16, device="cuda")
    graph = cd.cuda.CUDAGraph()
    with cd.cuda.graph(graph):
        for _ in range(3):
            (small * 3).cumsum(0)
        cd.ops.unscale_each(tensors, found, 0.5)
        total = cd.ops.norm_of_each(tensors, 2.0)
        (small * 5).cumsum(0)
    before = on_host.library.launches
    graph.replay()
    assert on_host.library.launches - before == 7  # 4 of them sums
    graph.replay()
    assert [x.tolist() for x in tensors] == [[2.0] * 3] * 5
    cd.testing.assert_close(total.cpu(), cd.full((5,), 12**0.5))
