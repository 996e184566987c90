"""Meta tensors lie as the CPU's do: their strides, and whether they are views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sampled_operators import determined_operators, dtype_of

import coredispatch as cd
from coredispatch.frontend.utils._pytree import tree_flatten, tree_unflatten
from coredispatch.ops.support.samples import Make
from coredispatch.registry import Operator


def _lying(array: np.ndarray) -> Iterator[cd.Tensor]:
    """Tensors of the values, in row-major order and in two others."""
    yield cd.from_numpy(np.array(array, order="C"))
    if array.ndim > 1:
        yield cd.from_numpy(np.array(array.T, order="C")).permute(*reversed(range(array.ndim)))
        room = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        room[..., ::2] = array
        yield cd.from_numpy(room)[..., ::2]


def _on_meta(tensor: cd.Tensor) -> cd.Tensor:
    """A meta tensor that lies as ``tensor`` does."""
    strides = tensor.stride()
    reach = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, strides))
    room = cd.empty(max(reach, 1), dtype=tensor.dtype, device="meta")
    return room.as_strided(tensor.shape, strides)


def _seen(result: Any, arguments: list[Any]) -> list[Any]:
    """Shape, strides where elements are stepped over, and the arguments that results view."""
    found = []
    for tensor in tree_flatten(result)[0]:
        if isinstance(tensor, cd.Tensor):
            steps = [s for n, s in zip(tensor.shape, tensor.stride()) if n > 1]
            base = tensor
            while base._view is not None and not any(base is a for a in arguments):
                base = base._view.base
            views = [i for i, a in enumerate(arguments) if a is base]
            found.append((tuple(tensor.shape), steps if tensor.numel() else None, views))
    return found


@pytest.mark.parametrize(
    "op", [op for op in determined_operators(set()) if op.view], ids=lambda op: op.name
)
def test_views(op: Operator) -> None:
    for number, sample in enumerate(op.samples(Make(dtype_of(op), seed=0, values=op.values))):
        leaves, spec = tree_flatten((sample.args, sample.kwargs))
        first = next(i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray))
        for lying in _lying(leaves[first]):
            ours = [cd.from_numpy(x) if isinstance(x, np.ndarray) else x for x in leaves]
            ours[first] = lying
            meta = [_on_meta(x) if isinstance(x, cd.Tensor) else x for x in ours]
            outcomes = []
            for given_ in (ours, meta):
                args, kwargs = tree_unflatten(given_, spec)
                try:
                    outcomes.append(_seen(op(*args, **kwargs), given_))
                except (cd.OpError, cd.DataDependentError) as error:
                    outcomes.append(type(error))
            if outcomes[1] is not cd.DataDependentError:
                assert outcomes[1] == outcomes[0], (sample, lying.stride())
        if number == 8:
            break
