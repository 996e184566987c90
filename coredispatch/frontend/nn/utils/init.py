"""Modules without initialization."""

from __future__ import annotations

import inspect
from typing import Any

from coredispatch.frontend.nn.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Any:
    """A module of ``module_cls`` whose parameters and buffers are uninitialised memory.

    The class must take ``device=`` and do nothing to its parameters but initialize them.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    final = kwargs.pop("device", "cpu")
    kwargs["device"] = "meta"
    return module_cls(*args, **kwargs).to_empty(device=final)
