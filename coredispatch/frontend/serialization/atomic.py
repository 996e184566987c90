"""Writing a file so that its path always names a whole one."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from coredispatch.frontend.serialization.errors import MissingFolderError, NotAFileError

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed anyway
    fcntl = None  # type: ignore[assignment]

__all__ = ["Target", "open_for_writing"]

Target = str | os.PathLike[str] | IO[bytes]

_NAME_LIMIT = 200  # of 255 bytes that file systems allow, so that the ending fits


@contextlib.contextmanager
def open_for_writing(target: Target) -> Iterator[IO[bytes]]:
    """A binary file to write `target` with.

    A path gets its new contents all at once, when the block ends without an error: a program
    that dies while saving, or a full disk, leaves the previous file as it was. The new file has
    the permissions of the one it replaces, or those that the umask gives. Until then the data are
    in ``<name>.coredispatch-<8 digits>.tmp`` beside it; what a killed program left there is
    removed by the next save to the same path.
    """
    if not isinstance(target, str | os.PathLike):
        if not hasattr(target, "write") or isinstance(target, io.TextIOBase):
            raise NotAFileError(f"save needs a path or a binary file, got {type(target).__name__}")
        yield target
        return
    path = Path(os.path.realpath(target))  # a link goes on pointing to the file it named
    if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
        with open(path, "wb") as pipe:
            yield pipe
        return
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "save: the file is read-only", str(path))
    if not path.parent.is_dir():
        raise MissingFolderError(
            f"save: parent directory {path.parent} does not exist", fix="make it first"
        )
    _remove_leftovers(path)
    temporary, file = _create(path)
    try:
        with file:
            _take_permissions(file, path)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # replaced while the lock is held: nobody takes it for left over
                os.replace(temporary, path)
        if fcntl is None:
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _stem(path: Path) -> str:
    return os.fsdecode(os.fsencode(path.name)[:_NAME_LIMIT])


def _create(path: Path) -> tuple[Path, IO[bytes]]:
    """A new file beside `path`, locked as long as it is open."""
    while True:
        temporary = path.with_name(f"{_stem(path)}.coredispatch-{secrets.token_hex(4)}.tmp")
        # Closed to others before a single byte is in it, where the file it replaces is.
        mode = 0o600 if path.exists() else 0o666
        try:
            number = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, mode)
        except FileExistsError:
            continue
        file = os.fdopen(number, "wb")
        if fcntl is None:
            return temporary, file
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if temporary.exists():  # else somebody took it for left over before it was locked
            return temporary, file
        file.close()


_BINARY = getattr(os, "O_BINARY", 0)


def _take_permissions(file: IO[bytes], path: Path) -> None:
    """Give `file` the owner, group and permissions of the file that it will replace."""
    if not path.exists() or not hasattr(os, "fchmod"):
        return
    old, new = path.stat(), os.fstat(file.fileno())
    mode = stat.S_IMODE(old.st_mode)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.fchown(file.fileno(), old.st_uid, old.st_gid)
        except OSError:  # only root gives files away; some file systems have no owners
            try:
                os.fchown(file.fileno(), -1, old.st_gid)
            except OSError:
                mode &= ~stat.S_IRWXG  # another group must not get what the old one might
    with contextlib.suppress(OSError):  # a file system without permissions
        os.fchmod(file.fileno(), mode & ~(stat.S_ISUID | stat.S_ISGID))


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files of saves to `path` that were killed; those at work hold a lock."""
    pattern = re.compile(re.escape(_stem(path)) + r"\.coredispatch-[0-9a-f]{8}\.tmp")
    try:
        names = [name for name in os.listdir(path.parent) if pattern.fullmatch(name)]
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            _remove_unlocked(path.with_name(name))


def _remove_unlocked(leftover: Path) -> None:
    if fcntl is None:
        leftover.unlink()
        return
    number = os.open(leftover, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if stat.S_ISREG(os.fstat(number).st_mode):
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            leftover.unlink()
    finally:
        os.close(number)


def _sync_directory(directory: Path) -> None:
    """Make the new name last as well as the data do."""
    with contextlib.suppress(OSError):  # not every system syncs directories
        number = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
