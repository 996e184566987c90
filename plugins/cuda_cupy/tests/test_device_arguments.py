"""How tensors and modules are told where to go: by numbers, names and devices, as in PyTorch."""

from __future__ import annotations

import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch import nn


def test_a_number_names_a_device(stand_in):
    last = cd.cuda.device_count() - 1
    there, x = cd.device("cuda", last), cd.ones(2)
    assert cd.device(last) == there
    assert x.cuda(last).device == x.to(last).device == x.to(device=last).device == there
    converted = x.to(last, cd.float64, True)
    assert (converted.device, converted.dtype) == (there, cd.float64)
    for made in (
        cd.zeros(2, device=last),
        cd.tensor([1.0], device=last),
        cd.empty_like(x, device=last),
        nn.Linear(2, 2, device=last).weight,
        nn.Linear(2, 2).to(last).weight,
        nn.Linear(2, 2).cuda(last).weight,
    ):
        assert made.device == there
    with pytest.raises(cd.DeviceError, match="must not be negative"):
        cd.zeros(2, device=-1)
    with pytest.raises(cd.DeviceError, match="no device cuda:7"):
        x.cuda(7)
    for wrong in (True, 1.0, None):
        with pytest.raises(cd.DTypeError, match="named by a string"):
            cd.device(wrong)


def test_a_number_needs_an_accelerator():
    if cd.accelerator.is_available():
        pytest.skip("there is one")
    for call in (lambda: cd.device(0), lambda: cd.ones(2).to(0), lambda: cd.zeros(2, device=0)):
        with pytest.raises(cd.DeviceError, match="Cannot access accelerator device"):
            call()


def test_cuda_copies_later_where_it_is_told_to(stand_in):
    MACHINE.delay()
    pinned = cd.ones(4).pin_memory()
    MACHINE.syncs.clear()
    y = pinned.cuda(non_blocking=True)
    assert not MACHINE.syncs
    assert y.tolist() == [1] * 4
    images = cd.zeros(1, 3, 2, 2).cuda(memory_format=cd.channels_last)
    assert images.is_contiguous(memory_format=cd.channels_last)
    packed = nn.utils.rnn.pack_sequence([cd.ones(2), cd.ones(1)])
    assert packed.cuda(non_blocking=True).data.is_cuda
    with pytest.raises(cd.DeviceError, match="must be cuda device, got cpu"):
        y.cuda("cpu")


def test_a_device_without_a_number_is_the_current_one(stand_in):
    last = cd.cuda.device_count() - 1
    x = cd.ones(2, device=last)
    assert x.to(f"cuda:{last}") is x
    moved = x.to("cuda")
    assert moved.device == cd.device("cuda", 0)
    assert (moved is x) == (last == 0)
    with cd.cuda.device(last):
        assert x.cuda() is x
        assert moved.to("cuda").device == x.device
    assert x.cpu().to("cpu").device == cd.device("cpu")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_sizes_of_a_packed_sequence_stay_on_the_cpu(stand_in, kind):
    last = cd.cuda.device_count() - 1
    module = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True)
    x, lengths = cd.randn(5, 3, 3), cd.tensor([2, 5, 3])

    def run(module, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        assert packed.batch_sizes.device == cd.device("cpu")
        out = nn.utils.rnn.pad_packed_sequence(module(packed)[0])[0]
        return out, cd.autograd.grad(out.square().sum(), list(module.parameters()))

    out, grads = run(module, x)
    there, x = module.to(f"cuda:{last}"), x.to(f"cuda:{last}")
    moved, moved_grads = run(there, x)
    assert moved.device == x.device
    cd.testing.assert_close([moved.cpu(), *(g.cpu() for g in moved_grads)], [out, *grads])
    with cd.autocast("cuda"):
        assert run(there, x)[0].dtype is cd.float16


def test_places_to_cut_at_stay_on_the_cpu(stand_in):
    x = cd.arange(6).to("cuda")
    MACHINE.syncs.clear()
    parts = x.tensor_split(cd.tensor([1, 3]))
    assert not MACHINE.syncs and {p.device for p in parts} == {x.device}
    assert [p.tolist() for p in parts] == [[0], [1, 2], [3, 4, 5]]
    assert len(x.tensor_split(cd.tensor(3))) == 3
    assert len(x.tensor_split(cd.tensor([1, 3]).to("cuda"))) == 3
    assert "the operator reads itself" in str(cd.explain("tensor_split", x, cd.tensor([1, 3])))
    with pytest.raises(cd.DeviceError, match="expected all tensors on one device"):
        cd.lstm(
            cd.ones(2, 1).to("cuda"), cd.tensor([1, 1]), [cd.ones(1, 1, 1)] * 2,
            [cd.ones(4, 1)] * 2, False, 1, 0.0, False, False,
        )  # fmt: skip


def test_an_integer_on_a_device_indexes_tensors_anywhere(stand_in):
    one, last = cd.tensor(1).to("cuda"), cd.cuda.device_count() - 1
    x = cd.arange(6).reshape(2, 3)
    for there in (x, x.to(f"cuda:{last}")):
        assert there[one].tolist() == [3, 4, 5]
        assert there[one, cd.tensor([0, 2])].tolist() == [3, 5]
        written = there.clone()
        written[0, one] = 7
        assert written.tolist() == [[0, 7, 2], [3, 4, 5]] and written.device == there.device
    for wrong in (one[None], one.bool()):
        with pytest.raises(cd.DeviceError, match="expected all tensors on one device"):
            x[wrong]
