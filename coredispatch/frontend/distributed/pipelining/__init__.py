"""Pipeline parallelism: the layers of a model on several ranks, a batch in small parts."""

from __future__ import annotations

from coredispatch.frontend.distributed.pipelining import microbatch
from coredispatch.frontend.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
)
from coredispatch.frontend.distributed.pipelining.splitting import (
    Pipe,
    SplitPoint,
    build_stage,
    pipe_split,
    pipeline,
)
from coredispatch.frontend.distributed.pipelining.stage import PipelineStage

__all__ = [
    "Pipe",
    "PipelineStage",
    "Schedule1F1B",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleLoopedBFS",
    "SplitPoint",
    "build_stage",
    "microbatch",
    "pipe_split",
    "pipeline",
]
