"""Reading zip archives of uncompressed entries, every number checked before it is used.

``zipfile`` also reads what ``save`` never writes: compressed entries (a small file that unpacks to
gigabytes), entries that overlap, names that stand twice. Here the entries lie one after the other
and together are no larger than the file. Format: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.3.
"""

from __future__ import annotations

import struct
import zlib
from typing import IO, NamedTuple

from coredispatch.frontend.serialization.errors import Damage

__all__ = ["StoredZip"]

_END = struct.Struct("<4s4H2IH")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_IN_EXTRA = 0xFFFFFFFF  # a number that stands in the 64-bit extra field
_DESCRIPTOR, _UTF8 = 0x0008, 0x0800  # the flags that Python's zipfile sets
_CHUNK = 1 << 20


class _Entry(NamedTuple):
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    plain: bool  # no comment, no other disk
    header: int  # where its local header starts
    end: int  # where the next entry, or the directory, starts


class StoredZip:
    """The entries of a seekable binary file.

    Attributes:
        names: of all entries, in the order of the directory.

    Raises:
        Damage: the file is no zip archive, or it is cut off or damaged.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        file.seek(0, 2)
        self._length = file.tell()
        count, size, start, base = self._end()
        self._entries = self._directory(self._at(start, size, "the directory"), count, start, base)
        self.names = list(self._entries)

    def _at(self, position: int, size: int, what: str) -> bytes:
        if position < 0 or position + size > self._length:
            raise Damage(what, "it lies outside the file")
        self._file.seek(position)
        data = self._file.read(size)
        if len(data) != size:
            raise Damage(what, "the file ends inside it")
        return data

    def _end(self) -> tuple[int, int, int, int]:
        """Number of entries, size and place of the directory, and where the archive starts."""
        what = "the end of the archive"
        position = self._length - _END.size
        end = _END.unpack(self._at(position, _END.size, what))
        if end[0] != b"PK\x05\x06" or end[1] or end[2] or end[3] != end[4] or end[7]:
            raise Damage(what, "the record that closes a zip archive is not there")
        count, size, offset = end[4:7]
        locator = position - _END64_LOCATOR.size
        if locator >= 0:
            found = _END64_LOCATOR.unpack(self._at(locator, _END64_LOCATOR.size, what))
            if found[0] == b"PK\x06\x07":
                position = locator - _END64.size
                end64 = _END64.unpack(self._at(position, _END64.size, what))
                if end64[0] != b"PK\x06\x06" or end64[1] != _END64.size - 12:
                    raise Damage(what, "its 64-bit form is not there")
                count, size, offset = end64[7:10]
        start = position - size
        if count * _CENTRAL.size > size or start < offset:
            raise Damage(what, f"no directory of {count} entries and {size} bytes is before it")
        return count, size, start, start - offset

    def _directory(self, data: bytes, count: int, start: int, base: int) -> dict[str, _Entry]:
        found: list[tuple[str, _Entry]] = []
        position = 0
        for number in range(count):
            what = f"entry {number} of the directory"
            if position + _CENTRAL.size > len(data):
                raise Damage(what, "the directory ends before it")
            fields = _CENTRAL.unpack_from(data, position)
            position += _CENTRAL.size
            if fields[0] != b"PK\x01\x02":
                raise Damage(what, "it does not begin as an entry does")
            flags, method, crc, packed, size = fields[3], fields[4], *fields[7:10]
            name_size, extra_size, comment_size, disk = fields[10:14]
            name = data[position : position + name_size].decode("utf-8", "replace")
            position += name_size
            extra = data[position : position + extra_size]
            position += extra_size + comment_size
            if position > len(data):
                raise Damage(what, "the directory ends inside it")
            size, packed, header = _sizes(extra, [size, packed, fields[16]], what)
            plain = not (comment_size or disk)
            entry = _Entry(flags, method, crc, packed, size, plain, base + header, 0)
            found.append((name, entry))
        if position != len(data):
            raise Damage("the directory", "it goes on after its last entry")
        entries: dict[str, _Entry] = {}
        end = start
        for name, entry in sorted(found, key=lambda item: -item[1].header):
            if name in entries:
                raise Damage("the directory", f"it has two entries {name!r:.100}")
            if entry.header + _LOCAL.size > end:
                raise Damage(
                    f"entry {name!r:.100}", "it lies outside the file or over another entry"
                )
            entries[name] = entry._replace(end=end)
            end = entry.header
        return {name: entries[name] for name, _ in found}

    def size(self, name: str) -> int:
        """Bytes of an entry, which the file really has."""
        return self._checked(name).size

    def _checked(self, name: str) -> _Entry:
        entry, what = self._entries[name], f"entry {name!r}"
        if entry.method or entry.packed != entry.size:
            raise Damage(what, "it is compressed, which coredispatch.save never does")
        if entry.flags & ~(_DESCRIPTOR | _UTF8) or not entry.plain:
            raise Damage(what, f"it has the flags {entry.flags:#x} or a comment")
        if entry.header + _LOCAL.size + entry.size > entry.end:
            raise Damage(what, f"{entry.size} bytes do not fit before the next entry")
        return entry

    def _data(self, name: str) -> _Entry:
        """Go to the first byte of an entry."""
        entry, what = self._checked(name), f"entry {name!r}"
        local = _LOCAL.unpack(self._at(entry.header, _LOCAL.size, what))
        named = self._at(entry.header + _LOCAL.size, local[9], what)
        if local[0] != b"PK\x03\x04" or local[2:4] != entry[:2] or named != name.encode():
            raise Damage(what, "its header and the directory differ")
        start = entry.header + _LOCAL.size + local[9] + local[10]
        if start + entry.size > entry.end:
            raise Damage(what, f"{entry.size} bytes do not fit before the next entry")
        self._file.seek(start)
        return entry

    def position(self, name: str) -> int:
        """Where the first byte of an entry lies in the file."""
        self._data(name)
        return self._file.tell()

    def read(self, name: str) -> bytes:
        """The bytes of an entry."""
        data = bytearray(self.size(name))
        self.read_into(name, memoryview(data))
        return bytes(data)

    def read_into(self, name: str, target: memoryview) -> None:
        """Fill `target`, which is as long as the entry, with its bytes."""
        entry, done, crc = self._data(name), 0, 0
        while done < entry.size:
            piece = self._file.read(min(_CHUNK, entry.size - done))
            if not piece:
                raise Damage(f"entry {name!r}", "the file ends inside it")
            target[done : done + len(piece)] = piece
            crc = zlib.crc32(piece, crc)
            done += len(piece)
        if crc != entry.crc:
            raise Damage(f"entry {name!r}", "its checksum differs from its contents")


def _sizes(extra: bytes, numbers: list[int], what: str) -> list[int]:
    """Size, packed size and offset, with those that stand in the 64-bit extra field."""
    if _IN_EXTRA not in numbers:
        return numbers
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<2H", extra)
        field, extra = extra[4 : 4 + length], extra[4 + length :]
        if kind == 1 and len(field) >= 8 * numbers.count(_IN_EXTRA):
            wide = iter(struct.unpack_from(f"<{len(field) // 8}Q", field))
            return [next(wide) if number == _IN_EXTRA else number for number in numbers]
    raise Damage(what, "its 64-bit sizes are missing")
