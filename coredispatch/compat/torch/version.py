"""The release of PyTorch whose names and texts the shim has."""

from __future__ import annotations

from typing import Any

from coredispatch._version import __version__
from coredispatch.compat.torch.names import PYTORCH

__all__ = ["VERSION", "TorchVersion"]


def _key(version: str) -> tuple[Any, ...]:
    """What versions are ordered by: the release's numbers, then whether it is a final one."""
    public = version.partition("+")[0]
    numbers: list[int] = []
    rest = ""
    for part in public.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if digits:
            numbers.append(int(digits))
        if digits != part:
            rest = part[len(digits) :]
            break
    while numbers and not numbers[-1]:
        numbers.pop()
    return (numbers, not rest, rest, version.partition("+")[2])


class TorchVersion(str):
    """A version that is compared by its numbers, with strings and tuples, as PyTorch's is."""

    def _other(self, other: Any) -> Any:
        if isinstance(other, (tuple, list)):
            other = ".".join(str(part) for part in other)
        return _key(other) if isinstance(other, str) else None

    def __eq__(self, other: object) -> bool:
        key = self._other(other)
        return key is not None and _key(self) == key

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return _key(self) < self._other(other)

    def __le__(self, other: Any) -> bool:
        return _key(self) <= self._other(other)

    def __gt__(self, other: Any) -> bool:
        return _key(self) > self._other(other)

    def __ge__(self, other: Any) -> bool:
        return _key(self) >= self._other(other)

    __hash__ = str.__hash__


#: what ``torch.__version__`` is while the shim is on; the local part says who is there
VERSION = TorchVersion(f"{PYTORCH}.0+coredispatch.{__version__}")
