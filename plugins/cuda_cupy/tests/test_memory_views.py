"""Views of a tensor's memory, and where in it they lie: as on the CPU, and as in PyTorch."""

from __future__ import annotations

import copy

import pytest

import coredispatch as cd
from coredispatch import nn


def test_views_know_where_in_the_storage_they_lie(stand_in):
    x = cd.arange(12.0, device="cuda").reshape(3, 4)
    assert x.storage_offset() == 0
    assert x[1:, 2:].storage_offset() == 6
    assert x[2, 1::2].storage_offset() == 9
    assert x[3:].storage_offset() == 0  # without elements
    assert x[1:].clone().storage_offset() == 0


def test_the_offset_of_as_strided_counts_from_the_start_of_the_storage(stand_in):
    x = cd.arange(10.0, device="cuda")
    y = x[3:]
    assert y.as_strided((2,), (1,)).tolist() == [3, 4]
    assert y.as_strided((2, 2), (1, 3), 1).tolist() == [[1, 4], [2, 5]]
    assert y.as_strided((0,), (1,), 1).shape == (0,)
    with pytest.raises(cd.ArgumentError, match="needs 11 elements, the storage has 10"):
        y.as_strided((11,), (1,), 0)
    with pytest.raises(cd.ArgumentError, match="negative"):
        y.as_strided((2,), (-1,), 3)


def test_writes_to_strided_views_reach_the_memory(stand_in):
    for program in (lambda x: x, lambda x: x.requires_grad_() * 1):
        c = program(cd.zeros(10, device="cuda"))
        v = c[3:6]
        v.mul_(3).add_(1)
        c.as_strided((3,), (2,), 3).add_(5)
        v.as_strided((1,), (1,), 0).add_(7)
        assert c.tolist() == [7, 0, 0, 6, 1, 6, 0, 5, 0, 0]
        assert v.tolist() == [6, 1, 6]


def test_gradients_through_strided_views_and_long_chains_of_written_ones(stand_in):
    def gradients(device):
        x = cd.arange(24.0, device=device, requires_grad=True)
        y = x * 1
        view = y
        for k in range(20):
            view = view[1:] if k % 2 else view[:-1]
            view.mul_(1.5)
        (y * cd.arange(24.0, device=device)).sum().backward()
        z = cd.arange(24.0, device=device, requires_grad=True)
        (z[4:].as_strided((3, 2), (2, 5), 1) ** 2).sum().backward()
        return [x.grad.tolist(), z.grad.tolist()]

    assert gradients("cuda") == gradients("cpu")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_view_has_elements_between_those_of_its_dtype(stand_in, device):
    """A device faults where it reads eight bytes that do not begin at a multiple of eight."""
    x = cd.arange(17, dtype=cd.uint8, device=device)
    assert x[4:16].view(cd.float32).shape == (3,)
    with pytest.raises(cd.ShapeError, match="must be divisible by 4 to view uint8 as float32"):
        x[1:17].view(cd.float32)
    rows = cd.zeros(3, 9, dtype=cd.int16, device=device)
    with pytest.raises(cd.ShapeError, match=r"stride\(0\) must be divisible by 2"):
        rows[:, :8].view(cd.int32)
    assert rows[:1, :8].view(cd.int32).shape == (1, 4)
    pairs = cd.zeros(9, device=device)
    with pytest.raises(cd.ShapeError, match="must be divisible by 2 to view float32 as complex64"):
        cd.view_as_complex(pairs[1:].reshape(4, 2))
    with pytest.raises(cd.ShapeError, match=r"stride\(0\) must be divisible by 2"):
        cd.view_as_complex(pairs.reshape(3, 3)[:, :2])
    with pytest.raises(cd.ShapeError, match="contiguous"):
        cd.view_as_complex(cd.zeros(2, 4, device=device).t())
    whole = cd.view_as_complex(pairs[:8].reshape(4, 2))
    whole[1] = 3 + 4j
    assert pairs.tolist() == [0, 0, 3, 4, 0, 0, 0, 0, 0]
    assert x[1:17].view(cd.int8).tolist() == list(range(1, 17))


def test_deep_copies_stay_on_their_device(stand_in):
    last = cd.cuda.device_count() - 1
    layer = nn.Linear(2, 2).to(f"cuda:{last}")
    twin = copy.deepcopy(layer)
    assert twin.weight.device == cd.device("cuda", last)
    assert isinstance(twin.weight, nn.Parameter)
    assert twin.weight.requires_grad
    with cd.no_grad():
        twin.weight.zero_()
    assert layer.weight.abs().sum().item() > 0


def test_views_share_a_storage(stand_in):
    x = cd.arange(10.0, device="cuda")
    v = x[3:7]
    storage = v.untyped_storage()
    assert storage.data_ptr() == x.untyped_storage().data_ptr() == x.data_ptr()
    assert storage.nbytes() == len(storage) == 40
    assert storage.cpu().device == cd.device("cpu")
    assert storage.cpu().tolist() == x.cpu().untyped_storage().tolist()
    assert x.clone().untyped_storage().data_ptr() != storage.data_ptr()
    small = cd.arange(6, dtype=cd.uint8, device="cuda")[1:3]
    assert small.untyped_storage().nbytes() == 6
    assert cd.zeros(0, device="cuda").untyped_storage().nbytes() == 0


def test_a_tensor_is_set_to_a_place_in_a_storage_on_the_device(stand_in):
    x = cd.arange(10.0, device="cuda")
    y = cd.empty(0, device="cuda")
    y.set_(x[3:].untyped_storage(), 2, (2, 2), (3, 1))
    assert y.tolist() == [[2, 3], [5, 6]]
    y.fill_(9)
    assert x.tolist() == [0, 1, 9, 9, 4, 9, 9, 7, 8, 9]
    y.set_(x, 8, (2,), (1,))
    assert y.tolist() == [8, 9]
    with pytest.raises(cd.ArgumentError, match="the storage has 10"):
        y.set_(x.untyped_storage(), 8, (3,), (1,))
    twin = x.untyped_storage().clone()
    assert (twin.nbytes(), twin.data_ptr() != x.data_ptr()) == (40, True)
