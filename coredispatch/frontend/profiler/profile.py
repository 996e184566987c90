"""``profile``: which operators a block of a program calls, and what they cost."""

from __future__ import annotations

import enum
import functools
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from coredispatch._warnings import warn
from coredispatch.frontend.profiler.events import EventList
from coredispatch.frontend.profiler.layer import Recorder, profiling
from coredispatch.frontend.profiler.trace import write_trace

__all__ = [
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


class ProfilerActivity(enum.Enum):
    """Groups of events; there are those of the CPU here."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What a profiler does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The groups of events that can be recorded."""
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """False: events come from a layer of the dispatch, not from Kineto."""
    return False


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """Steps to wait, to warm up and to record, again and again (``repeat`` times, 0 for ever).

    The first ``skip_first`` steps are left out; ``skip_first_wait`` leaves out the first wait.
    Raises ValueError for negative numbers, and where nothing would be recorded.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ValueError(
            f"Invalid profiler schedule arguments: wait={wait}, warmup={warmup}, active={active}, "
            f"repeat={repeat}, skip_first={skip_first}"
        )
    if warmup == 0:
        warn("Profiler won't be using warmup, this can skew profiler results")

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"steps count from 0, not {step}")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        cycle = wait + warmup + active
        if repeat > 0 and step // cycle >= repeat:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For ``on_trace_ready``: writes each trace to a file of its own in ``dir_name``."""

    def write(profiler: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        profiler.export_chrome_trace(os.path.join(dir_name, name))

    return write


def _always(_: int) -> ProfilerAction:
    return ProfilerAction.RECORD


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class ExecutionTraceObserver:
    """Not supported: execution traces are a format of Kineto's."""

    def __init__(self) -> None:
        raise NotImplementedError(
            "ExecutionTraceObserver is not supported; profile.export_chrome_trace writes a trace"
        )


class profile:
    """Records the operators that run in the block: calls, times, shapes, memory, kernels.

    Args:
        activities: groups of events; those of a device are not recorded (a warning says so).
        schedule: what to do in which step (see :func:`schedule`); the program calls :meth:`step`.
            Without it, everything is recorded.
        on_trace_ready: called with the profiler whenever a trace is complete.
        record_shapes: also the shapes of arguments.
        profile_memory: also the bytes of new results.
        with_stack: also the lines of the program.
        with_flops: also the operations of matrix products and convolutions.

    An operator's event contains those of its decomposition; ``Kernel`` says whose kernel served it.
    What runs in other threads is not seen. A block costs some microseconds a call::

        with profile(record_shapes=True) as p:
            model(x).sum().backward()
        print(p.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    """

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        wanted = set(activities) if activities is not None else supported_activities()
        absent = sorted(a.name for a in wanted - supported_activities())
        if absent:
            warn(
                f"the activities {', '.join(absent)} are not recorded: events of the CPU are, also "
                "of calls that a device serves"
            )
        self.activities = wanted
        self.schedule = schedule if schedule is not None else _always
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops, self.with_modules = with_stack, with_flops, with_modules
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._metadata: dict[str, Any] = {}
        self._recorder = Recorder(
            shapes=record_shapes, memory=profile_memory, stack=with_stack, flops=with_flops
        )
        self._mode = profiling(self._recorder)
        self._events: EventList | None = None
        self._step: Any = None
        self._entered = False
        self._origin = 0

    # -- running -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, as entering the block does."""
        if self._entered:
            raise RuntimeError("the profiler runs already; call stop() first")
        self._mode.__enter__()
        self._entered = True
        if self.current_action in _RECORDING:
            self._begin_trace()
        self._begin_step()

    def stop(self) -> None:
        """End, as leaving the block does."""
        if not self._entered:
            return
        self._end_step()
        if self.current_action in _RECORDING:
            self._end_trace(ready=True)
        self._mode.__exit__()
        self._entered = False

    def step(self) -> None:
        """The next step of the program begins."""
        self._end_step()
        before, self.step_num = self.current_action, self.step_num + 1
        self.current_action = now = self.schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._end_trace(ready=True)
            if now in _RECORDING:
                self._begin_trace()
        elif before is ProfilerAction.RECORD and now not in _RECORDING:
            warn(f"Incorrect schedule: RECORD followed by {now.name}; the trace is dropped")
            self._end_trace(ready=False)
        elif before not in _RECORDING and now in _RECORDING:
            self._begin_trace()
        self._begin_step()

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """Switch the recording off, or on again, inside the block."""
        if ProfilerActivity.CPU in set(activities):
            self._recorder.on = enable and self.current_action in _RECORDING

    def _begin_trace(self) -> None:
        self._origin = time.perf_counter_ns()
        self._recorder.on = True

    def _end_trace(self, *, ready: bool) -> None:
        self._recorder.on = False
        events = EventList.of(
            self._recorder.take(),
            self._origin,
            profile_memory=self.profile_memory,
            with_flops=self.with_flops,
        )
        if self.acc_events and self._events is not None:
            self._events.extend(events)
        else:
            self._events = events
        if ready and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _begin_step(self) -> None:
        if self.record_steps and self._recorder.on:
            self._step = self._recorder.begin(f"ProfilerStep#{self.step_num}", "user_annotation")

    def _end_step(self) -> None:
        if self._step is not None:
            self._recorder.end(self._step)
            self._step = None

    # -- what was recorded -------------------------------------------------------------------

    def events(self) -> EventList:
        """The events of the last trace, in the order in which they began."""
        if self._events is None:
            raise AssertionError("the profiler has recorded nothing yet: leave the block first")
        return self._events

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """The events added up by name, and by shapes and stacks if asked."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str) -> None:
        """Write a trace that Perfetto and ``chrome://tracing`` open (``.gz``: compressed)."""
        write_trace(path, self.events(), self._metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks for a flame graph; needs ``with_stack=True``."""
        if not self.with_stack:
            raise RuntimeError("export_stacks() requires with_stack=True")
        self.events().export_stacks(path, metric)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Not supported: memory is known by operator, not over time."""
        raise NotImplementedError(
            "export_memory_timeline is not supported; profile_memory=True gives bytes by operator"
        )

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text into the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put a value, given as JSON, into the trace."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json


class record_function:
    """An event of its own around a block, or around the calls of a function it decorates.

    Nothing happens, and hardly any time passes, where no profiler runs.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._spans: list[Any] = []

    def __enter__(self) -> Self:
        recorder = profiling.current() if profiling._running else None
        if recorder is not None and recorder.on:
            self._spans.append((recorder, recorder.begin(self.name, "user_annotation")))
        else:
            self._spans.append(None)
        return self

    def __exit__(self, *_: object) -> None:
        found = self._spans.pop()
        if found is not None:
            recorder, span = found
            recorder.end(span)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return wrapped
