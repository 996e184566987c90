"""``grad``, ``vjp`` and their relatives: reverse-mode derivatives of functions.

The inputs become leaves of a graph of their own depth (see :mod:`.levels`), the function is called
with recording on, and autograd walks back. What an outer transform differentiates keeps its
history: an input that has one goes through a node of its own, at which the walk ends.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.autograd.backward import grad as walk_back
from coredispatch.frontend.autograd.engine import gradient_node
from coredispatch.frontend.autograd.node import GraphTask, Node
from coredispatch.frontend.autograd.recording import (
    add_edge,
    alias_of,
    assign_sequence_number,
    attach,
)
from coredispatch.frontend.modes import enable_grad, is_recording
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.frontend.transforms.levels import Leveled, current, inside, level_of, unrecorded
from coredispatch.frontend.transforms.trees import (
    check_argnums,
    described,
    replaced,
    require_tensors,
    selected,
)
from coredispatch.frontend.utils._pytree import tree_flatten, tree_map, tree_unflatten
from coredispatch.plugin import AutogradError, Wrapper, operator

__all__ = ["grad", "grad_and_value", "value_and_grad", "vjp"]


# ---- inputs and outputs of a graph of one's own --------------------------------------------------


class _Input(Node):
    """Where a graph of one's own begins, for an input that has a history."""

    def __init__(self) -> None:
        super().__init__("transform_input", False)

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        return [grads[0]]


def tracked(tensor: Any, level: Any = None) -> Any:
    """``tensor`` as an input of a new graph at the depth of ``level``, the innermost in force."""
    if level is None:
        levels = current()
        level = levels[-1] if levels else None
    _refuse_traced(tensor)
    if level is not None and level_of(tensor) < level.number:
        tensor = level.lift(tensor)
    made = alias_of(tensor)
    if not tensor.keys & AUTOGRAD:
        made.requires_grad_()
        return made
    node = _Input()
    add_edge(node, tensor)
    assign_sequence_number(node)
    attach(node, made)
    return made


def _refuse_traced(tensor: Any) -> None:
    """A trace takes what the program calls, and not what autograd computes below it."""
    raw = tensor.raw
    while isinstance(raw, Wrapper):
        if raw.layer == "capture":
            raise AutogradError(
                "grad(), vjp() and their relatives cannot be part of a trace or an export: a graph "
                "has no gradients in it",
                fix="trace the function and differentiate the trace, or use compile(), which "
                "takes gradients too",
            )
        raw = getattr(raw.value, "raw", None)


