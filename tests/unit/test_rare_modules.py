"""Modules and names that few programs import, and what they do where there is no device."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.cuda import comm, jiterator, tunable
from coredispatch.optim import _multi_tensor
from coredispatch.profiler import itt


class TestFilesAsTensors:
    def test_a_private_copy(self, tmp_path: Path) -> None:
        path = tmp_path / "x.bin"
        np.arange(4, dtype=np.float32).tofile(path)
        x = cd.from_file(str(path), size=3, requires_grad=True)
        assert x.tolist() == [0, 1, 2] and x.requires_grad and x.dtype is cd.float32
        x.detach()[0] = 5
        assert np.fromfile(path, np.float32)[0] == 0
        assert cd.from_file(path, size=0).shape == (0,)

    def test_a_shared_file_is_made_and_written(self, tmp_path: Path) -> None:
        path = tmp_path / "x.bin"
        x = cd.from_file(str(path), True, 4, dtype=cd.int16)
        x[1] = 7
        assert cd.from_file(str(path), shared=False, size=4, dtype=cd.int16).tolist() == [
            0,
            7,
            0,
            0,
        ]
        assert cd.from_file(str(path), True, 6, dtype=cd.int16).tolist() == [0, 7, 0, 0, 0, 0]

    def test_refusals(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match=r"unable to open file <.*none> in read-only mode"):
            cd.from_file(str(tmp_path / "none"), size=1)
        with pytest.raises(RuntimeError, match="unable to open file <.*> in read-write mode"):
            cd.from_file(str(tmp_path / "no" / "folder"), True, 1)
        (tmp_path / "x").write_bytes(b"1234")
        with pytest.raises(RuntimeError, match="size <4> is smaller than the required .* <8>"):
            cd.from_file(str(tmp_path / "x"), size=2)


class TestSeveralDevices:
    def test_what_needs_no_device(self) -> None:
        x, y = cd.ones(2), cd.arange(2.0)
        assert comm.reduce_add([x, y]).tolist() == [1, 2]
        first, second = comm.reduce_add_coalesced([[x, y], [x, y]])
        assert first.tolist() == [2, 2] and second.tolist() == [0, 2]
        assert comm.gather([x, y], destination="cpu").tolist() == [1, 1, 0, 1]
        out = cd.zeros(4)
        assert comm.gather([x, y], out=out) is out and out.tolist() == [1, 1, 0, 1]
        parts = comm.scatter(cd.arange(4.0), out=[cd.zeros(1), cd.zeros(3)])
        assert [part.tolist() for part in parts] == [[0], [1, 2, 3]]
        (copy,) = comm.broadcast(x, out=[cd.zeros(2)])
        assert copy.tolist() == [1, 1]

    def test_refusals(self) -> None:
        x = cd.ones(2)
        for call in (comm.broadcast, comm.scatter):
            with pytest.raises(ValueError, match="Expected a non cpu device, but got: cpu"):
                call(x, ["cpu"])
            with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
                call(x)
        with pytest.raises(ValueError, match="tensors of one shape"):
            comm.reduce_add([x, cd.ones(3)])


def test_nothing_is_tuned() -> None:
    tunable.enable(False), tunable.tuning_enable(False), tunable.record_untuned_enable(False)
    assert not (tunable.is_enabled() or tunable.tuning_is_enabled())
    assert not tunable.record_untuned_is_enabled() and tunable.get_results() == ()
    before = tunable.get_filename()
    tunable.set_filename("other.csv")
    assert tunable.get_filename() == "other.csv"
    tunable.set_filename(before)
    for call in (tunable.enable, tunable.tuning_enable, tunable.record_untuned_enable):
        with pytest.raises(NotImplementedError, match=f"tunable.{call.__name__}: "):
            call()


@pytest.mark.skipif(cd.cuda.is_available(), reason="a device is here")
def test_what_needs_a_device_says_so() -> None:
    kernel = jiterator._create_jit_fn("template <typename T> T k(T x) { return x; }")
    with pytest.raises(AssertionError, match="Jiterator is only supported on CUDA"):
        kernel(cd.ones(1))
    make: Any = importlib.import_module("coredispatch.cuda.sparse").FloatTensor
    with pytest.raises(Exception, match="(?i)cuda|device"):
        make([[0]], [1.0], (1,))


def test_there_is_no_itt_and_no_xnnpack() -> None:
    assert not itt.is_available() and cd.backends.xnnpack.enabled is False
    with pytest.raises(RuntimeError, match="ITT functions not installed"), itt.range("a"):
        pass
    with pytest.raises(RuntimeError, match="Assignment not supported"):
        cd.backends.xnnpack.enabled = True


def test_older_names_of_optimizers_step_all_together() -> None:
    weight = cd.ones(1, requires_grad=True)
    optimizer = _multi_tensor.SGD([weight], 0.5)
    assert isinstance(optimizer, cd.optim.SGD) and optimizer.defaults["foreach"] is True
    weight.grad = cd.ones(1)
    optimizer.step()
    assert weight.item() == 0.5
    for name in _multi_tensor.__all__:
        assert getattr(_multi_tensor, name)([weight]).defaults["foreach"] is True


def test_the_old_form_of_files_is_pytorchs() -> None:
    file = io.BytesIO()
    cd.save({"a": cd.ones(1)}, file, _use_new_zipfile_serialization=False)
    assert file.getvalue().startswith(b"\x80\x02\x8a\n")
    file.seek(0)
    assert cd.load(file)["a"].tolist() == [1]


def test_embedding_bag_takes_its_old_order() -> None:
    table, indices, offsets = cd.randn(3, 2), cd.tensor([0, 1, 2]), cd.tensor([0, 1])
    with pytest.warns(UserWarning, match="Argument order"):
        older = cd.nn.functional.embedding_bag(table, indices, offsets)
    assert older.equal(cd.nn.functional.embedding_bag(indices, table, offsets))
