"""A file may do nothing but load: forged files are refused and change nothing."""

from __future__ import annotations

import collections
import enum
import io
import os
import struct
import warnings
import zipfile
from typing import Any

import numpy as np
import pytest
from saved_files import (
    Reference,
    archive,
    entries,
    loaded,
    pickled,
    saved,
    version_1,
    with_json,
    with_record,
    with_structure,
)

import coredispatch as cd
from coredispatch.serialization import SerializationError, UnsafeGlobalError

VECTOR = saved(cd.arange(16, dtype=cd.float32))


def as_version_1(data: bytes) -> bytes:
    """A file of one tensor as version 1 wrote it."""
    return version_1(pickled(Reference("tensor", 0)), data)


# -- places of arrays --------------------------------------------------------------------------

PLACES = {
    "wraps around at 2**64": {"shape": [2**62 + 1], "strides": [4]},
    "wraps around with two dims": {"shape": [2**32, 2**32], "strides": [2**34, 4]},
    "behind the end": {"shape": [17]},
    "behind the end by its stride": {"shape": [16], "strides": [8]},
    "before the beginning": {"strides": [-4]},
    "offset behind the end": {"offset": 64},
    "offset before the beginning": {"offset": -64},
    "no block": {"block": -1},
    "negative block": {"block": -2},
    "unknown block": {"block": 1},
    "block of another type": {"block": True},
    "negative length": {"shape": [-1]},
    "huge": {"shape": [2**70], "strides": [0]},
    "huge without elements": {
        "shape": [0, 2**62, 2**62],
        "strides": [0, 0, 0],
        "block": -1,
        "offset": 0,
    },
    "overlaps itself": {"shape": [1000], "strides": [0]},
    "overlaps itself in windows": {"shape": [15, 2], "strides": [4, 4]},
    "does not fill its block": {"shape": [15]},
    "one stride too many": {"strides": [4, 4]},
    "too many dims": {"shape": [1] * 65, "strides": [0] * 65},
    "shape of fractions": {"shape": [16.0]},
    "shape of a bool": {"shape": [True]},
    "shape that is a number": {"shape": 16},
    "shape that is nothing": {"shape": None},
}
DTYPES = [
    "<U4",
    "|S4",
    "|V4",
    "<M8",
    "<m8[s]",
    "O",
    "float128",
    "<f4,<f4",
    "f",
    4,
    None,
    ["float32"],
    ">f4",
]


@pytest.mark.parametrize("old", [False, True], ids=["version 2", "version 1"])
@pytest.mark.parametrize("changes", PLACES.values(), ids=PLACES)
def test_an_array_lies_inside_its_block(changes: dict[str, Any], old: bool) -> None:
    data = with_record(VECTOR, **changes)
    for weights_only in (True, False):
        with pytest.raises(
            SerializationError, match=r"damaged: (format.json, tensors\[0\]|block 0)"
        ):
            loaded(as_version_1(data) if old else data, weights_only=weights_only)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_has_a_dtype_of_coredispatch(dtype: Any) -> None:
    data = with_record(VECTOR, dtype=dtype)
    for file in (data, as_version_1(data)):
        with pytest.raises(SerializationError, match=r"tensors\[0\].*not an element type"):
            loaded(file)


@pytest.mark.parametrize(
    "dtype", ["O", "|V8", "<f8,<f8", "<U0", "<U1000000000", "<M8[x]", "<M8[0s]"]
)
def test_an_array_has_no_pointers(dtype: str) -> None:
    data = with_record(saved(np.arange(4.0)), dtype=dtype)
    with pytest.raises(SerializationError, match=r"not an element type|outside block"):
        loaded(data)


def test_blocks_hold_only_arrays_that_share_them() -> None:
    base = cd.arange(8.0)
    together = saved([base, base[2:5]])
    assert loaded(together)[1].tolist() == [2.0, 3.0, 4.0]

    def apart(index: Any) -> None:
        index["tensors"][0]["array"]["shape"] = [2]

    with pytest.raises(SerializationError, match="do not share memory"):
        loaded(with_json(together, "format.json", apart))


def test_bools_are_0_or_1_and_text_is_characters() -> None:
    parts = entries(saved(cd.tensor([True, False])))
    for block in (b"\x02", b"\xff"):
        forged = parts | {"blocks/0": parts["blocks/0"][:-1] + block}
        with pytest.raises(SerializationError, match="neither 0 nor 1"):
            loaded(archive(forged))
    parts = entries(saved(np.array(["ab"])))
    with pytest.raises(SerializationError, match="characters"):
        loaded(archive(parts | {"blocks/0": parts["blocks/0"][:-4] + b"\xff" * 4}))
    with pytest.raises(SerializationError, match="neither 0 nor 1"):
        saved(cd.from_numpy(np.array([2, 1], np.uint8).view(bool)))


