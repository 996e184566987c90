"""Backends of ``third_party/`` as installed plugins: found by entry point, judged by the suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "third_party"


def installed(name: str, module: str, folder: Path) -> dict[str, str]:
    """The environment of a program that finds ``module`` as the plugin ``name``.

    Intel's OpenCL runtime is chosen where it is installed and nobody chose one, because pocl has no
    compiler for some processors.
    """
    details = folder / f"third_party_{name}-1.0.dist-info"
    details.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: third-party-{name}\nVersion: 1.0\n"
    (details / "METADATA").write_text(metadata)
    (details / "entry_points.txt").write_text(f"[coredispatch.plugins]\n{name} = {module}\n")
    paths = [str(folder), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    intel = Path(sys.prefix) / "lib" / "libintelocl.so"
    vendors = {"OCL_ICD_VENDORS": str(intel)} if intel.exists() else {}
    return vendors | os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "COREDISPATCH_PLUGINS": name,
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def run(environment: dict[str, str], *command: str) -> str:
    """Run Python with ``command``; what it printed, if it ended well."""
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def certify(environment: dict[str, str], *options: str) -> None:
    """Ask that the conformance suite finds nothing; the verdict stands in the failure."""
    run(environment, "-m", "coredispatch", "conformance", "run", "--quiet", *options)


def only(*ops: str) -> list[str]:
    """The options that keep a run to these operators."""
    return [option for op in ops for option in ("--op", op)]
