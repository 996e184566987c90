"""The name tables of a module, seen as dictionaries, and the ``__dict__`` that knows of them."""

from __future__ import annotations

from typing import Any

__all__ = ["Members", "Namespace", "check_name", "replace"]

_KINDS = ("_parameter_names", "_buffer_names", "_module_names")
#: the name tables by PyTorch's names
_TABLES = dict(zip(("_parameters", "_buffers", "_modules"), _KINDS))
_plain_get = dict.get


class Members(dict[str, Any]):
    """One name table of a module with its values: what writes to it writes to the module.

    Made anew at each access: a module that kept one would be in a reference cycle with it.

    Args:
        members: the ``__dict__`` of the module.
        table: the name of its table.
    """

    __slots__ = ("_members", "_names")

    def __init__(self, members: dict[str, Any], table: str) -> None:
        self._members = members
        self._names: dict[str, Any] = self._members[table]
        super().__init__((name, self._members[name]) for name in self._names)

    def __setitem__(self, name: str, value: Any) -> None:
        for kind in _KINDS:
            if self._members[kind] is not self._names:
                self._members[kind].pop(name, None)
        self._names.setdefault(name, True if self._names is self._members[_KINDS[1]] else None)
        self._members[name] = value
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        del self._names[name]
        del self._members[name]

    def pop(self, name: str, *default: Any) -> Any:
        """Remove and return a member, as ``dict.pop``."""
        if name not in self:
            return super().pop(name, *default)
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last member."""
        name = next(reversed(self), None)
        if name is None:
            raise KeyError("popitem(): dictionary is empty")
        return name, self.pop(name)

    def clear(self) -> None:
        """Remove all members."""
        for name in list(self):
            del self[name]

    def update(self, *others: Any, **more: Any) -> None:
        """Set members, as ``dict.update``."""
        for name, value in dict(*others, **more).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The member, set to ``default`` where there is none."""
        if name not in self:
            self[name] = default
        return self[name]

    def move_to_end(self, name: str, last: bool = True) -> None:
        """Change the order, as ``OrderedDict.move_to_end``."""
        fact = self._names[name]
        others = {n: f for n, f in self._names.items() if n != name}
        self._names.clear()
        self._names.update({**others, name: fact} if last else {name: fact, **others})
        values = {n: self._members[n] for n in self._names}
        super().clear()
        super().update(values)

    def copy(self) -> dict[str, Any]:
        """An ordinary dictionary."""
        return dict(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)

    def __ior__(self, other: Any) -> Members:  # type: ignore[override,misc]
        self.update(other)
        return self


class Namespace(dict[str, Any]):
    """The ``__dict__`` of a module: ``_parameters``, ``_buffers`` and ``_modules`` are found in it.

    Programs and libraries look there (``module.__dict__["_parameters"]``, ``.get("_modules")``).
    They are made when they are asked for, so iterating does not give them, and a copy or a pickle
    is an ordinary dictionary without them. Attribute access does not come through here.
    """

    __slots__ = ()

    def __missing__(self, name: str) -> Any:
        table = _TABLES.get(name)
        if table is None or not dict.__contains__(self, table):
            raise KeyError(name)
        return Members(self, table)

    def get(self, name: str, default: Any = None) -> Any:
        """The entry, or ``default`` where there is none."""
        return self[name] if name in _TABLES and name in self else _plain_get(self, name, default)

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, _TABLES.get(name, name))  # type: ignore[call-overload]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)


def replace(module: Any, table: str, values: Any) -> None:
    """Make ``values`` all the members of one table."""
    members = module.__dict__
    for name in members.get(table, {}):
        members.pop(name, None)
    members[table] = {}
    Members(members, table).update(values)


def check_name(module: Any, name: Any, kind: str, table: str) -> None:
    """Raise for a name that cannot be registered: no string, dotted, empty, or taken."""
    if table not in module.__dict__:
        raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
    if hasattr(module, name) and name not in module.__dict__[table]:
        raise KeyError(f"attribute '{name}' already exists")
    if "." in name:
        got = f", got: {name}" if kind == "module" else ""
        raise KeyError(f'{kind} name can\'t contain "."{got}')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')
