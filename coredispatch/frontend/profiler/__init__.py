"""``coredispatch.profiler``: what a program's operators cost, as a layer of the dispatch."""

from __future__ import annotations

from coredispatch._version import __version__
from coredispatch.frontend.profiler import layer as _layer
from coredispatch.frontend.profiler.events import DeviceType
from coredispatch.frontend.profiler.profile import (
    ExecutionTraceObserver,
    ProfilerAction,
    ProfilerActivity,
    kineto_available,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from coredispatch.registry import plugins as _plugins

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

_plugins.builtin("profiler", _layer, __version__)
