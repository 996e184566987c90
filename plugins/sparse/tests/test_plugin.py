"""The plugin as a plugin: found, unloaded, loaded again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import coredispatch as cd
import coredispatch_sparse as sparse
from coredispatch.plugin import DeviceError


def test_found_through_the_entry_point():
    assert cd.plugins["sparse"].status == "loaded"
    assert "products" in cd.plugins.info("sparse")


def test_methods_are_there_before_anything_was_dispatched():
    program = "import coredispatch as cd; print(cd.tensor([[1.0]]).to_sparse_csr().layout)"
    env = {name: value for name, value in os.environ.items() if name != "COREDISPATCH_PLUGINS"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "sparse_csr", done.stderr


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


def test_what_is_stored_by_index_is_told():
    a = cd.sparse_coo_tensor([[0, 0, 1], [1, 1, 2]], [1.0, 2.0, 3.0], (2, 3))
    assert a.is_coalesced() is True and a._nnz() == 2
    assert (a.sparse_dim(), a.dense_dim()) == (2, 0)


def test_a_fresh_process_finds_the_layout_of_a_saved_file(tmp_path):
    cd.save({"a": cd.eye(3).to_sparse_csr()}, tmp_path / "a.cd")
    program = "import sys, coredispatch as cd; print(cd.load(sys.argv[1])['a'].layout)"
    env = {name: value for name, value in os.environ.items() if name != "COREDISPATCH_PLUGINS"}
    command = [sys.executable, "-c", program, str(tmp_path / "a.cd")]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "sparse_csr", done.stderr
    env["COREDISPATCH_PLUGINS"] = "none"
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert "no plugin reads the layout 'sparse_csr'" in done.stderr
    assert "cd.plugins.load('sparse')" in done.stderr