class Graph:
    """What a function recorded: its inputs and its outputs, and whether others have a part in it.

    ``shared``: a tensor from outside that requires grad has a part in the outputs, so that they,
    and the gradients, have a history that is not only this graph's.
    """

    def __init__(self, inputs: list[Any], outputs: list[Any]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.depth = max([level_of(x) for x in inputs], default=0)
        self.recorded = [o for o in outputs if o.keys & AUTOGRAD and level_of(o) == self.depth]
        self.shared = self._shared()

    def _shared(self) -> bool:
        own = {id(x) for x in self.inputs}
        ends = {id(x._node) for x in self.inputs if x._node is not None}
        stack = [gradient_node(o) for o in self.recorded if id(o) not in own]
        stack = [node for node in stack if id(node) not in ends]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            for edge in node.next_edges:
                if isinstance(edge, TensorBase):
                    if id(edge) not in own and not hasattr(edge, "_finished"):
                        return True
                elif edge is not None and id(edge) not in ends:
                    stack.append(edge)
        return bool(ends)

    def finish(self) -> None:
        """No transform waits for the gradients of these inputs any more, but this graph."""
        for x in self.inputs:
            if x._node is None:
                x._finished = True

    def released(self, value: Any) -> Any:
        """An output for the caller: without the part of its history that is only this graph's."""
        if self.shared and is_recording():
            return value
        return without_history(value, self.depth)

    def gradients(self, cotangents: list[Any], keep: bool) -> list[Any]:
        """The gradients of the inputs, for one cotangent (or None for 1) per output."""
        pairs = [
            (o, c)
            for o, c in zip(self.outputs, cotangents, strict=True)
            if o.keys & AUTOGRAD and level_of(o) == self.depth
        ]
        if not pairs:
            return [operator("zeros_like")(without_history(x, self.depth)) for x in self.inputs]
        recording = is_recording()
        wanted = [c for _, c in pairs if c is not None]
        create = recording and (self.shared or self.depth > 0 or any(map(_has_history, wanted)))
        kept = self.shared or any(_requires_grad_at(c, self.depth) for c in wanted)
        with contextlib.nullcontext() if kept else unrecorded(self.depth):
            found = walk_back(
                [o for o, _ in pairs],
                self.inputs,
                [c for _, c in pairs],
                retain_graph=keep,
                create_graph=create,
                allow_unused=True,
            )
        return [self._finished(g, x, kept) for g, x in zip(found, self.inputs, strict=True)]

    def _finished(self, gradient: Any, source: Any, kept: bool) -> Any:
        if gradient is None:
            return operator("zeros_like")(without_history(source, self.depth))
        return gradient if kept else without_history(gradient, self.depth)


def without_history(value: Any, depth: int) -> Any:
    """``value`` without what autograd recorded at ``depth``, also inside other wrappers."""
    if not isinstance(value, TensorBase):
        return value
    raw, level = value.raw, level_of(value)
    if level == depth:
        return alias_of(value) if value.keys & AUTOGRAD else value
    if level < depth or not isinstance(raw, Leveled):
        return value
    return raw.mapped(lambda inner: without_history(inner, depth), value)


def _has_history(value: Any) -> bool:
    return any(x.keys & AUTOGRAD for x in inside(value))


def _requires_grad_at(value: Any, depth: int) -> bool:
    return any(x.keys & AUTOGRAD and level_of(x) == depth for x in inside(value))


# ---- transforms ---------------------------------------------------------------------------------


def _recorded(
    func: Callable[[], Any], leaves: list[Any], name: str, has_aux: bool
) -> tuple[Graph, Any, Any, Any]:
    """Call ``func`` with recording on: the graph, the outputs, their structure, and aux."""
    with enable_grad():
        out = func()
    aux = None
    if has_aux:
        if not (isinstance(out, tuple) and len(out) == 2):
            raise AutogradError(
                f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
            )
        out, aux = out
    flat, spec = tree_flatten(out)
    require_tensors(flat, name)
    graph = Graph(leaves, flat)
    return graph, flat, spec, aux


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The outputs of ``func(*primals)``, and the function that pulls cotangents back.

    ``output, vjp_fn = vjp(func, *primals)``; ``vjp_fn(cotangent)``, which may be called again and
    again, returns a tuple with the vector-Jacobian product for each of ``primals``. ``func`` takes
    and returns trees of tensors; a cotangent has the structure of the output. With ``has_aux``,
    ``func`` returns ``(output, aux)``, and ``vjp`` ``(output, vjp_fn, aux)``.

    Raises :class:`AutogradError` (a ``RuntimeError``) for outputs that are no tensors.
    """
    leaves, spec = tree_flatten(primals)
    require_tensors(leaves, "vjp", inputs=True)
    inputs = [tracked(leaf) for leaf in leaves]
    graph, outputs, out_spec, aux = _recorded(
        lambda: func(*tree_unflatten(inputs, spec)), inputs, "vjp", has_aux
    )
    single = len(primals) == 1

    def vjp_fn(
        cotangents: Any,
        *more: Any,
        retain_graph: bool = True,
        create_graph: bool | None = None,
    ) -> Any:
        if more:
            cotangents = (cotangents, *more)
        flat, given = tree_flatten(cotangents)
        if given != out_spec:
            raise AutogradError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {given}, primal output: {out_spec}"
            )
        grads = tree_unflatten(graph.gradients(flat, retain_graph), spec)
        return grads if not single or isinstance(grads, tuple) else (grads,)

    result = tree_unflatten([graph.released(o) for o in outputs], out_spec)
    aux = tree_map(graph.released, aux)
    graph.finish()
    return (result, vjp_fn, aux) if has_aux else (result, vjp_fn)


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Like :func:`grad`, and the function returns ``(gradient, value)``; with ``has_aux``
    ``(gradient, (value, aux))``.
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        check_argnums(argnums, len(args))
        leaves, spec = tree_flatten(selected(args, argnums))
        require_tensors(leaves, "grad", inputs=True)
        inputs = [tracked(leaf) for leaf in leaves]
        chosen = tree_unflatten(inputs, spec)

        def call() -> Any:
            return func(*replaced(args, argnums, chosen), **kwargs)

        with enable_grad():
            out = call()
        aux = None
        if has_aux:
            if not (isinstance(out, tuple) and len(out) == 2):
                raise AutogradError(
                    "grad_and_value: output of function f should be a tuple: (output, aux) if "
                    "has_aux is True"
                )
            out, aux = out
        if not isinstance(out, TensorBase):
            raise AutogradError(
                f"Expected f(*args) to return a Tensor, got {described(out)}",
                fix="return the loss alone, or (loss, aux) with has_aux=True",
            )
        if out.raw.shape:
            raise AutogradError(
                "Expected f(*args) to return a scalar tensor, got tensor with "
                f"{len(out.raw.shape)} dims. Maybe you forgot to reduce the output by summing it?",
                fix="sum or mean the output; jacrev gives the derivative of every element",
            )
        graph = Graph(inputs, [out])
        gradients = tree_unflatten(graph.gradients([None], True), spec)
        value, aux = graph.released(out), tree_map(graph.released, aux)
        graph.finish()
        return (gradients, (value, aux)) if has_aux else (gradients, value)

    return wrapper


def value_and_grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """:func:`grad_and_value` the other way round, as JAX has it: ``(value, gradient)``; with
    ``has_aux`` ``((value, aux), gradient)``. PyTorch has no such function.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return value, gradient

    return wrapper


def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that computes the gradient of ``func``, which returns a scalar tensor.

    Args:
        func: its arguments ``argnums`` are trees of tensors; the gradient has their structure.
        argnums: which argument to differentiate with respect to; a tuple of several gives a tuple.
        has_aux: ``func`` returns ``(value, aux)``, the new function ``(gradient, aux)``.

    Transforms compose: ``grad(grad(f))``, ``vmap(grad(f))``. A ``no_grad`` around the call has no
    effect on the gradient, one inside ``func`` does. Raises :class:`AutogradError` (a
    ``RuntimeError``) for an output that is no scalar tensor.

    Example::

        >>> cd.func.grad(lambda x: x.sin())(cd.zeros(()))
        tensor(1.)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        gradients, value = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapper
