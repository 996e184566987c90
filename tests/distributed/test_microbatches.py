"""A batch in parts: what each part gets, along which dimensions, and the outputs as one."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
import coredispatch.distributed as dist
from coredispatch import nn
from coredispatch.distributed.pipelining import PipelineStage, ScheduleGPipe
from coredispatch.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
)


def test_parts_and_back() -> None:
    a, b, c = cd.arange(12).reshape(6, 2), cd.arange(12).reshape(2, 6), cd.arange(5)
    args, kwargs = split_args_kwargs_into_chunks((a, 3), {"rest": [c, "x"]}, 4)
    assert [part[0].shape[0] for part in args] == [2, 2, 1, 1]
    assert all(part[1] == 3 for part in args)
    assert [part["rest"][0].tolist() for part in kwargs] == [[0, 1], [2], [3], [4]]
    assert cd.equal(merge_chunks(args, None)[0], a) and merge_chunks(args, None)[1] == 3
    args, kwargs = split_args_kwargs_into_chunks(
        (a, b), {"whole": c}, 3, TensorChunkSpec.from_tuple((0, 1)), {"whole": None}
    )
    assert [tuple(part[1].shape) for part in args] == [(2, 2)] * 3
    assert all(part["whole"] is c for part in kwargs)
    merged = merge_chunks(args, TensorChunkSpec.from_tuple((0, 1)))
    assert cd.equal(merged[0], a) and cd.equal(merged[1], b)
    assert len(split_args_kwargs_into_chunks((cd.ones(2),), None, 4)[0]) == 2  # no more rows
    assert split_args_kwargs_into_chunks((1,), None, 2) == ([(1,), (1,)], [{}, {}])


def test_what_is_refused() -> None:
    x = cd.ones(4)
    for args, spec, text in (
        ((x, x), (TensorChunkSpec(0),), "args_chunk_spec .* structure"),
        ((x,), (TensorChunkSpec(1),), r"TensorChunkSpec\(1\) for a tensor of shape \(4,\)"),
        ((3,), (TensorChunkSpec(0),), "Unsupported chunk spec"),
        ((x,), (0,), "Unsupported chunk spec"),
    ):
        with pytest.raises(ValueError, match=f"{text}.*\n  fix: "):
            split_args_kwargs_into_chunks(args, None, 2, spec)
    with pytest.raises(ValueError, match="part 1 gave 'b', and part 0 'a'"):
        merge_chunks(["a", "b"], None)


def test_a_schedule_divides_along_other_dimensions() -> None:
    class Across(nn.Module):
        """Its batch is the second dimension."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Any, scale: Any = None) -> Any:
            found = self.inner(x)
            return found if scale is None else found * scale

    cd.manual_seed(0)
    first, second = Across(), Across()
    x, scale = cd.randn(2, 4, 3), cd.randn(3)
    expected = second(first(x, scale))

    def program(rank: int) -> None:
        stage = PipelineStage([first, second][rank], rank, 2, cd.device("cpu"))
        schedule = ScheduleGPipe(
            stage,
            2,
            args_chunk_spec=(TensorChunkSpec(1),),
            kwargs_chunk_spec={"scale": None},
            output_merge_spec=TensorChunkSpec(1),
        )
        output = schedule.step(x, scale=scale) if rank == 0 else schedule.step()
        if rank == 1:
            cd.testing.assert_close(output, expected)

    dist.threads.spawn(program, nprocs=2)
