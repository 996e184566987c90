"""``coredispatch run script.py [args]``: an unmodified script whose ``torch`` is coredispatch."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from coredispatch.compat.torch.switch import BOOTSTRAP, install

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run a script or, with ``-m``, a module; what it raises goes on, as under ``python``."""
    parser = argparse.ArgumentParser(
        prog="coredispatch run",
        usage="coredispatch run [-h] (script.py | -m module) [args ...]",
        description="Run a script or a module that was written for PyTorch; `import torch` means "
        "coredispatch, here and in the Python processes that the script starts.",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module by its name")
    parser.add_argument("program", help="the script, or the module's name")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="sys.argv of the script")
    # What follows the program's name is the program's own, also where it looks like an option.
    options = parser.parse_args(arguments)
    if not options.module and not os.path.exists(options.program):
        parser.error(f"there is no file {options.program!r}")
    paths = [BOOTSTRAP, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    install()
    sys.argv = [options.program, *options.args]
    if options.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(options.program)))
        _run_script(options.program)
    return 0


def _run_script(path: str) -> None:
    """Run the file as ``__main__``, the module itself: pickle and multiprocessing look there."""
    import types

    with open(path, "rb") as file:
        code = compile(file.read(), os.path.abspath(path), "exec")
    main_module = types.ModuleType("__main__")
    main_module.__file__ = os.path.abspath(path)  # as Python itself says since 3.9
    main_module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main_module
    exec(code, main_module.__dict__)
