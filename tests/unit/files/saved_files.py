"""Taking saved files apart and putting them together again, for tests that forge them."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import coredispatch as cd

#: a file of format version 1 with everything that version could say
VERSION_1 = Path(__file__).with_name("saved_by_version_1.cd")


def saved(obj: Any) -> bytes:
    """What ``cd.save`` writes for an object."""
    buffer = io.BytesIO()
    cd.save(obj, buffer)
    return buffer.getvalue()


def loaded(data: bytes, **options: Any) -> Any:
    """What ``cd.load`` makes of a file's bytes."""
    return cd.load(io.BytesIO(data), **options)


def entries(data: bytes) -> dict[str, bytes]:
    """The entries of an archive by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive(parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive with these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as target:
        for name, part in parts.items():
            target.writestr(zipfile.ZipInfo(name), part, compression)
    return buffer.getvalue()


def with_json(data: bytes, name: str, change: Any) -> bytes:
    """The file with one of its JSON entries changed by ``change(value)``, in place or anew."""
    parts = entries(data)
    value = json.loads(parts[name])
    changed = change(value)
    parts[name] = json.dumps(value if changed is None else changed).encode()
    return archive(parts)


def with_record(data: bytes, **changes: Any) -> bytes:
    """The file with the first array's record changed."""

    def change(index: Any) -> None:
        record = index["tensors"][0]
        record["array"].update(changes)

    return with_json(data, "format.json", change)


def with_structure(root: Any, *nodes: Any, records: bytes | None = None) -> bytes:
    """A file with the given structure, and the records and blocks of another one or none."""
    data = saved(None) if records is None else records
    return with_json(data, "structure.json", lambda _: {"root": root, "nodes": list(nodes)})


def version_1(structure: bytes, records: bytes | None = None) -> bytes:
    """A file of version 1 with the given pickle, and the records and blocks of another one."""
    parts = entries(saved(None) if records is None else records)
    index = json.loads(parts["format.json"])
    index["version"] = 1
    del parts["structure.json"]
    parts = {"format.json": json.dumps(index).encode(), "structure.pkl": structure} | {
        name: part for name, part in parts.items() if name != "format.json"
    }
    return archive(parts)


class Reference:
    """Stands in a pickle of version 1 for a tensor, dtype, device or size."""

    def __init__(self, *what: Any) -> None:
        self.what = what


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.what if isinstance(obj, Reference) else None


def pickled(obj: Any) -> bytes:
    """The structure that version 1 wrote for an object; references are :class:`Reference`."""
    buffer = io.BytesIO()
    _Pickler(buffer, 4).dump(obj)
    return buffer.getvalue()
