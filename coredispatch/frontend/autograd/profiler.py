"""``coredispatch.autograd.profiler``: the older names of the profiler."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from coredispatch._warnings import warn
from coredispatch.frontend import profiler as _new
from coredispatch.frontend.profiler.events import EventList, FunctionEvent, FunctionEventAvg
from coredispatch.frontend.profiler.profile import record_function

__all__ = [
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "emit_itt",
    "emit_nvtx",
    "load_nvprof",
    "profile",
    "record_function",
]


class profile:
    """Records the operators of a block: the older form of ``cd.profiler.profile``."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        **_: Any,
    ) -> None:
        if use_cuda or use_device:
            warn("events of devices are not recorded, those of the CPU are")
        self.enabled = enabled
        self._profile = _new.profile(
            record_shapes=record_shapes,
            with_flops=with_flops,
            profile_memory=profile_memory,
            with_stack=with_stack,
        )

    def __enter__(self) -> Self:
        if self.enabled:
            self._profile.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._profile.stop()

    @property
    def function_events(self) -> EventList:
        """The events."""
        return self._profile.events()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, in microseconds."""
        return self.function_events.self_cpu_time_total

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Any:
        """The events added up by name."""
        return self._profile.key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        return self.function_events.total_average()

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The events as a table; see :meth:`EventList.table`."""
        return self.function_events.table(*args, **kwargs)

    def export_chrome_trace(self, path: str) -> None:
        """Write a trace that Perfetto opens."""
        self._profile.export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks for a flame graph; needs ``with_stack=True``."""
        self._profile.export_stacks(path, metric)

    def __iter__(self) -> Any:
        return iter(self.function_events)

    def __str__(self) -> str:
        return str(self.function_events)


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"{name} needs a vendor's profiler; use coredispatch.profiler.profile, whose trace opens "
        "in Perfetto"
    )


def emit_nvtx(*args: Any, **kwargs: Any) -> NoReturn:
    """Not supported: there are no NVTX ranges."""
    _refuse("emit_nvtx")


def emit_itt(*args: Any, **kwargs: Any) -> NoReturn:
    """Not supported: there are no ITT ranges."""
    _refuse("emit_itt")


def load_nvprof(path: str) -> NoReturn:
    """Not supported: nvprof's files are not read."""
    _refuse("load_nvprof")
