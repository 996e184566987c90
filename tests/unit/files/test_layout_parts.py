"""What a layout packs is what a file can say."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from saved_files import loaded, saved

import coredispatch as cd
from coredispatch.plugin import Layout, from_raw, hookimpl
from coredispatch.serialization import SerializationError


class Tagged:
    """An array with something beside it."""

    def __init__(self, array: Any, tag: Any) -> None:
        self.array = array
        self.tag = tag

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)


LAYOUT = Layout(
    "tagged_for_files",
    data_type=Tagged,
    pack=lambda raw: {"array": raw.array, "tag": raw.tag},
    unpack=lambda parts: Tagged(parts["array"], parts["tag"]),
)


class Plugin:
    @hookimpl
    def coredispatch_register(self, registrar: Any) -> None:
        registrar.layout(LAYOUT)


@pytest.fixture
def tagged() -> Iterator[Any]:
    """A tensor of a layout whose tag is given."""
    cd.plugins.load("tagged_for_files", Plugin())
    yield lambda tag: from_raw(
        Tagged(np.arange(3.0), tag), backend="cpu", layout="tagged_for_files"
    )
    cd.plugins.unload("tagged_for_files")


@pytest.mark.parametrize("tag", [None, True, 3, -(2**63), 1.5, "text", [1, ["a", None]]])
def test_plain_parts_come_back(tagged: Any, tag: Any) -> None:
    found = loaded(saved(tagged(tag)))
    assert found.layout == "tagged_for_files"
    assert found.raw.tag == tag
    assert found.raw.array.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "tag", [float("nan"), 2**64, {"a": 1}, b"bytes", np.int64(3), [float("inf")], SimpleNamespace()]
)
def test_other_parts_are_refused_when_they_are_saved(tagged: Any, tag: Any) -> None:
    with pytest.raises(SerializationError, match=r"packs 'tag' as .* no file"):
        saved(tagged(tag))


def test_a_layout_that_was_unloaded_is_named(tagged: Any) -> None:
    data = saved(tagged(1))
    cd.plugins.unload("tagged_for_files")
    try:
        with pytest.raises(SerializationError, match=r"tensors\[0\].*'tagged_for_files'"):
            loaded(data)
    finally:
        cd.plugins.load("tagged_for_files", Plugin())
