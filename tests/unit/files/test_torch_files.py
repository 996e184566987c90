"""Files of PyTorch: read without PyTorch, and written so that it reads them."""

from __future__ import annotations

import collections
import io
import math
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from saved_files import archive, entries, loaded

import coredispatch as cd
from coredispatch import nn
from coredispatch.serialization import (
    SerializationError,
    UnsafeGlobalError,
    add_safe_globals,
    clear_safe_globals,
    safe_globals,
)

HERE = Path(__file__).with_name("pytorch_files")
BOTH = pytest.mark.parametrize("file", ["zip.pt", "older.pt"])


@BOTH
def test_tensors_keep_elements_strides_and_shared_memory(file: str) -> None:
    found = cd.load(HERE / file)
    base, every_second, row, turned, expanded = found["views"]
    assert base.tolist() == list(range(12)) and turned.stride() == (1, 4)
    assert every_second.tolist() == [0, 2, 4, 6, 8, 10] and row.storage_offset() == 4
    assert expanded.shape == (4, 1) and expanded.stride()[0] == 0
    base[4] = 99
    assert every_second[2] == row[0] == turned[0, 1] == 99
    for name, tensor in found["dtypes"].items():
        assert tensor.dtype is getattr(cd, name) and tensor.tolist() == [0, 1, 1]
    assert found["empty"].shape == (0, 3) and found["scalar"].item() == 3.5
    assert found["meta"].is_meta and found["meta"].shape == (2, 3)
    assert found["conj"].tolist() == [1 - 2j] and found["neg"].tolist() == [-2]
    assert isinstance(found["typed"], cd.FloatStorage) and found["typed"][4] == 99


@BOTH
def test_parameters_and_attributes(file: str) -> None:
    found = cd.load(HERE / file)
    assert found["labelled"].requires_grad and found["labelled"].label == {"a": 1}
    assert found["labelled"] is found["again"]
    assert type(found["parameter"]) is nn.Parameter and found["parameter"].requires_grad
    assert found["parameter"].note == "hi"
    assert type(found["frozen"]) is nn.Parameter and not found["frozen"].requires_grad


@BOTH
def test_everything_else(file: str) -> None:
    found = cd.load(HERE / file)
    assert found["facts"] == [cd.Size([2, 3]), cd.device("cuda:1"), cd.float16, cd.strided]
    assert found["python"][:4] == [1, -5, 2**40, 2**70] and found["python"][-1] == "\u20ac" * 50
    assert math.isinf(found["python"][5]) and found["python"][6:9] == [1j, True, None]
    assert found["bytes"] == [b"bytes", b"", bytearray(b"ab")]
    assert found["containers"] == [(1, (2, ())), {1, 2}, {3}, range(3), slice(1, None, 2)]
    assert found["mappings"][:2] == [collections.OrderedDict(a=1), collections.Counter("aab")]
    assert found["mappings"][2]["new"] == [] and found["mappings"][3].maxlen == 3
    first, number, text, fortran, swapped, empty, dtype = found["numpy"]
    assert first.tolist() == [[0, 1, 2], [3, 4, 5]] and type(number) is np.float64
    assert text.tolist() == ["ab", "c"] and swapped.dtype == ">i4" and swapped.tolist() == [0, 1, 2]
    assert fortran.flags.f_contiguous and empty.shape == (0, 3) and dtype == np.float32


def test_unsigned_integers_and_bytes() -> None:
    found = cd.load(HERE / "unsigned.pt")
    for n in (16, 32, 64):
        assert found[f"u{n}"].dtype is getattr(cd, f"uint{n}") and found[f"u{n}"].tolist() == [1, 2]
    assert found["bytes"].tolist() == [1, 2, 3]


def model() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)
    )


@pytest.mark.parametrize("mmap", [False, True])
def test_a_state_scores_the_same(mmap: bool) -> None:
    found = cd.load(HERE / "state.pt", mmap=mmap)
    mine = model()
    assert mine.load_state_dict(found["model"]).missing_keys == []
    assert found["model"]._metadata["1"] == {"version": 2}
    cd.optim.AdamW(mine.parameters()).load_state_dict(found["optimizer"])
    cd.testing.assert_close(mine.eval()(found["x"]), found["y"])


def test_whole_modules_need_trust() -> None:
    file = "module.pt"
    with pytest.raises(UnsafeGlobalError, match=r"torch\.nn\.modules\.container\.Sequential"):
        cd.load(HERE / file)
    found = cd.load(HERE / file, weights_only=False)
    assert repr(found) == repr(model()) and not found.training
    state = cd.load(HERE / "state.pt")
    cd.testing.assert_close(found(state["x"]), state["y"])
    found.train()(state["x"]).sum().backward()
    assert found[0].weight.grad is not None


