"""``vmap``: a function of single samples, applied to all of them at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from coredispatch.registry.model.errors import ArgumentError

__all__ = ["vmap"]

_MODES = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """``func`` over a new dimension: ``vmap(func)(xs)[i]`` is ``func(xs[i])``.

    Args:
        func: takes and returns trees of tensors (tuples, lists, dicts ...; see
            :mod:`coredispatch.utils._pytree`). It is called once.
        in_dims: which dimension of each input holds the samples, None for an input that is the same
            for all: an int for all inputs, or a tuple in the structure of the arguments.
        out_dims: where that dimension stands in each output; None for an output that is the same
            for all samples.
        randomness: what random operators in ``func`` do: ``"error"``, ``"different"`` numbers for
            each sample, or the ``"same"`` for all.
        chunk_size: how many samples are computed at once; None is all.

    Values of a tensor that is mapped over are not known inside: ``.item()`` and ``if x > 0`` are
    errors, and so are operators whose result has another shape for each sample (``nonzero``).
    Keyword arguments are mapped over dimension 0 of the tensors in them. Raises ``ValueError``
    where dims do not fit the arguments.

    Example::

        >>> cd.vmap(cd.dot)(cd.ones(3, 5), cd.ones(3, 5))
        tensor([5., 5., 5.])
    """
    if randomness not in _MODES:
        raise ArgumentError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}",
            fix="vmap(f, randomness='different')",
        )
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    # Not on top: a program that maps nothing has no layer for it.
    from coredispatch.frontend.transforms.mapping import mapped

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return mapped(func, in_dims, out_dims, randomness, chunk_size, args, kwargs)

    return wrapper
