"""Further names of ``torch.serialization``."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saved_files import archive, entries, loaded, saved

import coredispatch as cd
from coredispatch import serialization as s

HERE = Path(__file__).with_name("pytorch_files")


def test_what_a_file_needs() -> None:
    found = s.get_unsafe_globals_in_checkpoint(HERE / "module.pt")
    assert "torch.nn.modules.conv.Conv2d" in found and len(found) == 6
    with s.safe_globals([cd.nn.Conv2d]):
        assert "torch.nn.modules.conv.Conv2d" not in s.get_unsafe_globals_in_checkpoint(
            HERE / "module.pt"
        )
    for file in ("zip.pt", "older.pt", "state.pt"):
        assert s.get_unsafe_globals_in_checkpoint(HERE / file) == []
    earlier = Path(__file__).with_name("saved_by_version_1.cd")
    assert s.get_unsafe_globals_in_checkpoint(earlier) == []


def test_the_byte_order_of_files_that_do_not_name_theirs() -> None:
    import io

    buffer = io.BytesIO()
    cd.save(cd.tensor([1, 256], dtype=cd.int16), buffer, format="torch")
    parts = entries(buffer.getvalue())
    del parts["archive/byteorder"]
    assert loaded(archive(parts)).tolist() == [1, 256]
    s.set_default_load_endianness(s.LoadEndianness.BIG)
    try:
        assert loaded(archive(parts)).tolist() == [256, 1]
    finally:
        s.set_default_load_endianness(None)
    assert s.get_default_load_endianness() is None
    with pytest.raises(TypeError):
        s.set_default_load_endianness("big")  # type: ignore[arg-type]


def test_details_about_storages() -> None:
    storage = cd.UntypedStorage([1, 2])
    assert s.location_tag(storage) == "cpu"
    assert s.default_restore_location(storage, "meta").device.type == "meta"
    assert s.StorageType("FloatStorage").dtype is cd.float32
    assert s.normalize_storage_type(cd.FloatStorage) is cd.FloatStorage


def test_versions() -> None:
    module = types.ModuleType("m")
    module.__version__ = "0.3.1"  # type: ignore[attr-defined]
    assert s.check_module_version_greater_or_equal(module, (0, 3, 1))
    assert not s.check_module_version_greater_or_equal(module, (0, 3, 2))
    module.__version__ = "x"  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="malformed"):
        s.check_module_version_greater_or_equal(module, (0,))
    assert s.check_module_version_greater_or_equal(module, (0,), error_if_malformed=False)


@pytest.mark.parametrize(
    "call",
    [
        lambda: s.set_crc32_options(False),
        lambda: s.skip_data(),
        lambda: s.set_default_mmap_options(99),
        lambda: s.register_package(1, None, None),
        lambda: cd.load("x", pickle_module=np),
        lambda: cd.save(1, "x", pickle_module=np),
    ],
)
def test_what_is_not_there_says_so(call: Any) -> None:
    with pytest.raises(NotImplementedError):
        call()


def test_odd_arguments_of_load() -> None:
    import io
    import pickle

    data = saved([1])
    assert cd.load(io.BytesIO(data), None, pickle, mmap=False) == [1]
    with pytest.raises(TypeError, match="unexpected argument 'strange'"):
        cd.load(io.BytesIO(data), strange=1)
