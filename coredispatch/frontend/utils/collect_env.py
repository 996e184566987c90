"""``python -m coredispatch.utils.collect_env``: what a bug report should say of the machine."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import NamedTuple

from coredispatch._version import __version__

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main"]

_LIBRARIES = ("numpy", "pluggy", "ml_dtypes", "numba", "scipy", "cupy", "torch")


class SystemEnv(NamedTuple):
    """Details of the installation and of the machine."""

    coredispatch_version: str
    compiled: str
    plugins: tuple[str, ...]
    os: str
    python_version: str
    cpu_count: int | None
    processor: str
    is_cuda_available: bool
    libraries: tuple[str, ...]
    environment: tuple[str, ...]


def get_env_info() -> SystemEnv:
    """The details of this process."""
    import coredispatch
    from coredispatch.registry.dispatch import dispatcher

    coredispatch.plugins.discover()
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    compiled = not str(dispatcher.__file__).endswith(".py")
    return SystemEnv(
        coredispatch_version=__version__,
        compiled="by mypyc" if compiled else "no, interpreted",
        plugins=tuple(f"{p.name} ({p.status})" for p in coredispatch.plugins),
        os=platform.platform(),
        python_version=f"{sys.version.split()[0]} ({platform.architecture()[0]} runtime)",
        cpu_count=os.cpu_count(),
        processor=platform.processor() or platform.machine(),
        is_cuda_available=coredispatch.cuda.is_available(),
        libraries=tuple(found),
        environment=tuple(
            f"{name}={value}"
            for name, value in sorted(os.environ.items())
            if name.startswith(("COREDISPATCH_", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_", "CUDA_"))
        ),
    )


def get_pretty_env_info() -> str:
    """The details as text."""
    env = get_env_info()
    lines = [
        f"coredispatch version: {env.coredispatch_version}",
        f"Hot modules compiled: {env.compiled}",
        f"Is CUDA available: {env.is_cuda_available}",
        f"OS: {env.os}",
        f"Python version: {env.python_version}",
        f"CPU: {env.processor}, {env.cpu_count} cores",
        "",
        "Plugins:",
        *[f"  {plugin}" for plugin in env.plugins],
        "Libraries:",
        *[f"  {library}" for library in env.libraries],
        "Environment:",
        *[f"  {variable}" for variable in env.environment],
    ]
    return "\n".join(lines)


def main() -> None:
    """Print them."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
