"""Trees of Python containers, flattened into a list of leaves and rebuilt: ``torch.utils._pytree``.

A tree is a leaf, or a container of trees: tuple, list, dict, named tuple, ``OrderedDict``,
``defaultdict``, ``deque``, and whatever was registered with :func:`register_pytree_node`. None is
a leaf, as in PyTorch, and dicts keep the order of their keys::

    >>> leaves, spec = tree_flatten({"a": 1, "b": (2, 3)})
    >>> leaves
    [1, 2, 3]
    >>> tree_unflatten([10, 20, 30], spec)
    {'a': 10, 'b': (20, 30)}
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

# Programs use the names that begin with an underscore, too.
from coredispatch.frontend.utils._pytree_nodes import (  # noqa: F401
    _SUBCLASSABLE,
    BUILTIN_TYPES,
    SUPPORTED_NODES,
    Context,
    DictKey,
    FlattenFunc,
    GetAttrKey,
    KeyPath,
    MappingKey,
    NodeDef,
    SequenceKey,
    UnflattenFunc,
    _dict_flatten,
    _dict_flatten_with_keys,
    _dict_unflatten,
    _is_namedtuple,
    _list_flatten,
    _list_flatten_with_keys,
    _list_unflatten,
    _mapping_keys,
    _node_type,
    _register_builtins,
    _register_pytree_node,
    _sequence,
    _tuple_unflatten,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    register_dataclass,
    register_pytree_node,
)

__all__ = [
    "BUILTIN_TYPES",
    "SUPPORTED_NODES",
    "Context",
    "DictKey",
    "FlattenFunc",
    "GetAttrKey",
    "KeyPath",
    "LeafSpec",
    "MappingKey",
    "NodeDef",
    "PyTree",
    "SequenceKey",
    "TreeSpec",
    "UnflattenFunc",
    "arg_tree_leaves",
    "key_get",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
    "treespec_pprint",
]

PyTree = Any
T = TypeVar("T")
DumpableContext = Any
ToDumpableContextFn = FromDumpableContextFn = Callable[[Any], Any]
FlattenFn, UnflattenFn = FlattenFunc, UnflattenFunc
IsLeaf = Callable[[Any], bool] | None


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether ``tree`` is no container."""
    return (is_leaf is not None and is_leaf(tree)) or _node_type(tree) is None


_is_leaf = tree_is_leaf


def _get_node_type(tree: Any) -> Any:
    """The type that takes ``tree`` apart: ``namedtuple`` for all named tuples; else its class."""
    return namedtuple if _is_namedtuple(tree) else type(tree)