def test_classes_of_the_user_are_admitted_by_name() -> None:
    classes = [nn.Sequential, nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Flatten, nn.Linear]
    with safe_globals([*classes, set]):
        found = cd.load(HERE / "module.pt")
    assert isinstance(found, nn.Sequential)
    add_safe_globals([(nn.Linear, "elsewhere.Dense")])
    assert nn.Linear in cd.serialization.get_safe_globals()
    clear_safe_globals()


def test_a_sparse_matrix() -> None:
    pytest.importorskip("coredispatch_sparse")
    found = cd.load(HERE / "csr.pt")
    assert found.layout == "sparse_csr" and found.to_dense().tolist() == np.eye(3).tolist()


def test_where_tensors_go() -> None:
    places: list[str] = []

    def place(storage: Any, location: str) -> Any:
        places.append(location)
        return storage

    assert cd.load(HERE / "state.pt", place)["x"].device.type == "cpu" and set(places) == {"cpu"}
    for location in ("meta", cd.device("meta"), {"cpu": "meta"}, lambda storage, _: "meta"):
        assert cd.load(HERE / "state.pt", location)["x"].is_meta


@BOTH
@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.6, 0.99])
def test_a_file_that_was_cut_off(file: str, keep: float) -> None:
    data = (HERE / file).read_bytes()
    with pytest.raises(SerializationError, match="the file"):
        loaded(data[: int(len(data) * keep)])


