"""What a ``call_function`` may call: operators, and a closed list of Python's own functions.

A graph is data. Whatever it calls must have a name that means the same in another process: an
operator of the table, or one of the functions below. Any other callable may stand in a graph too
(``fx.wrap``), but such a graph is neither saved nor compiled by plugins.
"""

from __future__ import annotations

import builtins
import math
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from coredispatch.graph.objects import get_field, set_field
from coredispatch.plugin import Operator, OpError, Symbol, Value
from coredispatch.registry.model.schema import REQUIRED
from coredispatch.registry.model.spelling import SPELLING

if TYPE_CHECKING:
    from coredispatch.graph.graph import Graph
    from coredispatch.graph.node import Node

__all__ = [
    "FUNCTIONS",
    "INFIX",
    "MUTATORS",
    "check_target",
    "declare_function",
    "function_name",
    "is_impure",
    "switches_mode",
    "library_function",
    "library_name",
    "name_of",
    "nested_nodes",
    "operator_names",
    "package_name",
    "reference",
    "spelled",
    "target_text",
]

#: how a function of the module ``operator`` is written
INFIX: dict[Any, str] = {
    operator.add: "{} + {}",
    operator.sub: "{} - {}",
    operator.mul: "{} * {}",
    operator.truediv: "{} / {}",
    operator.floordiv: "{} // {}",
    operator.mod: "{} % {}",
    operator.pow: "{} ** {}",
    operator.matmul: "{} @ {}",
    operator.lshift: "{} << {}",
    operator.rshift: "{} >> {}",
    operator.and_: "{} & {}",
    operator.or_: "{} | {}",
    operator.xor: "{} ^ {}",
    operator.lt: "{} < {}",
    operator.le: "{} <= {}",
    operator.gt: "{} > {}",
    operator.ge: "{} >= {}",
    operator.eq: "{} == {}",
    operator.ne: "{} != {}",
    operator.is_: "{} is {}",
    operator.is_not: "{} is not {}",
    operator.getitem: "{}[{}]",
    operator.neg: "-{}",
    operator.pos: "+{}",
    operator.invert: "~{}",
    operator.not_: "not {}",
    operator.contains: "{1} in {0}",
}
#: written as statements: the first argument is changed in place, and is the result
AUGMENTED: dict[Any, str] = {
    operator.iadd: "+=",
    operator.isub: "-=",
    operator.imul: "*=",
    operator.itruediv: "/=",
    operator.ifloordiv: "//=",
    operator.imod: "%=",
    operator.ipow: "**=",
    operator.imatmul: "@=",
    operator.iand: "&=",
    operator.ior: "|=",
    operator.ixor: "^=",
}
_BUILTINS = (
    "abs all any bin bool chr complex dict divmod enumerate float getattr hex int isinstance "
    "len list max min oct ord pow print range repr reversed round sorted str sum tuple zip"
)
_MATH = (
    "acos acosh asin asinh atan atan2 atanh ceil comb copysign cos cosh degrees dist erf erfc "
    "exp expm1 fabs factorial floor fmod frexp fsum gamma gcd hypot isclose isfinite isinf "
    "isnan isqrt lcm ldexp lgamma log log10 log1p log2 modf perm pow prod radians remainder sin "
    "sinh sqrt tan tanh trunc"
)
#: name -> function: what a saved graph may call besides operators
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"operator.{fn.__name__}": fn for fn in (*INFIX, *AUGMENTED)},
    "operator.abs": operator.abs,
    "operator.setitem": operator.setitem,
    "operator.delitem": operator.delitem,
    **{f"builtins.{name}": getattr(builtins, name) for name in _BUILTINS.split()},
    **{f"math.{name}": getattr(math, name) for name in _MATH.split()},
}
_NAMES: dict[Any, str] = {fn: name for name, fn in FUNCTIONS.items()}
#: functions that switch a mode on or off
_MODES: set[Any] = set()
_IMPURE = {operator.setitem, operator.delitem, print, *AUGMENTED}
#: methods of lists and dicts that change them
MUTATORS = frozenset(
    "append clear extend insert pop popitem remove reverse setdefault sort update".split()
)
#: modules of this package whose functions, where the package itself shows them, are library code:
#: they compute, and do nothing else
_LIBRARY = frozenset(
    f"coredispatch{name}"
    for name in (
        "",
        ".frontend.function_forms",
        ".frontend.nn.functional",
        ".frontend.lobpcg",
        ".frontend.lowrank",
        ".frontend.histogramdd",
    )
)
#: further functions of the package itself that a saved graph may name
_LIBRARY_NAMES = frozenset(
    "as_tensor broadcast_shapes can_cast detach_ get_default_dtype is_complex is_floating_point "
    "is_grad_enabled is_tensor numel promote_types result_type sparse_coo_tensor tensor device "
    "manual_seed".split()
)
#: where library code is shown; behind the first, all that is shown is library code
_HOMES = ("", "nn.functional", "linalg", "special", "fft", "nn.utils.rnn")