def test_integers_do_not_require_grad() -> None:
    data = saved(cd.arange(4))
    file = with_json(data, "format.json", lambda x: x["tensors"][0].update(requires_grad=True))
    with pytest.raises(SerializationError, match="require grad"):
        loaded(file)


# -- what a structure can say ------------------------------------------------------------------


def test_names_of_classes_and_functions_are_not_followed() -> None:
    for name in ("os:system", "builtins:eval", "coredispatch:save", "builtins:type"):
        with pytest.raises(UnsafeGlobalError, match=name.replace(":", r"\.")):
            loaded(with_structure([0], {"global": name}))
        with pytest.raises(UnsafeGlobalError):
            loaded(with_structure([0], {"call": [[1], "touch /tmp/x"]}, {"global": name}))
    with pytest.raises(SerializationError, match="not named"):
        loaded(with_structure([0], {"call": ["os.system", "true"]}))


MALFORMED = [
    (None, []),
    ([0], []),
    ([0], [{}]),
    ([0], [[]]),
    ([0], ["list"]),
    ([-1], [{"list": []}]),
    ([True], [{"list": []}]),
    ([0, 0], [{"list": []}]),
    ({"list": []}, []),
    ([0], [{"list": [{}]}]),
    ([0], [{"list": [[1]]}]),
    ([0], [{"list": [[[0]]]}]),
    ([0], [{"list": {"a": 1}}]),
    ([0], [{"list": [], "state": {}}]),
    ([0], [{"unknown": 1}]),
    ([0], [{"tuple": [[0]]}]),
    ([0], [{"tuple": [[1]]}, {"tuple": [[0]]}]),
    ([0], [{"dict": [[1]]}]),
    ([0], [{"dict": [[1, 2], [1, 3]]}]),
    ([0], [{"dict": [[[1], 2]]}, {"list": []}]),
    ([0], [{"set": [1, 1]}]),
    ([0], [{"set": [[1]]}, {"dict": []}]),
    ([0], [{"frozenset": [[0]]}]),
    ([0], [{"Counter": 3}]),
    ([0], [{"defaultdict": ["system", []]}]),
    ([0], [{"defaultdict": [["list"], []]}]),
    ([0], [{"deque": [-1, []]}]),
    ([0], [{"deque": [1, [1, 2]]}]),
    ([0], [{"range": [0, 1, 0]}]),
    ([0], [{"range": [0, 1.5, 1]}]),
    ([0], [{"range": ["a", 1, 1]}]),
    ([0], [{"slice": [0, 1]}]),
    ([0], [{"int": "12"}]),
    ([0], [{"int": "0xfg"}]),
    ([0], [{"int": 12}]),
    ([0], [{"float": "1"}]),
    ([0], [{"float": ["nan"]}]),
    ([0], [{"complex": [1, 2]}]),
    ([0], [{"complex": ["nan", 1.0]}]),
    ([0], [{"str": 3}]),
    ([0], [{"bytes": "!"}]),
    ([0], [{"bytes": None}]),
    ([0], [{"bytes": 0}]),
    ([0], [{"bytearray": -1}]),
    ([0], [{"Size": ["a"]}]),
    ([0], [{"Size": [1.0]}]),
    ([0], [{"dtype": "float128"}]),
    ([0], [{"dtype": ["float32"]}]),
    ([0], [{"device": "cuda:²"}]),
    ([0], [{"device": "cuda:" + "9" * 5000}]),
    ([0], [{"device": ""}]),
    ([0], [{"device": 0}]),
    ([0], [{"generator": ["cpu", ""]}]),
    ([0], [{"generator": ["cpu"]}]),
    ([0], [{"generator": [None, "AAAA"]}]),
    ([0], [{"tensor": 0}]),
    ([0], [{"tensor": -1}]),
    ([0], [{"tensor": "0"}]),
    ([0], [{"array": None}]),
    ([0], [{"global": "os"}]),
    ([0], [{"new": []}]),
    ([0], [{"call": [], "state": 1}]),
    ([0], [{"call": [[0]]}]),
    ([0], [{"OrderedDict": [], "attributes": [[[1], 1]]}, {"list": []}]),
    ([0], [{"OrderedDict": [], "attributes": [[1, 1]]}]),
    ([0], [{"OrderedDict": [], "attributes": {}}]),
    (1, [{"list": []}]),
]


