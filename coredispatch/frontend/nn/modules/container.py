"""Containers: modules and parameters in sequences and dictionaries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import chain
from operator import index as as_index
from typing import Any, Self, overload

from coredispatch._warnings import warn
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Container(Module):
    """The older name of what :class:`Sequential` and others are for."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warn(
            "nn.Container is deprecated. All of it's functionality is now implemented in "
            "nn.Module. Subclass that instead.",
            FutureWarning,
        )
        for key, value in kwargs.items():
            self.add_module(key, value)


def _position(length: int, index: Any) -> int:
    place = as_index(index)
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of range")
    return place % length


class _Sequence(Module):
    """What :class:`Sequential` and :class:`ModuleList` share: children named by number."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._modules.values()))

    @overload
    def __getitem__(self, index: slice) -> Self: ...
    @overload
    def __getitem__(self, index: int) -> Module: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._sliced(index)
        return list(self._modules.values())[_position(len(self), index)]

    def _get_abs_string_index(self, idx: Any) -> str:
        return str(_position(len(self), idx))

    def _get_item_by_idx(self, iterator: Iterable[Any], idx: Any) -> Any:
        return list(iterator)[_position(len(self), idx)]

    def _sliced(self, index: slice) -> Any:
        return type(self)(list(self._modules.values())[index])

    def __setitem__(self, index: Any, module: Module) -> None:
        names = list(self._modules)
        setattr(self, names[_position(len(names), index)], module)

    def __delitem__(self, index: Any) -> None:
        modules = list(self._modules.values())
        del modules[index if isinstance(index, slice) else _position(len(modules), index)]
        self._renumber(modules)

    def _renumber(self, modules: Iterable[Any]) -> None:
        for name in list(self._modules):
            delattr(self, name)
        for number, module in enumerate(modules):
            self.add_module(str(number), module)

    def append(self, module: Module) -> Self:
        """Add a module at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end; returns self."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Add a module before position ``index``."""
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, key: Any = -1) -> Any:
        """Remove and return the module at ``key``."""
        module = self[key]
        del self[key]
        return module


def _check_factor(factor: Any) -> None:
    if not isinstance(factor, int):
        raise TypeError(f"unsupported operand type(s) for *: {Sequential} and {type(factor)}")
    if factor <= 0:
        raise ValueError(f"Non-positive multiplication factor {factor} for {Sequential}")


class Sequential(_Sequence):
    """Modules called one after the other, given as arguments or as an ordered dict of names."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for number, module in enumerate(args):
                self.add_module(str(number), module)

    def _sliced(self, index: slice) -> Sequential:
        return type(self)(OrderedDict(list(self._modules.items())[index]))

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects of Sequential class, but "
                f"{type(other)} is given."
            )
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects of Sequential class, but "
                f"{type(other)} is given."
            )
        return self.extend(list(other))

    def __mul__(self, other: int) -> Sequential:
        """The modules ``other`` times, the same objects each time."""
        _check_factor(other)
        return Sequential(*[module for _ in range(other) for module in self])

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Sequential:
        _check_factor(other)
        return self.extend([module for _ in range(other - 1) for module in list(self)])

    def forward(self, input: Any) -> Any:
        """Pass ``input`` through all modules, in the order in which ``iter(self)`` gives them."""
        if type(self).__iter__ is not _Sequence.__iter__:
            for module in self:
                input = module(input)
            return input
        members = self.__dict__
        for name in members["_module_names"]:
            input = members[name](input)
        return input


class ModuleList(_Sequence):
    """A list of modules. It has no ``forward``."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        self.extend(modules)
        return self

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __repr__(self) -> str:
        """Equal neighbours on one line, as ``(0-2): 3 x Linear(...)``."""
        texts = [repr(module) for module in self]
        if not texts:
            return self._get_name() + "()"
        blocks: list[tuple[int, int, str]] = []
        for number, text in enumerate(texts):
            if blocks and blocks[-1][2] == text:
                blocks[-1] = (blocks[-1][0], number, text)
            else:
                blocks.append((number, number, text))
        lines = []
        for first, last, text in blocks:
            shown = text.replace("\n", "\n  ")
            if first == last:
                lines.append(f"({first}): {shown}")
            else:
                lines.append(f"({first}-{last}): {last - first + 1} x {shown}")
        return self._get_name() + "(\n  " + "\n  ".join(lines) + "\n)"


