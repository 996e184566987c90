"""MXNet's RecordIO."""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.utils.data import recordio
from coredispatch.utils.data.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, RecordIOError

MAGIC = struct.pack("<I", 0xCED7230A)


def as_dmlc_writes(record: bytes) -> bytes:
    """``RecordIOWriter::WriteRecord`` of dmlc-core, word by word."""
    out, done = b"", 0
    for i in range(0, len(record) // 4 * 4, 4):
        if record[i : i + 4] == MAGIC:
            out += MAGIC + struct.pack("<I", (1 if done == 0 else 2) << 29 | i - done)
            out += record[done:i]
            done = i + 4
    out += MAGIC + struct.pack("<I", (3 if done else 0) << 29 | len(record) - done)
    out += record[done:]
    while len(out) % 4:
        out += b"\0"
    return out


def records() -> st.SearchStrategy[bytes]:
    """Bytes with the magic number in all places."""
    pieces = st.one_of(st.binary(max_size=9), st.just(MAGIC), st.just(MAGIC[:3]))
    return st.lists(pieces, max_size=8).map(b"".join)


@given(st.lists(records(), max_size=5))
def test_records_come_back_and_stand_as_mxnet_writes_them(found: list[bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.rec")
        with MXRecordIO(path, "w") as file:
            for record in found:
                file.write(record)
        assert path.read_bytes() == b"".join(map(as_dmlc_writes, found))
        with MXRecordIO(path, "r") as file:
            assert [file.read() for _ in found] == found and file.read() is None
            file.reset()
            assert file.read() == (found[0] if found else None)
        data = cd.utils.data.RecordIODataset(path)
        assert list(map(data.__getitem__, range(len(data)))) == found


def indexed(folder: Path, count: int = 10) -> tuple[Path, Path]:
    paths = folder / "a.idx", folder / "a.rec"
    with MXIndexedRecordIO(*paths, "w") as file:
        for i in range(count):
            file.write_idx(i, recordio.pack(IRHeader(0, float(i), i, 0), bytes([i]) * i))
    return paths


def test_an_index(tmp_path: Path) -> None:
    idx, rec = indexed(tmp_path)
    assert idx.read_text().splitlines()[:2] == ["0\t0", "1\t32"]
    with MXIndexedRecordIO(idx, rec, "r") as file:
        assert file.keys == list(range(10))
        header, data = recordio.unpack(file.read_idx(7))
        assert header == IRHeader(0, 7.0, 7, 0) and data == bytes([7]) * 7
        file.seek(3)
        assert recordio.unpack(file.read() or b"")[0].id == 3
        twin = pickle.loads(pickle.dumps(file))
        assert recordio.unpack(twin.read())[0].id == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_for_a_loader(workers: int, tmp_path: Path) -> None:
    _, rec = indexed(tmp_path)
    data = cd.utils.data.RecordIODataset(rec, transform=label)
    loader = cd.utils.data.DataLoader(data, batch_size=4, num_workers=workers)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    (tmp_path / "a.idx").unlink()
    assert cd.utils.data.RecordIODataset(rec, transform=label)[9] == 9


def label(record: bytes) -> float:
    return recordio.unpack(record)[0].label


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=5), st.binary(max_size=20))
def test_headers(labels: list[float], data: bytes) -> None:
    packed = recordio.pack(IRHeader(9, labels, 5, 2**63), data)
    assert packed[:24] == struct.pack("IfQQ", len(labels), 0.0, 5, 2**63)
    header, found = recordio.unpack(packed)
    assert found == data and header.id2 == 2**63
    assert header.label == 0 if not labels else header.label.tolist() == labels
    header, found = recordio.unpack(recordio.pack((3, 2.5, 1, 0), data))
    assert header == IRHeader(0, 2.5, 1, 0) and found == data


def test_images() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3) * 4
    packed = recordio.pack_img(IRHeader(0, 1.0, 2, 0), pixels, img_fmt=".png", quality=3)
    header, found = recordio.unpack_img(packed)
    assert header.label == 1 and (found == pixels).all()
    assert recordio.unpack_img(packed, 0)[1].shape == (5, 4)
    with image.open(io.BytesIO(recordio.unpack(packed)[1])) as opened:
        assert (np.asarray(opened) == pixels).all()
    grey = recordio.pack_img((0, 1.0, 2, 0), cd.full((8, 8), 77, dtype=cd.uint8))
    assert abs(recordio.unpack_img(grey)[1].astype(int) - 77).max() <= 2
    assert recordio.unpack_img(grey, 1)[1].shape == (8, 8, 3)
    with pytest.raises(ValueError, match="uint8"):
        recordio.pack_img((0, 1.0, 2, 0), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="img_fmt"):
        recordio.pack_img((0, 1.0, 2, 0), pixels, img_fmt=".gif")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data[:7],
        lambda data: b"x" + data[1:],
        lambda data: data[:4] + struct.pack("<I", (1 << 29) - 1) + data[8:],
        lambda data: data[:4] + struct.pack("<I", 3 << 29 | 4) + data[8:],
        lambda data: data[:4] + struct.pack("<I", 7 << 29 | 4) + data[8:],
    ],
)
def test_damaged_files_are_refused(damage: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(damage(as_dmlc_writes(b"some record here")))
    with pytest.raises(RecordIOError, match=r"a\.rec', byte 0"):
        MXRecordIO(path, "r").read()
    with pytest.raises(RecordIOError):
        cd.utils.data.RecordIODataset(path)
    with pytest.raises(RecordIOError):
        recordio.unpack(b"short")
    with pytest.raises(RecordIOError, match="5 labels"):
        recordio.unpack(struct.pack("<IfQQ", 5, 0, 0, 0))


@given(records(), st.integers(1, 20))
def test_a_file_that_is_cut_off_is_refused(record: bytes, cut: int) -> None:
    import tempfile

    data = as_dmlc_writes(b"first") + as_dmlc_writes(record)
    kept = data[: max(len(data) - cut, 17)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.rec")
        path.write_bytes(kept)
        with pytest.raises(RecordIOError, match="ends inside a record"):
            cd.utils.data.RecordIODataset(path)


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"0\t-4\n",
        b"0\t4\n",
        b"0\t" + b"9" * 40,
        b"0 12\n",
        b"\xff\xfe\x00",
        b"0\t0.5\n",
        b"0\t999",
    ],
)
def test_a_damaged_index_is_refused(index: bytes, tmp_path: Path) -> None:
    idx, rec = indexed(tmp_path)
    idx.write_bytes(index)
    with pytest.raises(RecordIOError):
        cd.utils.data.RecordIODataset(rec)[0]


