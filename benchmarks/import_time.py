"""What `import coredispatch` costs, and which packages it brings in. Reported, not judged.

    python benchmarks/import_time.py [--runs 20] [--modules 15]

Every run is a fresh process. "own" is the time after NumPy, pluggy and ml_dtypes are imported,
"all" includes them. The aim is a quarter of a second for all of it; the
tests bound what an import does instead (tests/meta/test_import_contract.py).
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys

PROGRAM = """
import sys, time
before = set(sys.modules)
start = time.perf_counter()
import numpy, pluggy, ml_dtypes
middle = time.perf_counter()
import coredispatch
end = time.perf_counter()
new = {name.partition(".")[0] for name in set(sys.modules) - before}
outside = sorted(n for n in new if n not in sys.stdlib_module_names and not n.startswith("_"))
print(end - start, end - middle, ",".join(outside))
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter like this one."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def slowest_modules(count: int) -> list[tuple[float, str]]:
    """``(milliseconds of its own, module)`` of coredispatch's modules, slowest first."""
    found = []
    for line in python("-X", "importtime", "-c", "import coredispatch").stderr.splitlines():
        match = re.match(r"import time:\s+(\d+) \|\s+\d+ \|\s+(coredispatch\S*)", line)
        if match:
            found.append((int(match[1]) / 1000, match[2]))
    return sorted(found, reverse=True)[:count]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--modules", type=int, default=15, help="how many modules to list")
    options = parser.parse_args()
    rows = [python("-c", PROGRAM).stdout.split() for _ in range(options.runs)]
    for name, column in (("all", 0), ("own", 1)):
        times = sorted(1000 * float(row[column]) for row in rows)
        print(
            f"import coredispatch, {name}: best {times[0]:.0f} ms, "
            f"median {statistics.median(times):.0f} ms of {len(times)} runs"
        )
    print(f"packages beside the standard library: {rows[0][2].replace(',', ', ')}")
    print("\nslowest modules (milliseconds of their own, as -X importtime counts):")
    for milliseconds, module in slowest_modules(options.modules):
        print(f"{milliseconds:8.1f}  {module}")


if __name__ == "__main__":
    main()
