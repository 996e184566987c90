"""The Kullback-Leibler divergence, and the registry of its formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.changes import changed
from coredispatch.frontend.distributions.distribution import Distribution
from coredispatch.frontend.tensor import Tensor

__all__ = ["kl_divergence", "register_kl"]

_OWN = __name__.rpartition(".")[0]
_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}
_KL_MEMOIZE: dict[tuple[type, type], Callable[[Any, Any], Tensor] | None] = {}


def register_kl(type_p: Any, type_q: Any) -> Callable[[Any], Any]:
    """Decorate the function that computes the divergence of a pair of classes.

    The most specific pair of base classes is what :func:`kl_divergence` uses; where ``p`` and ``q``
    do not agree which that is, a ``RuntimeWarning`` says which pair to register. Raises
    ``TypeError`` for what is no distribution.

    >>> @register_kl(Normal, Normal)
    ... def kl_normal_normal(p, q): ...
    """
    for name, given in (("type_p", type_p), ("type_q", type_q)):
        # As in PyTorch any class will do: pyro's Distribution is none of ours, its subclasses are.
        if not isinstance(given, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {given}")

    def decorator(function: Any) -> Any:
        _KL_REGISTRY[type_p, type_q] = function
        if not function.__module__.startswith(_OWN):
            changed("register_kl")
        _KL_MEMOIZE.clear()
        return function

    return decorator


def _most_specific(pairs: list[tuple[type, type]], first: int) -> tuple[type, type]:
    """The pair of the most derived classes, compared at position ``first`` before the other."""

    def depth(pair: tuple[type, type]) -> tuple[int, int]:
        return len(pair[first].__mro__), len(pair[1 - first].__mro__)

    return max(pairs, key=depth)


def _find(type_p: type, type_q: type) -> Callable[[Any, Any], Tensor] | None:
    pairs = [
        pair for pair in _KL_REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])
    ]
    if not pairs:
        return None
    by_p, by_q = _most_specific(pairs, 0), _most_specific(pairs, 1)
    if _KL_REGISTRY[by_p] is not _KL_REGISTRY[by_q]:
        warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({by_p[0].__name__}, {by_q[1].__name__})",
            RuntimeWarning,
        )
    return _KL_REGISTRY[by_p]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """``KL(p || q)``, the mean under ``p`` of ``log p(x) - log q(x)``, of shape ``batch_shape``.

    Raises ``NotImplementedError`` for a pair that has no formula; see :func:`register_kl`.
    """
    pair = type(p), type(q)
    if pair not in _KL_MEMOIZE:
        _KL_MEMOIZE[pair] = _find(*pair)
    function = _KL_MEMOIZE[pair]
    if function is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {p.__class__.__name__} "
            f"and q type {q.__class__.__name__}"
        )
    return function(p, q)
