"""Pipes of files: their names, the open files, what is in them."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator
from typing import Any

from coredispatch.frontend.data.datapipes.datapipe import IterDataPipe, functional_datapipe

__all__ = ["FileLister", "FileOpener", "StreamReader"]


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe):
    """The paths of the files in one or several directories, in order of name.

    ``masks`` are patterns of names, one or a list; ``recursive`` goes into subdirectories.
    """

    def __init__(
        self, root: Any = ".", masks: str | list[str] = "", *, recursive: bool = False,
        abspath: bool = False, non_deterministic: bool = False, length: int = -1,
    ) -> None:  # fmt: skip
        self.roots = [root] if isinstance(root, (str, os.PathLike)) else root
        self.masks = [masks] if isinstance(masks, str) else list(masks)
        self.recursive, self.abspath, self.length = recursive, abspath, length

    def __iter__(self) -> Iterator[str]:
        for root in self.roots:
            for folder, folders, names in os.walk(os.path.abspath(root) if self.abspath else root):
                folders.sort()
                for name in sorted(names):
                    if any(not mask or fnmatch.fnmatch(name, mask) for mask in self.masks):
                        yield os.path.join(folder, name)
                if not self.recursive:
                    break

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(IterDataPipe):
    """Pairs of a path and the open file."""

    def __init__(
        self, datapipe: Iterable[str], mode: str = "r", encoding: str | None = None,
        length: int = -1,
    ) -> None:  # fmt: skip
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}")
        self.datapipe, self.encoding, self.length = datapipe, encoding, length
        self.mode = "r" + mode if mode in ("b", "t") else mode

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for path in self.datapipe:
            yield path, open(path, self.mode, encoding=self.encoding)

    def __len__(self) -> int:
        if self.length == -1:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe):
    """Pairs of a path and what its stream has, ``chunk`` of it at a time; closes the stream."""

    def __init__(self, datapipe: IterDataPipe, chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for path, stream in self.datapipe:
            try:
                while found := stream.read(-1 if self.chunk is None else self.chunk):
                    yield path, found
            finally:
                stream.close()


FileLister, FileOpener = FileListerIterDataPipe, FileOpenerIterDataPipe
StreamReader = StreamReaderIterDataPipe
