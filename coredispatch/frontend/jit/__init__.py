"""``coredispatch.jit``: programs as graphs, by tracing; what they say to a compiler of scripts.

``trace`` runs a module or function on an example and keeps the operators that it called;
``script`` compiles the source of a module, function or class; ``save`` and ``load`` write and read
the result, which runs without the Python class.
"""

from __future__ import annotations

from coredispatch.frontend.futures import Future
from coredispatch.frontend.jit.freezing import (
    freeze,
    optimize_for_inference,
    run_frozen_optimizations,
)
from coredispatch.frontend.jit.fusion import (
    enable_onednn_fusion,
    onednn_fusion_enabled,
    optimized_execution,
    set_fusion_strategy,
    strict_fusion,
)
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
from coredispatch.frontend.jit.overloads import _overload, _overload_method
from coredispatch.frontend.jit.saving import load, save
from coredispatch.frontend.jit.script_module import (
    CompilationUnit,
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    TopLevelTracedModule,
    export_opnames,
)
from coredispatch.frontend.jit.scripting import script, script_method
from coredispatch.frontend.jit.trace import TracerWarning, TracingCheckError, trace, trace_module
from coredispatch.graph.objects import ScriptError as Error

__all__ = [
    "Attribute",
    "CompilationUnit",
    "Error",
    "Final",
    "Future",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TopLevelTracedModule",
    "TracerWarning",
    "TracingCheckError",
    "_overload",
    "_overload_method",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "export_opnames",
    "fork",
    "freeze",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimized_execution",
    "optimize_for_inference",
    "run_frozen_optimizations",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]
