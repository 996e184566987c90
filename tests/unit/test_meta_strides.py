"""Meta tensors lie as the CPU's do: their strides, and whether they are views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from sampled_operators import LARGEST, arrays_of, determined_operators, dtype_of

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.frontend.utils._pytree import tree_flatten, tree_unflatten
from coredispatch.ops.support.samples import Make
from coredispatch.registry import Operator

pytestmark = pytest.mark.once


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


def _refused(result: Any) -> list[int]:
    """The results, by number, that no view flattens."""
    found = []
    for number, tensor in enumerate(tree_flatten(result)[0]):
        if isinstance(tensor, cd.Tensor):
            try:
                tensor.view(-1)
                tensor.view(*tensor.shape[:1], -1) if tensor.numel() else None
            except cd.ShapeError:
                found.append(number)
    return found


@pytest.mark.parametrize("op", determined_operators(set()), ids=lambda op: op.name)
def test_what_kernels_lay_out_is_viewed_as_on_the_cpu(op: Operator) -> None:
    for sample in islice(op.samples(Make(dtype_of(op), seed=0, values=op.values)), 2):
        if any(a.size > LARGEST for a in arrays_of(sample)):
            continue
        leaves, spec = tree_flatten((sample.args, sample.kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
        for turn in (1, 2):  # in two other orders
            ours = list(leaves)
            for place in places:
                ways = list(_lying(leaves[place]))
                ours[place] = ways[turn % len(ways)]
            meta = [_on_meta(x) if isinstance(x, cd.Tensor) else x for x in ours]
            outcomes = []
            for given_ in (ours, meta):
                args, kwargs = tree_unflatten(given_, spec)
                try:
                    outcomes.append(op(*args, **kwargs))
                except (cd.OpError, cd.DataDependentError):
                    outcomes.append(None)
            if None not in outcomes:
                assert set(_refused(outcomes[1])) <= set(_refused(outcomes[0])), (sample, turn)


def test_elements_that_share_memory_are_not_written() -> None:
    for device in ("cpu", "meta"):
        x = cd.zeros(3, 1, device=device).expand(3, 4)
        with pytest.raises(cd.OpError, match="share memory"):
            x.add_(1)
        assert cd.zeros(3, 1, device=device).expand(3, 1).add_(1).shape == (3, 1)
    with pytest.raises(cd.OpError, match="share memory"):
        cd.export.export(_Program(lambda x: x.expand(2, 3).add_(1)), (cd.zeros(3),))


def test_what_kernels_lay_out_is_exported() -> None:
    x = cd.rand(3, 4)
    programs: list[Callable[[cd.Tensor], cd.Tensor]] = [
        lambda x: x.expand(2, 3, 4).relu().view(-1),
        lambda x: (x.expand(2, 3, 4) * 2).view(-1),
        lambda x: F.layer_norm(x.t(), (3,)).view(-1),
        lambda x: x.t().sort(0)[0].view(-1),
        lambda x: x.t().tril().view(-1),
        lambda x: x.t().flip(0).view(-1),
    ]
    for number, program in enumerate(programs):
        exported = cd.export.export(_Program(program), (x,))
        assert cd.equal(exported.module()(x), program(x)), number


class _Program(cd.nn.Module):
    def __init__(self, program: Callable[[cd.Tensor], cd.Tensor]) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        return self.program(x)
