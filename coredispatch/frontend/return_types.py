"""The classes of named results, public as ``cd.return_types``: ``max(dim)`` gives one.

They are named tuples, one for each operator whose results have names, and bear the operator's name.
"""

from __future__ import annotations

from typing import Any

from coredispatch.registry.dispatch.table import TABLE

__all__ = ["record"]


def record(name: str) -> Any:
    """The class of the results of operator ``name``, or None where they have no names.

    The form over one dimension of an operator that also reduces everything is an operator of its
    own: the class ``max`` belongs to ``max_dim``.
    """
    for candidate in (name, f"{name}_dim"):
        op = TABLE.snapshot.ops.get(candidate)
        found = getattr(getattr(op, "result_type", None), "__self__", None)
        if found is not None:
            return found
    return None


def __getattr__(name: str) -> Any:
    found = None if name.startswith("_") else record(name)
    if found is None:
        raise AttributeError(f"module 'coredispatch.return_types' has no attribute {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted(
        found.__name__ for name in TABLE.snapshot.ops if (found := record(name)) is not None
    )
