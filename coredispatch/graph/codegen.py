"""A graph as Python text: what ``graph.code`` prints, and what a ``GraphModule`` runs."""

from __future__ import annotations
import __future__

import operator
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coredispatch.graph.node import Node, map_arg, type_text
from coredispatch.graph.targets import AUGMENTED, INFIX, package_name, reference
from coredispatch.plugin import Device, DType, Operator, OpError

if TYPE_CHECKING:
    from coredispatch.graph.graph import Graph

__all__ = ["PythonCode", "compile_code", "python_code"]


@dataclass
class PythonCode:
    """The text ``src`` of a function, and the ``globals`` that it needs.

    ``origins`` says of its lines, numbered from 1, which line of the user's they come from.
    """

    src: str
    globals: dict[str, Any] = field(default_factory=dict)
    origins: dict[int, Any] = field(default_factory=dict)


class _Line(str):
    """A line of the text, with the user's line that it comes from."""

    origin: Any = None


class _Writer:
    def __init__(self, root: str, verbose: bool, bound: bool = False) -> None:
        self.root, self.verbose, self.bound = root, verbose, bound
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {}
        self.local: set[str] = set()

    # -- expressions -----------------------------------------------------------------------------

    def name(self, wanted: str, value: Any) -> str:
        """``wanted``, or a variation of it, as the global name of ``value``."""
        name, number = wanted, 0
        while name in self.local or self.globals.get(name, value) is not value:
            number += 1
            name = f"{wanted}_{number}"
        self.globals[name] = value
        return name

    def value(self, argument: Any) -> str:
        """An argument as an expression."""
        if isinstance(argument, Node):
            return argument.name
        if isinstance(argument, tuple):
            items = [self.value(item) for item in argument]
            if hasattr(argument, "_fields"):
                return f"{self.name(type(argument).__name__, type(argument))}({', '.join(items)})"
            return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        if isinstance(argument, list):
            return f"[{', '.join(self.value(item) for item in argument)}]"
        if isinstance(argument, dict):
            pairs = (f"{key!r}: {self.value(item)}" for key, item in argument.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(argument, slice):
            parts = (argument.start, argument.stop, argument.step)
            return f"slice({', '.join(self.value(part) for part in parts)})"
        if isinstance(argument, float):
            plain = repr(float(argument))  # NumPy's numbers have other texts
            return plain if re.fullmatch(r"-?[\d.e+-]+", plain) else f"float('{plain}')"
        if isinstance(argument, DType):
            return f"{self.package()}.{argument.name}"
        if isinstance(argument, Device):
            return f"{self.package()}.device({str(argument)!r})"
        if isinstance(argument, complex):
            return repr(complex(argument))
        if argument is None or argument is ... or type(argument) in (bool, int, str, bytes):
            return repr(argument)
        return self.name(f"_{type(argument).__name__.lower()}", argument)

    def package(self) -> str:
        import sys

        return self.name(package_name(), sys.modules["coredispatch"])

    def call(self, node: Node) -> str:
        """The expression of a node that calls or reads something."""
        if node.op == "get_attr":
            return self.attribute(node.target)
        if node.op == "call_module":
            return f"{self.attribute(node.target)}({self.arguments(node.args, node.kwargs)})"
        if node.op == "call_method":
            this, *others = node.args
            arguments = self.arguments(tuple(others), node.kwargs)
            return f"{self.operand(this)}.{node.target}({arguments})"
        if node.target in INFIX and not node.kwargs:
            if node.target is operator.getitem:
                return f"{self.operand(node.args[0])}[{self.index(node.args[1])}]"
            return INFIX[node.target].format(*map(self.operand, node.args))
        if node.target is getattr and len(node.args) == 2 and _is_name(node.args[1]):
            return f"{self.operand(node.args[0])}.{node.args[1]}"
        if self.bound and isinstance(node.target, Operator):
            text = self.name("_" + re.sub(r"\W+", "_", node.target.name), node.target)
            return f"{text}({self.arguments(node.args, node.kwargs)})"
        if node.target in (list, dict) and len(node.args) == 1 and not node.kwargs:
            (content,) = node.args
            if type(content) is node.target:  # a new one each time, as the text says
                return self.value(content)
        text, name, value = reference(node.target)
        if name:
            given = self.name(name, value)
            text = given + text[len(name) :]
        return f"{text}({self.arguments(node.args, node.kwargs)})"

    def operand(self, argument: Any) -> str:
        text = self.value(argument)
        return text if isinstance(argument, (Node, tuple, list, dict)) else f"({text})"

    def index(self, argument: Any) -> str:
        def part(item: Any) -> str:
            if not isinstance(item, slice):
                return self.value(item)
            ends = [item.start, item.stop, item.step]
            shown = ["" if end is None else self.value(end) for end in ends]
            return ":".join(shown if item.step is not None else shown[:2])

        if isinstance(argument, tuple) and argument and not hasattr(argument, "_fields"):
            return ", ".join(map(part, argument)) + ("," if len(argument) == 1 else "")
        return part(argument)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        pairs = (f"{key} = {self.value(item)}" for key, item in kwargs.items())
        return ", ".join((*map(self.value, args), *pairs))

    def attribute(self, path: str) -> str:
        text = self.root
        for part in str(path).split("."):
            text = f"{text}.{part}" if _is_name(part) else f"getattr({text}, {part!r})"
        return text

    # -- statements ------------------------------------------------------------------------------

    def body(self, graph: Graph, indent: str, results: tuple[str, ...] | None = None) -> None:
        """The statements of a graph; its output is returned, or put in ``results``."""
        last, outermost = _last_uses(graph), results is None
        for node in graph.nodes:
            if node.op == "placeholder":
                continue
            if self.verbose and node.meta.get("source"):
                self.lines.append("{}# {}:{} in {}".format(indent, *node.meta["source"]))
            if node.op == "output":
                self.result(node, indent, results)
                continue
            before = len(self.lines)
            statement = self.statement(node, indent)
            gone = [used.name for used in last.get(node, ()) if outermost or _made(used)]
            end = f";  {' = '.join(gone)} = None" if gone and statement else ""
            if statement:
                self.lines.append(f"{indent}{statement}{end}")
            elif gone:
                self.lines.append(f"{indent}{' = '.join(gone)} = None")
            self.note(before, node)

    def note(self, begin: int, node: Node) -> None:
        """Say of the lines that were written for ``node`` where they come from."""
        for number in range(begin, len(self.lines)):
            if getattr(self.lines[number], "origin", None) is None:
                line = self.lines[number] = _Line(self.lines[number])
                line.origin = node.meta.get("source")

    def statement(self, node: Node, indent: str) -> str:
        """One statement, or nothing where several were written already."""
        if node.op == "if":
            self.branch(node, indent)
            return ""
        if node.op == "loop":
            self.loop(node, indent)
            return ""
        if node.op == "set_attr":
            return f"{self.attribute(node.target)} = {self.value(node.args[0])}"
        kind = "" if node.type is None else f" : {self.annotation(node.type)}"
        if node.op == "call_function" and node.target in AUGMENTED:
            left, right = map(self.value, node.args)
            self.lines.append(f"{indent}{node.name}{kind} = {left}")
            return f"{node.name} {AUGMENTED[node.target]} {right}"
        if node.op == "call_function" and node.target is operator.setitem:
            place, index, value = node.args
            return f"{self.value(place)}[{self.index(index)}] = {self.value(value)}"
        if node.op == "call_function" and node.target is operator.delitem:
            return f"del {self.value(node.args[0])}[{self.index(node.args[1])}]"
        return f"{node.name}{kind} = {self.call(node)}"

    def branch(self, node: Node, indent: str) -> None:
        condition, *given = node.args
        for head, graph in zip(("if {}:", "else:"), node.graphs):
            inner, deeper = self.renamed(graph), indent + "    "
            for place, argument in zip(inner.placeholders, given):
                self.place(place, argument)
            before = len(self.lines)
            self.body(inner, deeper, (node.name,))
            empty = self.lines[before:] == [f"{deeper}{node.name} = ()"]
            if empty and not node.users:
                self.lines[before:] = [] if head == "else:" else [f"{deeper}pass"]
            if len(self.lines) > before:
                self.lines.insert(before, f"{indent}{head.format(self.value(condition))}")

    def loop(self, node: Node, indent: str) -> None:
        trips, condition, *carried = node.args
        inner, deeper = self.renamed(node.graphs[0]), indent + "    "
        counter, *places = inner.placeholders
        last: Any = inner.output_node()
        follow, *results = last.args[0]
        changed = []
        for place, argument, result in zip(places, carried, results):
            if result is place:  # what the loop only reads keeps its name
                self.place(place, argument)
            else:
                self.lines.append(f"{indent}{place.name} = {self.value(argument)}")
                changed.append((place.name, result))
        self.lines.append(f"{indent}{counter.name} = -1")
        tests = [] if trips is None else [f"{counter.name} + 1 < {self.value(trips)}"]
        if follow is not True or condition is not True or trips is None:
            going = self.unique(f"{node.name}_going")
            self.lines.append(f"{indent}{going} = {self.value(condition)}")
            tests.insert(0, going)
            changed.insert(0, (going, follow))
        self.lines.append(f"{indent}while {' and '.join(tests)}:")
        self.lines.append(f"{deeper}{counter.name} += 1")
        self.body(inner, deeper, ())
        if changed:
            names, values = zip(*changed)
            shown = ", ".join(map(self.value, values))
            self.lines.append(f"{deeper}{', '.join(names)} = {shown}")
        if node.users:
            ends = [place.name for place in places]
            together = f"({', '.join(ends)}{',' if len(ends) == 1 else ''})"
            self.lines.append(f"{indent}{node.name} = {together}")

    def place(self, place: Node, argument: Any) -> None:
        """An input of an inner graph is the value itself: names around are seen inside."""
        place.name = self.value(argument)

    def unique(self, wanted: str) -> str:
        """A name for a variable that no other has."""
        name, number = wanted, 0
        while name in self.local or name in self.globals:
            number += 1
            name = f"{wanted}_{number}"
        self.local.add(name)
        return name

    def renamed(self, graph: Graph) -> Graph:
        """A copy of an inner graph whose names do not meet those around it."""
        made = graph.copy()
        for node in made.nodes:
            node.name = self.unique(node.name)
        return made

    def result(self, node: Node, indent: str, results: tuple[str, ...] | None) -> None:
        if results is None:
            self.lines.append(f"{indent}return {self.value(node.args[0])}")
        elif results:
            self.lines.append(f"{indent}{results[0]} = {self.value(node.args[0])}")

    def annotation(self, annotation: Any) -> str:
        if isinstance(annotation, type) and annotation.__module__ == "builtins":
            return annotation.__name__
        if isinstance(annotation, str):
            return annotation  # never evaluated: see compile_code
        return self.name(re.sub(r"\W+", "_", type_text(annotation)), annotation)

    def head(self, graph: Graph) -> str:
        parameters = [self.root]
        places = graph.placeholders
        # Only keywords may follow a default without one: then the caller knows the defaults.
        plain = [i for i, node in enumerate(places) if not node.args and "*" not in node.target]
        rest = next((i for i, node in enumerate(places) if "*" in node.target), len(places))
        required = max((i for i in plain if i < rest), default=-1)
        for number, node in enumerate(places):
            kind = "" if node.type is None else f" : {self.annotation(node.type)}"
            optional = node.args and number > required
            default = f" = {self.value(node.args[0])}" if optional else ""
            parameters.append(f"{'*' * node.target.count('*')}{node.name}{kind}{default}")
        last = graph.output_node()
        returns = "" if last is None or last.type is None else f" -> {self.annotation(last.type)}"
        return f"def forward({', '.join(parameters)}){returns}:"


def python_code(
    graph: Graph, root: str = "self", *, verbose: bool = False, bound: bool = False
) -> PythonCode:
    """The function ``forward(root, *inputs)`` that runs the graph.

    A value is given up after its last use, as in ``torch.fx``. ``verbose`` adds the user's lines,
    ``bound`` makes each operator a global of its own, which is quicker than the public name.
    """
    writer = _Writer(root, verbose, bound)
    writer.local = {node.name for node in graph.nodes}
    head = writer.head(graph)
    writer.body(graph, "    ")
    if not writer.lines:
        writer.lines.append("    pass")
    origins = {
        number: line.origin
        for number, line in enumerate(writer.lines, 3)
        if getattr(line, "origin", None) is not None
    }
    return PythonCode("\n".join(["", head, *writer.lines, ""]), writer.globals, origins)


#: file name of a compiled graph -> line of its text -> the user's line: (file, line, function)
ORIGINS: dict[str, dict[int, Any]] = {}


def compile_code(code: PythonCode, filename: str) -> Any:
    """The function that ``code`` defines. Its lines show in tracebacks."""
    import linecache

    if code.origins:
        ORIGINS[filename] = code.origins

    lines = code.src.splitlines(keepends=True)
    linecache.cache[filename] = (len(code.src), None, lines, filename)
    namespace = dict(code.globals)
    flags = __future__.annotations.compiler_flag
    exec(compile(code.src, filename, "exec", flags, dont_inherit=True), namespace)
    return namespace["forward"]


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """Node -> the values that it is the last to use, or that nobody uses."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        if node.op == "output":
            seen |= set(node.all_input_nodes)
            continue
        ends = [used for used in node.all_input_nodes if used not in seen]
        if not node.users and node.op != "placeholder" and _is_value(node):
            ends.append(node)
        seen |= set(node.all_input_nodes)
        if ends:
            found[node] = ends
    return found


def _is_value(node: Node) -> bool:
    if node.op == "set_attr":
        return False
    return node.op != "call_function" or node.target not in (operator.setitem, operator.delitem)


def _made(node: Node) -> bool:
    """Whether a value is made in its graph: what comes from around is not given up inside."""
    return node.op != "placeholder"


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and text.isidentifier()


def substituted(graph: Graph, values: dict[Node, Any]) -> list[Any]:
    """The arguments of the output with ``values`` in place."""
    last = graph.output_node()
    if last is None:
        raise OpError("the graph has no output", fix="call graph.output(...)")
    return [map_arg(argument, lambda n: values[n]) for argument in last.args]
