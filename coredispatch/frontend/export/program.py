"""``ExportedProgram``: a graph, its parameters, and what it holds for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from coredispatch.frontend.export.constraints import ValueRange, ranges
from coredispatch.frontend.export.errors import UserError
from coredispatch.frontend.export.signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from coredispatch.frontend.fx.graph_module import GraphModule
from coredispatch.frontend.nn.module import Module, buffers_of
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils import _pytree as pytree
from coredispatch.graph import Graph, Node
from coredispatch.graph.passes.decomposition import decompose
from coredispatch.graph.passes.functionalization import functionalize
from coredispatch.graph.symbols import Guard, SymbolTable
from coredispatch.graph.values import ValueInfo, info_of
from coredispatch.plugin import Operator
from coredispatch.registry import TABLE

__all__ = ["ExportedProgram", "default_decompositions", "lifted"]

_PREFIX = {InputKind.PARAMETER: "p", InputKind.BUFFER: "b", InputKind.CONSTANT_TENSOR: "c"}


class ExportedProgram:
    """A module as a graph of operators, with its tensors and the sizes that it holds for.

    Attributes:
        graph_module, graph: the graph. Its inputs are the parameters, buffers and constants, then
            what a caller gives; its output is a flat tuple.
        graph_signature: what each input and output is.
        state_dict: path -> parameter or buffer. constants: name -> tensor, path -> non-persistent
            buffer.
        range_constraints: symbol -> range. guards: what else a call checks.
        example_inputs: ``(args, kwargs)`` of the export, None after loading.
        closed: sizes of ``Dim.AUTO`` that the program does not leave open: symbol -> the symbol it
            is equal to (or None) and its number.
    """

    def __init__(
        self,
        graph: Graph,
        signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        constants: dict[str, Any],
        table: SymbolTable,
        guards: list[Guard],
        specs: tuple[Any, Any],
        example_inputs: Any,
    ) -> None:
        self.graph_module = GraphModule(Module(), graph)
        self._graph_signature = signature
        self._state_dict, self._constants = state_dict, constants
        self._table, self.guards = table, guards
        self._in_spec, self._out_spec = specs
        self._example_inputs = example_inputs
        self.closed: dict[str, tuple[str | None, Any]] = {}

    # -- properties --------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What each input and output of the graph is."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Path -> parameter or persistent buffer."""
        return self._state_dict

    @property
    def constants(self) -> dict[str, Any]:
        """Name -> tensor made of numbers, or non-persistent buffer."""
        return self._constants

    tensor_constants = constants

    @property
    def range_constraints(self) -> dict[str, ValueRange]:
        """Symbol -> the values that it may have."""
        return ranges(self._table)

    @property
    def example_inputs(self) -> Any:
        """``(args, kwargs)`` of the export."""
        return self._example_inputs

    def parameters(self) -> Iterator[Parameter]:
        """The parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Path and parameter."""
        for path in self.graph_signature.parameters:
            yield path, self.state_dict[path]

    def buffers(self) -> Iterator[Tensor]:
        """The buffers."""
        for _, buffer in self.named_buffers():
            yield buffer

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Path and buffer."""
        for path in self.graph_signature.buffers:
            yield path, self.tensor(path)

    def tensor(self, path: str) -> Any:
        """The parameter, buffer or constant at a path."""
        return self._state_dict[path] if path in self._state_dict else self._constants[path]

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` "
            "instead."
        )

    def __str__(self) -> str:
        text = "\n".join(f"        {line}".rstrip() for line in _annotated(self.graph).split("\n"))
        limits = ", ".join(f"{name}: {limit}" for name, limit in self.range_constraints.items())
        return (
            f"ExportedProgram:\n    class GraphModule(torch.nn.Module):\n{text}\n\n"
            f"Graph signature: {self.graph_signature}\nRange constraints: {{{limits}}}\n"
        )

    __repr__ = __str__

    def validate(self) -> None:
        """Check the graph; raises :class:`~coredispatch.graph.GraphError`."""
        self.graph.lint()

    # -- uses ------------------------------------------------------------------------------------

    def module(self, check_guards: bool = True) -> Any:
        """The program as a module: the parameters are shared, inputs are checked at every call."""
        from coredispatch.frontend.export.running import ExportedModule

        return ExportedModule(self, check_guards)

    def run_decompositions(
        self, decomp_table: dict[Operator, Callable[..., Any] | None] | None = None
    ) -> ExportedProgram:
        """The same program without writes, and without the composites of ``decomp_table``.

        By default all composites go, down to primitives; an empty table keeps them. One whose
        decomposition holds for some of the open sizes only, such as ``cummax``, stays. What the
        program writes to comes back as the first outputs (see ``graph_signature``). A table holds
        operators; functions in the place of their decompositions are refused.
        """
        if decomp_table is not None and any(made is not None for made in decomp_table.values()):
            raise NotImplementedError(
                "run_decompositions() takes operators with None, which stands for the "
                "decomposition in their block; a function in its place is not there yet"
            )
        graph = functionalize(self.graph)
        names = None if decomp_table is None else {op.name for op in decomp_table}
        keep = (lambda op: False) if names is None else (lambda op: op.name not in names)
        made = decompose(graph, keep=keep, symbols=self._table, whole=lambda op: True)
        if names is None and made.meta.get("written") != graph.meta.get("written"):
            raise UserError("decomposing changed what the program writes to")
        made, outputs = _flat_outputs(made, self.graph_signature)
        constants = {**self._constants}
        signature = ExportGraphSignature(list(self.graph_signature.input_specs), outputs)
        return ExportedProgram(
            made,
            signature,
            self._state_dict,
            constants,
            self._table,
            self.guards,
            (self._in_spec, self._out_spec),
            self._example_inputs,
        )


def default_decompositions() -> dict[Operator, None]:
    """The table that ``run_decompositions`` has by default: every composite operator.

    Take operators out of it to keep them whole.
    """
    return {op: None for op in TABLE.snapshot.ops.values() if op.kind == "composite"}


def _flat_outputs(graph: Graph, signature: ExportGraphSignature) -> tuple[Graph, list[OutputSpec]]:
    """``(result, new values)`` as one tuple, the new values first; and what each of it is."""
    last = graph.output_node()
    assert last is not None
    result, new = last.args[0]
    specs = {spec.name: spec for spec in signature.input_specs}
    outputs: list[OutputSpec] = []
    for written, value in zip(graph.meta["written"], new):
        spec = specs[written.name]
        kind = {
            InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
            InputKind.CONSTANT_TENSOR: OutputKind.BUFFER_MUTATION,
            InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
            InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
        }[spec.kind]
        outputs.append(OutputSpec(kind, _name(value), spec.target or spec.name))
    known = [s for s in signature.output_specs if s.kind is not OutputKind.USER_OUTPUT]
    for value, output in zip(result[: len(known)], known):
        outputs.append(dataclasses.replace(output, name=_name(value)))
    outputs += [OutputSpec(OutputKind.USER_OUTPUT, _name(v)) for v in result[len(known) :]]
    last.args = ((*new, *result),)
    graph.meta.pop("written")
    return graph, outputs


def _name(value: Any) -> str | None:
    return value.name if isinstance(value, Node) else None


def lifted(
    mod: Module, trace: Any, shapes: Any, guards: list[Guard], example: Any
) -> ExportedProgram:
    """The program of a trace: what it reads of the module becomes inputs."""
    made, mapping = Graph(), {}
    specs: list[InputSpec] = []
    persistent = {
        f"{path}.{name}".lstrip("."): kept
        for path, module in mod.named_modules()
        for name, kept in buffers_of(module).items()
    }
    readers = {node.target: node for node in trace.graph.find_nodes(op="get_attr")}
    tensors: list[tuple[InputKind, str, Tensor]] = []
    tensors += [(InputKind.PARAMETER, n, p) for n, p in mod.named_parameters()]
    tensors += [(InputKind.BUFFER, n, b) for n, b in mod.named_buffers()]
    tensors += [(InputKind.CONSTANT_TENSOR, n, c) for n, c in trace.constants.items()]
    state: dict[str, Tensor] = {}
    constants: dict[str, Tensor] = {}
    for kind, path, tensor in tensors:
        name = re.sub(r"\W", "_", path)
        node = made.placeholder(f"{_PREFIX[kind]}_{name}")
        node.meta["value"] = info_of(tensor)
        kept = persistent.get(path) if kind is InputKind.BUFFER else None
        specs.append(InputSpec(kind, node.name, path, kept))
        (constants if kept is False or path in trace.constants else state)[path] = tensor
        if path in readers:
            mapping[readers[path]] = node
    for node in trace.graph.placeholders:
        mapping[node] = new = made.node_copy(node)
        specs.append(InputSpec(InputKind.USER_INPUT, new.name))
    result = made.graph_copy(trace.graph, mapping)
    made.output(result)
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, _name(value)) for value in result]
    made.lint()
    in_spec = pytree.tree_flatten(example)[1]
    return ExportedProgram(
        made,
        ExportGraphSignature(specs, outputs),
        state,
        constants,
        shapes.table,
        guards,
        (in_spec, trace.out_spec),
        example,
    )


_SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8", "complex64": "c64",
    "complex128": "c128",
}  # fmt: skip


def _annotated(graph: Graph) -> str:
    """The text of the graph, with the types of the inputs as PyTorch shows them."""
    text = str(graph.python_code("self").src).strip("\n")
    head, _, body = text.partition("\n")
    parts = [f"{node.name}{_type(node)}" for node in graph.placeholders]
    return f"def forward({', '.join(['self', *parts])}):\n{body}"


def _type(node: Node) -> str:
    info = node.meta.get("value")
    if not isinstance(info, ValueInfo):
        return ""
    sizes = ", ".join(map(str, info.shape))
    return f': "{_SHORT.get(info.dtype.name, info.dtype.name)}[{sizes}]"'
