"""``save``/``load``, pickling and deep copies."""

from __future__ import annotations

import collections
import copy
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.serialization import SerializationError, UnsafeGlobalError

DTYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
    "complex64 complex128"
).split()


def through_file(obj: Any, **options: Any) -> Any:
    buffer = io.BytesIO()
    cd.save(obj, buffer)
    buffer.seek(0)
    return cd.load(buffer, **options)


def through_pickle(obj: Any) -> Any:
    return pickle.loads(pickle.dumps(obj))


WAYS = [through_file, through_pickle, copy.deepcopy]


def same(a: Any, b: Any) -> bool:
    return a.dtype is b.dtype and a.shape == b.shape and np.array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_every_dtype_and_shape_survives(way: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = cd.arange(int(np.prod(shape))).reshape(shape).to(getattr(cd, dtype))
    y = way(x)
    assert y is not x
    assert same(x, y)
    assert not y.requires_grad
    if x.numel():
        assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("way", WAYS)
def test_strides_survive(way: Any) -> None:
    x = cd.arange(24).reshape(2, 3, 4)
    assert way(x.permute(2, 0, 1)).stride() == (1, 12, 4)
    backwards = cd.from_numpy(np.arange(5)[::-1]) if way is not through_file else None
    if backwards is not None:
        assert way(backwards).tolist() == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("way", WAYS)
def test_views_share_memory_again(way: Any) -> None:
    base = cd.arange(6.0)
    parts = {"base": base, "row": base.view(2, 3)[1], "again": base}
    copied = way(parts)
    assert copied["again"] is copied["base"]
    copied["row"].mul_(-1.0)
    assert copied["base"].tolist() == [0.0, 1.0, 2.0, -3.0, -4.0, -5.0]
    assert copied["row"]._version == copied["base"]._version == 1
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_shared_memory_is_written_once(tmp_path: Path) -> None:
    base = cd.zeros(100_000)
    cd.save([base, base[:50_000], base.view(10, 10_000)], tmp_path / "shared")
    assert (tmp_path / "shared").stat().st_size < 410_000


def test_a_slice_does_not_drag_its_base_into_the_file(tmp_path: Path) -> None:
    base = cd.zeros(1000, 1000)
    cd.save(base[3], tmp_path / "row")
    cd.save(base[:, 3], tmp_path / "column")
    assert (tmp_path / "row").stat().st_size < 6000
    assert (tmp_path / "column").stat().st_size < 6000


@pytest.mark.parametrize("way", WAYS)
def test_requires_grad_and_attributes_survive(way: Any) -> None:
    x = cd.tensor([1.0, 2.0], requires_grad=True)
    x.label = "weights"
    y = way(x)
    assert y.requires_grad
    assert y.is_leaf
    assert y.label == "weights"
    (y * 2).sum().backward()
    assert y.grad.tolist() == [2.0, 2.0]
    assert x.grad is None


def test_deepcopy_copies_the_gradient_and_pickle_does_not() -> None:
    x = cd.tensor([1.0], requires_grad=True)
    (3 * x).sum().backward()
    y = copy.deepcopy(x)
    assert y.grad.tolist() == [3.0]
    assert y.grad is not x.grad
    assert through_pickle(x).grad is None


def test_deepcopy_refuses_a_tensor_with_history() -> None:
    x = cd.tensor([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="only leaf tensors can be deep-copied"):
        copy.deepcopy(x * 2)
    saved = through_file(x * 2)  # saving keeps the elements, as in PyTorch
    assert saved.requires_grad
    assert saved.is_leaf


def test_containers_and_numbers() -> None:
    obj = {
        "state": collections.OrderedDict(weight=cd.ones(2), step=3),
        "lists": [1, 2.5, 1j, "text", b"bytes", None, True, (1, (2,)), {1, 2}, slice(1, 2)],
        "details": [cd.float32, cd.device("cpu"), cd.Size([2, 3])],
        "arrays": [np.arange(3), np.float64(2.5), np.array(["a", "b"])],
        "defaults": collections.defaultdict(list, a=[1]),
    }
    loaded = through_file(obj)
    assert loaded["lists"] == obj["lists"]
    assert loaded["details"] == obj["details"]
    assert loaded["details"][0] is cd.float32
    assert type(loaded["details"][2]) is cd.Size
    assert type(loaded["state"]) is collections.OrderedDict
    assert loaded["state"]["weight"].tolist() == [1.0, 1.0]
    assert loaded["defaults"]["new"] == []
    for ours, theirs in zip(loaded["arrays"], obj["arrays"]):
        assert type(ours) is type(theirs)
        np.testing.assert_array_equal(ours, theirs)


def test_a_cycle_through_attributes() -> None:
    x = cd.ones(1)
    x.me = x
    y = through_file(x)
    assert y.me is y


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def test_other_classes_need_permission() -> None:
    with pytest.raises(UnsafeGlobalError, match=r"holds .*Point.*weights_only=True"):
        through_file(Point(3))
    with pytest.raises(pickle.UnpicklingError, match="weights_only=False"):
        through_file(Point(3))
    assert through_file(Point(3), weights_only=False).x == 3
    with cd.serialization.safe_globals([Point]):
        assert through_file(Point(3)).x == 3
        assert cd.serialization.get_safe_globals() == [Point]
    assert cd.serialization.get_safe_globals() == []


def test_operators_need_permission_one_by_one() -> None:
    state = {"activation": cd.relu, "other": cd.nn.functional.relu}
    with pytest.raises(UnsafeGlobalError, match=r"operator 'relu'.*weights_only(.|\n)*ops.relu"):
        through_file(state)
    with cd.serialization.safe_globals([cd.tanh]), pytest.raises(UnsafeGlobalError, match="relu"):
        through_file(state)
    with cd.serialization.safe_globals([cd.nn.functional.relu]):
        assert through_file(state) == state


class Exploit:
    def __reduce__(self) -> Any:
        return os.system, ("echo this must not run",)


def test_loading_runs_no_code(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsafeGlobalError, match="can run code"):
        through_file({"a": [Exploit()]})
    assert capfd.readouterr().out == ""


def test_object_arrays_are_not_trusted() -> None:
    with pytest.raises(UnsafeGlobalError):
        through_file(np.array([Point(1)], dtype=object))


def test_map_location() -> None:
    x = cd.ones(2)
    assert through_file(x, map_location="cpu").device == cd.device("cpu")
    assert through_file(x, map_location=cd.device("cpu")).tolist() == [1.0, 1.0]
    assert through_file(x, map_location=lambda storage, place: storage).tolist() == [1.0, 1.0]
    assert through_file(x, map_location={"cuda:0": "cpu"}).tolist() == [1.0, 1.0]
    assert through_file(x, map_location="meta").is_meta
    with pytest.raises(SerializationError, match="nowhere"):
        through_file(x, map_location="nowhere")
    with pytest.raises(TypeError, match="map_location"):
        through_file(x, map_location=3)


def test_a_device_that_is_not_here_is_named() -> None:
    buffer = io.BytesIO()
    cd.save(cd.ones(2), buffer)
    elsewhere = buffer.getvalue().replace(b'"device": "cpu"', b'"device": "tpu"')
    moved = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(buffer.getvalue())) as source:
        with zipfile.ZipFile(moved, "w") as target:
            for name in source.namelist():
                target.writestr(name, source.read(name).replace(b'"cpu"', b'"tpu"'))
    assert elsewhere != buffer.getvalue()
    moved.seek(0)
    with pytest.raises(SerializationError, match=r"'tpu'[\s\S]*map_location='cpu'"):
        cd.load(moved)
    moved.seek(0)
    assert cd.load(moved, map_location="cpu").tolist() == [1.0, 1.0]


def test_meta_tensors_keep_their_shape() -> None:
    x = through_file(cd.empty(2, 3, dtype=cd.int32, device="meta"))
    assert x.is_meta
    assert x.shape == (2, 3)
    assert x.dtype is cd.int32


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.95])
def test_a_file_that_was_cut_off(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "model"
    cd.save({"w": cd.ones(1000)}, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(SerializationError, match="empty|cut off"):
        cd.load(path)


def test_damaged_data_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model"
    cd.save({"w": cd.ones(1000)}, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(SerializationError, match="damaged"):
        cd.load(path)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(SerializationError, match=r"a pickle, but no file of torch\.save"):
        cd.load(path)
    path.write_bytes(b"some other file")
    with pytest.raises(SerializationError, match=r"was not written by coredispatch\.save"):
        cd.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    with pytest.raises(SerializationError, match=r"data\.pkl"):
        cd.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("format.json", '{"format": "coredispatch tensors", "version": 99}')
    with pytest.raises(SerializationError, match="version 99"):
        cd.load(path)
    with pytest.raises(FileNotFoundError):
        cd.load(tmp_path / "nothing")
    with pytest.raises(TypeError, match="path or a binary file"):
        cd.load(3)  # type: ignore[arg-type]
    with open(path) as text, pytest.raises(TypeError, match="binary file, got TextIOWrapper"):
        cd.load(text)
    with pytest.raises(TypeError, match="binary file, got StringIO"):
        cd.save(1, io.StringIO())


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    cd.save([1], path)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        cd.save([2, lambda: 0], path)
    assert cd.load(path) == [1]
    assert os.listdir(tmp_path) == ["model"]


def test_a_link_goes_on_pointing_to_its_file(tmp_path: Path) -> None:
    cd.save([1], tmp_path / "target")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    cd.save([2], tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert cd.load(tmp_path / "target") == [2]


def test_equal_objects_give_equal_files() -> None:
    files = []
    for _ in range(2):
        buffer = io.BytesIO()
        cd.save({"w": cd.arange(10.0), "n": 3}, buffer)
        files.append(buffer.getvalue())
    assert files[0] == files[1]


def test_a_stream_that_cannot_seek() -> None:
    class Stream(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self.rest = data

        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return False

        def readinto(self, target: Any) -> int:
            count = min(len(target), len(self.rest))
            target[:count], self.rest = self.rest[:count], self.rest[count:]
            return count

    buffer = io.BytesIO()
    cd.save(cd.ones(3), buffer)
    assert cd.load(Stream(buffer.getvalue())).tolist() == [1.0, 1.0, 1.0]


def test_loaded_tensors_can_be_written() -> None:
    x = through_file(cd.ones(3))
    x += 1
    assert x.tolist() == [2.0, 2.0, 2.0]


# -- modules and optimizers ----------------------------------------------------------------


def model() -> Any:
    nn = cd.nn
    # No bias: normalization takes it away, and its gradient would be rounding errors alone.
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def test_a_checkpoint_restores_model_and_optimizer() -> None:
    first, second = model(), model()
    optimizers = [cd.optim.Adam(m.parameters(), lr=0.1) for m in (first, second)]
    x = cd.randn(5, 3)
    first(x).sum().backward()
    optimizers[0].step()
    saved = through_file({"model": first.state_dict(), "adam": optimizers[0].state_dict()})
    second.load_state_dict(saved["model"])
    optimizers[1].load_state_dict(saved["adam"])
    for m, optimizer in zip((first, second), optimizers):
        optimizer.zero_grad()
        m(x).square().sum().backward()
        optimizer.step()
    for a, b in zip(first.parameters(), second.parameters()):
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", [copy.deepcopy, through_pickle])
def test_modules_are_copied_and_pickled(way: Any) -> None:
    original = model().eval()
    twin = way(original)
    assert type(twin[0].weight) is cd.nn.Parameter
    assert twin[0].weight is not original[0].weight
    for (name, ours), (_, theirs) in zip(twin.named_parameters(), original.named_parameters()):
        assert same(ours.detach(), theirs.detach()), name
    x = cd.randn(2, 3)  # BLAS rounds by the alignment of its operands, so not bit for bit
    np.testing.assert_allclose(twin(x).tolist(), original(x).tolist(), rtol=1e-5, atol=1e-6)


def test_parameters_stay_parameters() -> None:
    weight = cd.nn.Parameter(cd.ones(2))
    first, second = through_file([weight, weight])
    assert type(first) is cd.nn.Parameter
    assert first is second


def test_a_generator_goes_on_where_it_stood() -> None:
    generator = cd.Generator().manual_seed(3)
    cd.rand(5, generator=generator)
    twin = through_file({"generator": generator})["generator"]
    assert cd.rand(3, generator=twin).tolist() == cd.rand(3, generator=generator).tolist()
