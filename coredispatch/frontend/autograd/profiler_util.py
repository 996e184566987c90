"""``coredispatch.autograd.profiler_util``: events and their averages."""

from __future__ import annotations

from coredispatch.frontend.profiler.events import (
    DeviceType,
    EventList,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
)
from coredispatch.frontend.profiler.events import format_memory as _format_memory
from coredispatch.frontend.profiler.events import format_time as _format_time

__all__ = ["DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]
_formatters = (_format_memory, _format_time)
