"""``coredispatch.jit``: programs as graphs, by tracing; what they say to a compiler of scripts.

``trace`` runs a module or function on an example and keeps the operators that it called;
``save`` and ``load`` write and read the result, which runs without the Python class.
``script`` is not there yet: what a program asks of it fails by name.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.jit.markers import (
    Attribute,
    Final,
    annotate,
    export,
    fork,
    ignore,
    interface,
    is_scripting,
    is_tracing,
    isinstance,
    script_if_tracing,
    unused,
    wait,
)
from coredispatch.frontend.jit.saving import load, save
from coredispatch.frontend.jit.script_module import (
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    TopLevelTracedModule,
)
from coredispatch.frontend.jit.trace import TracerWarning, TracingCheckError, trace, trace_module

__all__ = [
    "Attribute",
    "Final",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TopLevelTracedModule",
    "TracerWarning",
    "TracingCheckError",
    "annotate",
    "export",
    "fork",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "trace_module",
    "unused",
    "wait",
]


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile the source of ``obj``. Not there yet: raises ``NotImplementedError``."""
    if isinstance(obj, (ScriptModule, ScriptFunction)):
        return obj
    raise NotImplementedError(
        "coredispatch.jit.script is not there yet; use jit.trace for programs whose Python control "
        "flow does not depend on values, or run the module as it is"
    )


def script_method(fn: Any) -> Any:
    """Compile a method. Not there yet: raises ``NotImplementedError``."""
    return script(fn)
