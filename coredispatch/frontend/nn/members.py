"""The name tables of a module, seen as dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

__all__ = ["Members", "check_name"]

_KINDS = ("_parameter_names", "_buffer_names", "_module_names")


class Members(MutableMapping[str, Any]):
    """One name table of a module with its values: what writes to it writes to the module.

    Made anew at each access: a module that kept one would be in a reference cycle with it.
    """

    __slots__ = ("_members", "_names")

    def __init__(self, module: Any, table: str) -> None:
        self._members: dict[str, Any] = module.__dict__
        self._names: dict[str, Any] = module.__dict__[table]

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._members[name]

    def __setitem__(self, name: str, value: Any) -> None:
        for kind in _KINDS:
            if self._members[kind] is not self._names:
                self._members[kind].pop(name, None)
        self._names.setdefault(name, True if self._names is self._members[_KINDS[1]] else None)
        self._members[name] = value

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        del self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(dict(self))


def check_name(module: Any, name: Any, kind: str, table: str) -> None:
    """Raise for a name that cannot be registered: no string, dotted, empty, or taken."""
    if table not in module.__dict__:
        raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string, got {type(name).__name__}")
    if "." in name:
        raise KeyError(f'{kind} name can\'t contain ".": {name}')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')
    if hasattr(module, name) and name not in module.__dict__[table]:
        raise KeyError(f"attribute '{name}' already exists")
