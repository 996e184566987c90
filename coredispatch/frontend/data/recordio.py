"""RecordIO: MXNet's files of records, ``.rec``, with an index of places, ``.idx``.

A record is written as parts. Each part begins with the magic number 0xced7230a and a number whose
upper 3 bits say whether it is a whole record (0), the first (1), a middle (2) or the last (3) part,
and whose lower 29 bits are its length; its bytes follow, filled up to a multiple of 4. A record is
split where it contains the magic number itself at a multiple of 4, which is left out there. Numbers
are little-endian. Source: ``dmlc-core/include/dmlc/recordio.h`` and ``mxnet/recordio.py``.
"""

from __future__ import annotations

import contextlib
import io
import numbers
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np

from coredispatch.frontend.data.dataset import Dataset
from coredispatch.registry.model.errors import CoreDispatchError

__all__ = [
    "IRHeader",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "RecordIODataset",
    "RecordIOError",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]

PathLike = str | os.PathLike[str]

MAGIC: Final = 0xCED7230A
_MAGIC: Final = struct.pack("<I", MAGIC)
_PART: Final = struct.Struct("<II")
_HEADER: Final = struct.Struct("<IfQQ")
_WHOLE, _FIRST, _MIDDLE, _LAST = 0, 1, 2, 3
_LONGEST: Final = 1 << 29


class RecordIOError(CoreDispatchError, RuntimeError, ValueError):
    """A file that is no RecordIO, is damaged, or is used the wrong way."""


class IRHeader(NamedTuple):
    """What stands before the data of a record of the Image RecordIO.

    Attributes:
        flag: 0 for one label; the number of labels otherwise, which :func:`pack` sets.
        label: a number, or several.
        id: of the record.
        id2: the upper part of a longer id, or 0.
    """

    flag: int
    label: Any
    id: int
    id2: int


# -- records ---------------------------------------------------------------------------------------


def _parts(record: bytes) -> Iterator[bytes]:
    """A record as it stands in a file."""
    if len(record) >= _LONGEST:
        raise RecordIOError(f"a record of {len(record)} bytes; less than {_LONGEST} fit")
    start, first = 0, True
    place = record.find(_MAGIC)
    while place >= 0:
        if place % 4:
            place = record.find(_MAGIC, place + 1)
            continue
        yield _PART.pack(MAGIC, (_FIRST if first else _MIDDLE) << 29 | (place - start))
        yield record[start:place]
        start, first = place + 4, False
        place = record.find(_MAGIC, start)
    yield _PART.pack(MAGIC, (_WHOLE if first else _LAST) << 29 | (len(record) - start))
    yield record[start:] + bytes(-len(record) % 4)


def _read(at: Callable[[int, int], bytes], position: int, name: str) -> tuple[bytes, int]:
    """The record that begins at `position`, and where the next one does.

    Raises:
        RecordIOError: no record begins there, or the file ends inside it.
    """
    pieces: list[bytes] = []
    while True:
        head = at(position, _PART.size)
        if len(head) != _PART.size:
            raise RecordIOError(f"{name}, byte {position}: the file ends inside a record")
        magic, word = _PART.unpack(head)
        kind, length = word >> 29, word & (_LONGEST - 1)
        if magic != MAGIC:
            raise RecordIOError(f"{name}, byte {position}: no record begins here")
        if kind not in ((_MIDDLE, _LAST) if pieces else (_WHOLE, _FIRST)):
            raise RecordIOError(f"{name}, byte {position}: a part of kind {kind} is out of order")
        filled = length + -length % 4
        data = at(position + _PART.size, filled)
        if len(data) != filled:
            raise RecordIOError(f"{name}, byte {position}: the file ends inside a record")
        pieces.append(data[:length])
        position += _PART.size + filled
        if kind in (_WHOLE, _LAST):
            return _MAGIC.join(pieces), position


