"""A call of a function that ``vmap`` made: samples in, the function once, samples out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from coredispatch.frontend.random import get_rng_state, set_rng_state
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.frontend.transforms.batching.batch import moved_to_front, op
from coredispatch.frontend.transforms.levels import Batched, Vmap, entered, level_of, wrapped
from coredispatch.frontend.utils._pytree import (
    TreeSpec,
    _broadcast_to_and_flatten,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)
from coredispatch.plugin import Mode, Switch

__all__ = ["add_batch_dim", "mapped", "mapping_mode", "remove_batch_dim"]


class mapping_mode(Mode):
    """While a ``vmap`` runs, factories of random numbers come to the layer as well."""

    switch = Switch(on=("transform",))


def mapped(
    func: Callable[..., Any],
    in_dims: Any,
    out_dims: Any,
    randomness: str,
    chunk_size: int | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The call of ``vmap(func, ...)``, see :func:`coredispatch.func.vmap`."""
    _check_out_dims(out_dims, func)
    size, dims, leaves, spec = _inputs(in_dims, args, func)
    chunks = [size] if chunk_size is None else _chunks(size, chunk_size)
    if len(chunks) <= 1:
        return _flat(func, size, dims, leaves, spec, out_dims, randomness, kwargs)
    return _chunked(func, chunks, dims, leaves, spec, out_dims, randomness, kwargs)


def _flat(
    func: Callable[..., Any],
    size: int,
    dims: list[Any],
    leaves: list[Any],
    spec: TreeSpec,
    out_dims: Any,
    randomness: str,
    kwargs: dict[str, Any],
) -> Any:
    with entered(Vmap(size, randomness)) as level, mapping_mode():
        inputs = [
            leaf if dim is None else add_batch_dim(leaf, dim, level.number)
            for leaf, dim in zip(leaves, dims, strict=True)
        ]
        outputs = func(*tree_unflatten(inputs, spec), **kwargs)
        return _outputs(func, outputs, out_dims, level)


def add_batch_dim(tensor: Any, dim: int, level: int) -> Any:
    """``tensor`` with dimension ``dim`` hidden at ``level``."""
    return wrapped(Batched(moved_to_front(tensor, dim, -1), level))


def remove_batch_dim(tensor: Any, level: int, size: int, dim: int) -> Any:
    """``tensor`` with the dimension of ``size`` that is hidden at ``level`` at ``dim``."""
    raw = tensor.raw
    if isinstance(raw, Batched) and raw.level == level and raw.batched:
        value = raw.value
    else:
        if isinstance(raw, Batched) and raw.level == level:
            tensor = raw.value
        value = op("expand")(tensor, (size, *tensor.raw.shape))
    rank = len(value.raw.shape)
    if not -rank <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{dim})"
        )
    return value if dim % rank == 0 else op("movedim")(value, 0, dim)


# ---- inputs -------------------------------------------------------------------------------------


def _name(func: Any) -> str:
    if hasattr(func, "__name__"):
        return str(func.__name__)
    if isinstance(func, functools.partial):
        return f"functools.partial({_name(func.func)}, ...)"
    return repr(func)


def _inputs(
    in_dims: Any, args: tuple[Any, ...], func: Callable[..., Any]
) -> tuple[int, list[Any], list[Any], TreeSpec]:
    call = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you "
            "are trying to vmap over a function with no inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{call}: in_dims is not compatible with the structure of `inputs`. in_dims has "
            f"structure {tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    for leaf, dim in zip(leaves, dims, strict=True):
        _check_in_dim(call, leaf, dim)
    sizes = [leaf.size(d) for leaf, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0], dims, leaves, spec


def _check_in_dim(call: str, leaf: Any, dim: Any) -> None:
    if dim is None:
        return
    if not isinstance(dim, int):
        raise ValueError(
            f"{call}: Got in_dim={dim} for an input but in_dim must be either an integer dimension "
            "or None."
        )
    if not isinstance(leaf, TensorBase):
        raise ValueError(
            f"{call}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We "
            "cannot vmap over non-Tensor arguments, please use None as the respective in_dim"
        )
    rank = leaf.ndim
    if not -rank <= dim < rank:
        raise ValueError(
            f"{call}: Got in_dim={dim} for some input, but that input is a Tensor of "
            f"dimensionality {rank} so expected in_dim to satisfy -{rank} <= in_dim < {rank}."
        )


# ---- outputs ------------------------------------------------------------------------------------


def _check_out_dims(out_dims: Any, func: Callable[..., Any]) -> None:
    for dim in tree_leaves(out_dims):
        if dim is not None and not isinstance(dim, int):
            raise ValueError(
                f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None "
                "or a python collection of ints representing where in the outputs the vmapped "
                "dimension should appear."
            )


def _flat_out_dims(func: Any, outputs: Any, out_dims: Any, spec: TreeSpec) -> list[Any]:
    def incompatible() -> NoReturn:
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible "
            f"with the structure of `outputs`. out_dims has structure "
            f"{tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )

    if isinstance(outputs, TensorBase):
        if isinstance(out_dims, tuple) and len(out_dims) == 1:
            return list(out_dims)
        if out_dims is None or isinstance(out_dims, int):
            return [out_dims]
        incompatible()
    dims = _broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        incompatible()
    return dims


def _outputs(func: Any, outputs: Any, out_dims: Any, level: Any) -> Any:
    leaves, spec = tree_flatten(outputs)
    dims = _flat_out_dims(func, outputs, out_dims, spec)
    name = _name(func)
    made = []
    for leaf, dim in zip(leaves, dims, strict=True):
        if dim is None:
            if isinstance(leaf, TensorBase) and level_of(leaf) == level.number:
                if leaf.raw.batched:
                    raise ValueError(
                        f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim "
                        "is None"
                    )
                leaf = leaf.raw.value
            made.append(leaf)
        elif not isinstance(leaf, TensorBase):
            raise ValueError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. Did "
                "you mean to set out_dims= to None for output?"
            )
        else:
            made.append(remove_batch_dim(leaf, level.number, level.size, dim))
    return tree_unflatten(made, spec)


# ---- chunks -------------------------------------------------------------------------------------


def _chunks(size: int, chunk_size: int) -> list[int]:
    whole, rest = divmod(size, chunk_size)
    return [chunk_size] * whole + ([rest] if rest else [])


def _chunked(
    func: Callable[..., Any],
    chunks: list[int],
    dims: list[Any],
    leaves: list[Any],
    spec: TreeSpec,
    out_dims: Any,
    randomness: str,
    kwargs: dict[str, Any],
) -> Any:
    columns: list[list[Any]] = []
    out_spec: Any = None
    start = 0
    # The same numbers for all samples are those of the first chunk.
    state = get_rng_state() if randomness == "same" else None
    for size in chunks:
        if state is not None:
            set_rng_state(state)
        part = [
            leaf if dim is None else op("narrow")(leaf, dim, start, size)
            for leaf, dim in zip(leaves, dims, strict=True)
        ]
        out = _flat(func, size, dims, part, spec, out_dims, randomness, kwargs)
        found, out_spec = tree_flatten(out)
        columns.append(found)
        start += size
    flat_dims = _broadcast_to_and_flatten(out_dims, out_spec)
    if flat_dims is None and isinstance(out_dims, tuple) and len(out_dims) == 1:
        flat_dims = list(out_dims)
    assert flat_dims is not None
    joined = [
        items[0] if dim is None else op("cat")(list(items), dim)
        for items, dim in zip(zip(*columns, strict=True), flat_dims, strict=True)
    ]
    return tree_unflatten(joined, out_spec)
