"""The tests that other machines may fail, as on these machines: ``make test-machines``.

    python tests/machines/run.py [SETTING ...] [--list] [--conformance] [--keep-going ...]

BLAS libraries, NumPy's and Numba's loops round differently from processor to processor, and a
machine may be busy or without a compiler. Each setting stands in for one such machine; what this
one cannot stand in for is skipped, and it says why. The output is in build/machines.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))

from stand_ins import SETTINGS, Setting, Unavailable

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "machines"
#: what depends on rounding, on compiled loops, or on how long something takes
TESTS = ("tests/unit", "plugins", "tests/meta/test_no_clocks.py")
TESTS += ("tests/meta/test_conformance_selftest.py", "tests/meta/test_conformance_orders.py")
#: and on how the package is built
BUILDING = ("tests/integration/test_packaging.py", "tests/unit/test_cli.py")
#: with --conformance: what is certified, as (plugins, arguments)
CERTIFIED = (
    ("none", "--backend cpu --level training"),
    ("cpu_numba", "--backend cpu --level training"),
)


def commands(setting: Setting, conformance: bool, options: Sequence[str]) -> list[list[str]]:
    """The command lines of one setting."""
    tests = BUILDING if setting.name == "no-compiler" else TESTS
    slow = [] if setting.name == "no-compiler" else ["-m", "not slow"]
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=1200"]
    found = [[*pytest, *slow, *tests, *options]]
    if conformance:
        suite = [sys.executable, "-m", "coredispatch.cli", "conformance", "run", "--quiet"]
        found += [
            ["env", f"COREDISPATCH_PLUGINS={plugins}", *suite, *arguments.split()]
            for plugins, arguments in CERTIFIED
        ]
    return found


def run(setting: Setting, conformance: bool, options: Sequence[str]) -> str:
    """Run one setting: ``passed``, or what is wrong."""
    log = LOGS / f"{setting.name}.log"
    with TemporaryDirectory() as folder, setting.enter(Path(folder)) as variables:
        environment = {**os.environ, **variables}
        with log.open("w") as out:
            for command in commands(setting, conformance, options):
                print(f"$ {' '.join(command)}", file=out, flush=True)
                done = subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
                if done.returncode:
                    return f"FAILED, see {log.relative_to(ROOT)}"
    return "passed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 where a setting fails."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="Other options go to pytest."
    )
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("setting", nargs="*", help=f"among {', '.join(names)}; all of them")
    parser.add_argument("--list", action="store_true", help="say what can be had here, run nothing")
    parser.add_argument("--conformance", action="store_true", help="certify the CPU backends, too")
    options, rest = parser.parse_known_args(arguments)
    unknown = set(options.setting) - set(names)
    if unknown:
        parser.error(f"there is no setting {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    failed = False
    for setting in SETTINGS:
        if options.setting and setting.name not in options.setting:
            continue
        print(f"{setting.name:<20} {setting.about:<46} ", end="", flush=True)
        try:
            if options.list:
                with TemporaryDirectory() as folder, setting.enter(Path(folder)):
                    outcome = "can be had here"
            else:
                outcome = run(setting, options.conformance, rest)
        except Unavailable as why:
            outcome = f"skipped: {why}"
        failed |= outcome.startswith("FAILED")
        print(outcome, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
