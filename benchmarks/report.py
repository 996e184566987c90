"""``make bench``: the benchmarks beside PyTorch, as a page and a chart.

    python benchmarks/report.py [--threads 1,2] [--quick] [--note TEXT] [--from DIRECTORY]

Runs ``dispatch.py``, ``kernels.py`` and ``train.py``, one after the other, keeps what they measured
in ``build/bench``, and writes docs/benchmarks.md and docs/benchmarks.svg. ``--note`` is a sentence
for the page, about the machine say; ``--from`` writes both from results that are there already.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from measure import geometric_mean

_HERE = Path(__file__).parent
_TOP = _HERE.parent
_SIZES = "1000,1000000"


@dataclass(frozen=True)
class Group:
    """Cases of one benchmark at one number of threads: names, ours and PyTorch's time, ratios."""

    title: str
    unit: str
    rows: list[tuple[str, float, float, float]]

    @property
    def mean(self) -> float:
        return geometric_mean(row[3] for row in self.rows)


def measure(directory: Path, threads: list[int], quick: bool, note: str) -> None:
    """Run the benchmarks; each leaves a file in ``directory``."""
    details = json.dumps(machine() | {"note": note}, indent=1)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "machine.json").write_text(details, encoding="utf-8")
    few = ["--samples", "3"] if quick else []
    commands = [["dispatch.py", "--json", str(directory / "dispatch.json"), *few]]
    for count in threads:
        common = ["--threads", str(count), *few]
        for name, more in (("kernels", ["--sizes", _SIZES]), ("train", [])):
            target = str(directory / f"{name}-{count}.json")
            commands.append([f"{name}.py", *more, *common, "--json", target])
    for command in commands:
        print(" ".join(command), flush=True)
        status = subprocess.call([sys.executable, str(_HERE / command[0]), *command[1:]])
        if status:
            raise SystemExit(f"benchmarks/{command[0]} ended with {status}")


def _processor() -> str:
    """What the system calls the processor, and which vector instructions it has."""
    name, found = platform.processor() or platform.machine(), set()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return name
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        elif key.strip() == "flags":
            found = set(value.split())
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
    return f"{name} ({', '.join(f for f in wanted if f in found) or 'no AVX2'})"


