"""The module of an exported program: its inputs are checked, then its graph runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.export.errors import GuardError
from coredispatch.frontend.export.signature import InputKind, OutputKind
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils import _pytree as pytree
from coredispatch.graph import Graph, Node, compile_code
from coredispatch.graph.symbols import Expression
from coredispatch.graph.values import ValueInfo
from coredispatch.registry import TABLE

__all__ = ["ExportedModule"]


class ExportedModule(Module):
    """What :meth:`ExportedProgram.module` gives: the program, with the parameters as its own.

    Raises :class:`GuardError` for inputs that the program does not hold for, and ``ValueError`` for
    inputs of another structure.
    """

    def __init__(self, program: Any, check_guards: bool = True) -> None:
        super().__init__()
        signature = program.graph_signature
        for spec in signature.input_specs:
            if spec.target is not None:
                _put(self, spec.target, program.tensor(spec.target), spec)
        state = self.__dict__
        graph = _unlifted(program.graph, signature)
        graph.owning_module = self
        state["_program"], state["_check"], state["_graph"] = program, check_guards, graph
        state["_function"] = compile_code(graph.python_code(), "<exported program>")
        state["_checks"] = _checks(program)

    @property
    def graph(self) -> Graph:
        """The graph; it reads parameters and buffers of this module."""
        return self._graph  # type: ignore[no-any-return]

    @property
    def code(self) -> str:
        """The graph as Python text."""
        return self.graph.code

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Check the inputs and run the program."""
        program = self._program
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != program._in_spec:
            leaves, spec = _reordered(leaves, args, kwargs, spec, program._in_spec)
        if self._check:
            self._checks(leaves)
        return pytree.tree_unflatten(self._function(self, *leaves), program._out_spec)

    def train(self, mode: bool = True) -> Any:
        """Refused: what a module does in training is part of the graph."""
        raise NotImplementedError(
            "Calling train() is not supported yet: the mode that the module was in is part of the "
            "graph; export it again in the other mode"
        )

    def eval(self) -> Any:
        """Refused, as :meth:`train`."""
        raise NotImplementedError(
            "Calling eval() is not supported yet: the mode that the module was in is part of the "
            "graph; export it again in the other mode"
        )


def _reordered(leaves: Any, args: Any, kwargs: Any, spec: Any, wanted: Any) -> Any:
    """Keyword arguments in another order are the same inputs."""
    example = pytree.tree_unflatten([None] * wanted.num_leaves, wanted)
    if isinstance(example, tuple) and set(example[1]) == set(kwargs):
        again = pytree.tree_flatten((args, {name: kwargs[name] for name in example[1]}))
        if again[1] == wanted:
            return again
    raise ValueError(
        f"Trying to flatten user inputs with exported input tree spec: \n{wanted}\n"
        f"but actually got inputs with tree spec of: \n{spec}.\n"
        "Please check that the inputs have the same number and type of args and kwargs as the "
        "ones you used when tracing."
    )


def _put(root: Module, path: str, tensor: Any, spec: Any) -> None:
    *above, last = path.split(".")
    at = root
    for name in above:
        if name not in at._modules:
            at.add_module(name, Module())
        at = at._modules[name]
    if isinstance(tensor, Parameter):
        at.register_parameter(last, tensor)
    else:
        kept = spec.kind is InputKind.BUFFER and spec.persistent is not False
        at.register_buffer(last, tensor, persistent=kept)


def _unlifted(graph: Graph, signature: Any) -> Graph:
    """The graph with reads of attributes for lifted inputs, which writes what it gives anew."""
    made = Graph()
    mapping: dict[Node, Any] = {}
    specs = list(zip(graph.placeholders, signature.input_specs, strict=True))
    places: dict[str, Node] = {}
    for node, spec in specs:
        if spec.kind is InputKind.USER_INPUT:
            mapping[node] = places[spec.name] = made.node_copy(node)
    for node, spec in specs:
        if spec.kind is not InputKind.USER_INPUT:
            mapping[node] = places[spec.target] = made.get_attr(spec.target)
            mapping[node].meta.update(node.meta)
    result = list(made.graph_copy(graph, mapping))
    returned = []
    for value, spec in zip(result, signature.output_specs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            returned.append(value)
        else:
            made.call_function(TABLE.operator("copy_"), (places[spec.target], value))
    made.output(tuple(returned))
    made.lint()
    return made


# ---- checks --------------------------------------------------------------------------------------


def _checks(program: Any) -> Callable[[list[Any]], None]:
    """A function that raises :class:`GuardError` unless the inputs are such as were promised."""
    signature, table = program.graph_signature, program._table
    nodes = dict(zip((s.name for s in signature.input_specs), program.graph.placeholders))
    wanted = [(name, nodes[name].meta.get("value")) for name in signature.user_inputs]

    def check(leaves: list[Any]) -> None:
        values: dict[str, int] = {}
        for (name, info), leaf in zip(wanted, leaves, strict=True):
            if isinstance(info, ValueInfo):
                _tensor(name, info, leaf, values)
            elif leaf != info or type(leaf) is not type(info):
                raise GuardError(
                    f"Guard failed: {name} == {info!r}, and it is {leaf!r}",
                    fix="export the program with this value",
                )
        for name, variable in table.variables.items():
            if name in values and not variable.least <= values[name] <= variable.greatest:
                sign, edge = (
                    (">=", variable.least)
                    if values[name] < variable.least
                    else ("<=", variable.greatest)
                )
                raise GuardError(
                    f"Guard failed: {name} {sign} {int(edge)}, and it is {values[name]}"
                )
        for (name, info), leaf in zip(wanted, leaves):
            for dim, size in enumerate(info.shape if isinstance(info, ValueInfo) else ()):
                if isinstance(size, Expression) and size.value(values) != leaf.shape[dim]:
                    raise GuardError(
                        f"Guard failed: {name}.size()[{dim}] == {size}, and it is "
                        f"{leaf.shape[dim]} where {_shown(values)}"
                    )
        for guard in program.guards:
            if not guard.holds(values):
                where = "" if guard.where is None else " ({}:{} in {})".format(*guard.where)
                raise GuardError(f"Guard failed: {guard}{where}, where {_shown(values)}")

    return check


def _shown(values: dict[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _tensor(name: str, info: ValueInfo, leaf: Any, values: dict[str, int]) -> None:
    """Rank, dtype and fixed sizes; open sizes get their values."""
    if not isinstance(leaf, Tensor):
        raise GuardError(f"Guard failed: {name} is a tensor, not {type(leaf).__name__}")
    if len(leaf.shape) != len(info.shape):
        raise GuardError(f"Guard failed: {name}.dim() == {len(info.shape)}, and it is {leaf.dim()}")
    if leaf.dtype is not info.dtype:
        raise GuardError(f"Guard failed: {name}.dtype == {info.dtype}, and it is {leaf.dtype}")
    if leaf.device != info.device:
        raise GuardError(f"Guard failed: {name}.device == {info.device}, and it is {leaf.device}")
    for dim, (size, got) in enumerate(zip(info.shape, leaf.shape)):
        if not isinstance(size, Expression):
            if size != got:
                raise GuardError(
                    f"Guard failed: {name}.size()[{dim}] == {size}, and it is {got}",
                    fix=f"make the size open: dynamic_shapes={{{name!r}: {{{dim}: Dim.AUTO}}}}",
                )
        else:
            solved = size.solve(got)
            if solved is not None:
                values.setdefault(*solved)
