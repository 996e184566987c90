"""Compiled functions of objects as the kernels call them, made when they are first called for.

Importing this does not import Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from . import background

__all__ = ["Functions"]


class Functions(dict[str, Callable[..., Any]]):
    """The compiled functions of a module of ``loops`` by name.

    Asking for one raises :class:`NotReady` while it is being compiled in the background.
    """

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module = module

    def __missing__(self, name: str) -> Callable[..., Any]:
        made: Callable[..., Any] = background.made_by(partial(self.made, name), (self.module, name))
        return made

    def made(self, name: str, cached_only: bool) -> Callable[..., Any]:
        """The function; raises NotReady where it is not on disk but should be."""
        loops: Any = import_module(f"{__package__}.loops.{self.module}")
        self[name] = function = loops.compile_function(name, cached_only)
        return function