class MXRecordIO:
    """A file of records, read or written one after the other.

    Args:
        uri: the path.
        flag: ``"r"`` or ``"w"``. What is written replaces the file when it is closed; an exception
            in a ``with`` block, a full disk or a kill leaves the earlier file.

    Raises:
        RecordIOError: the file is damaged, or open for the other thing.

    Example::

        with MXRecordIO("data.rec", "w") as file:
            file.write(b"record")
    """

    def __init__(self, uri: PathLike, flag: str) -> None:
        if flag not in ("r", "w"):
            raise ValueError(f"Invalid flag {flag!r}: 'r' reads, 'w' writes")
        self.uri = os.fspath(uri)
        self.flag = flag
        self.writable = flag == "w"
        self.is_open = False
        self.open()

    def open(self) -> None:
        """Open the file, from its beginning."""
        if self.is_open:
            return
        self._stack = contextlib.ExitStack()
        self._position = 0
        self._process = os.getpid()
        self._file: IO[bytes]
        if self.writable:
            from coredispatch.frontend.serialization.atomic import open_for_writing

            self._file = self._stack.enter_context(open_for_writing(self.uri))
        else:
            self._file = self._stack.enter_context(open(self.uri, "rb"))
        self.is_open = True

    def close(self) -> None:
        """Close the file; what was written is then there."""
        if self.is_open:
            self.is_open = False
            if self.writable and self._process != os.getpid():
                return  # a forked copy: the file is its parent's
            self._stack.close()

    def _discard(self, *error: Any) -> None:
        if self.is_open:
            self.is_open = False
            self._stack.__exit__(*error)

    def reset(self) -> None:
        """Go back to the beginning; a file that is written begins anew, empty."""
        if self.writable:
            error = RecordIOError("written anew")
            with contextlib.suppress(RecordIOError):
                self._discard(RecordIOError, error, None)
        self.close()
        self.open()

    def write(self, buf: bytes) -> None:
        """Append a record."""
        if not self.writable or not self.is_open:
            raise RecordIOError(f"{self.uri!r} is not open for writing")
        for part in _parts(bytes(memoryview(buf))):
            self._file.write(part)
            self._position += len(part)

    def read(self) -> bytes | None:
        """The next record, or None at the end."""
        self._need_reading()
        size = os.fstat(self._file.fileno()).st_size
        if self._position >= size:
            return None
        found, self._position = _read(self._at, self._position, repr(self.uri))
        return found

    def _need_reading(self) -> None:
        if self.writable or not self.is_open:
            raise RecordIOError(f"{self.uri!r} is not open for reading")

    def _at(self, position: int, length: int) -> bytes:
        # No more than there is: a damaged length would take half a gigabyte of memory.
        length = min(length, os.fstat(self._file.fileno()).st_size - position)
        if length <= 0 or position < 0:
            return b""
        # Not seek and read: processes that a DataLoader forked share one place in the file.
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), length, position)
        self._file.seek(position)
        return self._file.read(length)

    def tell(self) -> int:
        """Where the next record begins."""
        return self._position

    def __enter__(self) -> MXRecordIO:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self.close()
        else:
            self._discard(*error)

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            with contextlib.suppress(Exception):
                self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.writable:
            raise RecordIOError(f"{self.uri!r} is open for writing and cannot be copied")
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_stack", "_file", "_process")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        was_open, position = self.is_open, self._position
        self.is_open = False
        if was_open:
            self.open()
            self._position = position


class MXIndexedRecordIO(MXRecordIO):
    """A file of records with an index: keys, and where their records begin.

    Args:
        idx_path: the index, a text with a key, a tab and a place in each line.
        uri: the file of records.
        flag: ``"r"`` or ``"w"``.
        key_type: what makes a key of its text.
    """

    def __init__(
        self, idx_path: PathLike, uri: PathLike, flag: str, key_type: Callable[[str], Any] = int
    ) -> None:
        self.idx_path = os.fspath(idx_path)
        self.key_type = key_type
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        super().__init__(uri, flag)

    def open(self) -> None:
        """Open both files."""
        super().open()
        self.idx, self.keys = {}, []
        if not self.writable:
            index = Path(self.idx_path).read_text(errors="replace")
            for line, text in enumerate(index.splitlines(), 1):
                key, tab, place = text.partition("\t")
                try:
                    self.idx[self.key_type(key)] = int(place)
                except ValueError as error:
                    raise RecordIOError(
                        f"{self.idx_path!r}, line {line}: {text[:80]!r} is not a key and a place"
                    ) from error
            self.keys = list(self.idx)

    def close(self) -> None:
        """Close the records, then write the index."""
        write = self.is_open and self.writable and self._process == os.getpid()
        super().close()
        if write:
            from coredispatch.frontend.serialization.atomic import open_for_writing

            with open_for_writing(self.idx_path) as file:
                for key, place in self.idx.items():
                    file.write(f"{key}\t{place}\n".encode())

    def seek(self, idx: Any) -> None:
        """Go to the record of a key."""
        self._need_reading()
        self._position = self.idx[self.key_type(idx)]

    def read_idx(self, idx: Any) -> bytes:
        """The record of a key."""
        self._need_reading()
        return _read(self._at, self.idx[self.key_type(idx)], repr(self.uri))[0]

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Append a record under a key."""
        key, place = self.key_type(idx), self.tell()
        self.write(buf)
        self.idx[key] = place
        self.keys.append(key)


# -- headers, labels and images --------------------------------------------------------------------


def pack(header: IRHeader | tuple[Any, ...], s: bytes) -> bytes:
    """A record: the header, its labels where there are several, and the data.

    Raises:
        RecordIOError: there is no label, or a number does not fit the header.
    """
    header = IRHeader(*header)
    if header.label is None:
        raise RecordIOError(f"a record needs a label: {header}")
    if isinstance(header.label, numbers.Number):
        count, number, labels = 0, float(header.label), b""  # type: ignore[arg-type]
    else:
        several = np.asarray(header.label, "<f4").reshape(-1)
        count, number, labels = several.size, 0.0, several.tobytes()
    try:
        return _HEADER.pack(count, number, header.id, header.id2) + labels + s
    except (struct.error, OverflowError) as error:
        raise RecordIOError(
            f"{header} does not fit: label is a float32, id and id2 are unsigned 64-bit integers"
        ) from error


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Header and data of a record that :func:`pack` made; several labels are an array of float32.

    Raises:
        RecordIOError: it is too short.
    """
    if len(s) < _HEADER.size:
        raise RecordIOError(f"a record of {len(s)} bytes has no header of {_HEADER.size}")
    header, data = IRHeader(*_HEADER.unpack_from(s)), s[_HEADER.size :]
    if header.flag:
        if len(data) < 4 * header.flag:
            raise RecordIOError(f"a record of {len(s)} bytes does not hold {header.flag} labels")
        labels = np.frombuffer(data, "<f4", header.flag).astype(np.float32)
        header, data = header._replace(label=labels), data[4 * header.flag :]
    return header, data


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "images in records are coded by Pillow, which is not installed: pip install pillow"
        ) from error
    return Image


