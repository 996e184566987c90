"""What a compiled function knows of itself, in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coredispatch.frontend.compiling.by_size import BySize
from coredispatch.frontend.compiling.function import CompiledFunction
from coredispatch.frontend.compiling.module import OptimizedModule

__all__ = ["Explanation", "explained"]


@dataclass
class Explanation:
    """What compiling gave. Printed, it is a text.

    Attributes:
        graphs: the graphs of all programs.
        graph_count, graph_break_count, op_count: how many graphs, splits and operators there are.
        break_reasons: where and why Python looked at a value: ``(what, (file, line, function))``.
        problems: why calls ran eagerly instead, in the same form.
        guards: what the first program depends on, one line each.
        recompilations: why programs that were there did not serve a call.
        seconds: what capturing and compiling took in all calls so far.
        compiler_seconds: the share of the compiler. The interpreter (``"eager"``) has none.
        calls: how often graphs ran instead of Python.
        eager_calls: how often Python ran because nothing could be compiled.
        given_up: why nothing more is compiled, None while it may be.
        sizes: the open sizes of all programs, and what the programs asked of them.
        fixed_sizes: which sizes are numbers that might be open, or why all are, with the line.
        size_counts: of each graph with open sizes for how many choices of them it is compiled, and
            how many calls the interpreter served.
        told: what compiled graphs tell of themselves, by a method ``told()``: lines of text.
    """

    graphs: list[Any] = field(default_factory=list)
    graph_count: int = 0
    graph_break_count: int = 0
    op_count: int = 0
    break_reasons: list[Any] = field(default_factory=list)
    problems: list[Any] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    recompilations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    compiler_seconds: float = 0.0
    calls: int = 0
    eager_calls: int = 0
    given_up: str | None = None
    sizes: list[str] = field(default_factory=list)
    fixed_sizes: list[tuple[str, Any]] = field(default_factory=list)
    size_counts: list[tuple[int, int]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def out_guards(self) -> list[str]:
        """PyTorch's name of ``guards``."""
        return self.guards

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            f"Guards: {len(self.guards)}",
            f"Calls by graphs: {self.calls}, by Python for lack of them: {self.eager_calls}",
            f"Seconds of capturing and compiling: {self.seconds:.3f}, "
            f"{self.compiler_seconds:.3f} of them in the compiler",
        ]
        for what, where in self.break_reasons:
            lines.append("Split at {}:{} in {}: {}".format(*where, what))
        for what, where in self.problems:
            lines.append("Eager because of {}:{} in {}: {}".format(*where, what))
        lines += [f"Open size: {told}" for told in self.sizes]
        for ready, interpreted in self.size_counts:
            lines.append(
                f"A graph with open sizes: compiled for {ready} choices of them, "
                f"{interpreted} calls by the interpreter"
            )
        for what, where in self.fixed_sizes:
            lines.append(what if where is None else "{} ({}:{} in {})".format(what, *where))
        lines += [f"Compiled again: {reason}" for reason in self.recompilations]
        lines += self.told
        if self.given_up is not None:
            lines.append(f"Nothing more is compiled: {self.given_up}")
        return "\n".join(lines)


def explained(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """Call ``fn``, and tell what is known of it then."""
    from coredispatch.frontend.compiler import compile

    made = fn if isinstance(fn, (CompiledFunction, OptimizedModule)) else None
    made = compile(fn, backend="eager") if made is None else made
    made(*args, **kwargs)
    compiled: CompiledFunction = made._compiled if isinstance(made, OptimizedModule) else made
    in_compiler = getattr(compiled.compiler, "seconds", 0.0)
    report = Explanation(
        problems=list(compiled.problems),
        recompilations=list(compiled.recompilations),
        seconds=compiled.capture_seconds + in_compiler,
        compiler_seconds=in_compiler,
        eager_calls=compiled.eager_calls,
        given_up=compiled.given_up,
        fixed_sizes=compiled.sizes.told(),
    )
    for programs in compiled.programs.values():
        for program in programs:
            report.calls += program.calls
            report.guards = report.guards or program.guards.told()
            report.sizes += program.sizes
            for segment in program.segments():
                joint = None if segment.leaf is None else segment.leaf.joint
                for run in (segment.run, None if joint is None else joint.run):
                    if isinstance(run, BySize):
                        report.size_counts.append((len(run.ready), run.interpreted))
                    for each in run.ready.values() if isinstance(run, BySize) else (run,):
                        report.told += getattr(each, "told", list)()
                decision = segment.decision
                if decision is not None and decision.early:
                    place = "{}:{} in {}".format(*decision.where)
                    report.guards.append(f"{decision.what} gives {decision.answer!r} at {place}")
                    continue
                if segment.steps:
                    report.graphs.append(segment.graph)
                    report.op_count += len(segment.steps)
                if segment.decision is not None:
                    report.break_reasons.append((segment.decision.what, segment.decision.where))
    report.graph_count = len(report.graphs)
    report.graph_break_count = len(report.break_reasons)
    return report
