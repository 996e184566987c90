"""Calls as data: an operator by its path, arguments with tensors as NumPy arrays.

``{"path": "nn.functional.elu", "args": [...], "kwargs": {...}}``, where a tensor is
``{"tensor": number of an array, "dtype": name, "grad": True, "strided": True}`` and a tuple
``{"tuple": [...]}``.
"""

from __future__ import annotations

import functools
import json
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

#: what is stored of a tensor whose dtype NumPy has not
STORED = {"bfloat16": "float32"}


class Untranslatable(Exception):
    """An argument that is no data: a function, a generator, a sparse tensor."""


def resolve(library: Any, path: str) -> Any:
    """The function or method of this path; AttributeError where there is none."""
    return functools.reduce(getattr, path.split("."), library)


class Book:
    """Calls and their outcomes, in one file."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.arrays: list[np.ndarray] = []

    def keep(self, array: np.ndarray) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1

    def packed(self, x: Any) -> Any:
        """An outcome with its arrays kept here."""
        if isinstance(x, np.ndarray):
            return {"kept": self.keep(x)}
        if isinstance(x, dict):
            return {k: self.packed(v) for k, v in x.items() if k != "raised"}
        if isinstance(x, (list, tuple)):
            return [self.packed(i) for i in x]
        return {"complex": [x.real, x.imag]} if isinstance(x, complex) else x

    def unpacked(self, x: Any) -> Any:
        if isinstance(x, dict):
            if "kept" in x:
                return self.arrays[x["kept"]]
            if "complex" in x:
                return complex(*x["complex"])
            return {k: self.unpacked(v) for k, v in x.items()}
        return [self.unpacked(i) for i in x] if isinstance(x, list) else x

    def save(self, path: Path) -> None:
        """Write the book: entries as JSON, all arrays of one dtype as one block."""
        index, blocks = [], {}
        for array in self.arrays:
            block = blocks.setdefault(array.dtype.str, [])
            index.append([array.dtype.str, list(array.shape)])
            block.append(np.ascontiguousarray(array).tobytes())
        with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
            for name, data in [
                ("entries.json", json.dumps(self.entries).encode()),
                ("index.json", json.dumps(index).encode()),
                *((f"blocks/{k[1:]}", b"".join(v)) for k, v in sorted(blocks.items())),
            ]:
                entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_LZMA
                file.writestr(entry, data)

    @classmethod
    def load(cls, path: Path) -> Book:
        """Read what :meth:`save` wrote."""
        book = cls()
        with zipfile.ZipFile(BytesIO(path.read_bytes())) as file:
            book.entries = json.loads(file.read("entries.json"))
            blocks = {n[7:]: file.read(n) for n in file.namelist() if n.startswith("blocks/")}
            places = dict.fromkeys(blocks, 0)
            for name, shape in json.loads(file.read("index.json")):
                dtype, count = np.dtype(name), int(np.prod(shape))
                at = places[name[1:]]
                flat = np.frombuffer(blocks[name[1:]], dtype, count, at)
                book.arrays.append(flat.reshape(shape))
                places[name[1:]] = at + count * dtype.itemsize
        return book

    def encoded(self, x: Any, torch: Any, seen: dict[int, Any]) -> Any:
        """An argument for PyTorch as data."""
        if isinstance(x, torch.Tensor):
            if id(x) in seen:
                return seen[id(x)]
            name = str(x.dtype).rpartition(".")[2]
            if x.layout is not torch.strided or x.is_quantized or "float8" in name:
                raise Untranslatable(str(x.dtype))
            data = x.detach().resolve_conj().resolve_neg()
            data = data.float() if name in STORED else data
            kept = {"tensor": self.keep(np.array(data.numpy())), "dtype": name}
            seen[id(x)] = kept = {**kept, "grad": True} if x.requires_grad else kept
            return kept
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, complex):
            return {"complex": [x.real, x.imag]}
        if isinstance(x, slice):
            return {"slice": [self.encoded(i, torch, seen) for i in (x.start, x.stop, x.step)]}
        if x is Ellipsis:
            return {"ellipsis": True}
        if isinstance(x, tuple):
            return {"tuple": [self.encoded(i, torch, seen) for i in x]}
        if isinstance(x, list):
            return [self.encoded(i, torch, seen) for i in x]
        if isinstance(x, (torch.dtype, torch.memory_format, torch.layout)):
            return {"name": str(x).rpartition(".")[2]}
        if isinstance(x, torch.device):
            return str(x)
        raise Untranslatable(type(x).__name__)

    def decoded(self, x: Any, library: Any, inputs: list[Any], seen: dict[int, Any]) -> Any:
        """The argument for ``library``; tensors that want gradients join ``inputs``."""
        if isinstance(x, list):
            return [self.decoded(i, library, inputs, seen) for i in x]
        if not isinstance(x, dict):
            return x
        if "tensor" in x:
            number = x["tensor"]
            if number not in seen:
                data = library.from_numpy(np.array(self.arrays[number], ndmin=1))
                made = data.reshape(self.arrays[number].shape).to(getattr(library, x["dtype"]))
                if x.get("strided") and made.ndim > 1:
                    made = made.transpose(0, -1).contiguous().transpose(0, -1)
                seen[number] = made.detach().requires_grad_() if x.get("grad") else made
                if x.get("grad"):
                    inputs.append(seen[number])
            return seen[number]
        if "complex" in x:
            return complex(*x["complex"])
        if "slice" in x:
            return slice(*(self.decoded(i, library, inputs, seen) for i in x["slice"]))
        if "ellipsis" in x:
            return Ellipsis
        if "tuple" in x:
            return tuple(self.decoded(i, library, inputs, seen) for i in x["tuple"])
        return getattr(library, x["name"])

    def arguments(self, entry: dict[str, Any], library: Any) -> tuple[list[Any], Any, list[Any]]:
        """``(args, kwargs, inputs)`` of a call for ``library``."""
        inputs: list[Any] = []
        seen: dict[int, Any] = {}
        args = self.decoded(entry["args"], library, inputs, seen)
        kwargs = {k: self.decoded(v, library, inputs, seen) for k, v in entry["kwargs"].items()}
        return args, kwargs, inputs

    def shown(self, entry: dict[str, Any]) -> str:
        """The call in short."""

        def short(x: Any) -> str:
            if isinstance(x, dict) and "tensor" in x:
                return f"{x['dtype']}{list(self.arrays[x['tensor']].shape)}"
            if isinstance(x, dict):
                return str(next(iter(x.values())))
            return f"[{', '.join(map(short, x))}]" if isinstance(x, list) else repr(x)

        given = [*map(short, entry["args"])]
        given += [f"{k}={short(v)}" for k, v in entry["kwargs"].items()]
        return f"{entry['path']}({', '.join(given)})"

    def by_path(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """The calls of each path."""
        found: dict[str, list[dict[str, Any]]] = {}
        for entry in self.entries:
            found.setdefault(entry["path"], []).append(entry)
        yield from sorted(found.items())
