"""``copy.copy``, and that arrays over somebody's memory keep it allocated."""

from __future__ import annotations

import copy
import gc
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd


def disturbed_memory() -> list[Any]:
    """Arrays that take the place of memory that was freed before."""
    gc.collect()
    return [np.full(size, -77.0) for size in range(1, 400) for _ in range(20)]


@pytest.mark.parametrize("count", [2, 50, 300])
def test_a_copy_of_a_view_keeps_the_memory(count: int) -> None:
    twin = copy.copy(cd.arange(2.0 * count, dtype=cd.float64).reshape(2, count)[1])
    kept = disturbed_memory()
    assert twin.tolist() == list(range(count, 2 * count))
    assert kept


def test_a_rebuilt_view_keeps_the_memory() -> None:
    # copyreg and libraries call what __reduce_ex__ returns without pickling its arguments.
    rebuild, arguments, *_ = cd.arange(8.0).reshape(2, 4)[1].__reduce_ex__(4)
    twin = rebuild(*arguments)
    del arguments
    kept = disturbed_memory()
    assert twin.tolist() == [4.0, 5.0, 6.0, 7.0]
    assert kept


@pytest.mark.parametrize("index", [slice(None), 1, (slice(None), 0), slice(None, 1)])
def test_a_copy_shares_memory_and_version(index: Any) -> None:
    base = cd.arange(6.0).reshape(3, 2)
    source = base[index]
    twin = copy.copy(source)
    assert twin is not source
    assert twin.data_ptr() == source.data_ptr()
    assert twin.stride() == source.stride()
    source.add_(10.0)
    assert twin.tolist() == source.tolist() == base[index].tolist()
    assert twin._version == source._version == 1
    twin.zero_()
    assert source.tolist() == twin.tolist() == base[index].tolist()


def test_a_copy_over_read_only_memory_stays_read_only() -> None:
    array = np.arange(4.0)
    array.flags.writeable = False
    rebuild, arguments, *_ = cd.from_numpy(array).view(2, 2)[1].__reduce_ex__(4)
    assert not rebuild(*arguments).numpy().flags.writeable
    assert not copy.copy(cd.from_numpy(array)[1:]).numpy().flags.writeable


def test_a_copy_is_a_leaf_of_the_same_class() -> None:
    weight = cd.nn.Parameter(cd.ones(2))
    weight.label = label = ["kept"]
    (weight * 3).sum().backward()
    twin = copy.copy(weight)
    assert type(twin) is cd.nn.Parameter
    assert twin.requires_grad
    assert twin.is_leaf
    assert twin.grad is None
    assert twin.label is label
    (twin * 5).sum().backward()
    assert twin.grad.tolist() == [5.0, 5.0]
    assert weight.grad.tolist() == [3.0, 3.0]
    product = copy.copy(weight * 2)
    assert product.is_leaf
    assert product.requires_grad


def test_copies_that_are_pickled_together_share_memory_again() -> None:
    base = cd.arange(6.0)
    row = base.view(2, 3)[1]
    loaded = pickle.loads(pickle.dumps([base, copy.copy(row), copy.copy(base)]))
    loaded[0].mul_(-1.0)
    assert loaded[1].tolist() == [-3.0, -4.0, -5.0]
    assert loaded[2].tolist() == loaded[0].tolist()


def test_a_write_to_a_copy_is_noticed_by_autograd() -> None:
    x = cd.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    copy.copy(y).detach().add_(1.0)
    with pytest.raises(RuntimeError, match="in-place|written|version"):
        z.sum().backward()


def test_meta_tensors_and_scalars_are_copied() -> None:
    assert copy.copy(cd.empty(2, 3, device="meta")).shape == (2, 3)
    assert copy.copy(cd.tensor(3)).item() == 3
    assert copy.copy(cd.empty(0, 4)).shape == (0, 4)


ROOT = Path(__file__).resolve().parents[3]
FROM_ADDRESS = re.compile(
    r"from_address|__array_interface__\"?\s*[=:]|[cf]array\(|as_array\(|ctypeslib"
)
#: the first makes arrays that hold an owner, the second reads the header of a capsule that it
#: holds, the third is a library of C functions to its callers: it gets addresses as NCCL does
KNOWN = {
    "coredispatch/frontend/memory_spans.py",
    "coredispatch/frontend/dlpack.py",
    "plugins/cuda_cupy/tests/cublaslt_stand_in.py",
    "plugins/cuda_cupy/tests/cudnn_stand_in.py",
    "plugins/cuda_cupy/tests/nccl_stand_in.py",
}


def test_arrays_are_made_from_addresses_in_one_place() -> None:
    found = {
        str(file.relative_to(ROOT))
        for folder in ("coredispatch", "plugins", "examples", "tests/conformance")
        for file in (ROOT / folder).rglob("*.py")
        if "build" not in file.parts and FROM_ADDRESS.search(file.read_text())
    }
    assert found == KNOWN
