"""The backward graph of a captured program: captured beside the forward, and cut from it.

The gradients of the results are computed once, under the capture, with gradients of the results
that are inputs of the graph. What this adds is the backward graph; the values that it takes from
the forward are what a call saves. A call of the program is one node of autograd.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.frontend.autograd.backward import grad as gradients
from coredispatch.frontend.autograd.function import Function
from coredispatch.frontend.autograd.function_node import joined
from coredispatch.frontend.autograd.node import GraphTask, materialized
from coredispatch.frontend.autograd.node import Node as GradientNode
from coredispatch.frontend.autograd.recording import (
    add_edge,
    assign_sequence_number,
    attach,
)
from coredispatch.frontend.compiling.by_size import compiled
from coredispatch.frontend.compiling.checking import base_of
from coredispatch.frontend.compiling.gradient_hooks import any_hooks, leaves_of, without_history
from coredispatch.frontend.compiling.graphs import extracted, made_by, masked_call, run_below
from coredispatch.frontend.compiling.recording import Origin, Recorder
from coredispatch.frontend.compiling.sizes import tangent
from coredispatch.frontend.compiling.switches import capturing, capturing_nothing
from coredispatch.frontend.modes import enable_grad, is_recording
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.graph import Graph, Node
from coredispatch.graph.compilers import eager
from coredispatch.graph.passes.aliasing import written_by
from coredispatch.plugin import AutogradError, Operator, Value, Wrapper
from coredispatch.registry.around.checks import came_by_signal
from coredispatch.registry.model.value import storage_of

__all__ = ["CompiledProgram", "Joint", "alone", "attached", "differentiated", "freed"]


class Joint:
    """How gradients go back through a program.

    Attributes:
        outs: the nodes of the results that require grad.
        ins: the nodes of the inputs that get a gradient.
        saved: the nodes whose values the backward graph needs.
        freed: the program has run its own backward pass through the results: another one fails.
        fresh: the results are tensors of their own, each another one.
        alone: of each result, whether it is a view of what nobody else sees: then it may be written
            to as if it were none.
    """

    def __init__(self, outs: list[Node], ins: list[Node]) -> None:
        self.outs, self.ins = outs, ins
        self.saved: list[Node] = []
        self.tangents: list[Node] = []
        self.graph: Graph | None = None
        self.inputs: list[Node] = []
        self.order: list[int] = []  # of the inputs, among what is saved and the incoming gradients
        self.present: list[bool] = []
        self.asked: list[set[int]] = []  # of each input: the results that it has a gradient of
        self.examples: list[Any] = []
        self.run: Any = None
        self.opened: Any = None  # the graph by operators, for gradients that are no plain tensors
        self.compiler: Any = None
        self.freed = self.fresh = False
        self.alone: list[bool] = []

    def backward(self, node: Any, saved: Any, grads: list[Any]) -> list[Any]:
        """The gradients of ``ins``, for those of ``outs``, the outputs of ``node``.

        What depends on results without a gradient alone gets none, as in eager.
        """
        if self.freed:
            raise _second_time()
        if is_recording():
            raise _once_only()
        whole = materialized(node, grads)
        known = [*saved, *whole]
        values = [known[place] for place in self.order]
        made = run_below(self._ready(values, whole), values)
        if whole is grads and len(made) == len(self.present):
            return made  # type: ignore[no-any-return]
        given = {place for place, grad in enumerate(grads) if grad is not None}
        rest = iter(made)
        found = [next(rest) if there else None for there in self.present]
        return [made if given & asked else None for made, asked in zip(found, self.asked)]

    def _ready(self, values: list[Any], grads: list[Any]) -> Any:
        """What runs the graph for such values: compiled code takes plain tensors only.

        The gradients of ``vmap`` (rows of a Jacobian, at once) and of forward mode are wrappers.
        """
        assert self.graph is not None
        if any(isinstance(g, Value) and isinstance(g.raw, Wrapper) for g in grads):
            if self.opened is None:
                self.opened = eager(self.graph, ())
            return self.opened
        if self.run is None:
            self.run = compiled(self.compiler, self.graph, values)
        return self.run


@contextmanager
def taken_back(tensors: list[Any]) -> Iterator[None]:
    """What a block writes to these is undone: it is one backward pass more than the program's."""
    with capturing_nothing():
        kept = [(tensor, tensor.raw, tensor._version, tensor.clone()) for tensor in tensors]
    try:
        yield
    finally:
        with capturing_nothing():
            for tensor, raw, version, before in kept:
                if tensor.raw is raw and tensor._version != version:
                    masked_call(lambda t, b: t.copy_(b), [tensor, before])


