"""Lists of tensors, groups of matrices, counts of memory and NCCL on a real GPU; else skipped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kernel_fixtures import DTYPES, close

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.nn.functional import grouped_mm

pytestmark = pytest.mark.gpu
SIZES: list[tuple[int, ...]] = [(5,), (3, 70), (), (0, 2), (8193,), (1_000_003,)]
GROUPS = {
    "rows": ((700, 96), (5, 96, 130)),
    "columns": ((5, 130, 96), (96, 700)),
    "inner": ((130, 700), (700, 96)),
}
ENDS = (64, 64, 301, 650, 650)


def drawn(dtype: Any, device: str) -> tuple[list[Any], list[Any]]:
    """The same tensors on the device, and on the CPU in float64."""
    given = [cd.randn(size).to(dtype) for size in SIZES]
    return [x.to(device) for x in given], [x.double().clone() for x in given]


def agree(found: Any, wanted: Any, dtype: Any, scale: float = 1.0) -> None:
    for x, exact in zip(found, wanted, strict=True):
        assert x.device.type == "cuda" and x.dtype is dtype
        near = {"equal_nan": True, **close(dtype, scale)}
        cd.testing.assert_close(x.cpu().double(), exact.double(), **near)


@pytest.fixture
def unread(cuda: str) -> Iterator[None]:
    """Reads of values raise until the test switches that off."""
    yield
    cd.cuda.set_sync_debug_mode(0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_clipping_and_unscaling(cuda: str, unread: None, dtype: Any) -> None:
    mine, exact = drawn(dtype, cuda)
    for x in (*mine, *exact):
        x.mul_(2**-6)  # so that float16 has their sums
    found, finite = (cd.zeros((), device=cuda) for _ in range(2))
    inverse = cd.tensor(0.25).to(cuda)
    for order in (2.0, 1.0, 3.0):
        cd.cuda.set_sync_debug_mode(2)
        norms = cd.ops.norm_of_each(mine, order)
        cd.cuda.set_sync_debug_mode(0)
        agree(norms, cd.ops.norm_of_each(exact, order), dtype, 10.0)
    cd.cuda.set_sync_debug_mode(2)
    cd.ops.clip_each(mine, norms[-1], 2.0)
    cd.ops.unscale_each(mine, finite, inverse)
    mine[4][8000] = float("inf")
    cd.ops.unscale_each(mine, found, 2.0)
    cd.cuda.set_sync_debug_mode(0)
    cd.ops.clip_each(exact, norms[-1].cpu().double(), 2.0)
    exact[4][8000] = float("inf")
    agree(mine, [x * 0.5 for x in exact], dtype)
    assert (finite.item(), found.item()) == (0.0, 1.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_adam_counts_its_steps_on_the_device(cuda: str, unread: None, dtype: Any) -> None:
    """A million elements have 123 blocks: the last one to end counts the step."""
    lists = [drawn(dtype, cuda) for _ in range(3)]
    mine, exact = ([pair[k] for pair in lists] for k in range(2))
    for given in (mine, exact):
        given += [[x.abs() + 0.1 for x in members] for members in (given[1], given[2])]
    counted = [cd.zeros((), device=cuda) for _ in SIZES]
    found, lr = cd.zeros((), device=cuda), cd.tensor(0.01).to(cuda)
    options = (0.9, 0.99, 1e-6, 0.1, True, False)
    cd.cuda.set_sync_debug_mode(2)
    for flag in (0.0, 1.0, 0.0, 0.0):
        found.fill_(flag)
        cd.ops.capturable_adam_steps(*mine, counted, found, lr, *options)
    cd.cuda.set_sync_debug_mode(0)
    steps = [cd.zeros((), dtype=cd.float64) for _ in SIZES]
    for _ in range(3):
        cd.ops.capturable_adam_steps(*exact, steps, None, lr.item(), *options)
    assert [x.item() for x in counted] == [3.0] * len(SIZES)
    for members, wanted in zip(mine, exact, strict=True):
        agree(members, wanted, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_updates_of_lists(cuda: str, dtype: Any) -> None:
    for function, operands, numbers in (
        ("add", 1, [-0.3]),
        ("mul", 0, [0.7]),
        ("lerp", 1, [0.8]),
        ("addcmul", 2, [0.4]),
        ("addcdiv", 2, [-0.4]),
        ("clamp", 0, [-0.5, 0.25]),
    ):
        (mine, exact), *rest = (drawn(dtype, cuda) for _ in range(3))
        for there, here in rest:
            for x, y in zip(there, here, strict=True):
                y.copy_(x.abs_().add_(0.5).cpu())
        lists = [[there, here] for there, here in rest[:operands]]
        lists += [[[], []]] * (2 - operands)
        cd.ops.update_each(mine, *(there for there, _ in lists), function, numbers)
        cd.ops.update_each(exact, *(here for _, here in lists), function, numbers)
        agree(mine, exact, dtype, 2.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", GROUPS)
def test_products_of_groups(cuda: str, unread: None, form: str, dtype: Any) -> None:
    given = [(cd.rand(shape) * 0.2 - 0.05).to(dtype) for shape in GROUPS[form]]
    exact = [x.double().clone().requires_grad_() for x in given]
    mine, ends = [x.to(cuda).requires_grad_() for x in given], cd.tensor(ENDS)
    there = ends.to(cuda)
    cd.cuda.set_sync_debug_mode(2)
    out = grouped_mm(*mine, offs=there)
    out.sum().backward()
    cd.cuda.set_sync_debug_mode(0)
    wanted = grouped_mm(*exact, offs=ends)
    wanted.sum().backward()
    agree([out.detach(), *(x.grad for x in mine)], [wanted, *(x.grad for x in exact)], dtype)


@pytest.mark.parametrize("form", GROUPS)
def test_products_of_groups_of_8_bit_floats(cuda: str, form: str) -> None:
    a, b = (cd.rand(shape) + 0.5 for shape in GROUPS[form])
    scales = [cd.rand(a.shape[:-1]), cd.rand((*b.shape[:-2], b.shape[-1]))]
    if form == "inner":
        scales = [cd.rand(len(ENDS) * a.shape[0]), cd.rand(len(ENDS) * b.shape[1])]
    given = [a.to(cd.float8_e4m3fn), b.to(cd.float8_e5m2), *scales, cd.tensor(ENDS)]
    found = cd._scaled_grouped_mm(*(x.to(cuda) for x in given), out_dtype=cd.float32)
    wanted = cd._scaled_grouped_mm(*given, out_dtype=cd.float32)
    cd.testing.assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-2)


def test_counts_of_memory(cuda: str) -> None:
    cd.cuda.synchronize()
    cd.cuda.reset_peak_memory_stats()
    cd.cuda.reset_accumulated_memory_stats()
    before = cd.cuda.memory_stats()
    x, y = (cd.zeros(1000, device=cuda) for _ in range(2))
    del x
    stats = cd.cuda.memory_stats()
    for what, unit in (("allocation", 1), ("requested_bytes", 4000), ("allocated_bytes", 4096)):
        for last, number in (("current", 1), ("peak", 2), ("allocated", 2), ("freed", 1)):
            name = f"{what}.all.{last}"
            assert stats[name] - before[name] == number * unit
    assert y.sum().item() == 0
    rest = stats["reserved_bytes.all.current"] - stats["active_bytes.all.current"]
    assert stats["inactive_bytes.all.current"] == rest >= 0


@pytest.fixture
def ranks(cuda: str) -> Iterator[None]:
    """A group of one rank over NCCL: what needs several is in no test that one device can run."""
    if cd.cuda.nccl.version() is None:
        pytest.skip("CuPy cannot load NCCL here")
    with dist.world.separate_world():
        store = dist.HashStore()
        dist.init_process_group("cuda:nccl", store=store, rank=0, world_size=1)
        yield
        dist.destroy_process_group()


def test_nccl_of_one_rank(cuda: str, unread: None, ranks: None) -> None:
    x = cd.full((1 << 20,), 2.0, device=cuda)
    out, side = cd.zeros(1, 1 << 20, device=cuda), cd.cuda.Stream()
    dist.all_reduce(x)
    cd.cuda.synchronize()
    cd.cuda.set_sync_debug_mode(2)
    for _ in range(20):
        x = x * 1.0
        work = dist.all_gather_into_tensor(out, x + 1, async_op=True)
        work.wait()
        with cd.cuda.stream(side):
            work.wait()
            y = out + 1
        cd.cuda.current_stream().wait_stream(side)
        short = cd.ones(3, dtype=cd.int16, device=cuda)
        dist.all_reduce(short, async_op=True).wait()
        dist.reduce_scatter_tensor(x, y[0], async_op=True).wait()
        x -= 2
    cd.cuda.set_sync_debug_mode(0)
    assert work.wait(timedelta(seconds=60)) and work.is_completed()
    dist.barrier()
    assert x.sum().item() == 2 << 20 and short.tolist() == [1, 1, 1]
