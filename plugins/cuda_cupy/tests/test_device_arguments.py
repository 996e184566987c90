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