def _writes_outside(step: Node, made: set[Node]) -> bool:
    """Whether a step writes to what none of these made: to a buffer, in a forward that is repeated,
    or in the backward of a program's own function."""
    op = step.target
    if not isinstance(op, Operator) or op.random or not op.mutates:
        return False
    return not set(written_by(step)) <= made


def differentiated(recorder: Recorder, wanted: dict[Node, Any]) -> Joint | None:
    """Capture the backward pass of ``wanted``: node -> tensor that requires grad."""
    # A tensor that is given several times has one gradient: that of all its uses.
    once = {
        id(value): (node, value)
        for node, value, _ in recorder.inputs
        if isinstance(value, Value) and value.keys & AUTOGRAD
    }
    inputs = [*once.values()]
    joint = Joint(list(wanted), [node for node, _ in inputs])
    outs = list(wanted.values())
    if any_hooks(outs, (value for _, value in inputs)):
        recorder.refuse("hooks see the gradients inside of it")
        return None
    tangents = []
    for i, out in enumerate(outs):
        made = tangent(out)
        node = recorder.placeholder(f"grad{i}", made, Origin(f"grad{i}", made, "tangent"))
        joint.tangents.append(node)
        tangents.append(made)
    ends = [value for _, value in inputs] or leaves_of(outs)
    mark, looked = len(recorder.steps), len(recorder.decisions)
    before = list(recorder.steps)
    try:
        # what made the inputs, and their hooks, get the gradients of each call from outside
        with capturing(recorder), enable_grad(), without_history(ends):
            found = gradients(outs, ends, tangents, retain_graph=True, allow_unused=True)
    except AutogradError as error:
        if "second time" not in str(error) and "freed" not in str(error):
            recorder.refuse(f"its backward pass cannot be captured: {error}")
            return None
        del recorder.steps[mark:]
        joint.freed = True
        apart = {id(tensor) for tensor in (*outs, *(value for _, value in inputs))}
        joint.fresh = len(apart) == len(outs) + len(inputs) and all(o._view is None for o in outs)
        joint.present = [False] * len(inputs)
        return joint
    except Exception as error:  # a call whose gradients nobody asks for does not fail
        if came_by_signal(error):
            raise
        recorder.refuse(f"its backward pass raises {type(error).__name__}: {error}")
        return None
    if not inputs:
        recorder.refuse("its results require grad, and none of its inputs does")
        return None
    if not all(decision.early for decision in recorder.decisions[looked:]):
        recorder.refuse("its backward pass looks at values")
        return None
    steps = recorder.steps[mark:]
    inside = set(steps)
    if any(_writes_outside(step, inside) for step in steps):
        recorder.refuse("its backward pass writes to tensors from outside")
        return None
    results: list[Any] = []
    for gradient in found:
        joint.present.append(gradient is not None)
        if gradient is not None:
            results.append(recorder.node_of(gradient))
    if recorder.problem is not None:
        return None
    joint.graph, joint.inputs = extracted(steps, results)
    own = set(joint.tangents)
    numbers = {node: place for place, node in enumerate(joint.tangents)}
    ends_of = iter(results)
    for there in joint.present:
        made = made_by(next(ends_of)) if there else set()
        joint.asked.append({numbers[node] for node in made & own})
    joint.saved = [node for node in joint.inputs if node not in own]
    places = {node: place for place, node in enumerate((*joint.saved, *joint.tangents))}
    joint.order = [places[node] for node in joint.inputs]
    asked: set[Node] = set()
    for decision in recorder.decisions[looked:]:  # of numbers: before the forward graph runs
        asked |= made_by(decision.node)
    del recorder.steps[mark:]
    assert recorder.steps == before
    recorder.steps += [step for step in steps if step in asked]
    return joint


