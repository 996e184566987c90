"""Check 29: programs as graphs mean what they mean eagerly.

Every operator's samples and a list of small programs go through capture, each pass, a file, and
each compiler of graphs; results and what was written are compared with the eager call. Tolerance is
that of check 24: another order of rounding.
"""

from __future__ import annotations

import functools
import json
import math
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.graph import Graph, Interpreter, Node, ValueInfo, run
from coredispatch.graph.compilers import compiler_named, compiler_names
from coredispatch.graph.passes.aliasing import Aliases, written_by
from coredispatch.graph.passes.common import eliminate_common_nodes
from coredispatch.graph.passes.decomposition import decompose
from coredispatch.graph.passes.folding import fold_constants
from coredispatch.graph.passes.functionalization import functionalize
from coredispatch.graph.passes.fusion import fuse
from coredispatch.graph.passes.inference import infer_values
from coredispatch.graph.passes.inlining import inline_modules
from coredispatch.graph.passes.memory import plan
from coredispatch.graph.storing import from_document, to_document
from coredispatch.graph.symbols import SymbolTable
from coredispatch.plugin import CoreDispatchError, DataDependentError
from coredispatch.registry import OpError

from ..case import BACKEND, Case
from ..context import Context, NotRun, has_values, tensors_in
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject
from . import check
from .decompositions import disagreement
from .programs import OPEN, PROGRAMS
from .values import choose_dtypes

__all__: list[str] = []

#: samples of one operator in the first dtype
LIMIT = 16
#: samples in each further dtype
FEW = 2
#: samples in the first dtype that go through each compiler
THROUGH_COMPILERS = 1
#: dtypes besides the first: doubles, integers, halves, bools and complex numbers have rules apart
FURTHER = ("float64", "int64", "float16", "bool", "complex64")
#: one operator in this many goes through the compilers, which take seconds for each
COMPILED = 8


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        for name in PROGRAMS:
            yield Case(29, BACKEND, variant=f"program+{name}")
        for name in OPEN:
            yield Case(29, BACKEND, variant=f"open+{name}")
        for compiler in compiler_names():
            yield Case(29, BACKEND, variant=f"compiler+{compiler}")
        return
    op = metadata.op
    if op.samples is None or metadata.layouts or op.schema.plain or not has_values(op):
        return
    if not op.tensors and not op.lists:
        return  # nothing goes in
    for dtype in _dtypes(metadata):
        if dtype in subject.dtypes:
            yield Case(29, op.name, dtype, mandatory=dtype in MANDATORY_DTYPES)


def _dtypes(metadata: OpMetadata) -> list[str]:
    """The operator's first dtype, and those of each other kind that it takes."""
    first = choose_dtypes(metadata, ("float32",), 1)
    rest = [d for d in FURTHER if d in metadata.dtypes]
    return list(dict.fromkeys(first + rest))


class _Root:
    """What has the constants of a graph."""

    def __init__(self, owner: Any) -> None:
        self.__dict__.update(dict(owner.named_buffers()) if owner is not None else {})

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        setattr(self, name, tensor)

    def constant(self, tensor: Any) -> str:
        name = f"folded{len(self.__dict__)}"
        setattr(self, name, tensor)
        return name


def _captured(program: Callable[..., Any], given: list[Any]) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a value that Python reads is that of the same sample
        copies = tuple(tensor.clone() for tensor in given)
        traced = cd.jit.trace(program, copies, check_trace=False, strict=False)
    graph: Graph = traced.graph
    graph.owning_module = _Root(graph.owning_module)
    return graph


def _stages(graph: Graph, given: list[Any]) -> Iterator[tuple[str, Callable[[], Graph]]]:
    """Name, and what makes the graph that has to mean the same."""
    root = graph.owning_module
    pure = functools.cache(lambda: functionalize(graph, write_back=True))
    spelled_out = functools.cache(lambda: decompose(pure()))
    yield "capture", lambda: graph
    yield "functionalize", pure
    yield "common nodes", lambda: eliminate_common_nodes(graph)
    yield "folded constants", lambda: fold_constants(graph, root.constant)
    yield "save and load", lambda: from_document(json.loads(json.dumps(to_document(graph))))
    yield "dead code", lambda: _without_dead_code(graph)
    yield "inline", lambda: inline_modules(_called(graph))
    yield "fuse and plan", lambda: plan(fuse(infer_values(graph, given)))
    yield "decompose", spelled_out
    yield (
        "all passes",
        lambda: plan(fuse(infer_values(eliminate_common_nodes(spelled_out()), given))),
    )


def _without_dead_code(graph: Graph) -> Graph:
    """The graph, with a call that nobody uses put in front and taken out again."""
    made = graph.copy()
    first = made.placeholders[0]
    with made.inserting_after(made.placeholders[-1]):
        made.call_function(cd.ops.clone, (first,))
    made.eliminate_dead_code()
    return made


