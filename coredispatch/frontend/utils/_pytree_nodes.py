"""The containers that trees are made of: how each is taken apart, and what leads to its parts.

The names are public as those of :mod:`coredispatch.utils._pytree`.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

__all__ = [
    "BUILTIN_TYPES",
    "SUPPORTED_NODES",
    "Context",
    "DictKey",
    "FlattenFunc",
    "GetAttrKey",
    "KeyPath",
    "MappingKey",
    "NodeDef",
    "SequenceKey",
    "UnflattenFunc",
    "register_dataclass",
    "register_pytree_node",
]

Context = Any
FlattenFunc = Callable[[Any], tuple[list[Any], Any]]
UnflattenFunc = Callable[[Iterable[Any], Any], Any]


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """The place of a child in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The child."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """The key of a child in a mapping."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child."""
        return mapping[self.key]


DictKey = MappingKey


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """The name of a child that is an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The child."""
        return getattr(obj, self.name)


KeyPath = tuple[Any, ...]


class NodeDef(NamedTuple):
    """How a type of container is taken apart and put together."""

    type: type
    flatten_fn: FlattenFunc
    unflatten_fn: UnflattenFunc
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None


SUPPORTED_NODES: dict[Any, NodeDef] = {}


def register_pytree_node(
    cls: type,
    flatten_fn: FlattenFunc,
    unflatten_fn: UnflattenFunc,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Make ``cls`` a container: ``flatten_fn(obj)`` gives ``(children, context)``,
    ``unflatten_fn(children, context)`` an object.

    ``serialized_type_name`` is the name of the class in the texts of :func:`treespec_dumps`, where
    the context is what ``to_dumpable_context`` makes of it. Raises :class:`ValueError` for a class
    that is registered already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(
            f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or "
            "registered."
        )
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    if serialized_type_name is not None:
        from coredispatch.frontend.utils._pytree_json import serialized_names

        known = (serialized_type_name, to_dumpable_context, from_dumpable_context)
        serialized_names[cls] = known


_register_pytree_node = register_pytree_node


def register_dataclass(
    cls: type,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Make the dataclass ``cls`` a container of its fields, without ``drop_field_names``."""
    if not dataclasses.is_dataclass(cls):
        raise ValueError(f"Only dataclasses can be registered with this function: {cls}")
    dropped = set(drop_field_names or ())
    known = [f.name for f in dataclasses.fields(cls) if f.init]
    names = [n for n in (known if field_names is None else field_names) if n not in dropped]

    def flatten(obj: Any) -> tuple[list[Any], Any]:
        return [getattr(obj, name) for name in names], None

    def keyed(obj: Any) -> tuple[list[tuple[Any, Any]], Any]:
        return [(GetAttrKey(name), getattr(obj, name)) for name in names], None

    register_pytree_node(
        cls,
        flatten,
        lambda children, _: cls(**dict(zip(names, children, strict=True))),
        flatten_with_keys_fn=keyed,
    )


def _is_namedtuple(obj: Any) -> bool:
    cls = obj if isinstance(obj, type) else type(obj)
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


is_namedtuple = is_namedtuple_class = is_namedtuple_instance = _is_namedtuple


def is_structseq_class(cls: Any) -> bool:
    """Whether ``cls`` is a named tuple that Python itself made, such as ``time.struct_time``."""
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(
            isinstance(getattr(cls, fact, None), int)
            for fact in ("n_fields", "n_sequence_fields", "n_unnamed_fields")
        )
        and not cls.__flags__ & _SUBCLASSABLE
    )


def is_structseq_instance(obj: Any) -> bool:
    """Whether ``obj`` is of such a class."""
    return is_structseq_class(type(obj))


def is_structseq(obj: Any) -> bool:
    """Whether ``obj`` is such a class or of one."""
    return is_structseq_class(obj) or is_structseq_instance(obj)


#: CPython's flag of types that can have subclasses
_SUBCLASSABLE = 1 << 10


def _sequence(make: Callable[[Iterable[Any]], Any]) -> tuple[Any, Any, Any]:
    return (
        lambda obj: (list(obj), None),
        lambda children, _: make(children),
        lambda obj: ([(SequenceKey(i), child) for i, child in enumerate(obj)], None),
    )


def _mapping_keys(obj: Any) -> list[tuple[Any, Any]]:
    return [(MappingKey(key), child) for key, child in obj.items()]


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    """The values, and the keys: how a dict is taken apart."""
    return list(d.values()), list(d)


def _dict_unflatten(values: Iterable[Any], context: list[Any]) -> dict[Any, Any]:
    """The dict of these values and keys."""
    return dict(zip(context, values, strict=True))


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """The values with their places, and the keys."""
    return _mapping_keys(d), list(d)


def _list_flatten(d: list[Any]) -> tuple[list[Any], None]:
    """The elements: how a list is taken apart."""
    return list(d), None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    """The list of these elements."""
    return list(values)


def _list_flatten_with_keys(d: list[Any]) -> tuple[list[tuple[Any, Any]], None]:
    """The elements with their places."""
    return [(SequenceKey(i), child) for i, child in enumerate(d)], None


_tuple_flatten, _tuple_flatten_with_keys = _list_flatten, _list_flatten_with_keys


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    """The tuple of these elements."""
    return tuple(values)


def _register_builtins() -> None:
    def add(cls: type, flatten: Any, unflatten: Any, keyed: Any) -> None:
        register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=keyed)

    def default(obj: Any) -> Any:
        return [obj.default_factory, list(obj)]

    add(tuple, *_sequence(tuple))
    add(list, *_sequence(list))
    add(
        dict,
        _dict_flatten,
        _dict_unflatten,
        _dict_flatten_with_keys,
    )
    add(
        OrderedDict,
        lambda obj: (list(obj.values()), list(obj)),
        lambda children, keys: OrderedDict(zip(keys, children, strict=True)),
        lambda obj: (_mapping_keys(obj), list(obj)),
    )
    add(
        defaultdict,
        lambda obj: (list(obj.values()), default(obj)),
        lambda children, known: defaultdict(known[0], zip(known[1], children, strict=True)),
        lambda obj: (_mapping_keys(obj), default(obj)),
    )
    add(
        deque,
        lambda obj: (list(obj), obj.maxlen),
        lambda children, maxlen: deque(children, maxlen=maxlen),
        lambda obj: ([(SequenceKey(i), child) for i, child in enumerate(obj)], obj.maxlen),
    )
    # Under their factory, as in PyTorch: one entry for all classes of named tuples.
    add(
        namedtuple,  # type: ignore[arg-type]
        lambda obj: (list(obj), type(obj)),
        lambda children, cls: cls(*children),
        lambda obj: (
            [(GetAttrKey(name), child) for name, child in zip(obj._fields, obj, strict=True)],
            type(obj),
        ),
    )


_register_builtins()
BUILTIN_TYPES: frozenset[Any] = frozenset(SUPPORTED_NODES)


def _node_type(tree: Any) -> Any:
    """The registered type that takes ``tree`` apart, or None for a leaf."""
    kind = type(tree)
    if kind in SUPPORTED_NODES:
        return kind
    return namedtuple if _is_namedtuple(tree) else None
