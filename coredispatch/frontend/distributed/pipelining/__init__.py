"""Pipeline parallelism: the layers of a model on several ranks, a batch in small parts."""

from __future__ import annotations

from coredispatch.frontend.distributed.pipelining.schedules import Schedule1F1B, ScheduleGPipe
from coredispatch.frontend.distributed.pipelining.stage import PipelineStage

__all__ = ["PipelineStage", "Schedule1F1B", "ScheduleGPipe"]