def declare_function(
    name: str, fn: Callable[..., Any], *, impure: bool = False, mode: bool = False
) -> None:
    """Add a function to the closed list, under a name with a dot in it.

    ``mode``: what is computed after a call of it may be another thing than before.
    """
    FUNCTIONS[name] = fn
    _NAMES[fn] = name
    if impure:
        _IMPURE.add(fn)
    if mode:
        _MODES.add(fn)


def expect_parts(value: Any, count: int) -> None:
    """Refuse a list or tensor of another number of parts than the example of a trace had."""
    if len(value) != count:
        raise OpError(
            f"the trace was made with {count} parts, and there are {len(value)}",
            fix="trace with an example of this size, or use jit.script, which keeps loops",
        )


declare_function("trace.expect_parts", expect_parts, impure=True)
declare_function("script.get_field", get_field)
declare_function("script.set_field", set_field, impure=True)


def library_name(target: Any) -> str | None:
    """The path in the package of a function that a saved graph may name, None for others."""
    name = getattr(target, "__name__", None)
    if not isinstance(name, str):
        return None
    for home in _HOMES:
        path = f"{home}.{name}" if home else name
        if library_function(path) is target:
            return path
    return None


def library_function(path: Any) -> Any:
    """The function of this package at ``path``, None where a graph may not name it."""
    home, _, name = str(path).rpartition(".")
    if home not in _HOMES or not name.isidentifier() or name.startswith("_"):
        return None
    at: Any = sys.modules["coredispatch"]
    for part in filter(None, home.split(".")):
        at = getattr(at, part)
    found = getattr(at, name, None)
    if path in _LIBRARY_NAMES:
        return found
    # Where the package is compiled, some functions are callable objects.
    if isinstance(found, (type, types.ModuleType, Operator)) or not callable(found):
        return None
    ours = found.__module__.startswith("coredispatch.") if home else found.__module__ in _LIBRARY
    return found if ours else None


#: public modules in which an operator is looked for before ``ops``, which has them all
_MODULES = ("", "nn.functional", "linalg", "special", "fft")


def check_target(op: str, target: Any) -> None:
    """Raise :class:`OpError` unless a node of this kind may have this target."""
    if op == "call_function":
        if not callable(target):
            raise OpError(
                f"call_function needs something that can be called, not {target!r}",
                fix="use graph.call_method for the name of a method",
            )
    elif not isinstance(target, str):
        raise OpError(
            f"the target of {op} is a name, not {type(target).__name__}",
            fix="pass a str, as 'fc.weight'",
        )


def function_name(target: Any) -> str | None:
    """The name in :data:`FUNCTIONS`, None for any other callable."""
    try:
        return _NAMES.get(target)
    except TypeError:  # not hashable
        return None


def name_of(op: str, target: Any) -> str:
    """A name for the value of a node, as ``torch.fx`` chooses them."""
    if op == "call_function":
        name = target.name if isinstance(target, Operator) else _plain_name(target, "call")
        name = name.rpartition("::")[2].strip("<>").replace(".", "_") or "call"
    else:
        name = str(target).replace(".", "_")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z\d])([A-Z])", r"\1_\2", name).lower()


def switches_mode(node: Node) -> bool:
    """Whether equal calls before and after the node may differ: it begins or ends a mode."""
    return node.op == "call_function" and node.target in _MODES