@pytest.mark.parametrize(("root", "nodes"), MALFORMED, ids=[str(case)[:60] for case in MALFORMED])
def test_a_malformed_structure_is_refused(root: Any, nodes: list[Any]) -> None:
    if root is None:
        assert loaded(with_structure(root, *nodes)) is None
        return
    with pytest.raises(SerializationError, match=r"the file.*structure\.json"):
        loaded(with_structure(root, *nodes))


BAD_JSON = [b"", b"[", b"{}", b"3", b"NaN", b"[" * 100_000, "\u00e9".encode(), b"\xff\xfe["]
BAD_JSON += [
    b'{"root": %s, "nodes": []}' % n for n in (b"NaN", b"1e999", b"9" * 6000, b"-Infinity")
]
BAD_JSON += [b'{"root": 1, "nodes": [], "more": 1}', b'{"root": 1, "nodes": {}}', b'{"root": 1}']


@pytest.mark.parametrize("text", BAD_JSON, ids=range(len(BAD_JSON)))
def test_bad_json_is_refused(text: bytes) -> None:
    for name in ("structure.json", "format.json"):
        with pytest.raises(SerializationError, match=r"structure\.json|format"):
            loaded(archive(entries(saved(None)) | {name: text}))


def test_attributes_hide_nothing() -> None:
    x = cd.ones(2)
    x.label = "mine"
    data = saved(x)
    for name in (
        "raw",
        "keys",
        "_node",
        "_storage",
        "_dtype",
        "_grad",
        "sum",
        "grad",
        "__class__",
        3,
    ):
        forged = with_json(
            data,
            "structure.json",
            lambda s, name=name: s["nodes"][0].update(attributes=[[name, 1]]),
        )
        with pytest.raises(SerializationError, match=r"node 0 \(tensor\).*(attribute|called)"):
            loaded(forged)
    forged = with_structure([0], {"OrderedDict": [], "attributes": [["keys", 1]]})
    with pytest.raises(SerializationError, match="keys"):
        loaded(forged)
    x.sum = 3
    with pytest.raises(SerializationError, match=r"'sum'.*hides"):
        saved(x)


class Plain:
    limit = 3

    def __init__(self) -> None:
        self.x = 1

    def run(self) -> str:
        return "the method"


class Slotted:
    __slots__ = ("x",)


class Colour(enum.Enum):
    RED = 1


def test_allowed_classes_get_state_but_no_methods() -> None:
    here = __name__

    def forged(state: Any, name: str = "Plain", *more: Any) -> bytes:
        return with_structure(
            [0], {"new": [[1]], "state": [2]}, {"global": f"{here}:{name}"}, state, *more
        )

    with cd.serialization.safe_globals([Plain, Slotted, Colour]):
        assert loaded(forged({"dict": [["x", 5], ["limit", 4]]})).__dict__ == {"x": 5, "limit": 4}
        assert loaded(forged({"tuple": [None, [3]]}, "Slotted", {"dict": [["x", 2]]})).x == 2
        for state in (
            {"dict": [["run", 1]]},
            {"dict": [["__class__", 1]]},
            {"list": []},
            {"dict": [[1, 1]]},
        ):
            with pytest.raises(SerializationError):
                loaded(forged(state))
        call = {"call": [[1], 1], "state": [2]}
        with pytest.raises(SerializationError, match="not its own"):
            loaded(with_structure([0], call, {"global": f"{here}:Colour"}, {"dict": [["x", 1]]}))
    assert not hasattr(Colour.RED, "x")


class Strict:
    def __init__(self, x: int, *, y: int = 0) -> None:
        self.z = 1 // x


def test_what_an_allowed_class_raises_is_an_error_of_the_file() -> None:
    name = {"global": f"{__name__}:Strict"}
    with cd.serialization.safe_globals([Strict]):
        for call, words in (
            ({"call": [[1], 0]}, r"node 0 \(call\): Strict failed: ZeroDivisionError"),
            ({"call": [[1]]}, "Strict failed: TypeError"),
            ({"call": [[1], 1], "keywords": [["x", 1]]}, "Strict failed: TypeError"),
            ({"call": [[1], 1], "keywords": [[[2], 1]]}, "keyword"),
            ({"call": [[1], 1], "items": [1]}, "AttributeError"),
            ({"call": [[1], 1], "pairs": [[[2], 1]]}, "TypeError"),
            ({"call": [[1], 1], "setter": [2], "state": 1}, "not named"),
        ):
            with pytest.raises(SerializationError, match=f"the file.*{words}"):
                loaded(with_structure([0], call, name, {"list": []}))
        assert loaded(with_structure([0], {"call": [[1], 1], "keywords": [["y", 2]]}, name)).z == 1


