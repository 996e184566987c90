"""The structure of a tree as text: JSON in the form that PyTorch writes and reads (protocol 1)."""

from __future__ import annotations

import builtins
import json
from collections import defaultdict, namedtuple
from typing import Any

from coredispatch.frontend.utils._pytree import SUPPORTED_NODES, LeafSpec, TreeSpec

__all__ = ["named_tuples", "serialized_names", "treespec_dumps", "treespec_loads"]

_PROTOCOL = 1
#: class -> (name, context to JSON or None, context from JSON or None)
serialized_names: dict[Any, tuple[str, Any, Any]] = {}
#: name -> class of named tuples
named_tuples: dict[str, Any] = {}
#: what a ``defaultdict`` in a text may be made with
_FACTORIES = {"int", "float", "complex", "bool", "str", "list", "dict", "set", "tuple"}


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """``treespec`` as JSON. Raises ``NotImplementedError`` for a class without a name in files."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"treespec_dumps(treespec, protocol): Expected `treespec` to be instance of TreeSpec "
            f"but got item of type {type(treespec)}."
        )
    _check_protocol(_PROTOCOL if protocol is None else protocol)
    return json.dumps((_PROTOCOL, _dumped(treespec)))


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that :func:`treespec_dumps` wrote. Runs no code of the text's choosing."""
    protocol, found = json.loads(serialized)
    _check_protocol(protocol)
    return _loaded(found)


def _check_protocol(protocol: Any) -> None:
    if protocol != _PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")


def _dumped(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    if spec.type not in serialized_names:
        raise NotImplementedError(
            f"No registered serialization name for {spec.type} found. Please update your "
            "_register_pytree_node call with a `serialized_type_name` kwarg."
        )
    name, to_json, _ = serialized_names[spec.type]
    try:
        context = json.dumps(spec.context) if to_json is None else to_json(spec.context)
    except TypeError as error:
        raise TypeError(
            "Unable to serialize context. Please make the context json dump-able, or register a "
            "custom serializer using _register_pytree_node."
        ) from error
    children = [_dumped(child) for child in spec.children_specs]
    return {"type": name, "context": context, "children_spec": children}


def _loaded(found: dict[str, Any]) -> TreeSpec:
    if found["type"] is None:
        return LeafSpec()
    for kind, (name, _, from_json) in serialized_names.items():
        if name == found["type"]:
            context = found["context"]
            context = json.loads(context) if from_json is None else from_json(context)
            return TreeSpec(kind, context, [_loaded(child) for child in found["children_spec"]])
    raise NotImplementedError(f"Deserializing {found['type']} in pytree is not registered.")


def _default_to_json(context: Any) -> dict[str, Any]:
    factory, keys = context
    return {
        "default_factory_module": factory.__module__,
        "default_factory_name": factory.__qualname__,
        "dict_context": keys,
    }


def _default_from_json(found: dict[str, Any]) -> list[Any]:
    module, name = found["default_factory_module"], found["default_factory_name"]
    if module != "builtins" or name not in _FACTORIES:
        raise NotImplementedError(f"a defaultdict of {module}.{name} is not read from a text")
    return [getattr(builtins, name), found["dict_context"]]


def _tuple_to_json(cls: Any) -> str:
    for name, known in named_tuples.items():
        if known is cls:
            return name
    raise NotImplementedError(
        f"Can't serialize TreeSpec of namedtuple class {cls} because we didn't register a "
        "serializated_type_name. Please register using `_register_namedtuple`."
    )


def _tuple_from_json(name: str) -> Any:
    if name not in named_tuples:
        raise NotImplementedError(
            f"Can't deserialize TreeSpec of namedtuple class {name} because we couldn't find a "
            "serializated name."
        )
    return named_tuples[name]


for _kind in SUPPORTED_NODES:
    serialized_names[_kind] = (f"{_kind.__module__}.{_kind.__name__}", None, None)
serialized_names[defaultdict] = ("collections.defaultdict", _default_to_json, _default_from_json)
serialized_names[namedtuple] = ("collections.namedtuple", _tuple_to_json, _tuple_from_json)
