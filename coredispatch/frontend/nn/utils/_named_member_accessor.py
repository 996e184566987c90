"""Tensors of a module by name: read, set, delete and swap, which libraries for sharpness and
functional training take from PyTorch's private module of that name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor

__all__: list[str] = []

_MISSING: Any = object()


def _check_name(name: str) -> None:
    if "." in name:
        raise KeyError('tensor name can\'t contain "."')
    if name == "":
        raise KeyError('tensor name can\'t be empty string ""')


def set_tensor(module: Module, name: str, tensor: Any) -> None:
    """Put ``tensor`` in the place of the parameter, buffer or attribute ``name`` of ``module``."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """:func:`set_tensor`; returns what was there. ``_MISSING`` stands for no tensor.

    Raises ``TypeError`` for what is no module or no tensor, ``KeyError`` for a name with a dot and
    ``AttributeError`` where nothing is there, unless ``allow_missing``.
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not _MISSING and tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    _check_name(name)
    for members in (module._parameters, module._buffers):
        if name in members:
            before = members[name]
            if tensor is _MISSING:
                del members[name]
            else:
                members[name] = tensor
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif before is not _MISSING:
        delattr(module, name)
    return before


class NamedMemberAccessor:
    """The tensors of a module and of all below it, by names with dots."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def get_submodule(self, name: str) -> Module:
        """The module ``name``, ``""`` for the module itself."""
        return self.module.get_submodule(name)

    def _place(self, name: str) -> tuple[Module, str]:
        path, _, attribute = name.rpartition(".")
        return self.get_submodule(path), attribute

    def get_tensor(self, name: str) -> Any:
        """The tensor ``name``. Raises TypeError where that is something else."""
        module, attribute = self._place(name)
        found = getattr(module, attribute)
        if found is not None and not isinstance(found, Tensor):
            raise TypeError(f"{name!r} is not an instance of torch.Tensor")
        return found

    def set_tensor(self, name: str, value: Any) -> None:
        """Put ``value`` in the place of the tensor ``name``."""
        set_tensor(*self._place(name), value)

    def del_tensor(self, name: str) -> None:
        """Delete the tensor ``name``."""
        swap_tensor(*self._place(name), _MISSING)

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """:meth:`set_tensor`; returns what was there."""
        return swap_tensor(*self._place(name), value, allow_missing=allow_missing)

    def get_tensors(self, names: Iterable[str]) -> list[Any]:
        """The tensors of these names."""
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names: Iterable[str], values: Iterable[Any]) -> None:
        """:meth:`set_tensor` for each."""
        self.set_tensors_dict(dict(zip(names, values, strict=True)))

    def set_tensors_dict(self, named_tensors: dict[str, Any]) -> None:
        """:meth:`set_tensor` for each."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def del_tensors(self, names: Iterable[str]) -> None:
        """:meth:`del_tensor` for each."""
        for name in names:
            self.del_tensor(name)

    def swap_tensors(
        self, names: Iterable[str], values: Iterable[Any], allow_missing: bool = False
    ) -> list[Any]:
        """:meth:`swap_tensor` for each; what was there."""
        pairs = zip(names, values, strict=True)
        return [self.swap_tensor(name, value, allow_missing) for name, value in pairs]

    def swap_tensors_dict(
        self, named_tensors: dict[str, Any], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """:meth:`swap_tensor` for each, all or none; what was there, and the missing names."""
        before: dict[str, Any] = {}
        try:
            for name, value in named_tensors.items():
                before[name] = self.swap_tensor(name, value, allow_missing=True)
                if before[name] is _MISSING and not allow_missing:
                    raise RuntimeError(f"Missing key(s): {name!r}.")
        except Exception:
            for name, value in before.items():
                self.swap_tensor(name, value, allow_missing=True)
            raise
        return before, [name for name, value in before.items() if value is _MISSING]

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """The names of tensors that ``keys`` lacks, and the keys that are no tensor's name."""
        given, known = set(keys), {name for name, _ in self.named_tensors()}
        return sorted(known - given), sorted(given - known)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """Those of the module."""
        return self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """Those of the module."""
        return self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Any]]:
        """Parameters, then buffers."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)