class Special(cd.Tensor):
    pass


def test_an_allowed_class_of_tensors_is_made_of_records_only() -> None:
    tensor = {"tensor": 0}
    with cd.serialization.safe_globals([Special, cd.nn.Parameter]):
        for name in (f"{__name__}:Special", "coredispatch.frontend.nn.parameter:Parameter"):
            for state in ({"dict": [["raw", "text"]]}, {"dict": [["keys", 2**40]]}, {"dict": []}):
                new = {"new": [[1]], "state": [2]}
                with pytest.raises(SerializationError, match="made of a record"):
                    loaded(with_structure([0], new, {"global": name}, state))
        call = {"call": [[1], [3]], "state": [2]}
        file = with_structure([0], call, {"global": name}, {"dict": []}, tensor, records=VECTOR)
        with pytest.raises(SerializationError, match="not its own"):
            loaded(file)


# -- pickles of version 1 ------------------------------------------------------------------------


def global_(module: str, name: str) -> bytes:
    return b"".join(b"\x8c" + bytes([len(t)]) + t.encode() for t in (module, name)) + b"\x93"


def reference(*what: Any) -> bytes:
    short = {str: lambda t: b"\x8c" + bytes([len(t)]) + t.encode(), int: lambda n: bytes([75, n])}
    return b"(" + b"".join(short[type(item)](item) for item in what) + b"tQ"


def gadget(body: bytes) -> bytes:
    return b"\x80\x04" + body + b"."


DICT = b"}\x8c\x04name\x8c\x04evil\x73"  # {"name": "evil"}
GADGETS = {
    "state of a dtype": reference("dtype", "float32") + DICT + b"b",
    "slots of a dtype": reference("dtype", "float32") + b"N" + DICT + b"\x86b",
    "state of a device": reference("device", "cpu") + b"N" + DICT + b"\x86b",
    "state of a trusted class": global_("collections", "Counter") + b"N" + DICT + b"\x86b",
    "state of a dict class": global_("builtins", "dict") + b"N" + DICT + b"\x86b",
    "state of a list": b"]" + DICT + b"b",
    "state of a tensor": reference("tensor", 0) + b"}\x8c\x03rawK\x01sb",
    "attribute of a tensor": b"(\x8c\x06tensorK\x00}\x8c\x04keysK\x01stQ",
    "method of a tensor": b"(\x8c\x06tensorK\x00}\x8c\x03sumK\x01stQ",
    "a function is called": global_("os", "system") + b"\x8c\x04true\x85R",
    "a class is called": global_("builtins", "dict") + b")R",
    "a type is made": global_("builtins", "type") + b"\x8c\x01A)}\x87R",
    "eval": global_("builtins", "eval") + b"\x8c\x01" + b"1\x85R",
    "an attribute chain": global_("coredispatch", "load.__globals__"),
    "a huge bytearray": global_("builtins", "bytearray") + b"\x8a\x05\x00\x00\x00\x00\x10\x85R",
    "a list of a range": global_("builtins", "list") + b"K\x01\x85R",
    "old global": b"cos\nsystem\n\x8c\x04true\x85R",
    "instance": b"(ios\nsystem\n",
    "extension": b"\x82\x01",
    "persistent text": b"Px\n",
    "a buffer": b"\x97",
    "unknown reference": reference("thing", 0),
    "unknown record": reference("tensor", 5),
    "empty reference": b")Q",
    "not a reference": b"NQ",
    "a mark is missing": b"e",
    "nothing is there": b"0",
    "two objects": b"NN",
    "a frame": b"\x95\xff",
    "long text": b"\x8d" + b"\xff" * 8,
    "long bytes": b"\x8e" + b"\xff" * 7 + b"\x7f",
    "negative long": b"\x8b" + b"\xff" * 4,
    "memo": b"h\x05",
    "invalid text": b"\x8c\x01\xff",
    "key of a tuple": b")K\x01K\x02s",
    "member of a list": b"](K\x01\x90",
}  # fmt: skip


@pytest.mark.parametrize("body", GADGETS.values(), ids=GADGETS)
def test_a_pickle_of_version_1_does_nothing(body: bytes) -> None:
    before = (cd.float32.name, dict(vars(collections.Counter)), cd.tensor([1.0]).sum)
    with pytest.raises(SerializationError):
        loaded(version_1(gadget(body), saved(None) if b"tensor" not in body else VECTOR))
    assert cd.float32.name == before[0]
    assert dict(vars(collections.Counter)) == before[1]
    assert cd.ones(2).sum().item() == 2.0