class _Caller:
    """What calls the module of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.inner = graph.owning_module
        self.inner._graph = graph


def _called(graph: Graph) -> Graph:
    """A graph that does nothing but call the module of ``graph``, the last input by its name."""
    outer = Graph(_Caller(graph))
    places = [outer.placeholder(str(place.target)) for place in graph.placeholders]
    named = {str(graph.placeholders[-1].target): places[-1]}
    outer.output(outer.call_module("inner", tuple(places[:-1]), named))
    return outer


class _Watched(Interpreter):
    """Runs a graph, and compares each value with what the graph says of it beforehand."""

    context: Context

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        info = n.meta.get("value")
        if isinstance(info, ValueInfo) and isinstance(value, cd.Tensor):
            self.context.expect(
                tuple(info.shape) == tuple(value.shape) and info.dtype is value.dtype,
                f"infer: {n.name!r} is {info.shape} {info.dtype} beforehand, and "
                f"{tuple(value.shape)} {value.dtype} when it runs",
            )
        return value


def _places_hold(context: Context, graph: Graph) -> None:
    """What the plan puts into a place is there until the last node that looks at it has run."""
    aliases = Aliases(graph)
    owner = np.zeros(graph.meta["block"], dtype=np.int64)
    buffers: dict[Any, list[Node]] = {}
    steps: dict[Any, list[Node]] = {}
    for node in graph.nodes:
        group = node.meta.get("group")
        steps.setdefault(node if group is None else group[0], []).append(node)
    number = {node: index for index, node in enumerate(graph.nodes, 1)}
    for nodes in steps.values():  # the nodes of a group run together
        for node in nodes:
            buffer = node.meta.get("buffer")
            if buffer is not None:
                info = node.meta["value"]
                size = math.prod(info.shape) * info.dtype.itemsize
                room = owner[buffer.offset : buffer.offset + size]
                context.expect(len(room) == size, f"plan: {node.name!r} has no room in the block")
                room[:] = number[node]
                buffers.setdefault(aliases.of(node), []).append(node)
        for used in {used for node in nodes for used in node.all_input_nodes}:
            for kept in buffers.get(aliases.of(used), ()):
                offset, size = kept.meta["buffer"]
                held = owner[offset : offset + size] == number[kept]
                context.expect(
                    bool(held.all()),
                    f"plan: {kept.name!r} is overwritten before {nodes[-1].name!r} looks at it",
                )


def _same_results(context: Context, stage: str, found: Any, wanted: Any) -> None:
    one, other = tensors_in(found), tensors_in(wanted)
    context.expect(len(one) == len(other), f"{stage}: {len(one)} results, eager has {len(other)}")
    for a, b in zip(one, other, strict=True):
        context.expect(
            a.dtype is b.dtype, f"{stage}: the result is {a.dtype}, eager's is {b.dtype}"
        )
        got, known = context.array(a.detach()), context.array(b.detach())
        context.expect(
            got.shape == known.shape, f"{stage}: the result is {got.shape}, eager's {known.shape}"
        )
        error = disagreement(got, known)
        context.expect(error <= 1, f"{stage}: differs from eager {error:.3g} times too much")


def _eager(
    context: Context, program: Callable[..., Any], given: list[Any]
) -> tuple[Any, list[Any]]:
    """What a program gives eagerly, and its inputs afterwards.

    Raises :class:`NotRun` where it writes to memory that a view shares and the backend has no
    views: that is refused by design.
    """
    eager = [tensor.clone() for tensor in given]
    cd.manual_seed(5)
    try:
        return program(*eager), eager
    except OpError as error:
        if context.subject.backend.views or "its backend has no strided views" not in str(error):
            raise
    raise NotRun(
        f"a program that writes to views is refused: {context.subject.name!r} has no strided views"
    )


def _judge(context: Context, program: Callable[..., Any], given: list[Any]) -> None:
    """The program through all stages, against itself."""
    wanted, eager = _eager(context, program, given)
    graph = _captured(program, given)
    root = graph.owning_module
    for stage, made in _stages(graph, given):
        try:
            staged = made()
        except DataDependentError:
            context.expect("decompose" in stage or stage == "all passes", f"{stage}: reads values")
            continue
        staged.lint()
        values = [tensor.clone() for tensor in given]
        cd.manual_seed(5)
        watched = _Watched(staged.owning_module if stage == "inline" else root, graph=staged)
        watched.context = context
        result = watched.run(*values)
        _same_results(context, stage, result, wanted)
        _same_results(context, f"{stage}, what is written", values, eager)
        if stage == "functionalize":
            _writes_nothing(context, staged)
        if stage == "fuse and plan":
            _places_hold(context, staged)
        if stage == "dead code":
            context.expect(len(staged) <= len(graph), "dead code: a call that nobody uses stays")
        if stage == "inline":
            calls = staged.find_nodes(op="call_module")
            context.expect(not calls, "inline: the module is still called")


def _writes_nothing(context: Context, graph: Graph) -> None:
    """Only the copies at the end write."""
    written = len(graph.meta["written"])
    calls = [node for node in graph.nodes if getattr(node.target, "mutates", ())]
    writers = [node for node in calls if written_by(node)]
    names = [node.target.name for node in writers]
    context.expect(names == ["copy_"] * written, f"functionalize: {names} write")


@check(29, plan=_plan)
def compiled(context: Context) -> None:
    """A call as a graph, after each pass and after a file, gives what the eager call gives."""
    done = 0
    assert context.metadata is not None
    limit = LIMIT if context.case.dtype == _dtypes(context.metadata)[0] else FEW
    for sample in context.samples():
        if done == limit:
            break
        tensors = context.subject.tensors(sample)
        given = tensors_in([list(tensors.args), tensors.kwargs])
        if not given:
            continue

        def program(*values: Any, sample: Any = tensors) -> Any:
            rest = iter(values)
            put = lambda v: (  # noqa: E731
                next(rest)
                if isinstance(v, cd.Tensor)
                else type(v)(map(put, v))
                if isinstance(v, (list, tuple))
                else v
            )
            args = [put(v) for v in sample.args]
            kwargs = {key: put(v) for key, v in sample.kwargs.items()}
            result = context.op(*args, **kwargs)
            return tensors_in(args) if result is None else result

        try:
            program(*[tensor.clone() for tensor in given])
        except CoreDispatchError:
            continue  # an in-place form has the samples of the plain one, and refuses some
        _judge(context, program, given)
        if (
            done < THROUGH_COMPILERS
            and limit == LIMIT
            and zlib.crc32(context.op.name.encode()) % COMPILED == 0
        ):
            for name in compiler_names():
                _judge_compiler(context, name, context.op.name, program, given)
        done += 1
    if not done:
        raise NotRun("no sample has a tensor and is served")


def _inputs(context: Context, rows: int = 3) -> list[Any]:
    rng = np.random.default_rng(context.case.seed % 2**32)
    x, y = rng.normal(size=(rows, 4)), rng.normal(size=(4, rows))
    return [context.tensor(a.astype(np.float32)) for a in (x, y)]


@check(29, plan=_plan, variant="program")
def programs(context: Context) -> None:
    """A small program, through all passes."""
    _judge(context, PROGRAMS[context.case.variant.partition("+")[2]], _inputs(context))


@check(29, plan=_plan, variant="open")
def open_sizes(context: Context) -> None:
    """A program that was decomposed for an open number of rows holds for others."""
    program = PROGRAMS[context.case.variant.partition("+")[2]]
    _eager(context, program, _inputs(context))  # else nothing is captured
    graph = functionalize(_captured(program, _inputs(context)))
    table = SymbolTable()
    n = table.symbol("n", 3)
    shapes = [(n, 4), (4, n)]
    infos = []
    for node, shape in zip(graph.placeholders, shapes):
        info = node.meta["value"]
        context.expect(isinstance(info, ValueInfo), "the capture knows nothing of an input")
        infos.append(replace(info, shape=shape, strides=None))
    made = decompose(graph, inputs=infos, symbols=table)
    for rows in (3, 2, 6):
        if not all(guard.holds({"n": rows}) for guard in table.guards):
            context.expect(rows != 3, "a guard does not hold for the example")
            continue
        given = _inputs(context, rows)
        eager = [tensor.clone() for tensor in given]
        wanted = program(*eager)
        result, _ = run(made, *given, root=graph.owning_module)
        _same_results(context, f"{rows} rows", result, wanted)


@check(29, plan=_plan, variant="compiler")
def compilers(context: Context) -> None:
    """A compiler of graphs gives for each program what the eager run gives."""
    name = context.case.variant.partition("+")[2]
    for title, program in PROGRAMS.items():
        try:
            _judge_compiler(context, name, title, program, _inputs(context))
        except NotRun:
            context.found.setdefault("refused", []).append(title)


def _judge_compiler(
    context: Context, name: str, title: str, program: Callable[..., Any], given: list[Any]
) -> None:
    """The program through one compiler, against itself."""
    wanted, eager = _eager(context, program, given)
    graph = _captured(program, given)
    made = functionalize(graph)
    inputs = [tensor.clone() for tensor in given]
    for attribute in made.find_nodes(op="get_attr"):  # compilers get graphs without attributes
        with made.inserting_before():
            place = made.placeholder(attribute.target)
        place.meta = dict(attribute.meta)
        attribute.replace_all_uses_with(place)
        made.erase_node(attribute)
        inputs = [getattr(graph.owning_module, attribute.target), *inputs]
    last = made.output_node()
    context.expect(last is not None, f"{title}: the graph has no output")
    result, written = last.args[0]  # type: ignore[union-attr]
    leaves = _leaves(result)
    last.args = ((*leaves, *written),)  # type: ignore[union-attr]
    made.lint()
    cd.manual_seed(5)
    with cd.no_grad():
        found = list(compiler_named(name)(made, inputs)(*inputs))
    _same_results(context, f"{name}: {title}", found[: len(leaves)], wanted)
    names = [str(place.target) for place in graph.placeholders]
    for target, value in zip(made.meta["written"], found[len(leaves) :]):
        if target.kind == "input":
            old = eager[names.index(target.name)]
            _same_results(context, f"{name}: {title}, what is written", value, old)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]
