"""``jit.save`` and ``jit.load``: a graph with its tensors in a file that holds no code."""

from __future__ import annotations

import copy
import importlib
import json
from typing import Any

from coredispatch._warnings import warn_of_jit
from coredispatch.frontend.jit import runtime  # noqa: F401  declares what graphs may call
from coredispatch.frontend.jit.compiler.annotations import read_type
from coredispatch.frontend.jit.module_hooks import HOOKS, attach, script_hooks
from coredispatch.frontend.jit.script_module import (
    NO_STATE,
    LibraryScriptModule,
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    library_class,
    plain_attributes,
)
from coredispatch.frontend.nn.module import Module, buffers_of
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.ownership import of_library
from coredispatch.frontend.serialization import load as load_file
from coredispatch.frontend.serialization import save as save_file
from coredispatch.frontend.serialization.damaged_programs import told_as_damage
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Graph, GraphError
from coredispatch.graph.storing import (
    from_document,
    read_function,
    read_value,
    stored_value,
    to_document,
)
from coredispatch.graph.targets import library_name
from coredispatch.plugin import Operator, OpError

__all__ = ["load", "save"]


_FORMAT = "coredispatch script 1"


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a traced or loaded module, or function, or a ``Graph``, to ``f`` (a path or a file).

    A graph is loaded as a function that has it as its ``graph``. The file holds graphs as text and
    tensors as :func:`coredispatch.save` writes them; a module in it is loaded without its Python
    class. ``_extra_files`` are texts or bytes by name.
    Raises for a graph that calls what has no name in another process.
    """
    warn_of_jit("save", "switch to `torch.export`")
    write(m, f, _extra_files)


def write(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """What :func:`save` does; the method ``save`` does it without a warning."""
    if isinstance(m, Graph):
        m = _function_of(m)
    if not isinstance(m, (ScriptModule, ScriptFunction)):
        raise OpError(
            f"jit.save takes what jit.trace gives, not {type(m).__name__}",
            fix="trace or script it first, or save its state_dict with coredispatch.save",
        )
    tensors = _Tensors()
    root = m if isinstance(m, ScriptModule) else m._constants
    document = {
        "format": _FORMAT,
        "kind": "module" if isinstance(m, ScriptModule) else "function",
        "name": m.original_name if isinstance(m, ScriptModule) else m.name,
        "module": _described(root, tensors, ""),
        "graph": None if isinstance(m, ScriptModule) else to_document(m.graph),
    }
    extra = {
        name: data if isinstance(data, bytes) else str(data).encode()
        for name, data in (_extra_files or {}).items()
    }
    content = {"script": json.dumps(document), "tensors": dict(tensors), "extra": extra}
    save_file(content, f)


def _function_of(graph: Graph) -> ScriptFunction[..., Any]:
    """A copy of the graph, with the attributes that it reads, as a function."""
    copied: Graph = copy.deepcopy(graph)
    owner = graph.owning_module
    return ScriptFunction(copied, "forward", owner if isinstance(owner, Module) else Module())


class _Tensors(dict[str, Any]):
    """The tensors of a file by path. One tensor is one object there, whatever names it has."""

    def __init__(self) -> None:
        super().__init__()
        self.plain: dict[int, tuple[Tensor, Tensor]] = {}
        self.modules: dict[int, str] = {}

    def add(self, path: str, tensor: Tensor | None, *, history: bool = False) -> None:
        """Enter a tensor, without its history unless asked."""
        if tensor is not None:
            stored = tensor if history else tensor.detach()
            tensor = self.plain.setdefault(id(tensor), (tensor, stored))[1]
        self[path] = tensor


def _described(module: Module, tensors: _Tensors, path: str) -> dict[str, Any]:
    if id(module) in tensors.modules:  # one module under two names stays one
        return {"same": tensors.modules[id(module)]}
    tensors.modules[id(module)] = path
    graph = module._graph if isinstance(module, ScriptModule) else None
    found: dict[str, Any] = {
        "name": getattr(module, "original_name", type(module).__name__),
        "training": module.training,
        "graph": None if graph is None else to_document(graph),
        "parameters": {},
        "buffers": {},
        "modules": {},
    }
    if isinstance(module, ScriptModule):
        found["methods"] = {name: to_document(m) for name, m in module._methods.items()}
    hooks = [(kind, hook) for kind in HOOKS for hook in script_hooks(module, kind)]
    if hooks:
        found["hooks"] = [[kind, hook.name, to_document(hook.graph)] for kind, hook in hooks]
    _describe_state(module, found, tensors, path)
    for name, parameter in module._parameters.items():
        found["parameters"][name] = parameter is not None and parameter.requires_grad
        tensors.add(f"{path}{name}", parameter)
    found["buffers"] = buffers_of(module)
    for name in found["buffers"]:
        tensors.add(f"{path}{name}", module._buffers[name], history=True)
    for name, child in module._modules.items():
        below = None if child is None else _described(child, tensors, f"{path}{name}.")
        found["modules"][name] = below
    return found


def _describe_state(module: Module, found: Any, tensors: _Tensors, path: str) -> None:
    """The plain attributes: of a library module all, else those of types that a program has."""
    library = isinstance(module, LibraryScriptModule)
    names = plain_attributes(module)
    if library:
        members = {**module._parameters, **module._buffers, **module._modules}
        names = [name for name in module.__dict__ if name not in NO_STATE and name not in members]
    used: Any = module.__dict__.get("_attribute_types", {})
    attributes = {}
    for name in names:
        key, mine = f"{path}{name}", dict[str, Tensor]()
        try:
            attributes[name] = _stored_attribute(module.__dict__[name], mine, key)
        except GraphError:
            if library or name in used:
                raise
            continue  # a member of an enumeration, say, whose value no file can hold
        for place, tensor in mine.items():
            tensors.add(place, tensor)
    found["attributes"] = attributes
    if library:
        found["library"] = _library_name(module)


def _library_name(module: Any) -> str:
    """The name of the class of a module of this package, below ``coredispatch``.

    Classes of ``coredispatch.nn`` go by their own name.
    """
    import coredispatch

    cls: type = module._library
    if getattr(coredispatch.nn, cls.__name__, None) is cls:
        return str(cls.__name__)
    name = f"{cls.__module__.replace('.frontend.', '.')}.{cls.__qualname__}".partition(".")[2]
    if _library_class(name) is not cls:
        raise OpError(
            f"{cls.__module__}.{cls.__qualname__} has no public name, so a file cannot name it",
            fix="trace the module, or derive a class from it with a forward of its own",
        )
    return name


def _library_class(name: str) -> Any:
    """The class of this package that a file names, None where there is none."""
    import coredispatch

    path, _, last = name.rpartition(".")
    parts = path.split(".") if path else ["nn"]
    if parts[0] not in ("nn", "ao") or not all(p.isidentifier() and p[0] != "_" for p in parts):
        return None
    try:
        home: Any = importlib.import_module(".".join([coredispatch.__name__, *parts]))
    except ImportError:
        return None
    cls = getattr(home, last, None)
    return cls if isinstance(cls, type) and issubclass(cls, Module) and of_library(cls) else None


def _stored_attribute(value: Any, tensors: dict[str, Tensor], key: str) -> Any:
    if isinstance(value, Tensor):
        tensors[key] = value
        return {"tensor": key}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        value = tuple(value)
    if isinstance(value, (list, tuple)):
        parts = [_stored_attribute(v, tensors, f"{key}.{i}") for i, v in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": parts}
    if isinstance(value, dict):
        pairs = [
            [stored_value(k, key), _stored_attribute(v, tensors, f"{key}.{i}")]
            for i, (k, v) in enumerate(value.items())
        ]
        return {"dict": pairs}
    if isinstance(value, Operator):
        return {"function": {"operator": value.name}}
    if (name := library_name(value)) is not None:
        return {"function": {"library": name}}
    return {"value": stored_value(value, key)}


def _read_attribute(stored: Any, tensors: dict[str, Any]) -> Any:
    ((kind, inside),) = stored.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "list":
        return [_read_attribute(item, tensors) for item in inside]
    if kind == "tuple":
        return tuple(_read_attribute(item, tensors) for item in inside)
    if kind == "dict":
        return {read_value(k): _read_attribute(v, tensors) for k, v in inside}
    if kind == "function":
        return read_function(inside)
    return read_value(inside)


def load(
    f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, **others: Any
) -> Any:
    """Read what :func:`save` wrote. Nothing in the file is executed but operators, when it runs.

    ``map_location`` is that of :func:`coredispatch.load`; ``_extra_files`` is filled with bytes.
    Raises :class:`SerializationError` or ``GraphError`` for a damaged file.
    """
    warn_of_jit("load", "switch to `torch.export`")
    return read(f, map_location, _extra_files)


def read(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None) -> Any:
    """What :func:`load` does; ``pickle`` does it without a warning."""
    content = load_file(f, map_location=map_location, weights_only=True)
    try:
        document = json.loads(content["script"])
        known = document["format"] == _FORMAT
    except (TypeError, KeyError, ValueError, IndexError, RecursionError):
        known = False
    if not known:
        raise OpError(
            "the file holds no traced program",
            fix="read it with coredispatch.load; jit.load reads what jit.save wrote",
        )
    with told_as_damage("jit.save"):
        return _program(document, content, _extra_files)


def _program(document: Any, content: Any, extra: dict[str, Any] | None) -> Any:
    if extra is not None:
        for name in extra:
            data = content["extra"].get(name, b"")  # a text in earlier files
            extra[name] = data.encode() if isinstance(data, str) else data
    seen: dict[int | str, Any] = {}  # tensors by id, modules by path
    made = _built(document["module"], content["tensors"], "", seen)
    if document["kind"] == "module":
        return made
    return ScriptFunction(typed(from_document(document["graph"])), str(document["name"]), made)


def _built(entry: dict[str, Any], tensors: dict[str, Any], path: str, seen: Any) -> Any:
    if "same" in entry:
        return seen[entry["same"]]
    if "library" in entry:
        made: Any = _library_module(entry)
    else:
        made = RecursiveScriptModule(str(entry["name"]))
    seen[path] = made
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
    state = made.__dict__
    for name, stored in entry.get("attributes", {}).items():
        if not (name.isidentifier() and not name.startswith("__")):
            raise OpError(f"{name!r} is no name of an attribute")
        state[name] = _read_attribute(stored, tensors)
        if "library" not in entry:
            state.setdefault("_attribute_types", {})[name] = None
    for name, document in {"forward": entry["graph"], **entry.get("methods", {})}.items():
        if document is not None:
            graph = typed(from_document(document))
            _check_paths(graph, made)
            made._set_method(name, graph)
    for kind, name, document in entry.get("hooks", []):
        if kind not in HOOKS:
            raise OpError(f"there are no hooks of the kind {kind!r}")
        graph = typed(from_document(document))
        _check_paths(graph, made)
        attach(made, kind, graph, str(name))
    return made


def _library_module(entry: dict[str, Any]) -> Any:
    cls = _library_class(str(entry["library"]))
    if cls is None:
        raise OpError(
            f"there is no module class {entry['library']!r}",
            fix="read the file with the release of coredispatch that wrote it",
        )
    kind = library_class(cls)
    made = kind.__new__(kind)
    Module.__init__(made)
    made.__dict__.update(original_name=str(entry["name"]), _graph=None, _function=None, _methods={})
    return made


def typed(graph: Graph) -> Graph:
    """A graph that was read, with the types of its inputs."""
    for node in graph.nodes:
        if node.op in ("placeholder", "output") and node.type is not None:
            node.meta["type"] = read_type(node.type)
    return graph


def _check_paths(graph: Graph, module: Module) -> None:
    """Refuse a graph that reads anything but parameters, buffers and submodules."""
    for node in graph.nodes:
        for inner in node.graphs:
            _check_paths(inner, module)
        if node.op not in ("get_attr", "set_attr", "call_module"):
            continue
        *above, last = node.target.split(".")
        at: Any = module
        for part in above:
            at = at._modules.get(part) if isinstance(at, Module) else None
        members = {} if at is None else {**at._parameters, **at._buffers, "training": True}
        members.update({} if at is None else at.__dict__.get("_attribute_types", {}))
        there = at is not None and (
            last in at._modules if node.op == "call_module" else last in members
        )
        if not there:
            raise OpError(
                f"a graph in the file reads {node.target!r}, which its module does not have",
                fix="the file is damaged; write it again with jit.save",
            )