def test_globals_in_a_pickle_of_version_1_need_permission() -> None:
    with pytest.raises(UnsafeGlobalError, match=r"os\.system|posix\.system"):
        loaded(version_1(gadget(GADGETS["a function is called"])))
    data = version_1(pickled({"a": Plain()}))
    with pytest.raises(UnsafeGlobalError, match="Plain"):
        loaded(data)
    with cd.serialization.safe_globals([Plain]):
        assert loaded(data)["a"].__dict__ == {"x": 1}
    assert loaded(data, weights_only=False)["a"].__dict__ == {"x": 1}


# -- archives ------------------------------------------------------------------------------------


def test_compressed_entries_are_refused() -> None:
    parts = entries(VECTOR)
    parts["structure.json"] = b'{"root": "' + b" " * 50_000_000 + b'", "nodes": []}'
    with pytest.raises(SerializationError, match="compressed"):
        loaded(archive(parts, zipfile.ZIP_DEFLATED))


def test_declared_sizes_are_not_believed() -> None:
    end = struct.Struct("<4s4H2IH")
    for position, value in (
        (4, 2**16 - 1),
        (5, 2**32 - 1),
        (6, 2**32 - 1),
        (6, 7),
        (5, 10),
        (3, 9),
    ):
        fields = list(end.unpack(VECTOR[-22:]))
        fields[position] = value
        with pytest.raises(SerializationError, match="damaged"):
            loaded(VECTOR[:-22] + end.pack(*fields))
    directory = VECTOR.rindex(b"PK\x01\x02")
    for offset, format in (
        (20, "I"),
        (24, "I"),
        (28, "H"),
        (30, "H"),
        (32, "H"),
        (42, "I"),
        (16, "I"),
    ):
        for value in (0, 3, 2**15, 2 ** (8 * struct.calcsize(format)) - 1):
            forged = bytearray(VECTOR)
            if struct.unpack_from("<" + format, forged, directory + offset)[0] == value:
                continue
            struct.pack_into("<" + format, forged, directory + offset, value)
            with pytest.raises(SerializationError, match="damaged"):
                loaded(bytes(forged))


def test_sizes_of_blocks_are_those_of_the_entries() -> None:
    for sizes in ([2**40], [-64], [63], [64.0], [], [64, 64], ["64"], {"0": 64}, None):
        with pytest.raises(SerializationError, match="damaged"):
            loaded(with_json(VECTOR, "format.json", lambda x, sizes=sizes: x.update(blocks=sizes)))


def test_entries_and_records_that_nothing_uses_are_refused() -> None:
    with pytest.raises(SerializationError, match="unknown"):
        loaded(archive(entries(VECTOR) | {"extra": b"1"}))
    with pytest.raises(SerializationError, match=r"tensors\[0\].*nothing refers"):
        loaded(with_json(VECTOR, "structure.json", lambda s: {"root": 1, "nodes": []}))
    with pytest.raises(SerializationError, match="nothing refers to node 1"):
        loaded(with_json(VECTOR, "structure.json", lambda s: s["nodes"].append({"list": []})))
    twice = {"root": [0], "nodes": [{"list": [[1], [2]]}, {"tensor": 0}, {"tensor": 0}]}
    with pytest.raises(SerializationError, match="used twice"):
        loaded(with_json(VECTOR, "structure.json", lambda s: twice))


def test_a_name_does_not_stand_twice() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile notices
        for name, part in [*entries(VECTOR).items(), ("format.json", b"{}")]:
            target.writestr(name, part)
    with pytest.raises(SerializationError, match="two entries"):
        loaded(buffer.getvalue())


def test_the_error_names_the_file_and_the_place(tmp_path: Any) -> None:
    path = tmp_path / "model.cd"
    path.write_bytes(with_record(VECTOR, shape=[17]))
    with pytest.raises(SerializationError) as caught:
        cd.load(path)
    assert str(path) in str(caught.value)
    assert "format.json, tensors[0], array" in str(caught.value)
    assert "68" in str(caught.value)


# -- weights_only ----------------------------------------------------------------------------------


def test_none_is_the_safe_default() -> None:
    data = saved(os.path.join)
    for options in ({}, {"weights_only": None}, {"weights_only": True}):
        with pytest.raises(UnsafeGlobalError):
            loaded(data, **options)
    assert loaded(data, weights_only=False) is os.path.join
    with pytest.raises(TypeError, match="weights_only is 0"):
        loaded(data, weights_only=0)