GLOBAL = b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR."
CHEATS = [
    (GLOBAL, UnsafeGlobalError),
    (b"\x80\x02cbuiltins\neval\n(X\x01\x00\x00\x001tR.", UnsafeGlobalError),
    (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(K\x01tR.", SerializationError),
    (b"\x80\x02}(X\x01\x00\x00\x00aK\x01uX\x01\x00\x00\x00bb.", SerializationError),
    (b"\x80\x02h\x05.", SerializationError),
    (b"\x80\x02X\xff\xff\xff\x7f.", SerializationError),
    (b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00O8\x85R.", SerializationError),
    (b"\x80\x02(lp0\n.", SerializationError),
]


@pytest.mark.parametrize(("pickle", "error"), CHEATS)
def test_a_pickle_does_nothing(pickle: bytes, error: Any) -> None:
    with pytest.raises(error):
        loaded(archive({"archive/data.pkl": pickle, "archive/version": b"3\n"}))


DEEP = {
    "lists": lambda depth: b"]" * (depth + 1) + b"a" * depth,
    "tuples": lambda depth: b")" + b"\x85" * depth,
}


@pytest.mark.parametrize("kind", DEEP)
def test_a_level_of_one_byte_does_not_take_a_kibibyte_without_end(kind: str) -> None:
    def file(depth: int) -> bytes:
        pickle = b"\x80\x02" + DEEP[kind](depth) + b"."
        return archive({"archive/data.pkl": pickle, "archive/version": b"3\n"})

    found = loaded(file(5_000))
    for _ in range(5_000):
        (found,) = found
    assert len(found) == 0
    with pytest.raises(SerializationError, match="data.pkl, node .* more than 20000 deep"):
        loaded(file(30_000))
    trusted = loaded(file(30_000), weights_only=False)
    for _ in range(30_000):  # level by level, so that nothing is freed by recursion
        (trusted,) = trusted


def tensor_file(
    offset: int, size: tuple[int, ...], stride: tuple[int, ...], count: int, data: bytes = bytes(64)
) -> bytes:
    """A file with one tensor, whose place is chosen freely."""

    def number(n: int) -> bytes:
        raw = n.to_bytes((n.bit_length() + 8) // 8, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw

    def numbers(ns: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, ns)) + b"t"

    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
    storage += b"X\x03\x00\x00\x00cpu" + number(count) + b"tQ"
    pickle = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset)
    pickle += numbers(size) + numbers(stride) + b"\x89ccollections\nOrderedDict\n)RtR."
    return archive({"archive/data.pkl": pickle, "archive/data/0": data, "archive/version": b"3"})


def test_a_tensor_lies_inside_its_storage() -> None:
    assert loaded(tensor_file(1, (2, 3), (3, 1), 16)).shape == (2, 3)
    bad: list[tuple[int, tuple[int, ...], tuple[int, ...], int]] = [
        (0, (17,), (1,), 16),
        (0, (17,), (1,), 17),
        (0, (2**62 + 1,), (1,), 16),
        (2**62, (1,), (1,), 16),
        (0, (2,), (2**62,), 16),
        (-1, (1,), (1,), 16),
        (4, (2,), (-1,), 16),
        (0, (-1,), (1,), 16),
        (0, (2, 2), (1,), 16),
        (0, (1,), (1,), -1),
        (0, (1,), (1,), 2**61),
    ]
    for case in bad:
        with pytest.raises(SerializationError, match="data.pkl|storage '0'"):
            loaded(tensor_file(*case))


def test_foreign_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("a/data.pkl", b"\x80\x02N.")
        target.writestr("a/constants.pkl", b"")
    with pytest.raises(SerializationError, match="TorchScript"):
        cd.load(path)
    path.write_bytes(b"sys_info".ljust(257, b"\0") + b"ustar\0" + bytes(300))
    with pytest.raises(SerializationError, match=r"tar format .* before version 0\.1\.10"):
        cd.load(path)
    with pytest.raises(ValueError, match="mmap"):
        cd.load(io.BytesIO((HERE / "zip.pt").read_bytes()), mmap=True)
    with pytest.raises(ValueError, match="cannot be mapped"):
        cd.load(HERE / "older.pt", mmap=True)


def test_texts_of_python_2() -> None:
    data = archive({"a/data.pkl": b"\x80\x02U\x01\xe9.", "a/version": b"3"})
    with pytest.raises(SerializationError, match="encoding='latin1'"):
        loaded(data)
    assert loaded(data, encoding="latin1") == "\xe9" and loaded(data, encoding="bytes") == b"\xe9"


def test_another_byte_order() -> None:
    parts = entries(tensor_file(0, (4,), (1,), 4, np.arange(4, dtype=">f4").tobytes()))
    parts["archive/byteorder"] = b"big"
    assert loaded(archive(parts)).tolist() == [0, 1, 2, 3]


# -- writing -------------------------------------------------------------------------------------


def written(obj: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    cd.save(obj, buffer, format="torch", **options)
    return buffer.getvalue()


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_what_is_written_is_read_again(options: Any) -> None:
    before = cd.load(HERE / "older.pt")
    del before["facts"][3], before["typed"]
    after = loaded(written(before, **options))
    assert after["views"][3].stride() == (1, 4)
    after["views"][0][4] = 77
    assert after["views"][3][0, 1] == 77
    assert after["parameter"].note == "hi" and after["labelled"] is after["again"]
    assert {n: t.tolist() for n, t in after["dtypes"].items()} == {
        n: t.tolist() for n, t in before["dtypes"].items()
    }
    assert after["facts"] == before["facts"] and after["mappings"] == before["mappings"]


def test_what_pytorch_cannot_read_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    for obj in (nn.Linear(2, 2), [nn.functional.relu], cd.Generator()):
        with pytest.raises(SerializationError, match="coredispatch's own"):
            cd.save(obj, path, format="torch")
    with pytest.raises(SerializationError, match="view the same data as different types"):
        z = cd.tensor([1 + 1j])
        cd.save([z, cd.view_as_real(z)], path, format="torch")
    with pytest.raises(ValueError, match="format is 'onnx'"):
        cd.save([], path, format="onnx")
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]


def test_entries_are_aligned() -> None:
    data = written({"a": cd.ones(3), "b": cd.ones(5, dtype=cd.float64)})
    with zipfile.ZipFile(io.BytesIO(data)) as target:
        for info in target.infolist():
            start = info.header_offset
            name, extra = struct.unpack_from("<HH", data, start + 26)
            assert (start + 30 + name + extra) % 64 == 0


class TestBesidePyTorch:
    """Where PyTorch is there: both ways, through files that the other one wrote."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        self.torch = pytest.importorskip("torch")
        warnings.simplefilter("ignore")

    @given(st.data())
    def test_drawn_tensors(self, data: Any) -> None:
        torch = self.torch
        name = data.draw(
            st.sampled_from(["float32", "int64", "bool", "bfloat16", "complex64", "uint16"])
        )
        shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
        base = cd.arange(math.prod(shape)).to(getattr(cd, name)).reshape(shape)
        views = [base, base.flatten()[::2]]
        if shape:
            views += [base.transpose(0, -1), base[: data.draw(st.integers(0, 3))]]
        found = torch.load(io.BytesIO(written(views)), weights_only=True)
        for mine, theirs in zip(views, found):
            assert theirs.tolist() == mine.tolist() and str(theirs.dtype) == f"torch.{name}"
            if mine.numel():
                assert theirs.stride() == mine.stride()
        buffer = io.BytesIO()
        older = data.draw(st.booleans()) and name != "uint16"
        torch.save(found, buffer, _use_new_zipfile_serialization=not older)
        for mine, again in zip(views, loaded(buffer.getvalue())):
            assert again.tolist() == mine.tolist() and again.dtype is mine.dtype

    @pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
    def test_a_checkpoint_goes_there_and_back(self, options: Any) -> None:
        torch = self.torch
        mine = model()
        optimizer = cd.optim.Adam(mine.parameters())
        mine(cd.randn(5, 1, 4, 4)).sum().backward()
        optimizer.step()
        x = cd.randn(3, 1, 4, 4)
        state = {"model": mine.state_dict(), "optimizer": optimizer.state_dict(), "x": x}
        found = torch.load(io.BytesIO(written(state, **options)), weights_only=True)
        theirs = torch.nn.Sequential(
            torch.nn.Conv2d(1, 3, 3),
            torch.nn.BatchNorm2d(3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(12, 2),
        )
        theirs.load_state_dict(found["model"])
        torch.optim.Adam(theirs.parameters()).load_state_dict(found["optimizer"])
        score = mine.eval()(x).detach()
        np.testing.assert_allclose(theirs.eval()(found["x"]).detach().numpy(), score.numpy(), 1e-5)
        buffer = io.BytesIO()
        torch.save(theirs, buffer, **options)
        again = loaded(buffer.getvalue(), weights_only=False)
        np.testing.assert_allclose(again(x).detach().numpy(), score.numpy(), 1e-6)

    def test_parameters_attributes_and_facts(self) -> None:
        parameter = nn.Parameter(cd.ones(2))
        parameter.note = "hi"
        labelled = cd.ones(2, requires_grad=True)
        labelled.label = [1]
        obj = [parameter, labelled, cd.Size([1, 2]), cd.device("cuda:1"), cd.float16, 2**70]
        found = self.torch.load(io.BytesIO(written(obj)), weights_only=True)
        assert type(found[0]) is self.torch.nn.Parameter and found[0].note == "hi"
        assert found[1].requires_grad and found[1].label == [1]
        torch = self.torch
        assert found[2:] == [torch.Size([1, 2]), torch.device("cuda:1"), torch.float16, 2**70]

    @pytest.mark.parametrize(
        ("layer", "shape"),
        [
            ("Conv2d(3, 4, 3, padding=1, padding_mode='circular', bias=False)", (2, 3, 5, 5)),
            ("ConvTranspose2d(3, 4, 2, stride=2)", (2, 3, 5, 5)),
            ("Conv1d(3, 4, 3, padding='same')", (2, 3, 5)),
            ("MaxPool2d(2, ceil_mode=True)", (2, 3, 5, 5)),
            ("AdaptiveAvgPool2d((2, None))", (2, 3, 5, 5)),
            ("BatchNorm2d(3, affine=False)", (2, 3, 5, 5)),
            ("GroupNorm(1, 3)", (2, 3, 5, 5)),
            ("InstanceNorm2d(3, affine=True)", (2, 3, 5, 5)),
            ("LayerNorm((5,), bias=False)", (2, 5)),
            ("Linear(5, 2, bias=False)", (2, 5)),
            ("LSTM(5, 3, num_layers=2, bidirectional=True, batch_first=True)", (2, 4, 5)),
            ("GRU(5, 3)", (2, 4, 5)),
            ("RNN(5, 3, nonlinearity='relu', bias=False)", (2, 4, 5)),
            ("TransformerEncoderLayer(4, 2, 8, activation='gelu', norm_first=True)", (3, 2, 4)),
            ("PReLU(3)", (2, 3)),
            ("Upsample(scale_factor=2, mode='bilinear')", (2, 3, 4, 4)),
            ("PixelShuffle(2)", (1, 4, 2, 2)),
            ("Sequential(nn.Flatten(), nn.Dropout(0.3), nn.GELU('tanh'), nn.Softmax(1))", (2, 3)),
        ],
    )  # fmt: skip
    def test_layers_carry_over(self, layer: str, shape: tuple[int, ...]) -> None:
        torch = self.torch
        theirs = eval(f"nn.{layer}", {"nn": torch.nn, "torch": torch}).eval()
        buffer = io.BytesIO()
        torch.save(theirs, buffer)
        mine = loaded(buffer.getvalue(), weights_only=False)
        x = torch.randn(shape)
        wanted, found = theirs(x), mine(cd.from_numpy(x.numpy()))
        if isinstance(wanted, tuple):
            wanted, found = wanted[0], found[0]
        difference = found.detach().numpy() - wanted.detach().numpy()
        assert abs(difference).max() < 1e-5
        assert repr(mine) == repr(theirs) and mine.state_dict().keys() == theirs.state_dict().keys()
