"""Every operator on DTensors of two ranks: results, writes and gradients of one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from sampled_operators import LARGEST, arrays_of, determined_operators, dtype_of

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from coredispatch.distributed.tensor.experimental import implicit_replication
from coredispatch.frontend.utils._pytree import tree_flatten
from coredispatch.ops.support.samples import Make, Sample
from coredispatch.registry import Operator

pytestmark = pytest.mark.once

UNDETERMINED = {"empty_like"}  # memory that nobody wrote

Place = Callable[[Any], Any]
OPERATORS = determined_operators(UNDETERMINED)
DIFFERENTIABLE = [op for op in OPERATORS if op.differentiable and not op.refuses_gradient]


def _samples(op: Operator, count: int) -> list[Sample]:
    assert op.samples is not None
    drawn = op.samples(Make(dtype_of(op), seed=1, values=op.values))
    fitting = [s for s in drawn if arrays_of(s) and all(a.size <= LARGEST for a in arrays_of(s))]
    return fitting[:: max(1, len(fitting) // count)][:count]


def _tensors(value: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, cd.Tensor)]


def _results(op: Operator, sample: Sample, place: Place, _: Place) -> list[Any]:
    """Those of a call, and what its arguments hold afterwards where the operator writes."""
    given = sample.map(lambda array: place(cd.from_numpy(array.copy())))
    out = op(*given.args, **given.kwargs)
    return _tensors(out) + (_tensors((given.args, given.kwargs)) if op.mutates else [])


def _gradients(op: Operator, sample: Sample, place: Place, weight: Place) -> list[Any]:
    """Of all floating arguments, for fixed gradients of the results."""
    leaves: list[Any] = []

    def lift(array: np.ndarray) -> Any:
        tensor = place(cd.from_numpy(array.copy()))
        if array.dtype.kind in "fc":
            leaves.append(tensor.requires_grad_())
            return tensor.clone() if op.mutates else tensor
        return tensor

    given = sample.map(lift)
    # What stands for the operator in gradcheck may compute with tensors of its own.
    with implicit_replication() if op.gradcheck else nullcontext():
        out = _tensors((op.gradcheck or op)(*given.args, **given.kwargs))
    if op.mutates:
        out += _tensors((given.args, given.kwargs))
    out = [o for o in out if o.requires_grad]
    if not out or not leaves:
        return []
    weights = [cd.linspace(1, 2, o.numel(), dtype=cd.float64).reshape(o.shape) for o in out]
    weights = [weight(w.to(o.dtype)) for w, o in zip(weights, out, strict=True)]
    return list(cd.autograd.grad(out, leaves, weights, allow_unused=True))


def _compare(compute: Callable[..., list[Any]], op: Operator, sample: Sample) -> bool:
    """Replicated and sharded, against one process; False where the operator refuses the sample."""
    try:
        expected = compute(op, sample, lambda tensor: tensor, lambda tensor: tensor)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False

    def program(rank: int) -> None:
        mesh = dist.init_device_mesh("cpu", (2,))

        def replicated(tensor: Any) -> Any:
            return distribute_tensor(tensor, mesh, [Replicate()], src_data_rank=None)

        def sharded(tensor: Any) -> Any:
            if not tensor.ndim:
                return replicated(tensor)
            return distribute_tensor(tensor, mesh, [Shard(0)], src_data_rank=None)

        for place in (replicated, sharded):
            found = compute(op, sample, place, replicated)
            for mine, want in zip(found, expected, strict=True):
                assert (mine is None) == (want is None), (sample, place)
                if want is None:
                    continue
                assert isinstance(mine, DTensor), (sample, place)
                detached: Any = mine.detach()
                whole = detached.full_tensor()
                assert whole.dtype is want.dtype and whole.shape == want.shape, (sample, place)
                np.testing.assert_allclose(
                    whole.numpy(), want.detach().numpy(), rtol=1e-7, atol=1e-8, err_msg=str(sample)
                )

    # A rank that leaves the others alone in a collective must not hold up the run.
    dist.threads.spawn(program, nprocs=2, timeout=timedelta(minutes=20))
    return bool(expected)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_results(op: Operator) -> None:
    compared = [_compare(_results, op, sample) for sample in _samples(op, 3)]
    assert any(compared), "no sample was compared"


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_gradients(op: Operator) -> None:
    for sample in _samples(op, 3):
        _compare(_gradients, op, sample)
