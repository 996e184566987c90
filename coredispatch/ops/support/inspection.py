"""Questions to the values of a tensor: for checks of arguments, and for loops that end some time.

A decomposition that reads values runs below ``vmap`` as well, where a tensor stands for several
samples. These functions ask all of them at once: what holds of all elements of all samples holds of
each. What differs between samples must not be decided by them.
"""

from __future__ import annotations

from typing import Any

from coredispatch.ops.support import lazy
from coredispatch.registry.around.wrappers import Wrapper

__all__ = ["all_true", "any_true", "elements", "greatest", "least"]


def elements(x: Any) -> Any:
    """The tensor of all elements that ``x`` stands for: what is in it, where it is a wrapper."""
    while isinstance(x.raw, Wrapper):
        inner = x.raw.elements()
        if inner is None:
            break
        x = inner
    return x


def all_true(x: Any) -> bool:
    """Whether every element of ``x`` is true (or not zero)."""
    return bool(lazy.all(elements(x)))


def any_true(x: Any) -> bool:
    """Whether some element of ``x`` is true (or not zero)."""
    return bool(lazy.any(elements(x)))


def least(x: Any) -> Any:
    """The least element of ``x``, a number."""
    return lazy.amin(elements(x)).item()


def greatest(x: Any) -> Any:
    """The greatest element of ``x``, a number."""
    return lazy.amax(elements(x)).item()
