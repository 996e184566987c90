"""``func.rearrange``: reorder, split and join dimensions by a pattern, as einops does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["rearrange"]

_TOKEN = re.compile(r"\s*(\(|\)|\.\.\.|…|[A-Za-z_][A-Za-z0-9_]*|\d+)")


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Tensor:
    """Reorder dimensions by a pattern: ``rearrange(x, "b h w c -> b (c h) w")``.

    Args:
        tensor: a tensor, or a list of tensors of one shape, whose place in the list is dimension 0.
        pattern: names of dimensions on both sides of ``->``; ``(a b)`` is one dimension made of
            several, ``1`` one of length 1, ``...`` stands for any others.
        axes_lengths: lengths of names that the shape does not tell.

    Raises:
        ValueError: the pattern is not well formed, or does not fit the shape.

    The notation is that of einops (Rogozhnikov, "Einops: Clear and Reliable Tensor Manipulations
    with Einstein-like Notation", 2022).

    >>> cd.func.rearrange(cd.ones(2, 3, 4), "b h w -> (b h) w").shape
    torch.Size([6, 4])
    """
    if not isinstance(tensor, Tensor):
        tensor = TABLE.operator("stack")(list(tensor))
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: {pattern!r} has not the form 'left -> right'")
    left, right = _groups(sides[0], pattern), _groups(sides[1], pattern)
    _check_names(left, right, axes_lengths, pattern)
    left = _expanded(left, tensor.ndim, pattern)
    count = sum(1 for group in left for name in group if name.startswith("..."))
    right = _with_rest(right, count)
    lengths, shape = dict(axes_lengths), []
    for group, length in zip(left, tensor.shape):
        shape += _split(group, length, lengths, pattern)
    names = [name for group in left for name in group if name != "1"]
    order = [names.index(name) for group in right for name in group if name != "1"]
    # A "1" of the left side is a dimension of length 1 that is gone on the right.
    flat = tensor.reshape([n for n, name in zip(shape, _flat(left)) if name != "1"])
    joined = [prod(lengths[name] for name in group if name != "1") for group in right]
    result: Tensor = flat.permute(order).reshape(joined)
    return result


Groups = list[list[str]]
#: an ellipsis in brackets, which is one dimension
_INSIDE = "(...)"


def _flat(groups: Groups) -> list[str]:
    # An empty group, "()", is a dimension of length 1 as well.
    return [name for group in groups for name in (group or ["1"])]


def _groups(side: str, pattern: str) -> Groups:
    """The dimensions of one side, each the list of names that it is made of."""
    groups: Groups = []
    inside: list[str] | None = None
    position = 0
    side = side.strip()
    while position < len(side):
        match = _TOKEN.match(side, position)
        if match is None:
            raise ValueError(f"rearrange: {side[position:].strip()!r} in {pattern!r} is no name")
        position = match.end()
        token = match[1]
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside is not None:
            groups.append(inside)
            inside = None
        elif token in "()":
            raise ValueError(f"rearrange: the brackets of {pattern!r} do not match")
        else:
            name = "..." if token == "…" else token
            if name.isdigit() and name != "1":
                raise ValueError(f"rearrange: a length other than 1 in {pattern!r}: give it a name")
            if inside is None:
                groups.append([name])
            else:
                inside.append(_INSIDE if name == "..." else name)
    if inside is not None:
        raise ValueError(f"rearrange: the brackets of {pattern!r} do not match")
    return groups


def _check_names(left: Groups, right: Groups, lengths: dict[str, int], pattern: str) -> None:
    sides = [
        ["..." if name == _INSIDE else name for name in _flat(groups) if name != "1"]
        for groups in (left, right)
    ]
    for names in sides:
        if len(set(names)) < len(names):
            raise ValueError(f"rearrange: a name occurs twice on one side of {pattern!r}")
    odd = set(sides[0]) ^ set(sides[1])
    if odd:
        raise ValueError(f"rearrange: {sorted(odd)} only on one side of {pattern!r}")
    if any(_INSIDE in group for group in left):
        raise ValueError(f"rearrange: an ellipsis in brackets on the left side of {pattern!r}")
    unknown = set(lengths) - set(sides[0])
    if unknown:
        raise ValueError(f"rearrange: lengths of {sorted(unknown)}, which are not in {pattern!r}")


def _expanded(groups: Groups, ndim: int, pattern: str) -> Groups:
    """The left side with one name for each dimension that the ellipsis stands for."""
    given = len(groups)
    if not any("..." in group for group in groups):
        if given != ndim:
            raise ValueError(
                f"rearrange: {pattern!r} is for {given} dimensions, the tensor has {ndim}"
            )
        return groups
    rest = ndim - given + 1
    if rest < 0:
        raise ValueError(
            f"rearrange: {pattern!r} is for {given - 1} dimensions or more, the tensor has {ndim}"
        )
    found: Groups = []
    for group in groups:
        found += [[f"...{i}"] for i in range(rest)] if group == ["..."] else [group]
    return found


def _with_rest(groups: Groups, count: int) -> Groups:
    rest = [f"...{i}" for i in range(count)]
    found: Groups = []
    for group in groups:
        if group == ["..."]:
            found += [[name] for name in rest]
        else:
            found.append([n for name in group for n in (rest if name == _INSIDE else [name])])
    return found


def _split(group: Sequence[str], length: int, lengths: dict[str, int], pattern: str) -> list[int]:
    """The lengths that the names of one dimension have; enters them into ``lengths``."""
    unknown = [name for name in group if name != "1" and name not in lengths]
    known = prod(lengths[name] for name in group if name != "1" and name in lengths)
    if len(unknown) > 1:
        raise ValueError(f"rearrange: the lengths of {unknown} in {pattern!r} are not known")
    if unknown and known and length % known == 0:
        lengths[unknown[0]] = length // known
    elif unknown or known != length:
        raise ValueError(
            f"rearrange: a dimension of length {length} cannot be {' '.join(group) or '()'} of "
            f"{pattern!r} with { ({n: lengths[n] for n in group if n in lengths}) }"
        )
    return [1 if name == "1" else lengths[name] for name in group] or [1]