def test_a_damaged_length_takes_no_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "a.rec"
    path.write_bytes(struct.pack("<II", 0xCED7230A, (1 << 29) - 1) + b"abc")
    file = MXRecordIO(path, "r")
    tracemalloc.start()
    try:
        with pytest.raises(RecordIOError):
            file.read()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_is_no_record_is_not_written(tmp_path: Path) -> None:
    with MXRecordIO(tmp_path / "a.rec", "w") as file:
        with pytest.raises(TypeError):
            file.write(5)  # type: ignore[arg-type]  # bytes(5) would be five zeros
        file.write(memoryview(b"abc"))
    assert (tmp_path / "a.rec").read_bytes() == as_dmlc_writes(b"abc")
    for header in [(0, None, 1, 0), (0, 1.0, -1, 0), (0, 1.0, 1, 2**64), (0, 1e40, 1, 0)]:
        with pytest.raises(RecordIOError, match="label"):
            recordio.pack(header, b"")
    for shape in [(2, 2, 2), (1, 2, 2, 3), (3,)]:
        pytest.importorskip("PIL")
        with pytest.raises(ValueError, match="shape"):
            recordio.pack_img((0, 1.0, 1, 0), np.zeros(shape, np.uint8))


def test_the_earlier_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    with MXRecordIO(path, "w") as file:
        file.write(b"old")
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), MXRecordIO(path, "w") as file:
        file.write(b"new")
        _ = 1 / 0
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    file = MXRecordIO(path, "w")
    file.write(b"first")
    file.reset()
    file.write(b"again")
    assert path.read_bytes() == before
    file.close()
    assert path.read_bytes() == as_dmlc_writes(b"again")
    with pytest.raises(RecordIOError, match="not open for writing"):
        file.write(b"more")
    with pytest.raises(ValueError, match="Invalid flag"):
        MXRecordIO(path, "a")
