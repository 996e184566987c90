"""Loads files that are small and ask for much, each in a process of its own with little memory.

    python load_large_files.py

Prints a JSON object from the name of each file to ``loaded``, the error's text, or how the process
ended.
"""

from __future__ import annotations

import io
import json
import os
import resource
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from saved_files import archive, entries, saved, version_1, with_json, with_structure

import coredispatch as cd
from coredispatch.serialization import SerializationError

MEMORY, SECONDS = 512 << 20, 600
N = 30_000
Nodes = list[dict[str, Any]]


def many(size: int, *nodes: dict[str, Any]) -> bytes:
    """A list of many copies of some nodes, in a file of about that size."""
    count = size // len(json.dumps(nodes)) // 2
    copies = [json.loads(json.dumps(node)) for _ in range(count) for node in nodes]
    return with_structure([0], {"list": [[n + 1] for n in range(len(copies))]}, *copies)


def doubling() -> Nodes:
    """Tuples of which each contains the one before twice: 2**60 parts."""
    return [*({"tuple": [[n + 1], [n + 1]]} for n in range(60)), {"tuple": [1]}]


def chain(kind: str, make: Callable[[int], Any]) -> bytes:
    """Containers of which each contains the next."""
    return with_structure([0], *({kind: make(n + 1)} for n in range(N)), {"list": []})


def raw_structure(text: bytes) -> bytes:
    return archive(entries(saved(None)) | {"structure.json": text})


def used_often(argument: bytes, call: bytes) -> bytes:
    """A pickle in which many objects are made of one large argument."""
    return version_1(b"\x80\x04(" + argument + b"\x94" + b"0" + call * 20_000 + b"t.")


def directory_of_many() -> bytes:
    """An archive whose directory lists 80,000 entries of no bytes."""
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", *[0] * 9, 0, 0, 0, 0, 0, 0, 0)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 60_000, 60_000, 60_000 * len(entry), 4, 0)
    return b"PK\x03\x04" + entry * 60_000 + end


def many_records(record: dict[str, Any]) -> bytes:
    return with_json(saved(None), "format.json", lambda x: x.update(tensors=[record] * 40_000))


def global_(module: str, name: str) -> bytes:
    return b"".join(b"\x8c" + bytes([len(t)]) + t.encode() for t in (module, name)) + b"\x93"