def is_impure(node: Node) -> bool:
    """Whether the call does more than make its value, or makes another one each time.

    Writes and random numbers count, also those that ``out=`` and ``inplace=True`` ask for; so does
    what nothing is known of: methods that end in an underscore, modules, and functions of neither
    table.
    """
    from coredispatch.graph.calls import draws

    target = node.target
    if node.op == "call_method":
        if target in MUTATORS:
            return True
        return str(target).endswith("_") and not str(target).endswith("__")
    if node.op == "call_module":
        owner = node.graph.owning_module
        if owner is None:
            return True
        module = _module(owner, target)
        return getattr(module, "_is_impure", False) or getattr(module, "inplace", False) is True
    if node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True:
        return True
    if node.op != "call_function":
        return False
    if isinstance(target, Operator):
        return bool(target.mutates) or target.name == "to_host" or draws(target, node)
    spells = getattr(target, "spells", None)  # a function of nn.functional over an operator
    if spells is not None:
        return draws(spells, node)
    if function_name(target) is not None:
        return target in _IMPURE
    return bool(getattr(target, "_is_impure", False))  # a mark of fx


def nested_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph, each before those of its branches or loops."""
    for node in graph.nodes:
        yield node
        for inner in node.graphs:
            yield from nested_nodes(inner)


def operator_names(graph: Graph) -> set[str]:
    """The names of the operators that a graph calls, also in its branches and loops."""
    found: set[str] = set()
    for node in nested_nodes(graph):
        if isinstance(node.target, Operator):
            found.add(node.target.name)
        elif node.op == "call_method":
            found.add(str(node.target))
    return found


def _module(owner: Any, path: str) -> Any:
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def reference(target: Any) -> tuple[str, str, Any]:
    """``(text, name, value)``: how a function is written, and the global name the text needs.

    The name is empty where none is needed.
    """
    package = sys.modules["coredispatch"]
    alias = package_name()
    if isinstance(target, Operator):
        for path in _MODULES:
            module = package
            for part in filter(None, path.split(".")):
                module = getattr(module, part)
            if vars(module).get(target.name) is target:
                text = ".".join(filter(None, (alias, path, target.name)))
                return text, alias, package
        return f"{alias}.ops.{_path(target.name)}", alias, package
    known = function_name(target)
    if known is not None:
        home, name = known.split(".")
        if home == "builtins":
            return name, "", None
        if home not in ("operator", "math"):  # declared elsewhere
            return name, name, target
        return known, home, sys.modules[home]
    home, name = getattr(target, "__module__", "") or "", getattr(target, "__qualname__", "")
    if home.startswith("coredispatch.") and "<" not in name:
        public = _public(package, target, name)
        if public:
            return public, alias, package
    plain = re.sub(r"\W+", "_", _plain_name(target, type(target).__name__))
    return plain, plain, target


def _plain_name(target: Any, other: str) -> str:
    """The name of a function, with that of the class where it is a method of one."""
    name, owner = getattr(target, "__name__", other), getattr(target, "__self__", None)
    return f"{owner.__name__}_{name}" if isinstance(owner, type) else str(name)


def _path(name: str) -> str:
    """``NAME`` below ``ops``, and ``namespace.NAME.OVERLOAD`` of what a library defined."""
    namespace, separator, rest = name.rpartition("::")
    opname, _, overload = rest.partition(".")
    return f"{namespace}.{opname}.{overload or 'default'}" if separator else name


def _public(package: Any, target: Any, name: str) -> str:
    """The public name of a function of ours, empty where it has none."""
    for path in ("", "nn.functional", "nn.init", "linalg", "special", "fft"):
        module = package
        for part in filter(None, path.split(".")):
            module = getattr(module, part)
        if getattr(module, name, None) is target:
            return ".".join(filter(None, (package_name(), path, name)))
    return ""


def spelled(op: Operator, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Complete arguments of an operator as one would write them: defaults are left out."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    defaults = 0  # how many of the last of ``given`` are what they are anyway
    for param, argument in zip(op.schema.params, args):
        default = param.default is not REQUIRED and _same(argument, param.default)
        if not param.keyword_only:
            given.append(argument)
            defaults = defaults + 1 if default else 0
        elif not default:
            named[param.name] = argument
    return tuple(given[: len(given) - defaults]), named


def _same(argument: Any, default: Any) -> bool:
    if isinstance(argument, (Value, Symbol)):
        return False
    return argument is default or (type(argument) is type(default) and argument == default)


def package_name() -> str:
    """What a text calls this package: ``torch`` where ``import torch`` means it, else ``cd``."""
    return SPELLING.package


def target_text(target: Any) -> str:
    """A function as ``str(graph)`` shows it."""
    known = function_name(target)
    return reference(target)[0] if known is None else known
