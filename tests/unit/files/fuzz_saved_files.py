"""Loads thousands of forged files and watches what happens: run in a child process.

    python fuzz_saved_files.py SEED COUNT [PLANTED]

Prints a JSON object: how many files loaded and how many were refused, and what went wrong. The
process has little memory, a limit on its time, and an audit hook that sees imports, opened files,
started programs and compiled code (PEP 578). With the name of a planted fault, ``cd.load`` has
that fault, which must be noticed; with ``other_formats`` the files are PyTorch's and safetensors'.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import random
import resource
import struct
import sys
import traceback
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from saved_files import VERSION_1, Reference, archive, entries, pickled, saved, version_1

import coredispatch as cd
from coredispatch.serialization import SerializationError

TORCH = Path(__file__).with_name("pytorch_files")
MEMORY = 1 << 30  # bytes beside what the process has after its start
SECONDS = 600

# -- files to begin with -------------------------------------------------------------------------


class Mine:
    """A class that nobody allowed."""

    ran = 0

    def __init__(self) -> None:
        Mine.ran += 1

    def __setstate__(self, state: Any) -> None:
        Mine.ran += 1


def everything() -> dict[str, Any]:
    """An object with something of each kind."""
    base = cd.arange(12.0)
    circle: list[Any] = [1]
    circle.append((circle, 2))
    x = cd.tensor([1.0, 2.0], requires_grad=True)
    x.label = {"name": "x", "self": x}
    state = OrderedDict(weight=base.view(3, 4)[1], bias=cd.nn.Parameter(cd.ones(2)))
    state._metadata = OrderedDict(version=1)  # type: ignore[attr-defined]
    return {
        "views": [base, base[::2], base.view(3, 4).t(), base[:1].expand(4, 1)],
        "state": state,
        "circle": circle,
        "x": x,
        "numbers": [1, -(2**70), 2**63, 1.5, float("nan"), float("-inf"), 1j, True, None],
        "text": ["a", "long " * 30, "\ud800", b"bytes", b"large" * 2000, bytearray(b"ab")],
        "containers": [(1, (2, ())), {1, "a"}, frozenset([(1, 2)]), deque([1], 3), deque([2])],
        "mappings": [defaultdict(list, a=[1]), Counter("aab"), {(1, 2): {3: 4}}],
        "details": [cd.float32, cd.device("cpu"), cd.Size([2, 3]), range(3), slice(1, None)],
        "arrays": [np.arange(3), np.float64(2.5), np.array(["ab"]), np.array(["2020"], "M8[D]")],
        "others": [cd.zeros(0, 3), cd.empty(2, 3, device="meta"), cd.tensor([True, False])],
        "generator": cd.Generator().manual_seed(1),
    }


def other_formats() -> list[bytes]:
    """Sound files of PyTorch, in both of its forms, and of safetensors."""
    found = [file.read_bytes() for file in sorted(TORCH.glob("*.pt"))]
    assert len(found) > 4
    small = {"a": cd.arange(6.0).reshape(2, 3), "b": cd.tensor([True, False])}
    for options in ({}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}):
        for obj in (small, [cd.arange(8.0)[2:6], cd.nn.Parameter(cd.ones(2)), {"k": [1, "x"]}]):
            buffer = io.BytesIO()
            cd.save(obj, buffer, format="torch", **options)
            found.append(buffer.getvalue())
    for tensors in (small, {}, {"x": cd.ones(3, dtype=cd.bfloat16)}):
        buffer = io.BytesIO()
        cd.save(tensors, buffer, format="safetensors", metadata={"made": "here"})
        found.append(buffer.getvalue())
    return found


def originals() -> list[bytes]:
    """Sound files, small ones and large ones, of both versions."""
    found = [saved(everything()), VERSION_1.read_bytes()]
    found += [saved(value) for value in everything().values()]
    found.append(saved([cd.arange(8.0), Mine()]))
    found.append(version_1(pickled([Reference("tensor", 0), Mine()]), saved(cd.arange(8.0))))
    for name, value in everything().items():
        if name in ("numbers", "text", "containers", "mappings"):
            found.append(version_1(pickled(value)))
    return found


# -- forging -------------------------------------------------------------------------------------

Random = random.Random
NUMBERS = [0, 1, -1, 2, 3, 7, 16, 63, 64, 65, 255, 2**15, 2**16, 2**31, 2**32, 2**62, 2**63, 2**64]
NUMBERS += [2**62 + 1, -(2**31), -(2**63), 10**30, 1.5, 1e300, -0.0]
WORDS = ["float32", "float64", "<f4", "<U4", "|V8", "<M8[s]", "O", "bool", "int8", "cpu", "cuda:0"]
WORDS += ["<M8[0s]", "<U999999999", "|S999999999", ">c16", "<m8[2147483648D]", "|b1"]
WORDS += ["meta", "cpu:1", "raw", "keys", "__class__", "__dict__", "sum", "Parameter", "Tensor"]
WORDS += ["os:system", "builtins:eval", "coredispatch:load", "__main__:Mine", "", "\ud800", "0x1f"]
WORDS += ["sparse_csr", "quantized", "nan", "list", "dtype", "shape", "nodes", "AAAA", "x" * 300]
KINDS = "int float complex str bytes bytearray list tuple set frozenset dict OrderedDict Counter"
KINDS += " defaultdict deque range slice Size dtype device generator tensor array scalar global"
KINDS += " call new attributes state items pairs setter keywords"


def junk(r: Random, depth: int = 0) -> Any:
    """Some JSON."""
    choice = r.randrange(9 if depth < 3 else 5)
    if choice < 2:
        return r.choice(NUMBERS)
    if choice == 2:
        return r.choice(WORDS)
    if choice == 3:
        return r.choice([None, True, False, [], {}])
    if choice == 4:
        return [r.randrange(40)]
    if choice < 7:
        return [junk(r, depth + 1) for _ in range(r.randrange(4))]
    return {r.choice(KINDS.split()): junk(r, depth + 1) for _ in range(r.randrange(1, 3))}


def spots(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """All places inside JSON where something stands."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        found.append((value, key))
        if isinstance(inner, dict | list):
            spots(inner, found)
    return found


