"""An exported program as a model of ONNX."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coredispatch._version import __version__
from coredispatch._warnings import warn
from coredispatch.frontend.export.signature import InputKind, OutputKind
from coredispatch.frontend.onnx.builder import Builder, Length, Tensor, onnx_dtype
from coredispatch.frontend.onnx.control import translate_branch, translate_loop, used_names
from coredispatch.frontend.onnx.errors import OnnxExporterError, UnsupportedOperatorError
from coredispatch.frontend.onnx.translations import table
from coredispatch.graph import Graph, Node
from coredispatch.graph.abstract import narrows
from coredispatch.graph.calls import bound_arguments, draws, operator_of
from coredispatch.graph.node import map_aggregate
from coredispatch.graph.passes.decomposition import decompose
from coredispatch.graph.passes.functionalization import functionalize
from coredispatch.graph.symbols import Expression
from coredispatch.graph.terms import OPERATIONS
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import Operator, dtypes

__all__ = ["translated"]

_ARITHMETIC = {
    operator.add: "Add",
    operator.sub: "Sub",
    operator.mul: "Mul",
    OPERATIONS["min"][1]: "Min",
    OPERATIONS["max"][1]: "Max",
}
#: what makes an integer of a float, and the operator before the cast, which cuts off
_ROUNDING = {math.floor: "Floor", math.ceil: "Ceil", round: "Round", math.trunc: None}


_ADVICE = (
    "Give a translation: onnx.export(..., custom_translation_table={{cd.ops.{}: function}}), where "
    "function(builder, *args) writes nodes with builder.op(...)"
)


_MODE = "It draws random numbers, as dropout does in training: call model.eval() first"


def translated(
    program: Any,
    opset: int,
    custom: Mapping[str, Callable[..., Any]],
    input_names: Sequence[str],
    output_names: Sequence[str],
    size_names: Mapping[str, str],
) -> Any:
    """The ``ModelProto`` of an exported program."""
    return _Translator(program, opset, custom, size_names).model(input_names, output_names)


class _Translator:
    def __init__(self, program: Any, opset: int, custom: Any, size_names: Any) -> None:
        self.program, self.opset = program, opset
        self.custom, self.known = dict(custom), table(opset)
        self.size_names = size_names
        self.builder = Builder(opset)
        self.env: dict[Node, Any] = {}
        self.whole: frozenset[str] = frozenset()

    # -- the graph -------------------------------------------------------------------------------

    def graph(self) -> Graph:
        """Operators that have a translation, and primitives."""
        pure = functionalize(self.program.graph)
        keep = set(self.known) | set(self.custom)
        guards = self.program._table.guards
        known = len(guards)
        # An operator whose translation refuses this use of it may still have a decomposition; one
        # that holds for some of the open sizes only is the last way.
        refused: set[str] = set()
        narrow: set[str] = set()
        while True:
            made = decompose(
                pure,
                keep=_named(frozenset(keep - refused)),
                symbols=self.program._table,
                whole=_other_than(frozenset(narrow)),
            )
            made.eliminate_dead_code(_stays)
            asked = [str(guard) for guard in guards[known:] if narrows(guard)]
            del guards[known:]
            op = self.tried(made, narrow)
            if op is None:
                break
            (refused if op.name in keep - refused else narrow).add(op.name)
        if narrow:
            warn(
                f"{', '.join(sorted(narrow))}: spelled out for lengths like the example's "
                f"({'; '.join(asked)}). The model may be wrong for other sizes, which it does not "
                "refuse"
            )
        return made

    def tried(self, graph: Graph, narrow: set[str]) -> Operator | None:
        """A composite whose translation refuses a call; nothing is kept of the attempt."""
        builder, env = self.builder, self.env
        self.builder, self.env = Builder(self.opset), {}
        try:
            self.begin(graph, [])
            for node in graph.nodes:
                self.step(node)
        except UnsupportedOperatorError as error:
            op: Operator | None = error.operator
            composite = op is not None and op.kind == "composite" and op.decomposition is not None
            if op is None or not composite or op.name in narrow:
                raise
            return op
        finally:
            self.builder, self.env = builder, env
        return None

    # -- the model -------------------------------------------------------------------------------

    def model(self, input_names: Sequence[str], output_names: Sequence[str]) -> Any:
        from onnx import helper

        graph = self.graph()
        inputs = self.begin(graph, list(input_names))
        for node in graph.nodes:
            self.step(node)
        outputs = self.end(graph, list(output_names))
        builder = self.builder
        used = used_names(builder.nodes) | {o.name for o in outputs}
        tensors = [
            _tensor(name, array) for name, array in builder.initializers.items() if name in used
        ]
        made = helper.make_graph(builder.nodes, "main_graph", inputs, outputs, tensors)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, v) for domain, v in builder.domains.items()]
        model = helper.make_model(
            made,
            opset_imports=opsets,
            producer_name="coredispatch",
            producer_version=__version__,
            ir_version=helper.find_min_ir_version_for(opsets, True),
        )
        return model

    def begin(self, graph: Graph, names: list[str]) -> list[Any]:
        """The inputs: those of the caller stay, the others are initializers."""
        builder, inputs = self.builder, []
        signature = self.program.graph_signature
        given = iter(names)
        for node, spec in zip(graph.placeholders, signature.input_specs, strict=True):
            info = node.meta.get("value")
            if not isinstance(info, ValueInfo):
                self.env[node] = info  # a number, which is part of the program
                continue
            if spec.kind is InputKind.USER_INPUT:
                name = builder.unique(next(given, spec.name))
                inputs.append(self.value_info(name, info))
            else:
                name = builder.unique(spec.target)
                tensor = self.program.tensor(spec.target)
                builder.initializers[name] = tensor.detach().numpy(force=True)
            self.env[node] = Tensor(name, info)
        return inputs

    def end(self, graph: Graph, names: list[str]) -> list[Any]:
        """The outputs of the caller, under the names that were asked for."""
        last = graph.output_node()
        assert last is not None
        result, _ = last.args[0]
        specs = self.program.graph_signature.output_specs
        values = [
            value
            for value, spec in zip(result, specs, strict=True)
            if spec.kind is OutputKind.USER_OUTPUT and value is not None
        ]
        outputs = []
        for i, value in enumerate(values):
            held = self.value(value)
            info = value.meta.get("value") if isinstance(value, Node) else None
            if not isinstance(held, Tensor):
                dtype = dtypes.int64
                if isinstance(held, Length):
                    dtype = held.dtype
                else:
                    held = np.array(held)
                    dtype = _dtype_of(held)
                held = Tensor(self.builder.cast(held, dtype), ValueInfo((), dtype, None))  # type: ignore[arg-type]
                info = held.info
            wanted = names[i] if i < len(names) else (value.name if isinstance(value, Node) else "")
            name = self.builder.unique(wanted or f"output_{i}")
            # Outputs have names of their own: an input may be returned, and a value twice.
            self.builder.nodes.append(self.identity(held.name, name))
            outputs.append(self.value_info(name, info))
        return outputs

    def identity(self, source: str, name: str) -> Any:
        from onnx import helper

        return helper.make_node("Identity", [source], [name], self.builder.unique("Identity"))

    def value_info(self, name: str, info: Any) -> Any:
        from onnx import helper

        sizes = [self.size_text(size) for size in info.shape]
        return helper.make_tensor_value_info(name, onnx_dtype(info.dtype), sizes)

    def size_text(self, size: Any) -> Any:
        if not isinstance(size, Expression):
            return int(size)
        text = str(size)
        return self.size_names.get(text, text)

    # -- steps -----------------------------------------------------------------------------------

    def step(self, node: Node) -> None:
        if node.op in ("placeholder", "output"):
            return
        if node.op == "get_attr":
            tensor = _attribute(self.program, node.target)
            name = self.builder.unique(node.target)
            self.builder.initializers[name] = tensor.detach().numpy(force=True)
            self.env[node] = Tensor(name, node.meta["value"])
            return
        if node.op in ("if", "loop"):
            translate = translate_branch if node.op == "if" else translate_loop
            self.env[node] = translate(self, node)
            return
        if node.op == "call_method" and node.target in ("size", "numel"):
            self.env[node] = self.size(node)
            return
        op = operator_of(node)
        if op is None:
            self.env[node] = self.python(node)
            return
        args = bound_arguments(op, node)
        function = self.custom.get(op.name) or self.known.get(op.name)
        if function is None or args is None:
            raise UnsupportedOperatorError(
                f"the operator {op.name!r} has no translation to ONNX (opset {self.opset})"
                f"{_line(node)}.\n{_MODE if op.random else _ADVICE.format(op.name)}",
                op,
            )
        info = node.meta.get("value")
        self.builder.result = info
        try:
            made = function(self.builder, *self.values(args))
        except UnsupportedOperatorError as error:
            if str(error).startswith("the operator"):
                error.operator = op
                raise
            raise UnsupportedOperatorError(
                f"the operator {op.name!r} cannot be translated to ONNX here{_line(node)}: "
                f"{error}.\n{_ADVICE.format(op.name)}",
                op,
            ) from None
        self.env[node] = _held(made, info, op)

    def values(self, args: Any) -> Any:
        return map_aggregate(args, self.value)

    def value(self, argument: Any) -> Any:
        return self.env[argument] if isinstance(argument, Node) else argument

    def size(self, node: Node) -> Any:
        info = node.meta.get("value")
        if type(info) is int:
            return info
        x = self.value(node.args[0])
        builder = self.builder
        if node.target == "numel":
            return Length(builder.op("Reshape", builder.op("Size", x), np.array([1])))
        dim = x.axis(node.args[1])
        return Length(builder.op("Shape", x, start=dim, end=dim + 1))

    def python(self, node: Node) -> Any:
        """Arithmetic of sizes, and parts of results."""
        args = [self.value(argument) for argument in node.args]
        if node.target is operator.getitem:
            return args[0][args[1]]
        if not any(isinstance(a, Length) for a in args):
            return node.target(*args)
        b = self.builder
        function = node.target
        real = any(
            type(a) is float or isinstance(a, Length) and a.dtype is not dtypes.int64 for a in args
        )
        if real or function is operator.truediv:
            return self._real(node, args)
        sides = [a if isinstance(a, Length) else np.array([a], dtype=np.int64) for a in args]
        if function in _ARITHMETIC:
            return Length(b.op(_ARITHMETIC[function], *sides))
        if function is operator.mod:
            return Length(b.op("Mod", *sides))
        if function is operator.floordiv:
            return Length(b.op("Div", b.op("Sub", sides[0], b.op("Mod", *sides)), sides[1]))
        raise UnsupportedOperatorError(f"{node.format_node()} has no translation to ONNX")

    def _real(self, node: Node, args: list[Any]) -> Any:
        """Arithmetic of floats, in float64 as in Python, and what makes an integer of one."""
        b = self.builder
        double = onnx_dtype(dtypes.float64)
        sides = [
            np.array([a], dtype=np.float64)
            if not isinstance(a, Length)
            else a
            if a.dtype is dtypes.float64
            else b.op("Cast", a, to=double)
            for a in args
        ]
        kinds = {**_ARITHMETIC, operator.truediv: "Div", operator.pow: "Pow"}
        if node.target in kinds:
            return Length(b.op(kinds[node.target], *sides), dtypes.float64)
        if node.target in _ROUNDING:
            kind = _ROUNDING[node.target]
            whole = sides[0] if kind is None else b.op(kind, sides[0])
            return Length(b.op("Cast", whole, to=onnx_dtype(dtypes.int64)))
        raise UnsupportedOperatorError(f"{node.format_node()} has no translation to ONNX")


def _attribute(program: Any, path: str) -> Any:
    at = program.graph_module
    for part in path.split("."):
        at = getattr(at, part)
    return at


def _held(made: Any, info: Any, op: Operator) -> Any:
    """The results of a translation with what is known of them."""
    if isinstance(info, (tuple, list)):
        names = made if isinstance(made, (tuple, list)) else [made]
        if len(names) != len(info):
            raise OnnxExporterError(
                f"the translation of {op.name!r} gives {len(names)} results of {len(info)}"
            )
        return [Tensor(str(name), i) for name, i in zip(names, info)]
    return Tensor(str(made[0] if isinstance(made, (tuple, list)) else made), info)


def _stays(node: Node) -> bool:
    """A model has no stream of random numbers: those that nobody uses are no part of it."""
    op = operator_of(node)
    return node.is_impure() and not (op is not None and draws(op, node) and not op.mutates)


def _other_than(names: frozenset[str]) -> Callable[[Operator], bool]:
    """Whether an operator is none of those."""
    return lambda op: op.name not in names


def _named(names: frozenset[str]) -> Callable[[Operator], bool]:
    """Whether an operator is one of those."""
    return lambda op: op.name in names


def _line(node: Node) -> str:
    source = node.meta.get("source")
    return "" if source is None else " ({}:{} in {})".format(*source)


def _dtype_of(array: Any) -> Any:
    kinds = {"b": dtypes.bool_, "i": dtypes.int64, "f": dtypes.float32}
    return kinds[array.dtype.kind]


def _tensor(name: str, array: Any) -> Any:
    from onnx import helper, numpy_helper

    if array.dtype.name == "bfloat16":
        from onnx import TensorProto

        return helper.make_tensor(
            name, TensorProto.BFLOAT16, array.shape, array.tobytes(), raw=True
        )
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
