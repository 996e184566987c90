"""``cd.__config__``: what this installation computes with."""

from __future__ import annotations

import os
import platform

import numpy as np

from coredispatch import _compiled
from coredispatch._version import __version__
from coredispatch.backends.numpy import blas_threads
from coredispatch.registry.around.loader import plugins
from coredispatch.registry.around.threads import (
    VARIABLES,
    get_num_interop_threads,
    get_num_threads,
)
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The versions and settings of coredispatch, NumPy, its BLAS, the plugins and the devices."""
    from coredispatch.frontend.backends.cpu import get_cpu_capability

    plugins.discover()
    lines = [f"coredispatch {__version__} with:"]
    lines.append(f"  - Python {platform.python_version()} on {platform.platform()}")
    lines.append(f"  - hot modules: {_form()}")
    lines.append(f"  - NumPy {np.__version__}")
    lines += [f"  - BLAS: {line}" for line in blas_threads.describe()]
    lines.append(f"  - CPU capability usage: {get_cpu_capability()}")
    for plugin in sorted(plugins, key=lambda p: p.name):
        if not plugin.builtin:
            lines.append(f"  - plugin {plugin.name} {plugin.version}: {plugin.status}")
    for name, (backend, _) in sorted(TABLE.snapshot.backends.items()):
        count = backend.device_count()
        lines.append(f"  - backend {name}: {count} device{'' if count == 1 else 's'}")
    return "\n".join(lines) + "\n"


def _form() -> str:
    return "compiled" if False not in _compiled.compiled_modules().values() else "interpreted"


def parallel_info() -> str:
    """The numbers of threads, who obeys them, and the variables that set them at first."""
    lines = ["coredispatch/Parallel:"]
    lines.append(f"\tget_num_threads() : {get_num_threads()}")
    lines.append(f"\tget_num_interop_threads() : {get_num_interop_threads()}")
    lines += [f"\t{line}" for line in blas_threads.describe()]
    obeying = ", ".join(sorted(TABLE.snapshot.thread_pools))
    lines.append(f"thread pools that obey set_num_threads: {obeying}")
    lines.append(f"os.cpu_count() : {os.cpu_count()}")
    lines.append("Environment variables:")
    lines += [f"\t{name} : {os.environ.get(name, '[not set]')}" for name in VARIABLES]
    return "\n".join(lines) + "\n"