def changed_json(r: Random, data: bytes) -> bytes:
    """JSON with some values replaced, removed, copied or exchanged."""
    value = json.loads(data)
    for _ in range(r.choice([1, 1, 1, 2, 3, 8])):
        places = spots(value, []) if isinstance(value, dict | list) else []
        if not places:
            return json.dumps(junk(r)).encode()
        holder, key = r.choice(places)
        other, name = r.choice(places)
        how = r.randrange(8)
        with contextlib.suppress(KeyError, IndexError):  # changed away meanwhile
            if how == 0:
                del holder[key]
            elif how == 1:
                holder[key] = json.loads(json.dumps(other[name]))
            elif how == 2 and isinstance(holder, list):
                holder.insert(r.randrange(len(holder) + 1), junk(r))
            elif how == 3 and isinstance(holder, dict):
                holder[r.choice(KINDS.split() + list(holder))] = junk(r)
            elif how == 4 and type(holder[key]) is int:
                holder[key] += r.choice([-1, 1, 4, 8, 16, 2**32, 2**63])
            else:
                holder[key] = junk(r)
    with contextlib.suppress(ValueError, RecursionError):  # a value that contains itself
        return json.dumps(value).encode()
    return b"{}"


OPCODES = [bytes([code]) for code in range(256)]
SNIPPETS = [
    b"cos\nsystem\n(X\x04\x00\x00\x00truetR",
    b"cbuiltins\neval\n(X\x01\x00\x00\x001tR",
    b"c__main__\nMine\n)\x81}b",
    b"c__main__\nMine\n)R",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch._utils\n_rebuild_parameter\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n",
    b"ctorch\nFloatStorage\n",
    b"ctorch\nDoubleStorage\n",
    b"ctorch.storage\nUntypedStorage\n",
    b"ctorch\nfloat64\n",
    b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R",
    b"cnumpy\ndtype\nX\x02\x00\x00\x00f8\x89\x88\x87R",
    b"q\x00", b"q\x05", b"r\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"2",
    b"U\x01a", b"T\xff\xff\xff\x7f",
    b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R",
    b"\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R",
    b"\x8c\x0bcollections\x8c\x07Counter\x93N}\x8c\x01xK\x01s\x86b",
    b"\x8c\x08__main__\x8c\x04Mine\x93)\x81}b",
    b"\x8c\x08__main__\x8c\x04Mine\x93)R",
    b"(\x8c\x05dtype\x8c\x07float32tQN}\x8c\x04name\x8c\x04evil\x73\x86b",
    b"(\x8c\x06tensorK\x00}\x8c\x03rawK\x01stQ",
    b"\x8c\x08builtins\x8c\tbytearray\x93\x8a\x05\x00\x00\x00\x00\x10\x85R",
    b"\x8c\x08builtins\x8c\x05range\x93K\x00K\x05K\x00\x87R",
    b"}\x94", b"]\x94", b"\x8f\x94", b")", b"(", b"0", b"1", b"e", b"u", b"t", b"\x90", b"\x91",
    b"h\x00", b"h\x01", b"j\x03\x00\x00\x00", b"Q", b"R", b"b", b"s", b"a", b"\x81", b"\x93",
    b"\x8a\xff", b"\x8e" + b"\xff" * 8, b"X\xff\xff\xff\x7f", b"G\x7f\xf0" + b"\0" * 6,
]  # fmt: skip


