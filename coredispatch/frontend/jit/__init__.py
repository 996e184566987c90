"""``coredispatch.jit``: programs as graphs, by tracing; what they say to a compiler of scripts.

``trace`` runs a module or function on an example and keeps the operators that it called;
``script`` compiles the source of a module, function or class; ``save`` and ``load`` write and read
the result, which runs without the Python class.
"""

from __future__ import annotations

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
from coredispatch.frontend.jit.scripting import script, script_method
from coredispatch.frontend.jit.trace import TracerWarning, TracingCheckError, trace, trace_module
from coredispatch.graph.objects import ScriptError as Error

__all__ = [
    "Attribute",
    "Error",
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
