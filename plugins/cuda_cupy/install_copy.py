"""coredispatch, this plugin and those it has rows for, in a folder, without pip or a compiler.

    python plugins/cuda_cupy/install_copy.py build/gpu

``make gpu-install`` calls it where packages cannot be built: a machine with a GPU may have Python
and CuPy alone, and no index to ask for more. The hot modules stay interpreted then.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _entry_points(project: dict[str, object]) -> str:
    groups = dict(project.get("entry-points", {}))  # type: ignore[call-overload]
    groups["console_scripts"] = project.get("scripts", {})
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items()), ""]
    return "\n".join(lines)


def install(folder: Path, source: Path, packages: dict[str, Path], version: str) -> None:
    """Copy ``packages`` (name to folder) and write the metadata of ``source``'s project.

    Args:
        folder: what will be on the path
        source: the folder of a pyproject.toml
        packages: where each package lies; a dotted name goes into the one before the dot
        version: that of the project
    """
    leave = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    for name, place in packages.items():
        shutil.copytree(place, folder.joinpath(*name.split(".")), ignore=leave, dirs_exist_ok=True)
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = project["name"].replace("-", "_")
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
    (metadata / "METADATA").write_text(head, encoding="utf-8")
    (metadata / "entry_points.txt").write_text(_entry_points(project), encoding="utf-8")


def main(folder: Path) -> None:
    """Make ``folder`` anew."""
    shutil.rmtree(folder, ignore_errors=True)
    text = (ROOT / "coredispatch" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "(.+)"', text)
    assert found is not None
    suite = ROOT / "tests" / "conformance"
    core = {"coredispatch": ROOT / "coredispatch", "coredispatch.conformance": suite}
    install(folder, ROOT, core, found.group(1))
    for name in ("cuda_cupy", "sparse", "quant"):
        plugin, package = ROOT / "plugins" / name, f"coredispatch_{name}"
        install(folder, plugin, {package: plugin / package}, found.group(1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
