"""A graph as plain data, and back: what is saved holds no code, and loading runs none.

The document is made of dicts, lists, text and numbers (JSON). Operators are named, and the defaults
of their parameters written beside, so that a program means the same after a default has changed.
"""

from __future__ import annotations

import ast
import enum
import sys
from typing import Any

from coredispatch.graph.examples import Example, read_example, stored_example
from coredispatch.graph.graph import Graph, GraphError
from coredispatch.graph.node import Node
from coredispatch.graph.objects import NamedTupleType, ObjectType, enumeration
from coredispatch.graph.targets import FUNCTIONS, function_name, library_function, library_name
from coredispatch.plugin import Device, DType, Operator, dtypes
from coredispatch.registry import TABLE
from coredispatch.registry.model.schema import REQUIRED
from coredispatch.registry.model.spelling import MemoryFormat, TensorLayout

__all__ = ["from_document", "read_function", "read_value", "stored_value", "to_document"]

#: what a method may be called, besides those of tensors that are operators
_METHODS = frozenset(
    "append clear copy count extend format get index insert items join keys lower pop popitem "
    "remove replace reverse setdefault size sort split startswith endswith strip update upper "
    "values capitalize casefold center expandtabs find isalnum isalpha isdecimal isdigit "
    "isidentifier islower isnumeric isprintable isspace istitle isupper ljust lstrip partition "
    "rfind rindex rjust rpartition rsplit rstrip splitlines swapcase title zfill dim ndimension "
    "numel nelement element_size storage_offset get_device is_floating_point is_complex "
    "is_signed is_inference is_pinned is_contiguous item tolist contiguous type_as type to "
    "stride bool byte char short int long half float double bfloat16 cfloat cdouble cpu cuda "
    "new_empty new_full new_ones new_tensor new_zeros requires_grad_ resize_ resize_as_ detach_ "
    "squeeze_ unsqueeze_ transpose_ t_ swapaxes_ swapdims_ absolute absolute_ arccos arccos_ "
    "arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh "
    "arctanh_ clip clip_ divide divide_ fix fix_ ger greater greater_ greater_equal "
    "greater_equal_ less less_ less_equal less_equal_ moveaxis multiply multiply_ mvlgamma "
    "negative negative_ not_equal not_equal_ psi psi_ slogdet subtract subtract_ swapdims "
    "true_divide true_divide_".split()
)
#: what a getattr may ask for
_ATTRIBUTES = frozenset(
    "shape dtype device ndim layout requires_grad T mT H mH real imag data grad is_cuda is_cpu "
    "is_meta is_sparse is_quantized is_leaf itemsize nbytes type index value name "
    "is_floating_point is_complex is_signed values indices sign logabsdet eigenvalues "
    "eigenvectors Q R U S V Vh L LU P pivots solution residuals rank singular_values mantissa "
    "exponent info".split()
)


# ---- to data ------------------------------------------------------------------------------------


def to_document(graph: Graph) -> dict[str, Any]:
    """The graph as dicts, lists, text and numbers.

    Raises :class:`GraphError` for what has no name in another process: a function of the user's,
    an object among the arguments.
    """
    defaults: dict[str, Any] = {}
    return {"nodes": _nodes(graph, defaults), "defaults": defaults}


def _nodes(graph: Graph, defaults: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for node in graph.nodes:
        entry: dict[str, Any] = {"name": node.name, "op": node.op, "target": _target(node)}
        if isinstance(node.target, Operator):
            defaults[node.target.name] = {
                p.name: _value(p.default, node)
                for p in node.target.schema.params
                if p.default is not REQUIRED
            }
        if isinstance(node.type, str):
            entry["type"] = node.type
        if node.meta.get("inferred"):
            entry["inferred"] = True
        if "example" in node.meta:
            entry["example"] = _example(node)
        if node.args:
            entry["args"] = [_value(argument, node) for argument in node.args]
        if node.kwargs:
            entry["kwargs"] = {key: _value(item, node) for key, item in node.kwargs.items()}
        if node.graphs:
            entry["graphs"] = [_nodes(inner, defaults) for inner in node.graphs]
        if "source" in node.meta:
            entry["source"] = list(node.meta["source"])
        found.append(entry)
    return found


def _example(node: Node) -> Any:
    """What a trace was given for an input. Only tensors and numbers may be others later."""
    example: Example = node.meta["example"]
    try:
        return stored_example(example, lambda value: _value(value, node))
    except GraphError as error:
        raise GraphError(
            f"the input {node.target!r} of the trace is a constant of it that cannot be saved: "
            f"{error}",
            fix="use numbers, text, dtypes, devices, and tuples, lists and dicts of them, or bind "
            "the object before tracing",
        ) from None


def _target(node: Node) -> Any:
    if node.op != "call_function":
        return node.target
    if isinstance(node.target, Operator):
        return {"operator": node.target.name}
    if isinstance(node.target, NamedTupleType):
        return {"tuple": [node.target.name, list(node.target.fields)]}
    if isinstance(node.target, ObjectType):
        return {"class": node.target.name}
    name = function_name(node.target)
    if name is None and (path := library_name(node.target)) is not None:
        return {"library": path}
    if name is None:
        raise GraphError(
            f"{node.name!r} calls {node.target!r}, which has no name in another process",
            fix="only operators and Python's own functions can be saved: trace through it, or make "
            "it an operator with library.custom_op, and its derivative with register_autograd",
        )
    return {"function": name}


def _value(value: Any, node: Node) -> Any:
    if isinstance(value, enum.Enum):
        cls = type(value)
        members = [[member.name, _value(member.value, node)] for member in cls]
        base = [kind.__name__ for kind in (int, str) if isinstance(value, kind)]
        return {"enum": [cls.__name__, members, value.name, *base]}
    if isinstance(value, (MemoryFormat, TensorLayout)):
        kind = "MemoryFormat" if isinstance(value, MemoryFormat) else "TensorLayout"
        return {kind: str(value).rpartition(".")[2]}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if isinstance(value, Node):
        return {"node": value.name}
    if isinstance(value, list):
        return [_value(item, node) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_value(item, node) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_value(k, node), _value(v, node)] for k, v in value.items()]}
    if isinstance(value, slice):
        return {"slice": [_value(v, node) for v in (value.start, value.stop, value.step)]}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, Device):
        return {"device": str(value)}
    if value is ...:
        return {"ellipsis": True}
    raise GraphError(
        f"an argument of {node.name!r} is {value!r}, which cannot be saved",
        fix="use numbers, text, dtypes, devices, and tuples, lists and dicts of them",
    )


def stored_value(value: Any, name: str) -> Any:
    """A constant as data; ``name`` says in an error whose it is."""
    holder = Node(Graph(), name, "placeholder", name, (), {})
    return _value(value, holder)


def read_value(stored: Any) -> Any:
    """The constant that :func:`stored_value` wrote."""
    return _read(stored, {})


# ---- from data ----------------------------------------------------------------------------------


