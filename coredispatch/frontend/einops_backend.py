"""einops works on our tensors: its backend, which it finds among the subclasses of its own class.

Neither package imports the other. The class is made when both are there: at once where einops was
imported first, else when it is, through a finder that passes everything else on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from coredispatch.frontend.creation import from_numpy
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import int64

__all__ = ["install"]

_MODULE = "einops._backends"
_made: list[type] = []


def _op(name: str, *args: Any, **kwargs: Any) -> Any:
    return TABLE.operator(name)(*args, **kwargs)


def _reduce(x: Tensor, operation: str, axes: Sequence[int]) -> Any:
    if operation in ("min", "max"):
        return _op(f"a{operation}", x, tuple(axes))
    if operation in ("sum", "mean"):
        return _op(operation, x, tuple(axes))
    if operation in ("any", "all", "prod"):
        for axis in sorted(axes, reverse=True):
            x = _op(operation, x, axis)
        return x
    raise NotImplementedError(f"einops asks for the reduction {operation!r}, which is not there")


def _add_axes(x: Tensor, count: int, lengths: dict[int, int]) -> Any:
    sizes = [-1] * count
    for position, length in lengths.items():
        x = x.unsqueeze(position)
        sizes[position] = length
    return x.expand(sizes)


def _from_numpy(x: Any) -> Tensor:
    made = from_numpy(x)
    return made.requires_grad_() if made.dtype.is_floating_point else made


def _register(einops: ModuleType) -> None:
    """Make the backend; einops finds it by itself."""
    members: dict[str, Any] = {
        "framework_name": "coredispatch",
        "is_appropriate_type": lambda self, x: isinstance(x, Tensor),
        "from_numpy": lambda self, x: _from_numpy(x),
        "to_numpy": lambda self, x: x.detach().cpu().numpy(),
        "arange": lambda self, start, stop: _op("arange", start, stop, dtype=int64),
        "reduce": lambda self, x, operation, reduced_axes: _reduce(x, operation, reduced_axes),
        "transpose": lambda self, x, axes: x.permute(axes),
        "stack_on_zeroth_dimension": lambda self, tensors: _op("stack", list(tensors)),
        "add_axes": lambda self, x, n_axes, pos2len: _add_axes(x, n_axes, pos2len),
        "tile": lambda self, x, repeats: x.repeat(repeats),
        "concat": lambda self, tensors, axis: _op("cat", list(tensors), axis),
        "add_axis": lambda self, x, new_position: x.unsqueeze(new_position),
        "is_float_type": lambda self, x: x.dtype.is_floating_point,
        "einsum": lambda self, pattern, *x: _op("einsum", pattern, *x),
        "__doc__": "Tensors of coredispatch.",
    }
    # A class knows its subclasses by weak references.
    _made.append(type("CoreDispatchBackend", (einops.AbstractBackend,), members))


class _Loader:
    """Loads the module as its own loader does, and then registers."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        _register(module)


class _Finder:
    """Waits for one module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


def install() -> None:
    """Register the backend now, or when einops is imported."""
    einops = sys.modules.get(_MODULE)
    if einops is not None:
        _register(einops)
    else:
        sys.meta_path.insert(0, _Finder())
