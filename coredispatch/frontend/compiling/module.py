"""A compiled module: the module itself inside, and its calls through a compiled function."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn.module import Module

__all__ = ["OptimizedModule"]


def _compiled_again(module: Module, backend: Any, fullgraph: bool, dynamic: Any) -> Any:
    from coredispatch.frontend.compiler import compile

    return compile(module, backend=backend, fullgraph=fullgraph, dynamic=dynamic)


class OptimizedModule(Module):
    """What ``compile`` makes of a module. ``_orig_mod`` is the module, with the same parameters."""

    def __init__(self, module: Module, compiled: Any) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_compiled"] = compiled
        del self.__dict__["training"]  # it is the module's

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The call of the module, by its graphs."""
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("_orig_mod", "_compiled"):
            raise AttributeError(name)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_orig_mod" or name in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name == "_orig_mod" or name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy of the module, compiled anew: programs belong to the module they were found in."""
        made = self._compiled
        return _compiled_again, (self._orig_mod, made.backend, made.fullgraph, made.dynamic)

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __getitem__(self, index: Any) -> Any:
        return self._orig_mod[index]  # type: ignore[index]

    def __iter__(self) -> Any:
        return iter(self._orig_mod)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})
