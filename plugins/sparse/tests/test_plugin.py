"""The plugin as a plugin: found, unloaded, loaded again."""

from __future__ import annotations

import pytest

import coredispatch as cd
import coredispatch_sparse as sparse
from coredispatch.plugin import DeviceError


def test_found_through_the_entry_point():
    assert cd.plugins["sparse"].status == "loaded"
    assert "products" in cd.plugins.info("sparse")


def test_unloading_takes_everything_away_and_loading_brings_it_back():
    a = cd.eye(3).to_sparse_csr()
    cd.plugins.unload("sparse")
    try:
        assert not hasattr(cd.Tensor, "to_sparse_csr")
        assert not hasattr(cd.Tensor, "_nnz")
        assert "csr_matmul" not in dir(cd.ops)
        with pytest.raises(DeviceError, match="not loaded"):
            a @ cd.ones(3, 2)
    finally:
        cd.plugins.load("sparse")
    assert (a @ cd.ones(3, 2)).tolist() == cd.ones(3, 2).tolist()
    assert a._nnz() == sparse.nnz(a) == 3
