"""What there is: the form of the hot modules, plugins, keys, operators and kernels, as plain data.

``coredispatch info`` and ``coredispatch ops`` print these dicts or hand them out as JSON.
"""

from __future__ import annotations

import inspect
import platform
from importlib import metadata
from typing import Any

from coredispatch import _compiled
from coredispatch._version import __version__
from coredispatch.registry import TABLE, Operator, plugins
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.errors import text_of

__all__ = ["info", "operator", "operators", "writes_in_place"]


def info() -> dict[str, Any]:
    """Versions, form, plugins, backends, layouts, layers and the number of operators."""
    plugins.discover()
    s = TABLE.snapshot
    ops = [op for op in s.ops.values() if op.derived_from is None]
    return {
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "dependencies": {name: metadata.version(name) for name in ("numpy", "ml_dtypes", "pluggy")},
        "form": form(),
        "ops": {
            "primitive": sum(op.kind == "primitive" for op in ops),
            "composite": sum(op.kind == "composite" for op in ops),
            "in-place": len(s.ops) - len(ops),
        },
        "layers": _names("layer"),
        "layouts": _names("layout"),
        "backends": [_backend(name) for name in sorted(s.backends)],
        "plugins": [_plugin(plugin) for plugin in plugins],
        "undecided": undecided(),
    }


def undecided() -> list[dict[str, Any]]:
    """Operators and keys for which several plugins have a kernel of the same priority.

    The one that was registered last serves, which depends on the order of loading: the plugins
    should declare priorities. Each item has ``key``, ``ops`` and ``plugins``, of which the first
    serves.
    """
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (op, key, _), kernels in TABLE.snapshot.registrations.items():
        top = [k.plugin for k in kernels if k.priority == kernels[0].priority]
        if len(top) > 1:
            found.setdefault((key, tuple(top)), []).append(op)
    return [
        {"key": key, "ops": sorted(ops), "plugins": list(top)}
        for (key, top), ops in sorted(found.items())
    ]


def form() -> dict[str, Any]:
    """Whether the hot modules run compiled, and if not, why."""
    modules = _compiled.compiled_modules()
    return {
        "compiled": bool(modules) and False not in modules.values(),  # some load when needed
        "modules": modules,
        "note": _compiled.form_note(),
    }


def _names(kind: str) -> list[str]:
    return [key.name for key in TABLE.snapshot.order.highest_first if key.kind == kind]


def _backend(name: str) -> dict[str, Any]:
    s = TABLE.snapshot
    backend, plugin = s.backends[name]
    support = [_support(op, name) for op in s.ops.values() if op.derived_from is None]
    details: dict[str, Any] = {
        "name": name,
        "plugin": plugin,
        "array_type": f"{backend.array_type.__module__}.{backend.array_type.__qualname__}",
        "views": backend.views,
        **{how: support.count(how) for how in ("native", "generic", "composite", "missing")},
        "devices": [],
    }
    try:
        for index in range(backend.device_count()):
            device = {"name": backend.device_name(index), "memory": backend.memory(index)}
            details["devices"].append(device)
        if not details["devices"]:
            details["note"] = backend.device_name()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a broken driver must not hide the rest
        details["note"] = f"{type(error).__name__}: {text_of(error)}"
    return details


def _plugin(plugin: Any) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "version": plugin.version,
        "distribution": plugin.distribution,
        "builtin": plugin.builtin,
        "status": plugin.status,
        "error": plugin.error,
        "hint": plugin.hint,
        "details": {text_of(k): text_of(v) for k, v in plugins.info(plugin.name).items()},
    }


def writes_in_place(backend: Backend) -> bool:
    """Whether a backend has a ``copyto``, by which in-place forms without a kernel are served."""
    return type(backend).copyto is not Backend.copyto


def _support(op: Operator, backend: str) -> str:
    """How `backend` serves `op`.

    ``native``: with a kernel of its own. ``generic``: with one kernel for every op.
    ``composite``: by the op's decomposition. ``copyto``: an in-place form, by the backend's
    ``copyto``, which writes what the functional form gives. ``layout``: not at all, because the op
    only has a meaning for some layouts. ``missing``: not at all.
    """
    s = TABLE.snapshot
    if s.registrations.get((op.name, backend, None)):
        return "native"
    if s.backends[backend][0].generic is not None:
        return "generic"
    if op.decomposition is not None:
        return "composite"
    if op.inplace_of is not None and writes_in_place(s.backends[backend][0]):
        served = _support(op.inplace_of, backend)
        return served if served in ("layout", "missing") else "copyto"
    keys = {key for name, key, _ in s.registrations if name == op.name}
    return "layout" if keys and keys <= s.layouts.keys() else "missing"


def operators() -> list[dict[str, Any]]:
    """Each operator with its kind, its plugin, and how every backend and layout serves it."""
    plugins.discover()
    s = TABLE.snapshot
    listed = []
    for name in sorted(s.ops):
        op = s.ops[name]
        if op.derived_from is not None:
            continue
        own = {row[1] for row in s.registrations if row[0] == name}
        listed.append(
            {
                "name": name,
                "kind": op.kind,
                "plugin": op.plugin,
                "differentiable": op.differentiable,
                "backends": {backend: _support(op, backend) for backend in sorted(s.backends)},
                "layouts": [layout for layout in sorted(s.layouts) if layout in own],
            }
        )
    return listed


def operator(name: str) -> dict[str, Any]:
    """All metadata of one operator's definition, and its kernels with their provenance.

    Raises:
        RegistrationError: there is no such operator; names the closest ones.
    """
    plugins.discover()
    op = TABLE.operator(name)
    s = TABLE.snapshot
    own = op.derived_from or op
    if op.vjp_rule is not None:
        derivative = "vjp"
    elif own.refuses_gradient:
        derivative = "none (a gradient that is wanted is refused)"
    elif not own.differentiable:
        derivative = "none (declared not differentiable)"
    else:
        derivative = "through the decomposition"
    return {
        "name": op.name,
        "kind": op.kind,
        "signature": op.signature,
        "overloads": [other.signature for other in op.overloads],
        "doc": inspect.getdoc(op) or "",
        "plugin": op.plugin,
        "declared": f"{op.file}:{op.line}",
        "derivative": derivative,
        "cast": op.cast,
        "dtypes": op.dtypes if isinstance(op.dtypes, str) else [str(d) for d in op.dtypes],
        "shape_rule": _rule(op.out_rule),
        "dtype_rule": _rule(op.dtype_rule),
        "view": op.view,
        "mutates": [
            mutation.name + (" (conditionally)" if mutation.when else "")
            for mutation in op.schema.mutations
        ],
        "alias": list(op.alias),
        "method": op.method,
        "namespaces": list(op.namespaces),
        "inplace": op.inplace_op.name if op.inplace_op is not None else None,
        "functional": op.functional.name if op.functional is not None else None,
        "backends": {backend: _support(op, backend) for backend in sorted(s.backends)},
        "kernels": [
            _kernel(k) for row, ks in s.registrations.items() if row[0] == name for k in ks
        ],
    }


def _rule(rule: Any) -> str | None:
    return None if rule is None else getattr(rule, "__name__", None) or str(rule)


def _kernel(kernel: Any) -> dict[str, Any]:
    return {
        "key": kernel.key,
        "backend": kernel.backend,
        "plugin": kernel.plugin,
        "version": kernel.version,
        "where": kernel.where,
        "priority": kernel.priority,
        "conditional": kernel.when is not None,
    }
