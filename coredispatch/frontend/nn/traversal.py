"""The methods of ``Module`` that go through a tree of modules and find members by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor

if TYPE_CHECKING:
    from coredispatch.frontend.nn.module import Module

__all__ = [
    "buffers",
    "children",
    "get_buffer",
    "get_member",
    "get_parameter",
    "get_submodule",
    "members_of",
    "modules",
    "named_buffers",
    "named_children",
    "named_members",
    "named_modules",
    "named_parameters",
    "parameters",
    "set_submodule",
]

Named = Iterator[tuple[str, Any]]


def named_modules(
    self: Module, memo: set[int] | None = None, prefix: str = "", remove_duplicate: bool = True
) -> Iterator[tuple[str, Module]]:
    """This module (named ``prefix``) and all below it, each once, depth first."""
    memo = set() if memo is None else memo
    if id(self) in memo:
        return
    if remove_duplicate:
        memo.add(id(self))
    yield prefix, self
    # Deep networks are looked through from deep inside of a call: no recursion.
    open_ = [(prefix, self, iter(self._modules.items()))]
    while open_:
        path, _, rest = open_[-1]
        name, module = next(rest, ("", None))
        if module is None:
            if not name:
                open_.pop()
            continue
        below = f"{path}.{name}" if path else name
        if type(module).named_modules is not named_modules:
            yield from module.named_modules(memo, below, remove_duplicate)
        elif id(module) not in memo:
            if remove_duplicate:
                memo.add(id(module))
            elif any(module is above for _, above, _ in open_):
                raise RecursionError(f"the module {below!r} contains itself")
            yield below, module
            open_.append((below, module, iter(module._modules.items())))


def modules(self: Module, remove_duplicate: bool = True) -> Iterator[Module]:
    """This module and all below it."""
    for _, module in self.named_modules(remove_duplicate=remove_duplicate):
        yield module


def named_children(self: Module) -> Iterator[tuple[str, Module]]:
    """The direct submodules, each once."""
    seen: set[int] = set()
    for name, module in self._modules.items():
        if module is not None and id(module) not in seen:
            seen.add(id(module))
            yield name, module


def children(self: Module) -> Iterator[Module]:
    """The direct submodules."""
    for _, module in self.named_children():
        yield module


def named_members(
    self: Module,
    get_members_fn: Callable[[Module], Any],
    prefix: str = "",
    recurse: bool = True,
    remove_duplicate: bool = True,
) -> Named:
    """What ``get_members_fn`` gives of each module as pairs, with dotted names."""
    seen: set[int] = set()
    owners = (
        self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        if recurse
        else [(prefix, self)]
    )
    for owner, module in owners:
        for name, value in get_members_fn(module):
            if value is None or id(value) in seen:
                continue
            if remove_duplicate:
                seen.add(id(value))
            yield (f"{owner}.{name}" if owner else name), value


def members_of(self: Module, table: str, prefix: str, recurse: bool, unique: bool) -> Named:
    seen: set[int] = set()
    owners = (
        self.named_modules(prefix=prefix, remove_duplicate=unique) if recurse else [(prefix, self)]
    )
    for owner, module in owners:
        members = module.__dict__
        for name in members[table]:
            value = members[name]
            if value is None or id(value) in seen:
                continue
            if unique:
                seen.add(id(value))
            yield (f"{owner}.{name}" if owner else name), value


def named_parameters(
    self: Module, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
) -> Iterator[tuple[str, Parameter]]:
    """Parameters with their dotted names, each once."""
    return self._members_of("_parameter_names", prefix, recurse, remove_duplicate)


def parameters(self: Module, recurse: bool = True) -> Iterator[Parameter]:
    """Parameters, those of submodules included unless ``recurse`` is False."""
    for _, parameter in self.named_parameters(recurse=recurse):
        yield parameter


def named_buffers(
    self: Module, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
) -> Iterator[tuple[str, Tensor]]:
    """Buffers with their dotted names, each once."""
    return self._members_of("_buffer_names", prefix, recurse, remove_duplicate)


def buffers(self: Module, recurse: bool = True) -> Iterator[Tensor]:
    """Buffers, those of submodules included unless ``recurse`` is False."""
    for _, buffer in self.named_buffers(recurse=recurse):
        yield buffer


def get_submodule(self: Module, target: str) -> Module:
    """The submodule of a dotted name. Raises ``AttributeError`` where there is none."""
    from coredispatch.frontend.nn.module import Module

    module: Module = self
    for name in target.split(".") if target else ():
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        found = getattr(module, name)
        if not isinstance(found, Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        module = found
    return module


def set_submodule(self: Module, target: str, module: Module, strict: bool = False) -> None:
    """Put ``module`` in the place of a dotted name; with ``strict`` one must be there.

    Raises ``ValueError`` for an empty name or no module, ``AttributeError`` where there is
    nothing to replace.
    """
    from coredispatch.frontend.nn.module import Module

    if target == "":
        raise ValueError("Cannot set the submodule without a target name!")
    if not isinstance(module, Module):
        raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
    path, _, name = target.rpartition(".")
    parent: Any = self.get_submodule(path)
    if strict and not hasattr(parent, name):
        raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
    if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
        raise AttributeError(f"`{name}` is not an nn.Module")
    setattr(parent, name, module)


def get_member(self: Module, target: str, table: str, kind: str) -> Any:
    path, _, name = target.rpartition(".")
    module = self.get_submodule(path)
    if not hasattr(module, name):
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if name not in module.__dict__[table]:
        raise AttributeError(f"`{name}` is not {kind}")
    return module.__dict__[name]


def get_parameter(self: Module, target: str) -> Parameter:
    """The parameter of a dotted name. Raises ``AttributeError`` where there is none."""
    found: Parameter = self._get_member(target, "_parameter_names", "an nn.Parameter")
    return found


def get_buffer(self: Module, target: str) -> Tensor:
    """The buffer of a dotted name. Raises ``AttributeError`` where there is none."""
    found: Tensor = self._get_member(target, "_buffer_names", "a buffer")
    return found
