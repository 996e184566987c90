"""``jacrev``, ``jacfwd``, ``hessian``: whole matrices of derivatives, by ``vmap`` over a basis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.transforms.forward import jvp
from coredispatch.frontend.transforms.levels import Batched, current
from coredispatch.frontend.transforms.reverse import vjp
from coredispatch.frontend.transforms.trees import (
    check_argnums,
    replaced,
    require_tensors,
    selected,
)
from coredispatch.frontend.utils._pytree import tree_flatten, tree_map, tree_unflatten
from coredispatch.frontend.vmap import vmap
from coredispatch.plugin import dtype_of, operator

__all__ = ["hessian", "jacfwd", "jacrev"]


def basis(leaves: list[Any]) -> list[Any]:
    """For each tensor the standard basis of all of them together, along a new first dimension."""
    counts = [leaf.numel() for leaf in leaves]
    total, start = sum(counts), 0
    made = []
    for leaf, count in zip(leaves, counts, strict=True):
        zeros = operator("zeros")((total, count), dtype=dtype_of(leaf), device=leaf.device)
        eye = operator("eye")(count, dtype=dtype_of(leaf), device=leaf.device)
        part = operator("slice_scatter")(zeros, eye, 0, start, start + count)
        made.append(operator("reshape")(part, (total, *leaf.shape)))
        start += count
    return made


def _rows(stacked: Any, leaves: list[Any], tail: tuple[int, ...]) -> list[Any]:
    """``stacked``, one entry of shape ``tail`` per element of all ``leaves``, cut by leaf."""
    parts, start = [], 0
    for leaf in leaves:
        count = leaf.numel()
        part = operator("narrow")(stacked, 0, start, count)
        parts.append(operator("reshape")(part, (*leaf.shape, *tail)))
        start += count
    return parts


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """The function that computes the Jacobian of ``func``, row by row through reverse mode.

    Args:
        func: takes and returns trees of tensors.
        argnums: with respect to which argument; a tuple of several gives a tuple of Jacobians.
        has_aux: ``func`` returns ``(output, aux)``, the new function ``(jacobian, aux)``.
        chunk_size: how many rows are computed at once; None is all.

    The Jacobian is a tree in the structure of the output, in whose places are trees in the
    structure of the argument, with tensors of shape ``(*output.shape, *argument.shape)``. Best
    where outputs have fewer elements than arguments; else :func:`jacfwd`.

    Example::

        >>> cd.func.jacrev(cd.sin)(cd.zeros(2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        check_argnums(argnums, len(args))
        chosen = selected(args, argnums)

        def partial(*inputs: Any) -> Any:
            given = inputs[0] if isinstance(argnums, int) else inputs
            return func(*replaced(args, argnums, given), **kwargs)

        primals = (chosen,) if isinstance(argnums, int) else chosen
        made = vjp(partial, *primals, has_aux=has_aux)
        output, vjp_fn = made[:2]
        outs, out_spec = tree_flatten(output)
        require_tensors(outs, "jacrev")
        leaves, spec = tree_flatten(primals)

        def pull(*cotangents: Any) -> Any:
            return tuple(tree_flatten(vjp_fn(tree_unflatten(cotangents, out_spec)))[0])

        columns = vmap(pull, chunk_size=chunk_size)(*basis(outs))
        # One row of the tree for each output, one entry for each input.
        cut = [
            _rows(column, outs, tuple(leaf.shape))
            for column, leaf in zip(columns, leaves, strict=True)
        ]
        rows = [tree_unflatten(row, spec) for row in zip(*cut, strict=True)]
        if isinstance(argnums, int):
            rows = [row[0] for row in rows]
        result = tree_unflatten(rows, out_spec)
        return (result, made[2]) if has_aux else result

    return wrapper


def jacfwd(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """Like :func:`jacrev`, column by column through forward mode.

    Best where arguments have fewer elements than outputs. ``randomness`` is that of :func:`vmap`.
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        check_argnums(argnums, len(args))
        chosen = selected(args, argnums)
        primals = (chosen,) if isinstance(argnums, int) else chosen
        leaves, spec = tree_flatten(primals)
        require_tensors(leaves, "jacfwd", inputs=True)
        known: dict[str, Any] = {}

        def partial(*inputs: Any) -> Any:
            given = inputs[0] if isinstance(argnums, int) else inputs
            return func(*replaced(args, argnums, given), **kwargs)

        def push(*tangents: Any) -> Any:
            made = jvp(partial, primals, tree_unflatten(tangents, spec), has_aux=has_aux)
            flat, known["spec"] = tree_flatten(made[1])
            return tuple(flat), made[2] if has_aux else None, tuple(tree_flatten(made[0])[0])

        out_dims = (0, None, None)
        columns, aux, outs = _pushed(push, basis(leaves), out_dims, randomness)
        rows = []
        for column, out in zip(columns, outs, strict=True):
            moved = operator("movedim")(column, 0, -1)
            parts, start = [], 0
            for leaf in leaves:
                part = operator("narrow")(moved, -1, start, leaf.numel())
                parts.append(operator("reshape")(part, (*out.shape, *leaf.shape)))
                start += leaf.numel()
            tree = tree_unflatten(parts, spec)
            rows.append(tree[0] if isinstance(argnums, int) else tree)
        result = tree_unflatten(rows, known["spec"])
        return (result, aux) if has_aux else result

    return wrapper


def _pushed(push: Any, vectors: list[Any], out_dims: Any, randomness: str) -> Any:
    """The tangents for every vector; values and aux, which are the same for all, once."""
    kept: dict[str, Any] = {}

    def one(*tangents: Any) -> Any:
        moved, aux, values = push(*tangents)
        kept["aux"], kept["values"] = aux, values
        return moved

    columns = vmap(one, randomness=randomness)(*vectors)

    def single(x: Any) -> Any:
        raw = getattr(x, "raw", None)
        return raw.value[0] if isinstance(raw, Batched) and _ended(raw) else x

    return columns, tree_map(single, kept["aux"]), tree_map(single, kept["values"])


def _ended(raw: Any) -> bool:
    return all(level.number != raw.level for level in current())


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The function that computes the Hessian of ``func``: ``jacfwd(jacrev(func))``.

    For a scalar function of a tensor of shape ``s`` a tensor of shape ``(*s, *s)``.
    """
    return jacfwd(jacrev(func, argnums), argnums)
