"""Files of safetensors, beside the library where it is there."""

from __future__ import annotations

import io
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from saved_files import loaded

import coredispatch as cd
from coredispatch.serialization import SerializationError

DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool"


def written(obj: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    cd.save(obj, buffer, format="safetensors", **options)
    return buffer.getvalue()


def tensors() -> st.SearchStrategy[Any]:
    def make(dtype: str, shape: list[int], how: str) -> Any:
        base = cd.arange(math.prod(shape)).to(getattr(cd, dtype)).reshape(shape)
        if how == "turned" and shape:
            return base.transpose(0, -1)
        return base.flatten()[::2] if how == "gaps" else base

    shapes = st.lists(st.integers(0, 4), max_size=3)
    return st.builds(
        make, st.sampled_from(DTYPES.split()), shapes, st.sampled_from(["", "turned", "gaps"])
    )


@given(st.dictionaries(st.text(max_size=8).filter(lambda n: n != "__metadata__"), tensors()))
def test_tensors_come_back(found: dict[str, Any]) -> None:
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        return
    again = loaded(written(found))
    assert again.keys() == found.keys()
    for name, tensor in found.items():
        assert again[name].tolist() == tensor.tolist() and again[name].dtype is tensor.dtype
        assert again[name].shape == tensor.shape and again[name].is_contiguous()


def test_beside_the_library(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    state = {
        "b": cd.arange(6.0).reshape(2, 3).t(),
        "a": cd.tensor([True, False]),
        "e": cd.ones(0, 2),
    }
    path = tmp_path / "x.safetensors"
    cd.save(state, path, format="safetensors", metadata={"made": "here"})
    theirs = library.load_file(path)
    assert {n: x.tolist() for n, x in theirs.items()} == {n: x.tolist() for n, x in state.items()}
    library.save_file({"a": np.arange(4.0), "b": np.arange(3, dtype=np.int8)}, path)
    assert cd.load(path)["a"].tolist() == [0, 1, 2, 3] and cd.load(path)["b"].dtype is cd.int8


@pytest.mark.parametrize("mmap", [False, True])
def test_a_state_dict(mmap: bool, tmp_path: Path) -> None:
    model = cd.nn.Linear(3, 2)
    path = tmp_path / "x.safetensors"
    cd.save(model.state_dict(), path, format="safetensors")
    found = cd.load(path, mmap=mmap)
    twin = cd.nn.Linear(3, 2)
    twin.load_state_dict(found)
    assert twin.weight.tolist() == model.weight.tolist()
    found["weight"].zero_()
    assert cd.load(path)["weight"].tolist() == model.weight.tolist()
    assert cd.load(path, map_location="meta")["weight"].is_meta


def file(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BAD = [
    file({"a": {**ENTRY, "dtype": "F33"}}, bytes(8)),
    file({"a": {**ENTRY, "shape": [3]}}, bytes(8)),
    file({"a": {**ENTRY, "shape": [2**62, 4]}}, bytes(8)),
    file({"a": {**ENTRY, "shape": [-2]}}, bytes(8)),
    file({"a": {**ENTRY, "data_offsets": [8, 0]}}, bytes(8)),
    file({"a": {**ENTRY, "data_offsets": [-8, 0]}}, bytes(8)),
    file({"a": {**ENTRY, "data_offsets": [1, 9]}}, bytes(9)),
    file({"a": ENTRY, "b": ENTRY}, bytes(8)),
    file({"a": ENTRY}, bytes(9)),
    file({"a": ENTRY}, bytes(7)),
    file({"a": 1}),
    file({"__metadata__": {"x": 1}}),
    file(b'{"a": %b, "a": %b}' % ((json.dumps(ENTRY).encode(),) * 2), bytes(8)),
    file(b"{" * 100_000),
    file({"a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}}, b"\x02"),
    struct.pack("<Q", 99) + b'{"a": 1}',
]  # fmt: skip


@pytest.mark.parametrize("data", BAD)
def test_forged_files_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match="the file"):
        loaded(data)


def test_what_the_format_does_not_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")
    for obj in ([cd.ones(2)], {"a": 1}, {1: cd.ones(2)}, {"a": cd.empty(2, device="meta")}):
        with pytest.raises(SerializationError):
            cd.save(obj, path, format="safetensors")
    with pytest.raises(SerializationError, match="complex128"):
        cd.save({"a": cd.ones(2, dtype=cd.complex128)}, path, format="safetensors")
    with pytest.raises(ValueError, match="metadata"):
        cd.save({}, path, metadata={"a": "b"})
    assert path.read_bytes() == b"before"
