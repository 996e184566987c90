"""The class of an operator's named results, such as ``values`` and ``indices``."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from coredispatch.registry.model.spelling import SPELLING
from coredispatch.registry.wiring import HOOKS

__all__ = ["named_results"]


def named_results(op: str, fields: tuple[str, ...]) -> Any:
    """The class of an operator's named results: printed as PyTorch's, pickled by the operator."""
    base: Any = namedtuple(op, fields)  # type: ignore[misc]
    name = op.removesuffix("_dim")

    def show(self: Any) -> str:
        pairs = zip(fields, self, strict=True)
        shown = SPELLING.of(f"return_types.{name}")
        return f"{shown}(\n" + ",\n".join(f"{field}={item!r}" for field, item in pairs) + ")"

    def reduce(self: Any) -> tuple[Any, ...]:
        return (_results, (op, tuple(self)))

    members = {"__slots__": (), "__repr__": show, "__reduce__": reduce}
    members["__module__"] = "coredispatch.return_types"
    return type(name, (base,), members)


def _results(op: str, items: tuple[Any, ...]) -> Any:
    return HOOKS.operator(op).result_type(items)
