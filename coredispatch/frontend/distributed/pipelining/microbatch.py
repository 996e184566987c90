"""A batch in parts, and the outputs of the parts as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]


class TensorChunkSpec:
    """Along which dimension a tensor is divided: ``TensorChunkSpec(1)``."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        """Those of positional arguments: ``from_tuple((0, 1))``."""
        return tree_map(TensorChunkSpec, chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> Any:
        """Those of named arguments: ``from_dict({"mask": 1})``."""
        return tree_map(TensorChunkSpec, chunk_dims)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorChunkSpec) and other.split_dim == self.split_dim

    def __hash__(self) -> int:
        return hash(self.split_dim)

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"


class _Replicate:
    """In a spec: every part gets the whole value."""


def _default(value: Any) -> Any:
    return TensorChunkSpec(0) if isinstance(value, Tensor) else _Replicate()


def _whole(spec: Any) -> bool:
    return spec is None or spec is _Replicate or isinstance(spec, _Replicate)


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: tuple[Any, ...] | None = None,
    kwargs_chunk_spec: dict[str, Any] | None = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """The arguments of each part: ``chunks`` of them, fewer where a tensor is shorter.

    Args:
        args_chunk_spec, kwargs_chunk_spec: a :class:`TensorChunkSpec` for each tensor, in the
            structure of the arguments; None for what all parts get. By default tensors are divided
            along dimension 0.

    Raises ValueError where a spec has another structure, or names a dimension of no tensor.

    Example::

        parts, named = split_args_kwargs_into_chunks((x,), {"mask": mask}, 4)
    """
    named = kwargs or {}
    values, structure = tree_flatten((args, named))
    specs = [
        *_specs(args, args_chunk_spec, "args_chunk_spec"),
        *_specs(named, kwargs_chunk_spec, "kwargs_chunk_spec"),
    ]
    dims = [
        None if _whole(spec) else _dim(value, spec)
        for value, spec in zip(values, specs, strict=True)
    ]
    pairs = list(zip(values, dims, strict=True))
    lengths = [value.shape[dim] for value, dim in pairs if dim is not None]
    count = max(min([chunks, *lengths]), 1)
    columns = [
        [value] * count if dim is None else list(value.tensor_split(count, dim=dim))
        for value, dim in pairs
    ]
    every = [tree_unflatten([column[i] for column in columns], structure) for i in range(count)]
    return [tuple(part[0]) for part in every], [dict(part[1]) for part in every]


def _specs(values: Any, given: Any, name: str) -> list[Any]:
    """The specs of the leaves of some arguments."""
    leaves, structure = tree_flatten(values)
    if given is None:
        return [_default(value) for value in leaves]
    found, own = tree_flatten(given)
    if own != structure:
        raise ValueError(
            f"{name} {given!r} has not the structure of the arguments: {len(found)} entries for "
            f"{len(leaves)} values\n  fix: give a TensorChunkSpec, or None, for each value"
        )
    return found


def _dim(value: Any, spec: Any) -> int:
    """The dimension that a spec means."""
    if not isinstance(spec, TensorChunkSpec) or not isinstance(value, Tensor):
        raise ValueError(
            f"Unsupported chunk spec: {spec!r} and value: {value!r:.60} combination.\n"
            "  fix: TensorChunkSpec(dim) for a tensor, None for anything else"
        )
    if not -value.ndim <= spec.split_dim < value.ndim:
        raise ValueError(
            f"{spec!r} for a tensor of shape {tuple(value.shape)}\n"
            "  fix: name one of its dimensions"
        )
    return spec.split_dim


def merge_chunks(chunks: Sequence[Any], chunk_spec: Any) -> Any:
    """What the parts gave, as one: tensors behind each other.

    Args:
        chunk_spec: a :class:`TensorChunkSpec` for each tensor, in the structure of a part; None for
            dimension 0. What has another entry must be the same in all parts.
    """
    first, structure = tree_flatten(chunks[0])
    specs = [_default(value) for value in first]
    if chunk_spec is not None:
        specs = _specs(chunks[0], chunk_spec, "chunk_spec")
    rows = [tree_flatten(chunk)[0] for chunk in chunks]
    merged = []
    for at, spec in enumerate(specs):
        column = [row[at] for row in rows]
        if isinstance(spec, TensorChunkSpec):
            merged.append(cd.cat(column, dim=_dim(column[0], spec)))
            continue
        for number, value in enumerate(column):
            same = value is column[0] or (
                cd.equal(value, column[0]) if isinstance(value, Tensor) else value == column[0]
            )
            if not same:
                raise ValueError(
                    f"merge_chunks: part {number} gave {value!r:.60}, and part 0 {column[0]!r:.60}"
                    "\n  fix: give a TensorChunkSpec for what differs"
                )
        merged.append(column[0])
    return tree_unflatten(merged, structure)
