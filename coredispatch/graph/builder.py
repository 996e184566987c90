"""Define first, run later: a graph made of placeholders, with the operators of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from coredispatch.graph.abstract import Abstract, AbstractRecorder
from coredispatch.graph.capture import load, source, tracing
from coredispatch.graph.graph import Graph, GraphError
from coredispatch.graph.interpreter import Interpreter
from coredispatch.graph.node import Node, map_aggregate
from coredispatch.graph.symbols import Expression, SymbolTable
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import Device, DType, Value, default_dtype, dtype_of

__all__ = ["Builder"]


class Builder:
    """A program that is written before its inputs are there.

    :meth:`placeholder` gives a tensor without data. Every operator, method and module takes it, and
    what is computed from it is again a tensor without data: shapes and dtypes are checked at once,
    and nothing is computed until :meth:`run` is called with values::

        builder = cd.graph.Builder()
        x = builder.placeholder("x", ("batch", 4))
        weight = builder.variable("weight", cd.zeros(4, 2, requires_grad=True))
        with builder:
            y = (x @ weight).relu() + cd.ones(2)
        builder.run({"x": cd.ones(3, 4)}, y)

    The block is needed for what has no tensor among its arguments, as ``cd.ones(2)``; the rest may
    stand anywhere. Tensors with data that the program uses are part of it, variables by name,
    others as constants. Writes to variables happen in every run, in their order.

    Attributes:
        graph: what was written so far, without an output.
        variables: name -> tensor.
        guards: what the program asked of open sizes.
    """

    def __init__(self) -> None:
        load()
        self.variables: dict[str, Any] = {}
        self._symbols = SymbolTable(source)
        self._recorder = AbstractRecorder({}, self._constant, self._symbols)
        self._inputs: dict[str, Node] = {}
        self._modes: list[tracing] = []
        self._programs: dict[Any, Graph] = {}

    @property
    def graph(self) -> Graph:
        """What was written so far."""
        return self._recorder.graph

    @property
    def guards(self) -> list[Any]:
        """What the program asked of open sizes."""
        return self._symbols.guards

    # -- writing ---------------------------------------------------------------------------------

    def placeholder(
        self,
        name: str,
        shape: Sequence[int | str | None],
        dtype: DType | None = None,
        device: Any = "cpu",
    ) -> Any:
        """An input. A size is an int, or open: a name, one size wherever it stands, or None.

        Raises :class:`GraphError` for a name that is taken, or is no name.
        """
        self._check_name(name)
        recorder, graph = self._recorder, self.graph
        sizes = tuple(self._size(name, dim, size) for dim, size in enumerate(shape))
        last = next(reversed(self._inputs.values()), graph._root)
        following = graph._insert_after is last  # nothing else was written yet
        with graph.inserting_after(last) if last is not graph._root else graph.inserting_before():
            node = graph.placeholder(name)
        if following:
            graph._insert_after = node
        if recorder.head is last:
            recorder.head = node
        self._inputs[name] = node
        info = ValueInfo(sizes, dtype or default_dtype(), Device(device))
        return recorder.input(node, info)

    def variable(self, name: str, tensor: Any) -> Any:
        """A tensor with data that the program reads, and may write to, by name."""
        self._check_name(name)
        if not isinstance(tensor, Value) or Abstract.of(tensor) is not None:
            raise GraphError(
                f"the variable {name!r} is no tensor with data, but {type(tensor).__name__}",
                fix="use placeholder() for what is given at the run",
            )
        self.variables[name] = tensor
        self._recorder.paths[id(tensor)] = name
        node = self._recorder.attribute(tensor)
        return self._recorder.tensor(node, node.meta["value"])

    def __enter__(self) -> Builder:
        mode = tracing(self._recorder)
        mode.__enter__()
        self._modes.append(mode)
        return self

    def __exit__(self, *error: Any) -> None:
        self._modes.pop().__exit__(*error)

    def _size(self, name: str, dim: int, size: Any) -> Any:
        if isinstance(size, str):
            return self._symbols.symbol(size, 7)
        if size is None:
            return self._symbols.symbol(f"{name}_{dim}", 7)
        if type(size) is int and size >= 0:
            return size
        raise GraphError(
            f"size {size!r} of the placeholder {name!r}", fix="use an int, a name, or None"
        )

    def _check_name(self, name: Any) -> None:
        if not (isinstance(name, str) and name.isidentifier()):
            raise GraphError(f"{name!r} is no name", fix="use an identifier")
        if name in self._inputs or name in self.variables:
            raise GraphError(f"there is a placeholder or variable {name!r} already")

    def _constant(self, tensor: Any) -> str:
        name = f"constant_{len(self.variables)}"
        self.variables[name] = tensor
        return name

    # -- running ---------------------------------------------------------------------------------

    def run(self, feed: Mapping[Any, Any], fetches: Any) -> Any:
        """The values of ``fetches``: tensors of this builder, in tuples, lists and dicts.

        ``feed`` has a value for each placeholder that they depend on, by name or by the placeholder
        itself. Gradients flow into values and variables that require them. Raises
        :class:`GraphError` for what is missing, unknown, or of another shape or dtype.
        """
        graph = self.program(fetches)
        values = {self._named(key): value for key, value in feed.items()}
        needed = {node.target for node in graph.placeholders if node.users}
        missing = sorted(needed - set(values))
        if missing:
            raise GraphError(
                f"the placeholder {missing[0]!r} has no value", fix=f"feed {{{missing[0]!r}: ...}}"
            )
        self._check(values)
        given = [values.get(node.target) for node in graph.placeholders]
        return Interpreter(SimpleNamespace(**self.variables), graph=graph).run(*given)

    def program(self, fetches: Any) -> Graph:
        """The graph that computes ``fetches``, with it as the output."""
        result = map_aggregate(fetches, self._node)
        key = repr((result, len(self.graph)))
        if key not in self._programs:
            made, mapping = Graph(), {}
            made.graph_copy(self.graph, mapping)
            made.output(map_aggregate(result, lambda n: mapping.get(n, n)))
            made.eliminate_dead_code()
            made.lint()
            self._programs[key] = made
        return self._programs[key]

    def _node(self, value: Any) -> Any:
        if isinstance(value, Expression):
            return self._recorder.size(value)
        found = Abstract.of(value)
        if found is not None and found.recorder is self._recorder:
            return found.node
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise GraphError(
            f"{value!r} is nothing that this builder computes", fix="fetch tensors of the builder"
        )

    def _named(self, key: Any) -> str:
        found = Abstract.of(key)
        name = key if found is None else found.node.target
        if name not in self._inputs:
            raise GraphError(
                f"{key!r} is no placeholder", fix=f"there are: {', '.join(self._inputs) or 'none'}"
            )
        return str(name)

    def _check(self, values: dict[str, Any]) -> None:
        """Values have the shapes and dtypes of their placeholders, and open sizes agree."""
        sizes: dict[str, int] = {}
        for name, value in values.items():
            info: ValueInfo = self._inputs[name].meta["value"]
            if not isinstance(value, Value):
                raise GraphError(
                    f"{name!r} is fed with {type(value).__name__}",
                    fix="feed a tensor: cd.tensor(...)",
                )
            shape = tuple(value.raw.shape)
            if dtype_of(value) is not info.dtype:
                raise GraphError(f"{name!r} is {info.dtype}, and is fed with {dtype_of(value)}")
            fits = len(shape) == len(info.shape)
            for size, wanted in zip(shape, info.shape):
                if isinstance(wanted, Expression):
                    fits = fits and sizes.setdefault(str(wanted), size) == size
                else:
                    fits = fits and size == wanted
            if not fits:
                known = "".join(f", where {key} = {n}" for key, n in sizes.items())
                raise GraphError(
                    f"{name!r} has the shape {info.shape}, and is fed with {shape}{known}"
                )
        for guard in self.guards:
            if guard.names() <= set(sizes) and not guard.holds(sizes):
                where = "" if guard.where is None else " ({}:{} in {})".format(*guard.where)
                raise GraphError(f"the program was written for sizes with {guard}{where}")
