"""Random programs that write to DTensors: after each step values, layouts and parts agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

ONE: dict[str, Callable[[Any], Any]] = {
    "add": lambda a: a.add_(1),
    "index": lambda a: a[0].mul_(0.5),
    "nested index": lambda a: a[0][1:].add_(4),
    "columns": lambda a: a[:, ::2].mul_(-1),
    "assign": lambda a: a.__setitem__((slice(None), -1), a[:, 0] * 2),
    "transposed": lambda a: a.t().mul_(3),
    "unsqueezed": lambda a: a.unsqueeze(0).sub_(1),
    "detached": lambda a: a.detach().add_(0.5),
    "cumsum": lambda a: a.cumsum_(0),
    "masked": lambda a: a.masked_fill_(a > 0.017, 0.25),
    "mean": lambda a: a.sub_(a.mean(0, keepdim=True)),
    "softmax": lambda a: a.copy_(a.softmax(1)),
    "sum": lambda a: a.add_(a.sum()),
}
TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a.add_(b, alpha=0.5),
    "mul": lambda a, b: a.mul_(b),
    "copy": lambda a, b: a.copy_(b),
    "row": lambda a, b: a.add_(b[:1]),
    "sum of rows": lambda a, b: a.mul_(b.sum(0)),
    "sum of columns": lambda a, b: a.mul_(b.sum(1, keepdim=True)),
    "product": lambda a, b: a.addmm_(a @ b.t(), b, beta=0.5, alpha=0.1),
    "assign": lambda a, b: a.__setitem__(slice(0, 1), b[-1:]),
    "out": lambda a, b: cd.mul(b.sum(0), b, out=a),
}


def part(shape: Any, mesh: tuple[int, ...], place: tuple[int, ...], layout: Any) -> Any:
    """The slices that the rank at `place` has, as ``chunk`` divides."""
    bounds = [[0, length] for length in shape]
    for size, index, placement in zip(mesh, place, layout, strict=True):
        if isinstance(placement, Shard):
            begin, end = bounds[placement.dim]
            step = -(-(end - begin) // size)
            bounds[placement.dim] = [
                min(begin + index * step, end),
                min(begin + (index + 1) * step, end),
            ]
    return tuple(slice(*pair) for pair in bounds)


@settings(max_examples=40)
@given(st.data())
def test_programs_that_write(data: st.DataObject) -> None:
    mesh_shape = data.draw(st.sampled_from([(2,), (3,), (2, 2)]))
    shape = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 4)))
    layouts = st.tuples(*[st.sampled_from([Replicate(), Shard(0), Shard(1)])] * len(mesh_shape))
    first, second = data.draw(layouts), data.draw(layouts)
    steps = data.draw(
        st.lists(st.one_of(st.sampled_from([*ONE]), st.sampled_from([*TWO]).map(lambda n: (n,))))
    )
    values = [cd.tensor(np.random.default_rng(i).standard_normal(shape)) for i in range(2)]

    def step(name: Any, a: Any, b: Any) -> None:
        TWO[name[0]](a, b) if isinstance(name, tuple) else ONE[name](a)

    plain, expected = [value.clone() for value in values], []
    for name in steps:
        step(name, *plain)
        expected.append([value.numpy().copy() for value in plain])

    def run(rank: int) -> Any:
        mesh = dist.init_device_mesh("cpu", mesh_shape)
        mine = [
            distribute_tensor(value, mesh, layout, src_data_rank=None)
            for value, layout in zip(values, (first, second), strict=True)
        ]
        place = tuple(mesh.get_local_rank(dim) for dim in range(mesh.ndim))
        for name, after in zip(steps, expected, strict=True):
            step(name, *mine)
            for tensor, layout, whole in zip(mine, (first, second), after, strict=True):
                assert isinstance(tensor, DTensor) and tensor.placements == layout
                own = whole[part(shape, mesh_shape, place, layout)]
                assert tensor.to_local().shape == own.shape, name
                np.testing.assert_allclose(tensor.to_local().numpy(), own, 1e-6, 1e-6, str(name))

    before = [value.numpy().copy() for value in values]
    dist.threads.spawn(run, nprocs=int(np.prod(mesh_shape)))
    for value, kept in zip(values, before, strict=True):
        np.testing.assert_array_equal(value.numpy(), kept)  # no part shares its memory