def changed_bytes(r: Random, data: bytes, snippets: list[bytes]) -> bytes:
    """Bytes with some of them changed, left out, repeated or put in."""
    made = bytearray(data)
    for _ in range(r.choice([1, 1, 1, 2, 4, 16])):
        at = r.randrange(len(made) + 1)
        how = r.randrange(6)
        if how == 0:
            made[at : at + 1] = bytes([r.randrange(256)])
        elif how == 1 and at < len(made):
            made[at] ^= 1 << r.randrange(8)
        elif how == 2:
            del made[at : at + r.choice([1, 2, 8])]
        elif how == 3:
            made[at:at] = r.choice(snippets)
        elif how == 4:
            made[at:at] = made[at : at + r.choice([1, 2, 8, 64])]
        else:
            made[at : at + 4] = struct.pack("<I", r.choice([0, 1, 2**16, 2**31, 2**32 - 1]))
    return bytes(made)


def forged_entries(r: Random, data: bytes) -> bytes:
    """A sound archive with changed contents."""
    parts = entries(data)
    for _ in range(r.choice([1, 1, 2])):
        name = r.choice([*parts, *[n for n in parts if not n.startswith("blocks/")] * 6])
        if name.endswith(".json"):
            with contextlib.suppress(ValueError):
                parts[name] = changed_json(r, parts[name])
        else:
            parts[name] = changed_bytes(r, parts[name], SNIPPETS)
    return archive(parts)


def forged_archive(r: Random, data: bytes) -> bytes:
    """Other entries, names, order or compression."""
    parts = list(entries(data).items())
    how = r.randrange(6)
    if how == 0:
        r.shuffle(parts)
    elif how == 1:
        del parts[r.randrange(len(parts))]
    elif how == 2:
        parts.append((r.choice(["blocks/99", "extra", "../evil", "", "format.json/"]), b"x"))
    elif how == 3:
        place = r.randrange(len(parts))
        parts[place] = (r.choice(["blocks/0", "blocks/1", "x", "structure.pkl"]), parts[place][1])
    elif how == 4:
        (a, first), (b, second) = r.choice(parts), r.choice(parts)
        parts = [(n, second if n == a else first if n == b else part) for n, part in parts]
    deflated = how == 5 or r.random() < 0.1
    return archive(dict(parts), zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED)


