"""``jit.save`` and ``jit.load``: a graph with its tensors in a file that holds no code."""

from __future__ import annotations

import json
from typing import Any

from coredispatch.frontend.jit.script_module import (
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
)
from coredispatch.frontend.nn.module import Module, buffers_of
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.serialization import load as load_file
from coredispatch.frontend.serialization import save as save_file
from coredispatch.graph import Graph
from coredispatch.graph.storing import from_document, to_document
from coredispatch.plugin import OpError

__all__ = ["load", "save"]

_FORMAT = "coredispatch script 1"


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a traced or loaded module, or function, to ``f`` (a path or a file).

    The file holds the graphs as text and the tensors as :func:`coredispatch.save` writes them; a
    module in it is loaded without its Python class. ``_extra_files`` are texts or bytes by name.
    Raises for a graph that calls what has no name in another process.
    """
    if not isinstance(m, (ScriptModule, ScriptFunction)):
        raise OpError(
            f"jit.save takes what jit.trace gives, not {type(m).__name__}",
            fix="trace it first, or save its state_dict with coredispatch.save",
        )
    tensors: dict[str, Any] = {}
    root = m if isinstance(m, ScriptModule) else m._constants
    document = {
        "format": _FORMAT,
        "kind": "module" if isinstance(m, ScriptModule) else "function",
        "name": m.original_name if isinstance(m, ScriptModule) else m.name,
        "module": _described(root, tensors, ""),
        "graph": None if isinstance(m, ScriptModule) else to_document(m.graph),
    }
    extra = {
        name: text.decode() if isinstance(text, bytes) else str(text)
        for name, text in (_extra_files or {}).items()
    }
    save_file({"script": json.dumps(document), "tensors": tensors, "extra": extra}, f)


def _described(module: Module, tensors: dict[str, Any], path: str) -> dict[str, Any]:
    graph = module._graph if isinstance(module, ScriptModule) else None
    found: dict[str, Any] = {
        "name": getattr(module, "original_name", type(module).__name__),
        "training": module.training,
        "graph": None if graph is None else to_document(graph),
        "parameters": {},
        "buffers": {},
        "modules": {},
    }
    for name, parameter in module._parameters.items():
        found["parameters"][name] = parameter is not None and parameter.requires_grad
        tensors[f"{path}{name}"] = None if parameter is None else parameter.detach()
    found["buffers"] = buffers_of(module)
    for name in found["buffers"]:
        tensors[f"{path}{name}"] = module._buffers[name]
    for name, child in module._modules.items():
        below = None if child is None else _described(child, tensors, f"{path}{name}.")
        found["modules"][name] = below
    return found


def load(
    f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, **others: Any
) -> Any:
    """Read what :func:`save` wrote. Nothing in the file is executed but operators, when it runs.

    ``map_location`` is that of :func:`coredispatch.load`; ``_extra_files`` is filled in.
    Raises :class:`SerializationError` or ``GraphError`` for a damaged file.
    """
    content = load_file(f, map_location=map_location, weights_only=True)
    try:
        document = json.loads(content["script"])
        known = document["format"] == _FORMAT
    except (TypeError, KeyError, ValueError):
        known = False
    if not known:
        raise OpError(
            "the file holds no traced program",
            fix="read it with coredispatch.load; jit.load reads what jit.save wrote",
        )
    if _extra_files is not None:
        for name in _extra_files:
            _extra_files[name] = content["extra"].get(name, "")
    seen: dict[int, Any] = {}
    if document["kind"] == "module":
        return _built(document["module"], content["tensors"], "", seen)
    holder = _built(document["module"], content["tensors"], "", seen)
    return ScriptFunction(from_document(document["graph"]), str(document["name"]), holder)


def _built(entry: dict[str, Any], tensors: dict[str, Any], path: str, seen: Any) -> Any:
    graph = None if entry["graph"] is None else from_document(entry["graph"])
    made = RecursiveScriptModule(str(entry["name"]), graph)
    for name, wanted in entry["parameters"].items():
        tensor = tensors[f"{path}{name}"]
        if tensor is not None and id(tensor) not in seen:  # two names of one tensor stay one
            seen[id(tensor)] = Parameter(tensor, requires_grad=bool(wanted))
        made.register_parameter(name, None if tensor is None else seen[id(tensor)])
    for name, persistent in entry["buffers"].items():
        made.register_buffer(name, tensors[f"{path}{name}"], bool(persistent))
    for name, child in entry["modules"].items():
        below = f"{path}{name}."
        made.add_module(name, None if child is None else _built(child, tensors, below, seen))
    made.training = bool(entry["training"])
    if graph is not None:
        _check_paths(graph, made)
    return made


def _check_paths(graph: Graph, module: Module) -> None:
    """Refuse a graph that reads anything but parameters, buffers and submodules."""
    for node in graph.nodes:
        for inner in node.graphs:
            _check_paths(inner, module)
        if node.op not in ("get_attr", "call_module"):
            continue
        *above, last = node.target.split(".")
        at: Any = module
        for part in above:
            at = at._modules.get(part) if isinstance(at, Module) else None
        members = {} if at is None else {**at._parameters, **at._buffers}
        there = at is not None and (
            last in at._modules if node.op == "call_module" else last in members
        )
        if not there:
            raise OpError(
                f"a graph in the file reads {node.target!r}, which its module does not have",
                fix="the file is damaged; write it again with jit.save",
            )
