"""``pipeline``: a model cut into stages, where a mark or the name of a submodule says.

The forward of the model is recorded as a graph, in which submodules are single calls, but for those
that a cut lies in. A stage passes on what any later stage needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from coredispatch.frontend.distributed.pipelining.stage import PipelineStage
from coredispatch.frontend.fx._symbolic_trace import Tracer
from coredispatch.frontend.fx.graph import Graph
from coredispatch.frontend.fx.graph_module import GraphModule
from coredispatch.frontend.fx.node import Node
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.random import fork_rng
from coredispatch.frontend.utils._pytree import tree_map_only

__all__ = ["Pipe", "SplitPoint", "build_stage", "pipe_split", "pipeline"]


class SplitPoint(Enum):
    """Where a cut lies: before a submodule, or behind it."""

    BEGINNING = 1
    END = 2


_watching: list[Callable[[], None]] = []  # who wants to know that a mark was passed


def pipe_split() -> None:
    """A mark in a ``forward``: what follows is the next stage. Does nothing in a plain call."""
    if _watching:
        _watching[-1]()


class _Cutter(Tracer):
    """Records cuts among the calls. Modules that no cut lies in are one call each."""

    def __init__(self, points: dict[str, SplitPoint], opened: set[str]) -> None:
        super().__init__()
        self.points, self.opened = points, opened

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self.opened

    def _specialized(self, parameter: Any, given: Any, structured: bool) -> Any:
        return given  # a default: no input of the stages

    def cut(self) -> None:
        self.create_node("call_function", pipe_split, (), {})

    def call_module(self, m: Module, forward: Any, args: Any, kwargs: Any) -> Any:
        point = self.points.get(self.path_of_module(m))
        if point is SplitPoint.BEGINNING:
            self.cut()
        found = super().call_module(m, forward, args, kwargs)
        if point is SplitPoint.END:
            self.cut()
        return found


@contextmanager
def _noticed(notice: Callable[[], None]) -> Iterator[None]:
    _watching.append(notice)
    try:
        yield
    finally:
        _watching.pop()


def _around(path: str) -> set[str]:
    """The modules that hold a submodule."""
    parts = path.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts))}


def _modules_with_marks(module: Module, args: Any, kwargs: Any) -> set[str]:
    """Submodules whose forward passes a mark, found by a call, which leaves no trace."""
    under_way: list[str] = []
    found: set[str] = set()

    def enter(name: str) -> Callable[..., None]:
        return lambda *call: under_way.append(name)

    def leave(*call: Any) -> None:
        under_way.pop()

    hooks = []
    for name, part in module.named_modules():
        if part is not module:
            hooks.append(part.register_forward_pre_hook(enter(name)))
            hooks.append(part.register_forward_hook(leave, always_call=True))
    state = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        with no_grad(), fork_rng(), _noticed(lambda: found.update(under_way)):
            module(*args, **kwargs)
        with no_grad():
            for buffer, before in state:
                buffer.copy_(before)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def pipeline(
    module: Module,
    mb_args: tuple[Any, ...] = (),
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Any = None,
) -> Pipe:
    """Cut a model into stages.

    Args:
        mb_args, mb_kwargs: inputs of the model, for one part of a batch. Parameters of ``forward``
            that are not among them keep their defaults.
        split_spec: submodules by name, and whether the cut is before or behind each. Without it
            the cuts are where ``forward`` calls :func:`pipe_split`.

    Returns the stages. The forward around the cuts must not branch on values, as in
    :func:`coredispatch.fx.symbolic_trace`; modules without a cut may.

    Raises:
        ValueError: there is no such submodule.
        NotImplementedError: ``split_policy``.

    Example::

        pipe = pipeline(model, (x,), split_spec={"layers.4": SplitPoint.BEGINNING})
        stage = pipe.build_stage(dist.get_rank(), "cpu")
        ScheduleGPipe(stage, n_microbatches=4, loss_fn=loss_fn).step(x, target=y)
    """
    if split_policy is not None:
        raise NotImplementedError(
            "pipeline(split_policy=) is not there\n  fix: name the cuts with split_spec"
        )
    kwargs = mb_kwargs or {}
    known = dict(module.named_modules())
    for name in split_spec or {}:
        if not name or name not in known:
            raise ValueError(f"pipeline: the model has no submodule {name!r}")
    if split_spec is None:
        points, opened = {}, _modules_with_marks(module, mb_args, kwargs)
    else:
        points = dict(split_spec)
        opened = {around for name in points for around in _around(name)}
    tracer = _Cutter(points, opened)
    with _noticed(tracer.cut):
        graph = tracer.trace(module, _defaults(module, mb_args, kwargs))
    return Pipe(module, graph)


def _defaults(module: Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """Parameters of a forward that are not given, with their values."""
    signature = inspect.signature(module.forward)
    given = signature.bind(*args, **kwargs)
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in given.arguments and parameter.default is not parameter.empty
    }


def _stages(graph: Graph) -> list[list[Node]]:
    """The calls of each stage; cuts with nothing between them are one."""
    stages: list[list[Node]] = [[]]
    for node in graph.nodes:
        if node.op == "call_function" and node.target is pipe_split:
            if stages[-1]:
                stages.append([])
        elif node.op.startswith("call_"):
            stages[-1].append(node)
    return stages if stages[-1] or len(stages) == 1 else stages[:-1]


class Pipe(Module):
    """The stages of a model, as :func:`pipeline` gives them: ``submod_0``, ``submod_1``, ...

    Their parameters are the model's, under its names.
    """

    __module__ = "coredispatch.distributed.pipelining"

    def __init__(self, module: Module, graph: Graph) -> None:
        super().__init__()
        stages = _stages(graph)
        self.num_stages = len(stages)
        (output,) = (node for node in graph.nodes if node.op == "output")
        inputs = [n for n in graph.nodes if n.op == "placeholder" and n.users]
        passed: list[Node] = []
        for index, calls in enumerate(stages):
            given = inputs if index == 0 else passed
            last = index == len(stages) - 1
            later = [node for stage in stages[index + 1 :] for node in stage]
            wanted = {n for node in (*later, output) for n in node.all_input_nodes}
            passed = [n for n in (*given, *calls) if n in wanted and n.op != "get_attr"]
            made = _stage_module(module, given, calls, output.args[0] if last else tuple(passed))
            self.add_module(f"submod_{index}", made)

    @property
    def split_gm(self) -> Pipe:
        """The same, by the name that PyTorch's has."""
        return self

    def get_stage_module(self, stage_idx: int) -> Module:
        """The module of a stage. ValueError for a number that there is not."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return self.get_submodule(f"submod_{stage_idx}")

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """The stage as a :class:`PipelineStage` of this rank."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self, device, group)

    def info(self) -> Pipe:
        """What :func:`build_stage` needs to know."""
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """All stages, one after the other."""
        found: Any = self.get_stage_module(0)(*args, **kwargs)
        for index in range(1, self.num_stages):
            found = self.get_stage_module(index)(*found)
        return found


def _stage_module(module: Module, given: list[Node], calls: list[Node], result: Any) -> GraphModule:
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in given:
        own = node.op == "placeholder"  # of the model, with its name and default
        copies[node] = graph.node_copy(node) if own else graph.placeholder(node.name)

    def copied(node: Node) -> Node:
        if node not in copies:  # a parameter: each stage reads it for itself
            copies[node] = graph.node_copy(node, copied)
        return copies[node]

    for node in calls:
        copied(node)
    graph.output(tree_map_only(Node, copied, result))
    made = GraphModule(module, graph)
    made.train(module.training)
    return made


def build_stage(
    stage_module: Module,
    stage_index: int,
    pipe_info: Pipe,
    device: Any = None,
    group: Any = None,
) -> PipelineStage:
    """A stage of a :class:`Pipe` on this rank."""
    stage_module.to(device)
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)
