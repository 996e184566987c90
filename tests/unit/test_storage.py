"""Storages: the memory behind tensors."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_views_have_one_storage() -> None:
    x = cd.arange(12.0).reshape(3, 4).clone()
    storage = x.untyped_storage()
    for view in (x[1:], x.t(), x.detach(), x.data, x.view(2, 6)):
        assert view.untyped_storage() is storage
        assert view.untyped_storage().data_ptr() == x.data_ptr()
    assert x.clone().untyped_storage() is not storage
    assert storage.nbytes() == len(storage) == 48
    assert x[1:].storage_offset() * 4 == x[1:].data_ptr() - storage.data_ptr()


def test_elements_are_read_and_written() -> None:
    x = cd.tensor([1.0, 2.0, 3.0])
    storage = x.storage()
    assert isinstance(storage, cd.TypedStorage) and isinstance(storage, cd.FloatStorage)
    assert not isinstance(storage, cd.DoubleStorage)
    assert storage.tolist() == list(storage) == [1.0, 2.0, 3.0] and storage[-1] == 3.0
    storage[0] = 7
    storage[1:] = cd.tensor(5.0)
    assert x.tolist() == [7.0, 5.0, 5.0]
    storage.fill_(2)
    x.untyped_storage()[3] = 0x3F
    assert x.tolist() == [0.5, 2.0, 2.0]
    with pytest.raises(IndexError, match="out of range for storage of size 3"):
        storage[3]
    with pytest.raises(RuntimeError, match="slices are only supported"):
        storage[:2]
    with pytest.raises(TypeError, match="can't assign a str"):
        storage.fill_("a")
    assert x.untyped_storage()[:4].data_ptr() == x.data_ptr()


@given(st.lists(st.integers(-100, 100), max_size=6), st.sampled_from([
    "DoubleStorage", "FloatStorage", "HalfStorage", "BFloat16Storage", "LongStorage", "IntStorage",
    "ShortStorage", "CharStorage", "ComplexFloatStorage",
]))  # fmt: skip
def test_storages_of_every_kind(values: list[int], name: str) -> None:
    storage = getattr(cd, name)(values)
    assert storage.tolist() == values and len(storage) == len(values)
    assert storage.type().endswith(name) and storage.pickle_storage_type() == name
    assert storage.double().tolist() == values or "Complex" in name
    for twin in (storage.clone(), copy.deepcopy(storage), pickle.loads(pickle.dumps(storage))):
        assert twin.tolist() == values and twin.dtype is storage.dtype
        if values:
            twin[0] = 101
            assert storage[0] == values[0]


def test_buffers_and_bytes(tmp_path: Any) -> None:
    made = cd.UntypedStorage.from_buffer(b"\x00\x01\x00\x02", "big", dtype=cd.int16)
    assert cd.TypedStorage(wrap_storage=made, dtype=cd.int16).tolist() == [1, 2]
    with pytest.raises(ValueError, match="multiple"):
        cd.UntypedStorage.from_buffer(b"abc", "native", dtype=cd.int16)
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    assert cd.FloatStorage.from_file(str(path), False, 4).tolist() == [0, 1, 2, 3]
    shared = cd.FloatStorage.from_file(str(path), True, 6)
    shared[5] = 9
    assert np.fromfile(path, np.float32).tolist() == [0, 1, 2, 3, 0, 9]
    assert shared.filename == str(path)


def test_set() -> None:
    x, y = cd.zeros(2), cd.arange(6.0)
    assert x.set_(y) is x and x.tolist() == y.tolist()
    y[0] = 8
    assert x[0] == 8
    x.set_(y.untyped_storage(), 1, (2, 2), (1, 2))
    assert x.tolist() == [[1, 3], [2, 4]] and x.storage_offset() == 1
    x.add_(10)
    assert y.tolist() == [8, 11, 12, 13, 14, 5]
    assert x.set_(y.storage()).tolist() == y.tolist()
    assert x.set_().shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0, (100,), (1,)), RuntimeError),
        ((-1, (1,), (1,)), RuntimeError),
        ((0, (2,), (-1,)), RuntimeError),
        ((2**62, (1,), (1,)), RuntimeError),
        ((0, (2**62, 2), (2, 2**61)), RuntimeError),
    ],
)
def test_set_stays_inside_the_storage(arguments: Any, error: Any) -> None:
    x, y = cd.tensor([5.0]), cd.arange(6.0)
    with pytest.raises(error):
        x.set_(y.untyped_storage(), *arguments)
    assert x.tolist() == [5.0]
    with pytest.raises(RuntimeError):
        x.set_(cd.zeros(2, dtype=cd.int32))
    with pytest.raises(RuntimeError, match="leaf"):
        x.requires_grad_().set_(y)


def test_a_storage_that_tensors_lie_in_keeps_its_size() -> None:
    storage = cd.UntypedStorage([1, 2, 3])
    assert storage.resize_(5).tolist()[:3] == [1, 2, 3] and storage.resizable()
    cd.zeros(0, dtype=cd.uint8).set_(storage, 0, (5,), (1,))
    with pytest.raises(NotImplementedError):
        storage.resize_(9)


def test_pinning_is_refused_where_there_is_nothing_to_pin_for() -> None:
    x = cd.zeros(2)
    assert not x.is_pinned() and not x.untyped_storage().is_pinned()
    with pytest.raises(RuntimeError, match="accelerator"):
        x.pin_memory()


def test_sharing_moves_the_views_along() -> None:
    x = cd.arange(6.0)
    view = x[2:]
    deep = view.view(2, 2).t()
    assert not x.is_shared()
    assert view.share_memory_() is view and x.is_shared() and deep.is_shared()
    assert x.untyped_storage() is deep.untyped_storage()
    deep[0, 0] = 9
    assert x.tolist() == [0, 1, 9, 3, 4, 5] and view[0] == 9
    weight = cd.nn.Parameter(cd.ones(3))
    weight.share_memory_()
    (weight * 2).sum().backward()
    assert weight.is_shared() and weight.grad.tolist() == [2, 2, 2]
    storage = cd.UntypedStorage([1, 2]).share_memory_()
    assert storage.is_shared() and storage.tolist() == [1, 2]


def test_storages_of_meta_tensors_have_a_size_only() -> None:
    storage = cd.empty(3, device="meta").untyped_storage()
    assert storage.nbytes() == 12 and storage.data_ptr() == 0
    with pytest.raises(NotImplementedError):
        storage[0]