class TreeSpec:
    """The structure of a tree, without its leaves.

    ``type`` is the class of the outermost container (None for a leaf), ``context`` what its
    ``flatten`` said, ``children_specs`` the structure of what is in it.
    """

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type = type
        self.context = context
        self.children_specs = children_specs
        leaf = type is None
        self.num_nodes: int = 1 + sum(child.num_nodes for child in children_specs)
        self.num_leaves: int = 1 if leaf else sum(child.num_leaves for child in children_specs)
        self.num_children: int = len(children_specs)

    def is_leaf(self) -> bool:
        """Whether the tree is one leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The structures of the children."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The structure of one child."""
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """The tree of this structure with these leaves."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec "
                f"refers to a pytree that holds {self.num_leaves} items ({self})."
            )
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> PyTree:
        if self.type is None:
            return next(leaves)
        children = [child._build(leaves) for child in self.children_specs]
        return SUPPORTED_NODES[self.type].unflatten_fn(children, self.context)

    def flatten_up_to(self, tree: PyTree) -> list[PyTree]:
        """The subtrees of ``tree`` that stand where this structure has leaves."""
        if self.type is None:
            return [tree]
        found = _node_type(tree)
        if found is not self.type:
            raise ValueError(f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        children, context = SUPPORTED_NODES[found].flatten_fn(tree)
        if len(children) != self.num_children:
            raise ValueError(
                f"Node arity mismatch; expected {self.num_children}, but got {len(children)}."
            )
        if found in (dict, OrderedDict) and context != self.context:
            if set(context) != set(self.context):
                raise ValueError(f"Node keys mismatch; expected {self.context}, but got {context}.")
            children = [tree[key] for key in self.context]
        flat: list[PyTree] = []
        for spec, child in zip(self.children_specs, children, strict=True):
            flat += spec.flatten_up_to(child)
        return flat

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self.type is other.type
            and self.context == other.context
            and self.children_specs == other.children_specs
        )

    def __hash__(self) -> int:
        return hash((self.type, str(self.context), tuple(self.children_specs)))

    def __repr__(self) -> str:
        return self._shown(0)

    def _shown(self, indent: int) -> str:
        if self.type is None:
            return "*"
        indent += 2
        inner = f",\n{' ' * indent}".join(child._shown(indent) for child in self.children_specs)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inner}])"


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


_LEAF = LeafSpec()


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """``(leaves, spec)``; :func:`tree_unflatten` is the way back.

    A container for which ``is_leaf`` is true is a leaf.
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: PyTree, leaves: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    found = None if is_leaf is not None and is_leaf(tree) else _node_type(tree)
    if found is None:
        leaves.append(tree)
        return _LEAF
    children, context = SUPPORTED_NODES[found].flatten_fn(tree)
    return TreeSpec(found, context, [_flatten(child, leaves, is_leaf) for child in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The tree of the structure ``treespec`` with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec "
            f"but got item of type {type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """The leaves, one after the other."""
    return iter(tree_flatten(tree, is_leaf)[0])


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    """The structure."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """``func`` of every leaf (and of what stands there in ``rests``), in the same structure."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(rest) for rest in rests)]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=True)])


def tree_map_(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """:func:`tree_map` for what ``func`` does; returns ``tree`` itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _only(types: Any, func: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if not isinstance(types, (type, tuple)) and callable(types):
        return lambda leaf: func(leaf) if types(leaf) else leaf
    return lambda leaf: func(leaf) if isinstance(leaf, types) else leaf


def map_only(types: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function of leaves of these types, others as they are."""
    return lambda func: _only(types, func)


def tree_map_only(
    types: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """:func:`tree_map` of the leaves of these types (or for which a function is true)."""
    return tree_map(_only(types, func), tree, is_leaf=is_leaf)


def tree_map_only_(
    types: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """:func:`tree_map_only` for what ``func`` does; returns ``tree`` itself."""
    return tree_map_(_only(types, func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether ``pred`` holds of every leaf."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether ``pred`` holds of some leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(
    types: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None
) -> bool:
    """Whether ``pred`` holds of every leaf of these types."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, types))


def tree_any_only(
    types: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None
) -> bool:
    """Whether ``pred`` holds of some leaf of these types."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, types))


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of all arguments of a call."""
    return tree_leaves((list(args), dict(kwargs)))


def _broadcast_to_and_flatten(
    tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf = None
) -> list[Any] | None:
    """One leaf of ``tree`` for each leaf of ``treespec``, or None where the structures differ.

    Where ``tree`` has a leaf and ``treespec`` a container, the leaf counts for all in it.
    """
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _node_type(tree) is not treespec.type:
        return None
    children, context = SUPPORTED_NODES[_node_type(tree)].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    flat: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        found = _broadcast_to_and_flatten(child, spec, is_leaf)
        if found is None:
            return None
        flat += found
    return flat


# ---- paths --------------------------------------------------------------------------------------


def tree_flatten_with_path(
    tree: PyTree, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """:func:`tree_flatten` with the path of each leaf."""
    _, spec = tree_flatten(tree, is_leaf)
    return list(_paths((), tree, is_leaf)), spec


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """``(path, leaf)`` for every leaf."""
    return list(_paths((), tree, is_leaf))


def _paths(path: KeyPath, tree: PyTree, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, Any]]:
    found = None if is_leaf is not None and is_leaf(tree) else _node_type(tree)
    if found is None:
        yield path, tree
        return
    node = SUPPORTED_NODES[found]
    if node.flatten_with_keys_fn is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {type(tree)}. Please pass a "
            "flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in node.flatten_with_keys_fn(tree)[0]:
        yield from _paths((*path, key), child, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """:func:`tree_map` whose ``func`` gets the path of the leaf first."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [spec.flatten_up_to(rest) for rest in rests]
    rows = zip(pairs, *columns, strict=True)
    return spec.unflatten([func(path, leaf, *others) for (path, leaf), *others in rows])


def keystr(path: KeyPath) -> str:
    """The path as it would be written behind the tree: ``['a'][0].b``."""
    return "".join(map(str, path))


def key_get(tree: PyTree, path: KeyPath) -> Any:
    """What is found in ``tree`` along ``path``."""
    for key in path:
        tree = key.get(tree)
    return tree


def treespec_pprint(treespec: TreeSpec) -> str:
    """The structure with a star for each leaf."""
    return repr(treespec.unflatten([_Star()] * treespec.num_leaves))


def _register_namedtuple(cls: Any, *, serialized_type_name: str) -> None:
    """Give a class of named tuples its name in the texts of :func:`treespec_dumps`."""
    from coredispatch.frontend.utils._pytree_json import named_tuples

    named_tuples[serialized_type_name] = cls


def __getattr__(name: str) -> Any:
    if name in ("treespec_dumps", "treespec_loads"):
        from coredispatch.frontend.utils import _pytree_json

        return getattr(_pytree_json, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Star:
    def __repr__(self) -> str:
        return "*"
