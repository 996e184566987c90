"""Sorting, the first k of an order and runs of equal elements on the host, beside the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch_cuda_cupy.cuda import sorting

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
FLOATS = [cd.float32, cd.float64, cd.float16, cd.bfloat16]
WHOLE = [cd.bool, cd.uint8, cd.int8, cd.uint16, cd.int16, cd.uint32, cd.int32, cd.uint64, cd.int64]
#: lengths around the borders of a warp's, a block's and a tile's work, with elements of a size each
LENGTHS = [
    *((n, cd.float32) for n in (1, 2, 31, 33, 127, 128, 129, 257, 4096, 4097)),
    (9000, cd.uint16),
    *((n, cd.float64) for n in (2048, 2049)),
    *((n, cd.bfloat16) for n in (300, 4500)),
    *((n, cd.int8) for n in (300, 4500)),
]


def mixed(shape: Any, dtype: Any) -> Any:
    """Elements with many ties; of a floating dtype also infinities, NaN and both zeros."""
    if dtype is cd.bool:
        return cd.randint(0, 2, shape).bool()
    if not dtype.is_floating_point:
        low = -40 if dtype.is_signed else 0
        wide = cd.randint(low, 90, shape).to(dtype)
        rare = cd.randint(0, 9, shape) == 0
        ends = cd.iinfo(dtype)
        return cd.where(rare, cd.full_like(wide, ends.max), wide)
    x = (cd.randint(-60, 60, shape) * 0.25).to(dtype)
    kind = cd.randint(0, 40, shape)
    for k, value in enumerate((float("inf"), -float("inf"), float("nan"), -0.0, 0.0)):
        x = cd.where(kind == k, cd.full_like(x, value), x)
    return x


@pytest.mark.parametrize(("length", "dtype"), LENGTHS, ids=str)
def test_sort_at_every_length(on_host: Any, length: int, dtype: Any) -> None:
    x = mixed((1 if length > 2000 else 3, length), dtype)
    for descending in (False, True):
        on_host(lambda x, d=descending: cd.sort(x, 1, d), x, launches=None)


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE], ids=str)
def test_sort_of_every_dtype_along_any_dimension(on_host: Any, dtype: Any) -> None:
    x = mixed((3, 40, 5), dtype)
    for dim in (0, 1, 2, -2):
        on_host(lambda x, d=dim: cd.sort(x, d), x)
        on_host(lambda x, d=dim: cd.sort(x, d, True), x)
    on_host(lambda x: cd.argsort(x, 1, stable=True), x)
    on_host(lambda x: cd.msort(x), x)
    on_host(lambda x: cd.sort(x.transpose(0, 2), 1), x, launches=1)


def test_long_lines_that_do_not_lie_along_memory(on_host: Any) -> None:
    x = mixed((4500, 3), cd.float32)
    on_host(lambda x: cd.sort(x, 0), x, launches=3 * 4)
    on_host(lambda x: cd.sort(x, 0, True), mixed((4500, 2), cd.int16), launches=3 * 2)
    on_host(lambda x: cd.sort(x, 0), mixed((4500, 2), cd.bool), launches=3)


def test_signs_of_zeros_and_bits_of_nans_are_kept(on_host: Any) -> None:
    x = cd.tensor([0.0, -0.0, 1.0, -0.0, 0.0])
    values = cd.sort(x.to("cuda"))[0].cpu()
    assert cd.signbit(values).tolist() == [False, True, True, False, False]


def test_what_has_no_order_or_no_elements_is_left_to_others(on_host: Any) -> None:
    on_host(lambda x: cd.sort(x, 0), cd.tensor(3.0), launches=0)
    on_host(lambda x: cd.sort(x, 1), cd.zeros(3, 0), launches=0)
    on_host(lambda x: cd.sort(x, 1), cd.zeros(0, 3), launches=0)
    with pytest.raises(cd.DimError):
        cd.sort(cd.zeros(3, device="cuda"), 1)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("length", "k", "dtype"),
    [
        *((40, k, dtype) for k in (1, 7, 40) for dtype in (cd.float32, cd.int16)),
        *((700, k, cd.float16) for k in (1, 200, 700)),
        *((5000, k, cd.float32) for k in (1, 200, 1300)),
        (2500, 5, cd.float64),
        (4500, 600, cd.uint8),
        (18000, 4300, cd.int16),
    ],
    ids=str,
)
def test_topk(on_host: Any, length: int, k: int, dtype: Any, largest: bool) -> None:
    x = mixed((2, length), dtype)
    on_host(lambda x: cd.topk(x, k, 1, largest), x, launches=None)
    if length < 5000:
        on_host(lambda x: cd.topk(x, k, 0, largest), x.t(), launches=None)


def test_topk_sorts_only_what_is_asked_for(on_host: Any) -> None:
    x = mixed((1, 5000), cd.float32)
    # A digit and its choice for each of four bytes; sides counted, summed, moved; one short sort.
    on_host(lambda x: cd.topk(x, 9), x, launches=2 * 4 + 3 + 1)
    on_host(lambda x: cd.topk(x, 0), x, launches=0)
    with pytest.raises(cd.DimError):
        cd.topk(x.to("cuda"), 5001)


def test_nothing_waits(on_host: Any) -> None:
    x = mixed((1, 5000), cd.float32).to("cuda")
    MACHINE.syncs.clear()
    for call in (cd.sort, cd.argsort, lambda x: x.topk(3), lambda x: x.cummax(1)):
        call(x)
    x.cumsum(1)
    assert MACHINE.syncs == []


def without_nan(x: Any) -> Any:
    """The order of NaN among themselves is the CPU's own matter."""
    return cd.where(x.isnan(), cd.ones_like(x), x) if x.is_floating_point() else x


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE], ids=str)
def test_distinct_elements(on_host: Any, dtype: Any) -> None:
    for shape in ((1,), (17,), (40, 9)):
        x = without_nan(mixed(shape, dtype))
        options = {"return_inverse": True, "return_counts": True}
        on_host(lambda x, o=options: cd.unique(x, **o), x, launches=None, meta=False)
        on_host(lambda x, o=options: cd.unique_consecutive(x, **o), x, launches=4, meta=False)