def from_document(document: Any) -> Graph:
    """The graph that :func:`to_document` wrote. Nothing in it is run.

    Raises :class:`GraphError` for a document that no graph writes, and for operators and parameters
    that are not there any more.
    """
    try:
        graph = _graph(document["nodes"], document["defaults"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise GraphError(
            f"this is no document of a graph: {type(error).__name__}: {error}",
            fix="read one that graph.to_document wrote",
        ) from None
    graph.lint()
    return graph


def _graph(nodes: Any, defaults: Any) -> Graph:
    graph, known = Graph(), {}
    for entry in nodes:
        op, name = entry["op"], entry["name"]
        if not (isinstance(name, str) and name.isidentifier()):
            raise GraphError(f"{name!r} is no name of a value")
        target = read_function(entry["target"]) if op == "call_function" else entry["target"]
        args = tuple(_read(item, known) for item in entry.get("args", ()))
        kwargs = {_identifier(k): _read(v, known) for k, v in entry.get("kwargs", {}).items()}
        _allow(op, target, args)
        if isinstance(target, Operator):
            args, kwargs = _with_defaults(target, args, kwargs, defaults[target.name])
        inner = tuple(_graph(part, defaults) for part in entry.get("graphs", ()))
        kind = entry.get("type")
        node = graph.create_node(op, target, args, kwargs, name, graphs=inner)
        node.type = None if kind is None else _type_text(kind)
        if entry.get("inferred"):
            node.meta["inferred"] = True
        if "example" in entry:
            node.meta["example"] = read_example(entry["example"], lambda v: _read(v, {}))
        if "source" in entry:
            file, line, function = entry["source"]
            node.meta["source"] = (str(file), int(line), str(function))
        known[name] = node
    return graph


def _type_text(text: Any) -> str:
    """A type as a graph's text shows it: names and brackets, so that it stays an annotation."""
    try:
        tree = ast.parse(str(text), mode="eval").body
    except SyntaxError:
        raise GraphError(f"{text!r} is no type") from None
    plain = (ast.Name, ast.Subscript, ast.Tuple, ast.expr_context)
    allowed = all(isinstance(node, plain) for node in ast.walk(tree))
    if not (allowed and isinstance(tree, (ast.Name, ast.Subscript))):
        raise GraphError(f"{text!r} is no type")
    return ast.unparse(tree)


def _identifier(text: Any) -> str:
    if not (isinstance(text, str) and text.isidentifier()):
        raise GraphError(f"{text!r} is no name")
    return text


def read_function(target: Any) -> Any:
    """The operator, function or class that a document names. Raises :class:`GraphError`."""
    ((kind, name),) = target.items()
    if kind == "operator":
        op = TABLE.snapshot.ops.get(name)
        if op is None:
            define = "define it first, as with library.custom_op: a file holds its name only"
            raise GraphError(
                f"there is no operator {name!r}",
                fix=define if "::" in str(name) else "load the plugin that declares it",
            )
        return op
    if kind == "function" and name in FUNCTIONS:
        return FUNCTIONS[name]
    if kind == "library" and (found := library_function(name)) is not None:
        return found
    if kind == "class":
        return ObjectType(_identifier(name))
    if kind == "tuple":
        return NamedTupleType(_identifier(name[0]), tuple(map(_identifier, name[1])))
    raise GraphError(f"a graph cannot call {name!r}")


def _allow(op: str, target: Any, args: tuple[Any, ...]) -> None:
    """Refuse what reaches beyond values: private names, methods that are no operators."""
    if op == "call_method":
        if target not in _METHODS and target not in TABLE.snapshot.ops:
            raise GraphError(f"a saved graph cannot call the method {target!r}")
    elif op in ("get_attr", "set_attr", "call_module"):
        if not all(_public(part) for part in target.split(".")):
            raise GraphError(f"{target!r} is no path of an attribute")
    elif op == "placeholder":
        _identifier(target)
    elif target is getattr and not (len(args) == 2 and args[1] in _ATTRIBUTES):
        raise GraphError(f"a saved graph cannot read the attribute {args[1:]!r}")
    elif getattr(target, "__name__", "") == "getitem" and isinstance(args[-1], str):
        pass  # a key of a dict


def _public(part: str) -> bool:
    # In generated code a part that is no identifier stands as a text: getattr(self, "x-y").
    return bool(part) and part.isprintable() and not part.startswith("__")


def _with_defaults(
    op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], then: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with those defaults written out that have changed since."""
    now = {p.name: p for p in op.schema.params}
    given = {p.name for p in op.schema.params[: len(args)]} | set(kwargs)
    added = {}
    for name, encoded in then.items():
        default = _read(encoded, {})
        if name in given:
            continue
        if name not in now:
            raise GraphError(
                f"the operator {op.name!r} has lost its parameter {name!r} since it was saved"
            )
        current = now[name].default
        if current is REQUIRED or type(current) is not type(default) or current != default:
            added[name] = default
    return args, {**kwargs, **added}


def _read(value: Any, known: dict[str, Node]) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, list):
        return [_read(item, known) for item in value]
    ((kind, inside),) = value.items()
    if kind == "float":
        return float(inside)
    if kind == "complex":
        return complex(float(inside[0]), float(inside[1]))
    if kind == "node":
        return known[inside]
    if kind == "tuple":
        return tuple(_read(item, known) for item in inside)
    if kind == "dict":
        return {_read(k, known): _read(v, known) for k, v in inside}
    if kind == "slice":
        return slice(*(_read(item, known) for item in inside))
    if kind == "dtype":
        found = getattr(dtypes, str(inside), None) or getattr(dtypes, f"{inside}_", None)
        if not isinstance(found, DType):
            raise GraphError(f"there is no dtype {inside!r}")
        return found
    if kind == "device":
        return Device(inside)
    if kind in ("MemoryFormat", "TensorLayout"):
        found = getattr(sys.modules["coredispatch"], str(inside), None)
        if kind == "TensorLayout" and not isinstance(found, TensorLayout):
            return TensorLayout(str(inside))  # a plugin's has no name in the package
        if not isinstance(found, (MemoryFormat, TensorLayout)):
            raise GraphError(f"there is no layout {inside!r}")
        return found
    if kind == "enum":
        name, members, member, *base = inside
        pairs = tuple((_identifier(n), _read(v, known)) for n, v in members)
        cls = enumeration(_identifier(name), pairs, *base)
        return cls[member]
    if kind == "ellipsis":
        return ...
    raise GraphError(f"a document of a graph holds no {kind!r}")
