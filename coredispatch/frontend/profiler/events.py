"""Events of a profile, their averages, and the table that is printed of them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from coredispatch.frontend.profiler.layer import Span

__all__ = [
    "DeviceType",
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
    "format_memory",
    "format_time",
]

_UNITS = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0}
_BYTES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))
_GAP = 2


def format_time(time_us: float, unit: str | None = None) -> str:
    """Microseconds as text, ``1.234ms``."""
    if unit is None:
        unit = "s" if time_us >= 1_000_000 else "ms" if time_us >= 1_000 else "us"
    return f"{time_us / _UNITS[unit]:.3f}{unit}"


def format_memory(nbytes: float) -> str:
    """Bytes as text, ``1.23 MB``."""
    for size, name in _BYTES:
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {name}"
    return f"{nbytes} B"


class DeviceType(enum.Enum):
    """Kinds of devices that PyTorch's events name; those here are of the CPU."""

    CPU = 0
    CUDA = 1
    MKLDNN = 2
    XPU = 12
    MPS = 13
    Meta = 14
    PrivateUse1 = 20


class Interval:
    """From ``start`` to ``end``, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """The length."""
        return self.end - self.start


class _Times:
    """What events and averages show of their numbers, all in microseconds and bytes."""

    count: int
    cpu_time_total: float
    self_cpu_time_total: float

    @property
    def cpu_time(self) -> float:
        """The time of one call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    #: there is no time on an accelerator: what a kernel does there is waited for, or not seen
    device_time_total = self_device_time_total = device_time = 0.0
    device_memory_usage = self_device_memory_usage = 0

    def __getattr__(self, name: str) -> str:
        if name.endswith("_str") and "time" in name:
            return format_time(getattr(self, name.removesuffix("_str")))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class FunctionEvent(_Times):
    """One call of an operator, or one block of ``record_function``.

    Attributes:
        id, name, thread, sequence_nr, stack, input_shapes, flops: what the names say.
        time_range: an :class:`Interval`, from the start of the profile.
        cpu_parent, cpu_children: the event around it, and those directly inside.
        cpu_memory_usage: bytes of new results, those of events inside included.
        kernel: the plugin whose kernel served the call.
    """

    device_type = DeviceType.CPU
    node_id = -1
    is_async = is_remote = is_legacy = False
    overload_name = ""
    count = 1

    def __init__(self, number: int, span: Span, origin: int) -> None:
        self.id, self.name, self.trace_name = number, span.name, span.name
        self.time_range = Interval((span.start - origin) / 1e3, (span.end - origin) / 1e3)
        self.thread, self.fwd_thread = span.thread, None
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.own_memory = span.memory
        self.input_shapes = span.shapes
        self.input_dtypes = span.dtypes
        self.stack, self.sequence_nr = span.stack, span.sequence
        self.flops, self.kernel = span.flops, span.kernel
        self.is_user_annotation = span.category == "user_annotation"
        self.scope = 7 if self.is_user_annotation else 0

    @property
    def key(self) -> str:
        """The name that averages go by: all steps are one."""
        return "ProfilerStep*" if self.name.startswith("ProfilerStep#") else self.name

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """The time from start to end."""
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]
        """The time that no event inside took."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def cpu_memory_usage(self) -> int:
        """Bytes of new results, the greater of the event's own and of those inside together."""
        return max(self.own_memory, sum(child.cpu_memory_usage for child in self.cpu_children))

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes that no event inside made."""
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
            f"start_us={self.time_range.start} end_us={self.time_range.end} "
            f"cpu_children={[child.id for child in self.cpu_children]} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} "
            f"kernel={self.kernel!r} seq_nr={self.sequence_nr}>"
        )


class FunctionEventAvg(_Times):
    """The events of one key, added up; ``cpu_time`` is the average."""

    is_async = is_remote = is_legacy = False
    device_type = DeviceType.CPU
    node_id = -1
    overload_name = ""

    def __init__(self) -> None:
        self.key = ""
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.flops = 0
        self.input_shapes: Any = ""
        self.stack: list[str] = []
        self.kernel = ""
        self.scope = 0
        self.is_user_annotation = False
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []

    def add(self, event: Any) -> FunctionEventAvg:
        """Count one more event; returns self."""
        if not self.key:
            self.key, self.scope = event.key, event.scope
            self.input_shapes, self.stack = event.input_shapes, event.stack
            self.is_user_annotation = event.is_user_annotation
            self.cpu_parent, self.cpu_children = event.cpu_parent, event.cpu_children
        for name in ("cpu_time_total", "self_cpu_time_total", "flops", "count"):
            setattr(self, name, getattr(self, name) + getattr(event, name))
        self.cpu_memory_usage += event.cpu_memory_usage
        self.self_cpu_memory_usage += event.self_cpu_memory_usage
        kernels = [k for k in self.kernel.split(", ") if k]
        self.kernel = ", ".join(
            dict.fromkeys([*kernels, *([event.kernel] if event.kernel else [])])
        )
        return self

    def __iadd__(self, event: Any) -> FunctionEventAvg:
        return self.add(event)

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage} kernel={self.kernel!r}>"
        )


class EventList(list[Any]):
    """Events in the order in which they began, or averages; prints as a table."""

    def __init__(self, events: Iterable[Any] = (), **options: Any) -> None:
        super().__init__(events)
        self.with_memory: bool = options.get("profile_memory", False)
        self.with_flops: bool = options.get("with_flops", False)
        self.options = options

    @classmethod
    def of(cls, spans: list[Span], origin: int, **options: Any) -> EventList:
        """The events of what was recorded."""
        events = [FunctionEvent(number, span, origin) for number, span in enumerate(spans)]
        by_span = {id(span): event for span, event in zip(spans, events, strict=True)}
        for span, event in zip(spans, events, strict=True):
            parent = None if span.parent is None else by_span.get(id(span.parent))
            if parent is not None:
                event.cpu_parent = parent
                parent.cpu_children.append(event)
        return cls(events, **options)

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, each microsecond counted once."""
        return float(sum(event.self_cpu_time_total for event in self))

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """One :class:`FunctionEventAvg` for each name, and each of shapes and stacks if asked."""
        groups: dict[Any, FunctionEventAvg] = {}
        for event in self:
            key: list[Any] = [event.key]
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n > 0:
                key += event.stack[:group_by_stack_n]
            groups.setdefault(tuple(key), FunctionEventAvg()).add(event)
        averages = EventList(groups.values(), **self.options)
        for average in averages:
            if not group_by_input_shapes:
                average.input_shapes = ""
            average.stack = average.stack[:group_by_stack_n] if group_by_stack_n > 0 else []
        return averages

    def total_average(self) -> FunctionEventAvg:
        """All events as one average."""
        total = FunctionEventAvg()
        for event in self:
            total += event
            total.key = "Total"
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as a table, the greatest ``sort_by`` first.

        ``sort_by`` is one of ``cpu_time``, ``cpu_time_total``, ``self_cpu_time_total``,
        ``cpu_memory_usage``, ``self_cpu_memory_usage``, ``count`` (and their ``device`` forms,
        which are zero). At most ``row_limit`` rows, all if it is -1.
        """
        widths = (max_name_column_width, max_shapes_column_width, max_src_column_width)
        rows: list[Any] = list(self)
        if sort_by is not None:
            name = sort_by.replace("cuda", "device").replace("xpu", "device")
            if rows and not isinstance(getattr(rows[0], name, None), (int, float)):
                raise AttributeError(f"sort_by={sort_by!r} is no number of an event")
            rows.sort(key=lambda event: getattr(event, name), reverse=True)
        if top_level_events_only:
            rows = [event for event in rows if event.cpu_parent is None]
        shown = rows if row_limit < 0 else rows[:row_limit]
        columns = _columns(self, shown, widths, time_unit)
        return _printed(columns, len(shown), header, self.self_cpu_time_total, time_unit)

    def __str__(self) -> str:
        return self.table()

    @property
    def supported_export_stacks_metrics(self) -> list[str]:
        """What :meth:`export_stacks` can count."""
        return ["self_cpu_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """Write ``frame;frame;... value`` lines, which flame graph programs read.

        Needs ``with_stack=True``. Raises ValueError for an unknown metric.
        """
        if metric not in self.supported_export_stacks_metrics:
            raise ValueError(
                f"metric should be one of: {self.supported_export_stacks_metrics}, not {metric!r}"
            )
        safe = str.maketrans(" ;\t\n", "____")
        with open(path, "w") as file:
            for event in self:
                value = int(getattr(event, metric))
                if event.stack and value > 0:
                    frames = ";".join(frame.translate(safe) for frame in reversed(event.stack))
                    file.write(f"{frames} {value}\n")

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as a trace that Perfetto and ``chrome://tracing`` open."""
        from coredispatch.frontend.profiler.trace import write_trace

        write_trace(path, self, {})


