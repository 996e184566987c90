"""Which modules of a model are wrapped on their own: policies, and ``enable_wrap``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.attention import MultiheadAttention
from coredispatch.frontend.nn.modules.container import ModuleDict, ModuleList

__all__ = [
    "CustomPolicy",
    "ModuleWrapPolicy",
    "always_wrap_policy",
    "enable_wrap",
    "lambda_auto_wrap_policy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "wrap",
    "wrap_children",
]


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Wrap every module."""
    return True


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Wrap the modules for which `lambda_fn` is true; for ``functools.partial``."""
    return recurse or bool(lambda_fn(module))


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type[Module]]
) -> bool:
    """Wrap the modules of these classes; for ``functools.partial``."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Wrap modules with `min_num_params` elements or more that are not wrapped yet.

    Args:
        force_leaf_modules: classes whose children are not looked at.
        exclude_wrap_modules: classes that are not wrapped themselves.
    """
    leaves = {MultiheadAttention} if force_leaf_modules is None else force_leaf_modules
    lists = {ModuleList, ModuleDict} if exclude_wrap_modules is None else exclude_wrap_modules
    unwanted = leaves if recurse else lists
    return nonwrapped_numel >= min_num_params and not isinstance(module, tuple(unwanted))


class ModuleWrapPolicy:
    """Wrap the modules of these classes."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._module_classes = set(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, tuple(self._module_classes))

    def __repr__(self) -> str:
        return f"ModuleWrapPolicy({self._module_classes})"


class CustomPolicy:
    """Wrap the modules for which `lambda_fn` gives True, or a dict of arguments for the wrapper."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn

    def options(self, module: Module) -> dict[str, Any] | None:
        """The arguments of this module's wrapper, or None where it is not wrapped."""
        found = self._lambda_fn(module)
        if not isinstance(found, (bool, dict)):
            raise ValueError(
                "The lambda_fn passed to CustomPolicy should return False/True or a kwarg dict, "
                f"but it returned {found}"
            )
        return found if isinstance(found, dict) else {} if found else None


class _Wrapping:
    """One walk over a model."""

    def __init__(
        self, policy: Any, wrapper: Any, ignored: set[int], kwargs: dict[str, Any]
    ) -> None:
        self.policy, self.wrapper, self.ignored, self.kwargs = policy, wrapper, ignored, kwargs
        self.wrapped: dict[int, Module] = {}

    def children(self, module: Module) -> int:
        """Wrap what is below `module`; how many elements of parameters were wrapped."""
        total = 0
        for name, child in [*module._modules.items()]:
            if child is None or id(child) in self.ignored:
                continue
            done = isinstance(self.wrapper, type) and isinstance(child, self.wrapper)
            if done:
                total += sum(p.numel() for p in child.parameters())  # is wrapped already
                continue
            found = self.wrapped.get(id(child))
            if found is None:
                found, count = self.inside(child)
                total += count
            if found is not child:
                module._modules[name] = found
        return total

    def inside(self, module: Module) -> tuple[Module, int]:
        """`module`, wrapped where the policy says so."""
        if isinstance(self.policy, CustomPolicy):
            count = self.children(module)
            options = self.policy.options(module)
            return (module, count) if options is None else self._wrap(module, options)
        numel = sum(p.numel() for p in module.parameters())
        if not self.policy(module=module, recurse=True, nonwrapped_numel=numel):
            return module, 0
        count = self.children(module)
        if self.policy(module=module, recurse=False, nonwrapped_numel=numel - count):
            return self._wrap(module, {})
        return module, count

    def _wrap(self, module: Module, options: dict[str, Any]) -> tuple[Module, int]:
        numel = sum(p.numel() for p in module.parameters())
        made = self.wrapper(module, **{**self.kwargs, **options})
        self.wrapped[id(module)] = made
        return made, numel


def wrap_children(
    module: Module, policy: Any, wrapper: Any, ignored: Iterable[Module], **kwargs: Any
) -> None:
    """Put wrappers around the modules below `module` that `policy` chooses, innermost first.

    Args:
        policy: ``(module, recurse, nonwrapped_numel) -> bool``, or a :class:`CustomPolicy`.
        wrapper: called with a module and `kwargs`.
        ignored: modules that are left alone, with what is below them.
    """
    below = {id(m) for top in ignored for m in top.modules()}
    _Wrapping(policy, wrapper, below, kwargs).children(module)


_settings = threading.local()


@contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """A block in which :func:`wrap` wraps, with these arguments."""
    earlier = getattr(_settings, "chosen", None)
    _settings.chosen = (wrapper_cls, wrapper_kwargs)
    try:
        yield
    finally:
        _settings.chosen = earlier


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """The wrapped module within :func:`enable_wrap`, and the module itself elsewhere."""
    chosen = getattr(_settings, "chosen", None)
    if chosen is None:
        return module
    made: Module = chosen[0](module, **{**chosen[1], **wrap_overrides})
    return made
