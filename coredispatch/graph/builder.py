"""Define first, run later: a graph made of placeholders, with the operators of the table."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from keyword import iskeyword
from types import SimpleNamespace
from typing import Any, Protocol, runtime_checkable

from coredispatch.graph.abstract import Abstract, AbstractRecorder
from coredispatch.graph.capture import load, source, tracing
from coredispatch.graph.graph import Graph, GraphError
from coredispatch.graph.interpreter import Interpreter
from coredispatch.graph.node import Node, map_aggregate
from coredispatch.graph.symbols import Expression, SymbolTable
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import Device, DType, Value, default_dtype, dtype_of
from coredispatch.registry import TABLE

__all__ = ["Builder"]


#: what an open size is while nobody knows it, where its bounds allow that
_EXAMPLE = 7


@runtime_checkable
class NamedSize(Protocol):
    """What ``coredispatch.Dim`` is: ``factor * root + offset``, between bounds, inclusive."""

    root: Any
    factor: int
    offset: int
    min: Any
    max: Any


class _OpenSizes(SymbolTable):
    """The sizes of a program that is written before its inputs are there: none has a number."""

    def guard(
        self, sign: str, left: Any, right: Any, *, forced: bool = False, free: bool = False
    ) -> None:
        """Keep that ``left sign right``; refuse a size that the program needs as a number."""
        if forced:
            raise GraphError(
                "{}:{} in {}: the size {} is needed as a number, ".format(*self.source(), left)
                + "and is known when the program runs",
                fix="give the placeholder an int for this size, or compute with tensors "
                "(sum, mean, arange(size)) where there is a loop, len() or int()",
            )
        super().guard(sign, left, right)


class _Recorder(AbstractRecorder):
    """Fills the graph of one builder.

    Attributes:
        entered: how many blocks of the builder the program is in.
    """

    entered = 0

    def called(self, call: Any, args: tuple[Any, ...]) -> Any:
        """Note the operator; refuse a write that tells of others which nobody can note."""
        if call.op.mutates and not self.entered:
            for tensor in call.op.schema.written(args):
                if Abstract.of(tensor) is None:
                    raise GraphError(
                        f"{call.op.name} writes to a tensor with data, of shape "
                        f"{tuple(tensor.raw.shape)}, outside of the builder's block: what else "
                        "the program writes there happens now, and not when it runs",
                        fix="put the call into 'with builder:', or use builder.variable()",
                    )
        return super().called(call, args)

    def _leaf(self, value: Any) -> Any:
        found = Abstract.of(value)
        if found is not None and found.recorder is not self:
            raise GraphError(
                f"{found.node.name!r}, a tensor of shape {tuple(found.info.shape)}, belongs to "
                "another Builder",
                fix="write a program with one Builder, or feed one's results to the other",
            )
        return super()._leaf(value)


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

    The block is needed for what has no tensor of the builder among its arguments, as
    ``cd.ones(2)``, and for modules that write to their buffers, as batch norm does in training;
    the rest may stand anywhere. Tensors with data that the program uses are part of it, variables
    by name, others as constants. Writes to variables happen in every run, in their order.

    Attributes:
        graph: what was written so far, without an output.
        variables: name -> tensor.
        guards: what the program asked of open sizes.
    """

    def __init__(self) -> None:
        load()
        self.variables: dict[str, Any] = {}
        self._symbols = _OpenSizes(source)
        self._recorder = _Recorder({}, self._constant, self._symbols)
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
        shape: Sequence[int | str | NamedSize | None],
        dtype: DType | None = None,
        device: Any = "cpu",
    ) -> Any:
        """An input. A size is an int, or open: a name, one size wherever it stands, or None.

        A :class:`coredispatch.Dim` is a name with bounds, which values are checked for; ``2 * dim``
        and ``dim + 1`` are sizes too.

        Raises :class:`GraphError` for a name that is taken, or is no name, and for what is no
        shape, dtype or device.
        """
        self._check_name(name)
        recorder, graph = self._recorder, self.graph
        info = self._described(name, shape, dtype, device)
        last = next(reversed(self._inputs.values()), graph._root)
        following = graph._insert_after is last  # nothing else was written yet
        with graph.inserting_after(last) if last is not graph._root else graph.inserting_before():
            node = graph.placeholder(name)
        if following:
            graph._insert_after = node
        if recorder.head is last:
            recorder.head = node
        self._inputs[name] = node
        return recorder.input(node, info)

    def _described(self, name: str, shape: Any, dtype: Any, device: Any) -> ValueInfo:
        if not isinstance(shape, Sequence) or isinstance(shape, str):
            raise GraphError(
                f"the placeholder {name!r} has the shape {shape!r}",
                fix="give a tuple: (3, 4), ('batch', 4) or () for a number",
            )
        if dtype is not None and not isinstance(dtype, DType):
            raise GraphError(
                f"the placeholder {name!r} has the dtype {dtype!r}", fix="give one: cd.float32"
            )
        place = Device(device)
        known = TABLE.snapshot.order.by_name
        if place.type not in known:
            raise GraphError(
                f"the placeholder {name!r} lies on {str(place)!r}, which no plugin brings",
                fix="use device='cpu', or install and load the plugin of the device",
            )
        sizes = tuple([self._size(name, dim, size) for dim, size in enumerate(shape)])
        return ValueInfo(sizes, dtype or default_dtype(), place)

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
        self._recorder.entered += 1
        return self

    def __exit__(self, *error: Any) -> None:
        self._recorder.entered -= 1
        self._modes.pop().__exit__(*error)

    def _size(self, name: str, dim: int, size: Any) -> Any:
        if isinstance(size, str) and _is_name(size):
            return self._symbols.symbol(size, _EXAMPLE)
        if size is None:
            return self._symbols.symbol(f"{name}_{dim}", _EXAMPLE)
        if isinstance(size, NamedSize):
            return self._bounded(name, size.root) * size.factor + size.offset
        if hasattr(size, "__index__") and type(size) is not bool and operator.index(size) >= 0:
            return operator.index(size)
        raise GraphError(
            f"the placeholder {name!r} has size {size!r} in dimension {dim}",
            fix="use an int of at least 0, a name such as 'batch' for one that is open, a "
            "cd.Dim, which has bounds, or None",
        )

    def _bounded(self, name: str, size: Any) -> Any:
        """The size of a ``Dim``. All that stands for one name has the same bounds."""
        text = size.__name__
        example = min(max(_EXAMPLE, size.min), size.max)
        found = self._symbols.symbol(text, example, size.min, size.max)
        known = self._symbols.variables[text]
        if (known.least, known.greatest) != (size.min, size.max):
            raise GraphError(
                f"the placeholder {name!r} has size {size!r}, and the size {text!r} stands before "
                f"with the bounds {known.least} and {known.greatest}",
                fix="use one Dim for all of them, or another name",
            )
        return found

    def _check_name(self, name: Any) -> None:
        if not _is_name(name):
            raise GraphError(f"{name!r} is no name", fix="use an identifier such as 'x'")
        if name in self._inputs or name in self.variables:
            kind = "placeholder" if name in self._inputs else "variable"
            raise GraphError(f"there is a {kind} {name!r} already", fix="use another name")

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
        if not isinstance(feed, Mapping):
            raise GraphError(
                f"the feed is of type {type(feed).__name__}",
                fix="give a dict with a tensor for each placeholder, {'x': tensor}",
            )
        values = {self._named(key): value for key, value in feed.items()}
        for node in graph.placeholders:
            if node.users and node.target not in values:
                user = next(iter(node.users))
                what = (
                    "it is fetched" if user.op == "output" else f"{user.name!r} is computed of it"
                )
                raise GraphError(
                    f"the placeholder {node.target!r} has no value, and {what}",
                    fix=f"feed {{{node.target!r}: a tensor of shape {node.meta['value'].shape}}}",
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
        if value is None or isinstance(value, (bool, int, float)):
            return value
        what = repr(value) if isinstance(value, str) else f"a value of type {type(value).__name__}"
        if found is not None:
            what = f"{found.node.name!r} of another builder"
        elif isinstance(value, Value):
            what = f"a tensor with data of shape {tuple(value.raw.shape)}"
        raise GraphError(
            f"{what} is nothing that this builder computes",
            fix="fetch what operators gave for placeholders and variables of this builder",
        )

    def _named(self, key: Any) -> str:
        found = Abstract.of(key)
        name = key if found is None else found.node.target
        if name not in self._inputs:
            shown = repr(key) if found is None else repr(name)
            near = get_close_matches(str(name).lower(), list(self._inputs), 1, 0.5)
            raise GraphError(
                f"{shown} is no placeholder of this builder",
                fix=(f"did you mean {near[0]!r}? " if near else "")
                + f"There are: {', '.join(self._inputs) or 'none'}",
            )
        return str(name)

    def _check(self, values: dict[str, Any]) -> None:
        """Values have the shapes and dtypes of their placeholders, and open sizes agree."""
        sizes: dict[str, int] = {}
        where: dict[str, str] = {}  # size -> the placeholder that has it, fed before
        for name, value in values.items():
            info: ValueInfo = self._inputs[name].meta["value"]
            if not isinstance(value, Value) or Abstract.of(value) is not None:
                what = f"a value of type {type(value).__name__}"
                what = "a tensor without data" if isinstance(value, Value) else what
                raise GraphError(
                    f"the placeholder {name!r} is fed with {what}",
                    fix=f"feed a tensor with data, of shape {info.shape}: cd.tensor(...)",
                )
            if dtype_of(value) is not info.dtype:
                raise GraphError(
                    f"the placeholder {name!r} is {info.dtype}, and is fed with {dtype_of(value)}",
                    fix=f"convert the tensor: .to({info.dtype})",
                )
            device = value.device  # type: ignore[attr-defined]
            if device.type != info.device.type:
                raise GraphError(
                    f"the placeholder {name!r} lies on {str(info.device)!r}, and is fed with a "
                    f"tensor on {str(device)!r}",
                    fix=f"move the tensor: .to({str(info.device)!r})",
                )
            self._check_shape(name, tuple(value.raw.shape), info, sizes, where)
        for guard in self.guards:
            if guard.names() <= set(sizes) and not guard.holds(sizes):
                line = "" if guard.where is None else " ({}:{} in {})".format(*guard.where)
                given = ", ".join(f"{size} = {sizes[size]}" for size in sorted(guard.names()))
                raise GraphError(
                    f"the program was written for sizes with {guard}{line}, and is fed with "
                    f"{given}",
                    fix="feed other sizes, or write a program for these",
                )

    def _check_shape(
        self,
        name: str,
        shape: tuple[int, ...],
        info: ValueInfo,
        sizes: dict[str, int],
        where: dict[str, str],
    ) -> None:
        fits, known = len(shape) == len(info.shape), ""
        for size, wanted in zip(shape, info.shape):
            if isinstance(wanted, Expression):
                solved = wanted.solve(size)
                assert solved is not None  # sizes of placeholders are linear in one name
                text, found = solved
                bounds = self._symbols.variables[text]
                where.setdefault(text, name)
                if sizes.setdefault(text, found) != found:
                    fits, known = False, f", where {text} = {sizes[text]} by {where[text]!r}"
                elif wanted.value({text: found}) != size:
                    fits, known = False, f", where no {text} gives {wanted} = {size}"
                elif not bounds.least <= found <= bounds.greatest:
                    limits = f"from {bounds.least} to {bounds.greatest}"
                    fits, known = False, f", where {text} = {found} is not {limits}"
            else:
                fits = fits and size == wanted
        if not fits:
            raise GraphError(
                f"the placeholder {name!r} has the shape {info.shape}, and is fed with "
                f"{shape}{known}",
                fix="feed a tensor of that shape, or declare the placeholder with another one",
            )


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and text.isidentifier() and not iskeyword(text)