def _share(part: float, whole: float) -> str:
    return f"{part * 100.0 / whole:.2f}%" if whole else "0.00%" if part == 0 else "NaN"


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: width - 3] + "..."


def _columns(
    events: EventList, shown: list[Any], widths: tuple[int, int, int], unit: str | None
) -> list[tuple[str, list[str]]]:
    whole = events.self_cpu_time_total
    name_width, shapes_width, source_width = widths
    columns = [
        ("Name", [_cut(event.key, name_width) for event in shown]),
        ("Self CPU %", [_share(event.self_cpu_time_total, whole) for event in shown]),
        ("Self CPU", [format_time(event.self_cpu_time_total, unit) for event in shown]),
        ("CPU total %", [_share(event.cpu_time_total, whole) for event in shown]),
        ("CPU total", [format_time(event.cpu_time_total, unit) for event in shown]),
        ("CPU time avg", [format_time(event.cpu_time, unit) for event in shown]),
    ]
    if events.with_memory:
        columns += [
            ("CPU Mem", [format_memory(event.cpu_memory_usage) for event in shown]),
            ("Self CPU Mem", [format_memory(event.self_cpu_memory_usage) for event in shown]),
        ]
    columns.append(("# of Calls", [str(event.count) for event in shown]))
    columns.append(("Kernel", [_cut(event.kernel, 40) or "-" for event in shown]))
    if any(event.input_shapes for event in shown):
        shapes = [_cut(str(event.input_shapes), shapes_width) for event in shown]
        columns.append(("Input Shapes", shapes))
    if any(event.stack for event in shown):
        lines = [event.stack[0][-source_width:] if event.stack else "" for event in shown]
        columns.append(("Source Location", lines))
    if events.with_flops:
        columns.append(
            ("Total FLOPs", [str(event.flops) if event.flops else "--" for event in shown])
        )
    return columns


def _printed(
    columns: list[tuple[str, list[str]]],
    rows: int,
    header: str | None,
    total: float,
    unit: str | None,
) -> str:
    sizes = []
    for title, cells in columns:
        least = 12 if title not in ("Name", "Input Shapes", "Source Location") else 0
        sizes.append(max(least, len(title), *(len(cell) for cell in cells), 0))
    gap = " " * _GAP
    rule = gap.join("-" * size for size in sizes) + gap
    lines = [header] if header is not None else []
    titles = [f"{title:>{size}}" for (title, _), size in zip(columns, sizes, strict=True)]
    lines += [rule, gap.join(titles) + gap, rule]
    for row in range(rows):
        cells = [f"{cells[row]:>{size}}" for (_, cells), size in zip(columns, sizes, strict=True)]
        lines.append(gap.join(cells) + gap)
    lines += [rule, f"Self CPU time total: {format_time(total, unit)}", ""]
    return "\n".join(lines)