def machine() -> dict[str, str]:
    """The machine and the versions that were measured."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version("torch")
    except PackageNotFoundError:
        hint = "pip install 'coredispatch[bench]'"
        raise SystemExit(f"benchmarks/report.py compares with PyTorch: {hint}") from None
    packages = ("coredispatch", "numpy", "numba", "torch")
    return {
        "processor": _processor(),
        "processors": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "date": date.today().isoformat(),
    }


def groups(directory: Path) -> list[Group]:
    """What was measured, in the order of the page."""
    found = []
    file = directory / "dispatch.json"
    if file.exists():
        rows = json.loads(file.read_text(encoding="utf-8"))["results"]
        title = "Calls on 8 by 8 matrices, one thread (`benchmarks/dispatch.py`)"
        found.append(
            Group(
                title,
                "us",
                [(r["name"], r["ours"] * 1e6, r["theirs"] * 1e6, r["ratio"]) for r in rows],
            )
        )
    for file in sorted(directory.glob("train-*.json")):
        rows = json.loads(file.read_text(encoding="utf-8"))
        title = f"Training steps, {_threads(file)} (`benchmarks/train.py`)"
        found.append(
            Group(title, "ms", [(r["name"], r["ours"], r["theirs"], r["ratio"]) for r in rows])
        )
    for file in sorted(directory.glob("kernels-*.json")):
        rows = json.loads(file.read_text(encoding="utf-8"))
        for size in sorted({r["size"] for r in rows}):
            elements = f"{size:,} elements" if size else "sizes of their own"
            title = f"Kernels, {elements}, {_threads(file)} (`benchmarks/kernels.py`)"
            here = [r for r in rows if r["size"] == size]
            found.append(
                Group(title, "us", [(r["name"], r["ours"], r["theirs"], r["ratio"]) for r in here])
            )
    return found


def _threads(file: Path) -> str:
    count = file.stem.rpartition("-")[2]
    return "one thread" if count == "1" else f"{count} threads"


def page(found: list[Group], on: dict[str, str]) -> str:
    """The text of docs/benchmarks.md."""
    versions = ", ".join(
        f"{name} {on[name]}" for name in ("python", "numpy", "numba", "torch", "coredispatch")
    )
    lines = [
        "# Beside PyTorch",
        "",
        "Written by `make bench`; run it for the numbers of your machine. Each line is the same",
        "expression in both libraries, in one process, on the same data; the ratio is that of the",
        "minima of samples taken in turn, for calls on 8 by 8 matrices that of medians. Below 1 is",
        "faster than PyTorch.",
        "",
        f"Measured on {on['date']}: {on['processor']}, {on['processors']} processors,",
        f"{on['system']}; {versions}.{' ' + on['note'] if on.get('note') else ''}",
        "",
        "![A bar for each case, and a line where both take the same time](benchmarks.svg)",
        "",
        "| group | cases | geometric mean | above 1 |",
        "|---|---:|---:|---:|",
    ]
    for group in found:
        above = sum(row[3] > 1 for row in group.rows)
        lines.append(f"| {group.title} | {len(group.rows)} | {group.mean:.2f} | {above} |")
    for group in found:
        lines += ["", f"## {group.title}", ""]
        lines += [
            f"| case | ours {group.unit} | PyTorch {group.unit} | ratio |",
            "|---|---:|---:|---:|",
        ]
        for name, ours, theirs, ratio in sorted(group.rows, key=lambda row: -row[3]):
            shown = f"**{ratio:.2f}**" if ratio > 1.1 else f"{ratio:.2f}"
            lines.append(f"| {name} | {ours:.2f} | {theirs:.2f} | {shown} |")
    return "\n".join(lines) + "\n"


_LABEL, _SCALE, _MOST, _ROW = 300, 180, 3.0, 14


def chart(found: list[Group]) -> str:
    """A bar for each case, grouped, with a line at 1.0; bars end at 3, the numbers do not."""
    parts, y = [], 30
    for group in found:
        title = f"{group.title.replace('`', '')}: geometric mean {group.mean:.2f}"
        parts.append(f'<text class="title" x="8" y="{y + 10}">{escape(title)}</text>')
        y += 20
        for name, _, _, ratio in sorted(group.rows, key=lambda row: row[3]):
            width = min(ratio, _MOST) * _SCALE
            kind = "good" if ratio <= 1 else ("near" if ratio <= 1.1 else "slow")
            parts.append(
                f'<text class="label" x="{_LABEL - 6}" y="{y + 10}">{escape(name)}</text>'
                f'<rect class="{kind}" x="{_LABEL}" y="{y + 2}" width="{width:.1f}" height="10"/>'
                f'<text x="{_LABEL + width + 4:.1f}" y="{y + 10}">{ratio:.2f}</text>'
            )
            y += _ROW
        y += 16
    line, width = _LABEL + _SCALE, _LABEL + round(_MOST * _SCALE) + 60
    style = (
        "text{font:11px sans-serif;fill:#333}.label{text-anchor:end}.title{font-weight:bold}"
        ".good{fill:#3a8f5c}.near{fill:#d9a62e}.slow{fill:#c0504d}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
        f'viewBox="0 0 {width} {y}">\n<style>{style}</style>\n'
        f'<rect width="{width}" height="{y}" fill="#fff"/>\n'
        f'<text x="{line}" y="14" text-anchor="middle">as fast as PyTorch</text>\n'
        + "\n".join(parts)
        + f'\n<line x1="{line}" y1="20" x2="{line}" y2="{y}" stroke="#333" '
        'stroke-dasharray="4 3"/>\n'
        "</svg>\n"
    )


def main() -> int:
    """Measure, unless there are results, and write the page and the chart."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", default="1", help="numbers of threads, comma-separated")
    parser.add_argument("--quick", action="store_true", help="three samples of each")
    parser.add_argument("--note", default="", help="a sentence for the page")
    parser.add_argument("--from", dest="directory", metavar="DIRECTORY", help="do not measure")
    options = parser.parse_args()
    directory = Path(options.directory or _TOP / "build" / "bench")
    if options.directory is None:
        measure(
            directory, [int(n) for n in options.threads.split(",")], options.quick, options.note
        )
    found = groups(directory)
    if not found:
        print(f"{directory} has no results: run without --from")
        return 2
    details: dict[str, Any] = json.loads((directory / "machine.json").read_text(encoding="utf-8"))
    docs = _TOP / "docs"
    (docs / "benchmarks.md").write_text(page(found, details), encoding="utf-8")
    (docs / "benchmarks.svg").write_text(chart(found), encoding="utf-8")
    print(
        f"wrote docs/benchmarks.md and docs/benchmarks.svg: {sum(len(g.rows) for g in found)} cases"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