class _Dictionary(Module):
    """What the dictionaries share, over the name table ``_table``."""

    _table = ""

    def _entries(self) -> Any:
        raise NotImplementedError

    def __getitem__(self, key: str) -> Any:
        raise NotImplementedError

    def __setitem__(self, key: str, value: Any) -> None:
        raise NotImplementedError

    def __delitem__(self, key: str) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._entries())

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __contains__(self, key: Any) -> bool:
        return key in self._entries()

    def keys(self) -> KeysView[str]:
        """The names, which are also a set: ``d.keys() - {"a"}``."""
        names: KeysView[str] = self._entries().keys()
        return names

    def get(self, key: str, default: Any = None) -> Any:
        """The member called ``key``, or ``default``."""
        return self[key] if key in self else default

    def pop(self, key: str) -> Any:
        """Remove and return the member called ``key``."""
        value = self[key]
        del self[key]
        return value

    def clear(self) -> None:
        """Remove all members."""
        for key in list(self._entries()):
            del self[key]

    def update(self, members: Any) -> None:
        """Add members from a mapping or from pairs."""
        pairs = members.items() if hasattr(members, "items") else members
        for key, value in pairs:
            self[key] = value


class ModuleDict(_Dictionary):
    """A dictionary of modules, in the order of insertion. It has no ``forward``."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def _entries(self) -> Any:
        return self.__dict__["_module_names"]

    def __getitem__(self, key: str) -> Module:
        found: Module = self._modules[key]
        return found

    def values(self) -> ValuesView[Module]:
        """The modules."""
        return {key: self[key] for key in self._entries()}.values()

    def items(self) -> ItemsView[str, Module]:
        """Names and modules."""
        return {key: self[key] for key in self._entries()}.items()

    def __setitem__(self, key: str, module: Module) -> None:
        if key in self.__dict__["_module_names"]:
            setattr(self, key, module)
        else:
            self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]


class ParameterList(Module):
    """A list of parameters; tensors that are put in become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ParameterList([self[i] for i in range(len(self))[index]])
        return self.__dict__[str(_position(len(self), index))]

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, str(_position(len(self), index)), _as_parameter(value))

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end; returns self."""
        place = self._size
        self._size = place + 1
        self[place] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add values at the end; returns self."""
        for value in values:
            self.append(value)
        return self

    __iadd__ = extend

    def extra_repr(self) -> str:
        """One line per member."""
        return "\n".join(_described(str(i), value) for i, value in enumerate(self))


class ParameterDict(_Dictionary):
    """A dictionary of parameters; tensors that are put in become parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self.__dict__["_keys"] = {}
        if parameters is not None:
            self.update(parameters)

    def _entries(self) -> Any:
        return self.__dict__["_keys"]

    def values(self) -> Iterator[Any]:
        """The members, one by one."""
        return (self[key] for key in self._entries())

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and members, one by one."""
        return ((key, self[key]) for key in self._entries())

    def update(self, members: Any) -> None:
        """Add members from pairs, from a dict in the order of its keys' names, or from what is
        ordered (an ``OrderedDict``, a ``ParameterDict``) in its order.
        """
        if isinstance(members, Mapping) and not isinstance(members, OrderedDict):
            members = sorted(members.items())
        super().update(members)

    def __getitem__(self, key: str) -> Any:
        if key not in self._entries():
            raise KeyError(key)
        return self.__dict__[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._entries() and hasattr(self, key):
            raise KeyError(f"attribute '{key}' already exists")
        self._entries()[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._entries()[key]
        delattr(self, key)

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last name and member."""
        key = next(reversed(self._entries()), None)
        if key is None:
            raise KeyError("popitem(): dictionary is empty")
        return key, self.pop(key)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary with ``default`` under all ``keys``."""
        return ParameterDict((key, default) for key in keys)

    def __reversed__(self) -> Iterator[str]:
        names: list[str] = list(self._entries())
        return reversed(names)

    def __or__(self, other: Any) -> ParameterDict:
        result = self.copy()
        result.update(other)
        return result

    def __ror__(self, other: Any) -> Any:
        result = other.copy()  # of its class, as in PyTorch
        result.update(self)
        return result

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The member called ``key``, put in as ``default`` where there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def copy(self) -> ParameterDict:
        """A dictionary of the same parameters."""
        return ParameterDict(self)

    def extra_repr(self) -> str:
        """One line per member."""
        return "\n".join(
            _described(key, value, value.type() if isinstance(value, Tensor) else "")
            for key, value in self.items()
        )


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and type(value) is Tensor else value


def _described(name: str, value: Any, dtype: str = "") -> str:
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    where = "" if not value.is_cuda else f" (GPU {value.device.index})"
    return f"  ({name}): {kind} containing: [{dtype or value.dtype} of size {size}{where}]"
