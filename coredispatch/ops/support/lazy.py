"""Operators by name, bound at first use.

Families refer to each other both ways: the derivative of ``floor`` is ``zeros_like``, the
decomposition of
``linspace`` is arithmetic. A file imports by name what stands below it and writes
``late.zeros_like(x)`` for the rest, so that the order of imports does not matter.
"""

from __future__ import annotations

from typing import Any

from coredispatch.registry import TABLE


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    operator = TABLE.operator(name)
    globals()[name] = operator  # the next access is a plain attribute
    return operator