def forged_directory(r: Random, data: bytes) -> bytes:
    """Numbers changed in the directory and the local headers of the archive."""
    made = bytearray(data)
    marks = [b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"]
    for _ in range(r.choice([1, 1, 2, 3])):
        mark = r.choice(marks)
        places = [n for n in range(len(made)) if made[n : n + 4] == mark]
        if places:
            at = r.choice(places) + r.randrange(4, 46)
            width = r.choice([1, 2, 4])
            value = r.choice([*[abs(n) for n in NUMBERS if type(n) is int], r.randrange(2**32)])
            made[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(made)


def forged_pickle(r: Random, data: bytes) -> bytes:
    """A zip archive of PyTorch with another pickle or storage; of other files, other bytes."""
    if data[:2] != b"PK":
        return forged_header(r, data)
    parts = entries(data)
    names = [name for name in parts if name.endswith("data.pkl")] * 8
    for _ in range(r.choice([1, 1, 2])):
        name = r.choice([*parts, *names])
        parts[name] = changed_bytes(r, parts[name], SNIPPETS)
    return archive(parts)


def forged_header(r: Random, data: bytes) -> bytes:
    """A file of safetensors with another header; of other files, other bytes."""
    (size,) = struct.unpack_from("<Q", data)
    if data[8:9] != b"{" or size > len(data):
        return changed_bytes(r, data, SNIPPETS)
    header = changed_json(r, data[8 : 8 + size])
    return struct.pack("<Q", len(header) + r.choice([0] * 9 + [1, -1])) + header + data[8 + size :]


def cut(r: Random, data: bytes) -> bytes:
    """The beginning, the end or both of a file, or more than all of it."""
    at = r.randrange(len(data))
    return r.choice([data[:at], data[at:], data + data[:at], data[:at] + bytes(len(data) - at)])


def new_structure(r: Random, data: bytes) -> bytes:
    """A structure of drawn nodes over somebody's records."""
    kinds = KINDS.split()
    nodes = [{r.choice(kinds): junk(r)} for _ in range(r.randrange(1, 12))]
    parts = entries(data)
    parts["structure.json"] = json.dumps({"root": [0], "nodes": nodes}).encode()
    return archive(parts)


OTHER_FORGERIES: list[tuple[int, Callable[[Random, bytes], bytes]]] = [
    (10, forged_pickle),
    (2, forged_directory),
    (1, cut),
    (4, lambda r, data: changed_bytes(r, data, SNIPPETS)),
]
FORGERIES: list[tuple[int, Callable[[Random, bytes], bytes]]] = [
    (10, forged_entries),
    (2, new_structure),
    (2, forged_directory),
    (1, forged_archive),
    (1, cut),
    (2, lambda r, data: changed_bytes(r, data, SNIPPETS)),
]

# -- watching ------------------------------------------------------------------------------------

ALLOWED = {  # what Python does when it looks at loaded objects
    "object.__getattr__",
    "builtins.id",
    "sys._getframe",
    "gc.get_referents",
}


class Watch:
    """Sees what the process does while it is switched on."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._event)

    def _event(self, event: str, arguments: Any) -> None:
        if self.on and event not in ALLOWED:
            self.on = False
            frames = traceback.format_stack(limit=6)
            self.seen.append(f"{event} {arguments!r:.200}\n{''.join(frames)}")
            self.on = True


def world() -> dict[str, Any]:
    """What a file could have changed."""
    classes = [cd.Tensor, cd.nn.Parameter, cd.Size, type(cd.float32), type(cd.device("cpu"))]
    classes += [Counter, OrderedDict, defaultdict, deque, Mine, cd.Generator]
    names = [name for name in dir(cd) if isinstance(getattr(cd, name, None), type(cd.float32))]
    return {
        "dtypes": [
            [getattr(getattr(cd, name), slot) for slot in type(cd.float32).__slots__]
            for name in names
        ],
        "classes": [{name: id(value) for name, value in vars(cls).items()} for cls in classes],
        "modules": sorted(sys.modules),
        "environment": dict(os.environ),
        "directory": sorted(os.listdir()),
        "main": sorted(globals()),
        "builtins": sorted(vars(__builtins__)),
        "defaults": [cd.get_default_dtype().name, cd.is_grad_enabled(), sys.getrecursionlimit()],
        "ran": [Mine.ran],
        "sums": [float(cd.arange(5.0).sum()), cd.float32.name, str(cd.device("cpu"))],
        "allowed": cd.serialization.get_safe_globals(),
    }


def look_at(obj: Any, budget: list[int], seen: set[int]) -> None:
    """Read all elements that were loaded: memory that is not there would end the process."""
    budget[0] -= 1
    if budget[0] < 0 or id(obj) in seen:
        return
    seen.add(id(obj))
    if isinstance(obj, cd.Tensor):
        if obj.numel() < 10_000 and obj.layout == "strided" and not obj.is_meta:
            obj.detach().tolist()
            with contextlib.suppress(RuntimeError, TypeError):
                obj.detach().zero_()
        for value in vars(obj).values():
            look_at(value, budget, seen)
    elif isinstance(obj, np.ndarray) and obj.size < 10_000:
        obj.tolist()
    elif isinstance(obj, dict):
        for key, value in obj.items():
            look_at(key, budget, seen)
            look_at(value, budget, seen)
    elif isinstance(obj, list | tuple | set | frozenset | deque):
        for value in obj:
            look_at(value, budget, seen)
    elif isinstance(obj, cd.Generator):
        with contextlib.suppress(RuntimeError, ValueError):
            cd.rand(2, generator=obj)
    else:
        with contextlib.suppress(TypeError):
            hash(obj)


def _raises(file: Any) -> Any:
    raise ValueError("raw")


def _imports(file: Any) -> Any:
    import this  # noqa: F401

    return cd.load(file)


def _changes(file: Any) -> Any:
    type(cd.float32).name.__set__(cd.float32, "float33")
    return cd.load(file)


def _runs(file: Any) -> Any:
    os.system("true")
    return cd.load(file)


def _takes_memory(file: Any) -> Any:
    return bytearray(2 * MEMORY)


PLANTED = {
    function.__name__.strip("_"): function
    for function in (_raises, _imports, _changes, _runs, _takes_memory)
}


def served() -> None:
    """Call what a kernel pack leaves to NumPy at first, until its own kernels are loaded."""
    for x in (cd.ones(2), cd.ones(2, dtype=cd.float64)):
        for _ in range(1100):
            (x + x, x * 2, x > x, -x)


def main(seed: int, count: int, planted: str | None = None) -> None:
    other = planted == "other_formats"
    load = PLANTED[planted] if planted and not other else cd.load
    faulthandler.enable()
    r = random.Random(seed)
    files, forgeries = (other_formats(), OTHER_FORGERIES) if other else (originals(), FORGERIES)
    cd.plugins.discover()
    served()
    for data in files:  # once with everything sound, so that what is imported late is there
        with contextlib.suppress(SerializationError):
            look_at(cd.load(io.BytesIO(data)), [100_000], set())
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (pages + MEMORY, pages + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    watch, outcome, wrong = Watch(), Counter[str](), list[str]()
    forge = r.choices([f for _, f in forgeries], [n for n, _ in forgeries], k=count)
    "x".encode("cp437")  # zipfile's, where a forged name is read
    world()  # what it imports itself
    before = world()
    for number, how in enumerate(forge):
        data = r.choice(files)
        with contextlib.suppress(ValueError, struct.error):
            data = how(r, data)
        file = io.BytesIO(data)
        watch.on = True
        try:
            found = load(file)
            look_at(found, [20_000], set())
            del found
            outcome["loaded"] += 1
        except SerializationError as error:
            watch.on = False
            outcome["refused"] += 1
            if "the file" not in str(error):
                wrong.append(f"{number} {how.__name__}: the error names no file: {error}")
        except BaseException:
            watch.on = False
            wrong.append(f"{number} {how.__name__}: {traceback.format_exc()[-1500:]}")
        watch.on = False
        if number % 500 == 499 or number == count - 1:
            after = world()
            for key in before:
                if before[key] != after[key]:
                    changed = {*map(repr, before[key])} ^ {*map(repr, after[key])}
                    wrong.append(f"{key} changed before {number}: {sorted(changed)}")
            before = after
    print(json.dumps({"outcome": outcome, "wrong": wrong[:20], "seen": watch.seen[:20]}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