def test_every_nan_is_a_run_of_its_own(on_host: Any) -> None:
    nan = float("nan")
    x = cd.tensor([nan, 1.0, nan, nan, 1.0]).to("cuda")
    for call, runs, inverse in (
        (cd.unique, 4, [1, 0, 2, 3, 0]),
        (cd.unique_consecutive, 5, [0, 1, 2, 3, 4]),
    ):
        values, numbers = call(x, return_inverse=True)
        assert values.shape == (runs,)
        assert numbers.tolist() == inverse


def test_distinct_elements_wait_once(on_host: Any) -> None:
    x = cd.tensor([3, 1, 3, 2, 1]).to("cuda")
    MACHINE.syncs.clear()
    assert cd.unique(x).shape == (3,)
    assert len(MACHINE.syncs) == 1


def test_distinct_zeros_have_no_sign_and_runs_keep_theirs(on_host: Any) -> None:
    x = cd.tensor([-0.0, 0.0, 1.0]).to("cuda")
    assert not cd.signbit(cd.unique(x).cpu()[0])
    assert cd.signbit(cd.unique_consecutive(x).cpu()[0])


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE], ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_distinct_slices(on_host: Any, dim: int, dtype: Any) -> None:
    for shape in ((1, 1, 1), (9, 5, 2), (70, 3, 1), (2, 66, 2), (3, 40)):
        if dim >= len(shape):
            continue
        x = (without_nan(mixed(shape, dtype)) > 0).to(dtype)
        for turned in (x, x.transpose(0, -1)):
            options = {"dim": dim, "return_inverse": True, "return_counts": True}
            on_host(lambda x, o=options: cd.unique(x, **o), turned, launches=None, meta=False)
            on_host(
                lambda x, o=options: cd.unique_consecutive(x, **o), turned, launches=5, meta=False
            )


def test_slices_are_in_the_order_of_their_elements(on_host: Any) -> None:
    x = without_nan(mixed((50, 3), cd.float32))
    # Six merges, then marks, their sum, numbers, lengths, slices.
    on_host(lambda x: cd.unique(x, dim=0), x, launches=6 + 5, meta=False)
    on_host(lambda x: cd.unique(x, dim=1), x, launches=2 + 5, meta=False)


def test_a_slice_with_nan_is_a_run_of_its_own_and_zeros_have_no_sign(on_host: Any) -> None:
    nan = float("nan")
    x = cd.tensor([[nan, 1.0], [-0.0, 2.0], [nan, 1.0], [0.0, 2.0]]).to("cuda")
    values, inverse, counts = cd.unique(x, dim=0, return_inverse=True, return_counts=True)
    assert inverse.tolist() == [1, 0, 2, 0] and counts.tolist() == [2, 1, 1]
    assert not cd.signbit(values.cpu()[0, 0])
    assert cd.signbit(cd.unique_consecutive(x, dim=0).cpu()[1, 0])


def test_distinct_slices_wait_once(on_host: Any) -> None:
    x = cd.tensor([[1, 2], [0, 1], [1, 2]]).to("cuda")
    MACHINE.syncs.clear()
    assert cd.unique(x, dim=0).shape == (2, 2)
    assert len(MACHINE.syncs) == 1


def test_lists_too_long_for_the_numbers_of_a_sort_are_rejected(stand_in, monkeypatch) -> None:
    monkeypatch.setattr(sorting, "_LONGEST", 4)
    unique_all = sorting.kernels(stand_in.cupy)["unique_all"]
    assert unique_all(stand_in.cupy.zeros(5), None) is NotImplemented


def test_gradients_go_back_to_where_elements_were(on_host: Any) -> None:
    gradients = []
    x = mixed((3, 40), cd.float32).nan_to_num()
    for device in ("cpu", "cuda"):
        y = x.detach().to(device).requires_grad_()
        (cd.sort(y, 1)[0] * cd.arange(40.0, device=device)).sum().backward()
        (y.topk(5)[0] ** 2).sum().backward()
        gradients.append(y.grad.cpu())
    cd.testing.assert_close(*gradients)


def test_distinct_elements_of_a_long_list(on_host: Any) -> None:
    x = without_nan(mixed((4500,), cd.float16))
    on_host(lambda x: cd.unique(x, return_counts=True), x, launches=3 * 2 + 4, meta=False)