def pack_img(
    header: IRHeader | tuple[Any, ...], img: Any, quality: int = 95, img_fmt: str = ".jpg"
) -> bytes:
    """A record with a coded image.

    Args:
        header: as for :func:`pack`.
        img: an image of Pillow, or an array or tensor of uint8, ``(height, width)`` or ``(height,
            width, channels)`` in the order red, green, blue.
        quality: of JPEG, 1 to 100; how much a PNG is compressed, 0 to 9.
        img_fmt: ``".jpg"``, ``".jpeg"`` or ``".png"``.
    """
    image = _pillow()
    kinds = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG"}
    if img_fmt.lower() not in kinds:
        raise ValueError(f"pack_img: img_fmt is {img_fmt!r}; give .jpg, .jpeg or .png")
    if not isinstance(img, image.Image):
        array = np.asarray(img)
        if array.dtype != np.uint8:
            raise ValueError(f"pack_img: an image has elements of uint8, not {array.dtype}")
        if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))):
            raise ValueError(
                f"pack_img: an image has the shape (height, width) or (height, width, 1, 3 or 4 "
                f"channels), not {array.shape}"
            )
        img = image.fromarray(array[:, :, 0] if array.shape[2:] == (1,) else array)
    buffer = io.BytesIO()
    if kinds[img_fmt.lower()] == "JPEG":
        img.convert(img.mode if img.mode == "L" else "RGB").save(buffer, "JPEG", quality=quality)
    else:
        img.save(buffer, "PNG", compress_level=min(quality, 9))
    return pack(header, buffer.getvalue())


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray[Any, Any]]:
    """Header and image of a record: an array of uint8, in the order red, green, blue.

    Args:
        s: the record.
        iscolor: 1 for three channels, 0 for grey ``(height, width)``, -1 for what the image has.
    """
    image = _pillow()
    header, data = unpack(s)
    with image.open(io.BytesIO(data)) as found:
        if iscolor == 0:
            found = found.convert("L")
        elif iscolor == 1 or found.mode not in ("L", "RGB", "RGBA"):
            found = found.convert("RGB")
        return header, np.array(found)


# -- a dataset -------------------------------------------------------------------------------------


class RecordIODataset(Dataset[Any]):
    """The records of a file, by number.

    Args:
        rec: the file of records.
        idx: its index; by default the file of the same name that ends in ``.idx``, if there is
            one. Without, the file is looked through once for where its records begin.
        transform: called with a record; what it returns is the sample. :func:`unpack` and
            :func:`unpack_img` are such functions.

    Attributes:
        keys: of the records, in order.

    Example::

        data = RecordIODataset("train.rec", transform=recordio.unpack_img)
        header, image = data[0]
    """

    def __init__(
        self,
        rec: PathLike,
        idx: PathLike | None = None,
        transform: Callable[[bytes], Any] | None = None,
    ) -> None:
        self.rec = os.fspath(rec)
        self.transform = transform
        beside = os.path.splitext(self.rec)[0] + ".idx"
        index = idx if idx is not None else beside if os.path.exists(beside) else None
        if index is None:
            self._records = MXRecordIO(self.rec, "r")
            self._places = list(_places(self._records))
            self.keys: list[Any] = list(range(len(self._places)))
        else:
            indexed = MXIndexedRecordIO(index, self.rec, "r")
            self._records = indexed
            self.keys = indexed.keys
            self._places = [indexed.idx[key] for key in self.keys]
            if not self.keys and os.path.getsize(self.rec):
                raise RecordIOError(f"{os.fspath(index)!r} is empty, {self.rec!r} is not")

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        place = self._places[index]
        record, _ = _read(self._records._at, place, repr(self.rec))
        return record if self.transform is None else self.transform(record)


def _places(file: MXRecordIO) -> Iterator[int]:
    size = os.fstat(file._file.fileno()).st_size
    position = 0
    while position < size:
        yield position
        _, position = _read(file._at, position, repr(file.uri))