EQUAL = [{"int": hex(n * (2**61 - 1))} for n in range(1, N)]
META = {"kind": "meta", "class": ["Tensor"], "device": "meta", "requires_grad": False}
FILES: dict[str, Callable[[], bytes]] = {
    "many sets": lambda: many(4_000_000, {"set": []}),
    "many deques": lambda: many(1_000_000, {"deque": [None, []]}),
    "many dicts": lambda: many(
        1_000_000, {"defaultdict": [None, []]}, {"Counter": []}, {"OrderedDict": []}
    ),
    "many generators": lambda: many(1_000_000, {"generator": ["cpu", "Y2RybmcxAAAAAAAAAAA="]}),
    "a long list of numbers": lambda: with_structure([0], {"list": list(range(500_000))}),
    "deep lists": lambda: chain("list", lambda n: [[n]]),
    "deep tuples": lambda: chain("tuple", lambda n: [[n]]),
    "deep dicts": lambda: chain("dict", lambda n: [[1, [n]]]),
    "tuples in tuples": lambda: with_structure([0], *doubling()),
    "refused: tuples in a key": lambda: with_structure(
        [61], *doubling(), {"dict": [[[0], 1]]}
    ),
    "refused: tuples in a set": lambda: with_structure([61], *doubling(), {"set": [[0]]}),
    "refused: a deep key": lambda: with_structure(
        [N], *({"tuple": [[n + 1]]} for n in range(N - 1)), {"tuple": []}, {"dict": [[[0], 1]]}
    ),
    "refused: a large key many times": lambda: with_structure(
        [0], {"list": [[n + 2] for n in range(N)]}, {"tuple": list(range(N))},
        *({"dict": [[[1], 1]]} for _ in range(N)),
    ),
    "refused: a large number in a key": lambda: with_structure(
        [0], {"set": [[2]]}, {"int": "0x" + "f" * 2_000_000}, {"tuple": [[1]] * N}
    ),
    "refused: equal hashes": lambda: with_structure(
        [0], {"set": [[n] for n in range(1, N)]}, *EQUAL
    ),
    "refused: deep slices": lambda: chain("slice", lambda n: [[n], None, None]),
    "refused: deep deques": lambda: chain("deque", lambda n: [None, [[n]]]),
    "refused: deep defaultdicts": lambda: chain("defaultdict", lambda n: [None, [[1, [n]]]]),
    "refused: deep mixture": lambda: with_structure(
        [0],
        *({"deque": [None, [[n + 1]]]} if n % 2 else {"slice": [1, [n + 1], 1]} for n in range(N)),
        {"list": []},
    ),
    "refused: a deque in itself": lambda: with_structure([0], {"deque": [None, [[0]]]}),
    "refused: digits": lambda: raw_structure(b'{"root": ' + b"9" * 4_000_000 + b', "nodes": []}'),
    "refused: decimals": lambda: raw_structure(b'{"root": 0.' + b"9" * 4_000_000 + b"}"),
    "refused: brackets": lambda: raw_structure(b"[" * 4_000_000),
    "refused: one block often": lambda: with_structure(
        [0], {"list": [[n + 1] for n in range(N)]}, *[{"bytes": 0}] * N, records=saved(bytes(10**6))
    ),
    "refused: a directory": directory_of_many,
    "refused: records": lambda: many_records(META | {"dtype": "float32", "shape": [2**40]}),
    "refused: opcodes that mark": lambda: version_1(b"\x80\x04" + b"(" * 4_000_000),
    "refused: opcodes for lists": lambda: version_1(b"\x80\x04" + b"]" * 4_000_000),
    "refused: opcodes for tuples": lambda: version_1(b"\x80\x04" + b")" * 4_000_000 + b"N."),
    "refused: opcodes that remember": lambda: version_1(b"\x80\x04N" + b"\x94" * 4_000_000),
    "refused: bytes used often": lambda: used_often(
        b"B" + struct.pack("<I", 10**6) + bytes(10**6),
        global_("builtins", "bytearray") + b"h\x00\x85R",
    ),
    "refused: a tuple used often": lambda: used_often(
        b"(" + b"K\x01" * N + b"t", global_("os", "system") + b"h\x00R"
    ),
    "refused: a dict used often": lambda: used_often(
        b"}(" + b"".join(b"J" + struct.pack("<i", n) + b"N" for n in range(N)) + b"u",
        global_("collections", "Counter") + b"h\x00\x85R",
    ),
    "refused: a size used often": lambda: used_often(
        b"(" + b"K\x01" * N + b"t", b"(\x8c\x04sizeh\x00tQ"
    ),
    "refused: a huge bytearray": lambda: version_1(
        b"\x80\x04" + global_("builtins", "bytearray") + b"\x8a\x06" + b"\x7f" * 6 + b"\x85R."
    ),
}  # fmt: skip


def load(name: str) -> str:
    """Load one file with bounded memory and time."""
    file = io.BytesIO(FILES[name]())
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        found = cd.load(file)
    except SerializationError as error:
        return str(error)
    del found
    return "loaded"


def in_a_process(name: str) -> str:
    """What became of a process that loads one file."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, load(name).encode()[:60_000])
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return text if status == 0 else f"the process ended with {status}"


if __name__ == "__main__":
    cd.load(io.BytesIO(saved([cd.Generator(), cd.nn.Parameter(cd.ones(1))])))
    print(json.dumps({name: in_a_process(name) for name in FILES}))
