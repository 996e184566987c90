"""coredispatch beside PyTorch eager on one GPU, by CUDA events.

    python benchmarks/gpu.py [--only matmul,GPT] [--seconds 120] [--json FILE]
    python benchmarks/gpu.py --rehearse

Each call runs in both libraries in turn, under the same settings; what is printed are medians in
microseconds, their ratio, and the ratio that is aimed at. Training steps are measured under
autocast to bfloat16, eager and as a captured CUDA graph, of the step as it is and of the compiled
one (ours alone: PyTorch's side is eager), with the peak of memory of both, of which ours shall not
be the larger. At the end stand the lines that miss their aim, and those that were not measured.
``--seconds`` is about how long all of it may take.

Without a GPU nothing is measured, and that is what is printed. ``--rehearse`` runs all of it small
on the CPU in both libraries and compares results: it proves that the benchmark runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from gpu_cases import Case, Training, kernels, trainings

_SAMPLES = 9


@dataclass(frozen=True)
class Row:
    """What was measured: microseconds of both, their ratio, the aim, peaks of memory in MiB."""

    group: str
    name: str
    ours: float
    theirs: float
    limit: float
    peak_ours: float | None = None
    peak_theirs: float | None = None

    @property
    def ratio(self) -> float:
        """Ours by theirs."""
        return self.ours / self.theirs

    @property
    def misses(self) -> str:
        """What is above its aim, in words; nothing where all is within it."""
        words = ["above"] if self.ratio > self.limit else []
        if self.peak_ours is not None and self.peak_theirs is not None:
            words += ["peak above"] if self.peak_ours > self.peak_theirs else []
        return ", ".join(words)


def same_settings(*libs: Any) -> None:
    """What PyTorch starts with, in both: TF32 for convolutions alone, no plan chosen by time."""
    for lib in libs:
        lib.backends.cuda.matmul.allow_tf32 = False
        lib.backends.cudnn.allow_tf32 = True
        lib.backends.cudnn.benchmark = False
        lib.backends.cudnn.deterministic = False


def libraries() -> tuple[Any, Any] | None:
    """coredispatch and torch; None, and a word why, without torch."""
    try:
        import torch
    except ImportError as error:
        print(f"the benchmark needs {error.name}: pip install torch")
        return None
    import coredispatch as cd

    return cd, torch


def missing_device() -> str | None:
    """Why coredispatch has no device here; None where it has one."""
    import coredispatch as cd

    try:
        cd.cuda.init()
    except cd.DeviceError as error:
        return f"coredispatch has no CUDA device here.\n{error}"
    return None


# ---- timing ------------------------------------------------------------------------------------


def _elapsed(lib: Any, function: Callable[[], Any], calls: int) -> float:
    """Microseconds of a call on the device, gaps between its kernels included."""
    start, end = (lib.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        function()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1000 / calls


def _pair(
    ours: Any, theirs: Any, functions: tuple[Callable[[], Any], Callable[[], Any]], seconds: float
) -> tuple[float, float]:
    """Medians of samples taken in turn, in microseconds."""
    libs, calls = (ours, theirs), []
    for lib, function in zip(libs, functions, strict=True):
        for _ in range(3):
            function()
        once = _elapsed(lib, function, 3)
        calls.append(max(1, int(seconds * 1e6 / (2 * _SAMPLES) / max(once, 1.0))))
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(_SAMPLES):
        for side in (0, 1):
            samples[side].append(_elapsed(libs[side], functions[side], calls[side]))
    return statistics.median(samples[0]), statistics.median(samples[1])


def _clear(*libs: Any) -> None:
    gc.collect()  # a network of the line before would be counted in this one's peak
    for lib in libs:
        lib.cuda.synchronize()
        lib.cuda.empty_cache()
        lib.cuda.reset_peak_memory_stats()


# ---- training steps ----------------------------------------------------------------------------


def step_of(
    training: Training, lib: Any, module: Any, device: str, scale: int, capturable: bool = False
) -> Any:
    """One training step of ``module``; it returns the loss.

    ``capturable`` is for graphs. Eager steps are as users write them: it would only cost time.
    """
    arrays = training.data(np.random.default_rng(0), scale)
    data, target = (lib.from_numpy(array).to(device) for array in arrays)
    module = module.to(device)
    optimizer = lib.optim.AdamW(module.parameters(), lr=1e-4, capturable=capturable)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        half = lib.autocast(device, lib.bfloat16, cache_enabled=False)
        with half if scale else nullcontext():
            loss = lib.nn.functional.cross_entropy(module(data), target)
        loss.backward()
        optimizer.step()
        return loss

    return step


def steps_of(training: Training, ours: Any, theirs: Any, device: str, scale: int) -> Any:
    """The step in both libraries, from the same weights; and one of ours that can be captured."""
    theirs.manual_seed(0)
    reference, module = training.module(theirs, scale), training.module(ours, scale)
    state = {name: ours.from_numpy(t.numpy().copy()) for name, t in reference.state_dict().items()}
    module.load_state_dict(state)
    return (
        step_of(training, ours, module, device, scale),
        step_of(training, theirs, reference, device, scale),
        lambda: step_of(training, ours, module, device, scale, capturable=True),
    )


def _captured(lib: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    """The step as a CUDA graph, after steps on a side stream that compile and allocate."""
    side = lib.cuda.Stream()
    side.wait_stream(lib.cuda.current_stream())
    with lib.cuda.stream(side):
        for _ in range(3):
            step()
    lib.cuda.current_stream().wait_stream(side)
    graph = lib.cuda.CUDAGraph()
    with lib.cuda.graph(graph):
        step()
    replay: Callable[[], Any] = graph.replay
    return replay


def _compiled(lib: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    """The step by the compiler, as a CUDA graph from the fourth call on."""
    made: Callable[[], Any] = lib.compile(step, mode="reduce-overhead")
    for _ in range(4):
        made()
    return made


def _measured_training(
    training: Training, ours: Any, theirs: Any, seconds: float, scale: int
) -> list[Row]:
    _clear(ours, theirs)
    *steps, capturable = steps_of(training, ours, theirs, "cuda", scale)
    times = _pair(ours, theirs, (steps[0], steps[1]), seconds)
    peaks = [lib.cuda.max_memory_allocated() / 2**20 for lib in (ours, theirs)]
    eager = Row("training bf16", training.name, *times, 1.0, *peaks)
    rows, step = [eager], capturable()
    for how, make in (("as a graph", _captured), ("compiled as a graph", _compiled)):
        times = _pair(ours, theirs, (make(ours, step), steps[1]), seconds)
        rows.append(Row("training bf16", f"{training.name} {how}", *times, 0.9))
    return rows


# ---- the table ---------------------------------------------------------------------------------


def measured(
    options: argparse.Namespace,
    ours: Any,
    theirs: Any,
    scale: int = 1,
    done: Callable[[list[Row]], None] = lambda rows: None,
    missing: list[str] | None = None,
) -> list[Row]:
    """All rows, which ``done`` sees one by one; what fails is printed and left out.

    ``missing`` is filled with the names of what is not measured, at any time until now.
    """
    chosen = [word.lower() for word in options.only.split(",")] if options.only else [""]
    works: list[tuple[str, Callable[[float], list[Row]]]] = []
    for case in kernels():
        works.append((f"{case.group} {case.name}", _one(case, ours, theirs, scale)))
    for training in trainings():
        works.append((f"training {training.name}", _two(training, ours, theirs, scale)))
    works = [work for work in works if any(word in work[0].lower() for word in chosen)]
    rows: list[Row] = []
    missing = [] if missing is None else missing
    missing += [name for name, _ in works]
    for name, run in works:
        try:
            found = run(options.seconds / max(len(works), 1) / 2)
        except Exception as error:
            print(f"{name}: failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        rows += found
        missing.remove(name)
        done(found)
    return rows


def _one(case: Case, ours: Any, theirs: Any, scale: int) -> Callable[[float], list[Row]]:
    def run(seconds: float) -> list[Row]:
        _clear(ours, theirs)
        functions = tuple(case.make(lib, "cuda", scale) for lib in (ours, theirs))
        times = _pair(ours, theirs, functions, seconds)  # type: ignore[arg-type]
        return [Row(case.group, case.name, *times, case.limit)]

    return run


def _two(training: Training, ours: Any, theirs: Any, scale: int) -> Callable[[float], list[Row]]:
    return lambda seconds: _measured_training(training, ours, theirs, seconds, scale)


def print_head() -> None:
    """What the columns are."""
    print(f"{'':46}{'ours us':>12}{'PyTorch us':>12}{'ratio':>8}{'aim':>6}  peak MiB, ours/PyTorch")


def print_rows(rows: list[Row]) -> None:
    """A line for each row: times, ratio, aim, and peaks where they were taken."""
    for row in rows:
        over = f"  {row.misses}" if row.misses else ""
        peaks = ""
        if row.peak_ours is not None and row.peak_theirs is not None:
            peaks = f"  {row.peak_ours:.0f}/{row.peak_theirs:.0f}"
        name = f"{row.group}: {row.name}"
        print(
            f"{name:46}{row.ours:12.1f}{row.theirs:12.1f}{row.ratio:8.2f}{row.limit:6.2f}"
            f"{peaks}{over}",
            flush=True,
        )


def print_verdict(rows: list[Row], missing: list[str]) -> None:
    """How many lines are within their aims, which are not, and which were not measured."""
    above = [f"{row.group}: {row.name} ({row.misses})" for row in rows if row.misses]
    print(f"within their aims: {len(rows) - len(above)} of {len(rows)} lines measured")
    for title, names in (("not within", above), ("not measured", missing)):
        if names:
            print(f"{title}: {'; '.join(names)}")


# ---- the rehearsal -----------------------------------------------------------------------------


def rehearse(ours: Any, theirs: Any) -> list[str]:
    """Run all cases small on the CPU in both libraries; the names of those that differ."""
    different = []
    for case in kernels():
        found = [case.make(lib, "cpu", 0)() for lib in (ours, theirs)]
        if not _same(*found):
            different.append(f"{case.group} {case.name}")
    for training in trainings():
        steps = steps_of(training, ours, theirs, "cpu", 0)[:2]
        if not all(_same(*(step() for step in steps)) for _ in range(3)):
            different.append(training.name)
    return different


def _same(ours: Any, theirs: Any) -> bool:
    a, b = (x.detach().float().numpy() for x in (ours, theirs))
    return bool(np.allclose(a, b, rtol=2e-2, atol=1e-3))


def main() -> int:
    """Measure, or rehearse; 0 where all of it was measured, or agrees."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="words, one of which a line's name must have")
    parser.add_argument("--seconds", type=float, default=120.0, help="about how long to measure")
    parser.add_argument("--json", default="", help="a file for the rows")
    parser.add_argument("--rehearse", action="store_true", help="small, on the CPU, not measured")
    options = parser.parse_args()
    absent = None if options.rehearse else missing_device()
    if absent is not None:
        print(f"nothing was measured: {absent}")
        return 1
    found = libraries()
    if found is None:
        return 1
    if options.rehearse:
        different = rehearse(*found)
        print(f"different: {', '.join(different)}" if different else "all cases agree on the CPU")
        return int(bool(different))
    ours, theirs = found
    if not theirs.cuda.is_available():
        print("nothing was measured: PyTorch has no CUDA device here: install its build for CUDA")
        return 1
    print(f"{ours.cuda.get_device_name()}, coredispatch {ours.__version__}, PyTorch "
          f"{theirs.__version__}")  # fmt: skip
    same_settings(ours, theirs)
    print("both: TF32 for convolutions alone, cudnn.benchmark off, contiguous images")
    print_head()
    rows: list[Row] = []
    missing: list[str] = []

    def done(found: list[Row]) -> None:  # whoever is stopped has what was measured until then
        print_rows(found)
        rows.extend(found)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump([asdict(row) | {"ratio": row.ratio} for row in rows], file, indent=1)

    try:
        measured(options, ours, theirs, done=done, missing=missing)
    except KeyboardInterrupt:
        print("stopped: the time is over")
    print_verdict(rows, missing)
    return int(bool(missing))


if __name__ == "__main__":
    raise SystemExit(main())