def alone(outs: list[Any], results: list[Any]) -> list[bool]:
    """Which of the tensors are views of what stays inside, and of which no other result is one."""
    over: dict[int, set[int]] = {}
    for tensor in results:
        over.setdefault(id(base_of(tensor).raw), set()).add(id(tensor))
    return [
        out._view is not None
        and not out._view.multi_output
        and len(over[id(base_of(out).raw)]) == 1
        for out in outs
    ]


def attached(joint: Joint, outs: Any, saved: Any, inputs: Any) -> Any:
    """``outs`` as what a call of the program made, which gradients go back through to ``inputs``.

    ``saved`` are the values that the backward graph takes from the forward.
    """
    for out, is_alone in zip(outs, joint.alone):
        if is_alone and out._view is not None:  # saved tensors still count its versions
            out._storage, out._view = storage_of(out), None
    if joined("CompiledProgram", joint.backward, outs, saved, inputs):
        return outs
    if is_recording():
        found = CompiledProgram.apply(joint, outs, saved, *inputs)
    else:  # the program recorded, in a block of enable_grad()
        with enable_grad():
            found = CompiledProgram.apply(joint, outs, saved, *inputs)
    for out in found:
        link = out._view
        if link is not None and any(link.base is other for other in found):
            link.custom = False  # what it is a view of has its history, and tells it
    return found


class CompiledProgram(Function):
    """The node that a call of a compiled program is where its results are not its own alone."""

    @staticmethod
    def forward(ctx: Any, joint: Joint, outs: Any, saved: Any, *inputs: Any) -> Any:
        """Hands out results that were computed already."""
        ctx.joint = joint
        ctx.set_materialize_grads(False)
        ctx.numbers = [None if isinstance(v, Value) else v for v in saved]
        ctx.save_for_backward(*[v if isinstance(v, Value) else None for v in saved])
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Runs the backward graph."""
        joint = ctx.joint
        if joint.freed:
            raise _second_time()
        tensors = ctx.saved_tensors
        saved = [n if t is None else t for t, n in zip(tensors, ctx.numbers)]
        return (None, None, None, *joint.backward(ctx._node, saved, list(grads)))


def _once_only() -> AutogradError:
    return AutogradError(
        "the gradients of a compiled program are not differentiable (create_graph=True)",
        fix="compile a function that computes both derivatives, or do not compile it",
    )


def _second_time() -> AutogradError:
    return AutogradError(
        "Trying to backward through the graph a second time: the compiled program ran "
        "its own backward pass through this result",
        fix="call backward(retain_graph=True) in the program",
    )


class FreedProgram(GradientNode):
    """Stands behind results through which the program has run its own backward pass."""

    def __init__(self) -> None:
        super().__init__("CompiledProgram", True)

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        """Refuses: nothing was kept."""
        raise _second_time()

    def name(self) -> str:
        """Name of the node, which is that of a program that keeps what it needs."""
        return "CompiledProgramBackward"


def freed(outs: Iterable[Any], inputs: Iterable[Any]) -> None:
    """Give results that the program went back through a node that refuses to do so again."""
    node = FreedProgram()
    for value in inputs:
        add_edge(node, value)
    assign_sequence_number(node)
    for out in outs:
        attach(node, out)
