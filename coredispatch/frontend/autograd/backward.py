"""``backward`` and ``grad``: what the user asks of the engine, checked first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from coredispatch._warnings import warn, warn_once
from coredispatch.frontend.autograd import checks as _checks  # noqa: F401  (installs the errors)
from coredispatch.frontend.autograd.accumulate import AccumulateGrad, accumulator
from coredispatch.frontend.autograd.edges import GradientEdge, implicit_gradient, stands_for
from coredispatch.frontend.autograd.engine import gradient_node, run
from coredispatch.frontend.autograd.node import Node
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.errors import AutogradError, DeviceError, ShapeError
from coredispatch.registry.model.value import dtype_of

if TYPE_CHECKING:
    from coredispatch.frontend.tensor import Tensor

__all__ = ["backward", "grad"]


def _sequence(tensors: Any) -> list[Any]:
    if isinstance(tensors, (TensorBase, GradientEdge)) or not isinstance(tensors, Iterable):
        return [tensors]
    return list(tensors)  # also the values of a dict, and generators


def _root_grads(outputs: list[Any], grads: Any) -> list[Any]:
    given = [None] * len(outputs) if grads is None else _sequence(grads)
    if len(given) != len(outputs):
        raise AutogradError(
            f"{len(outputs)} tensors to differentiate, but {len(given)} gradients",
            fix="give one gradient (or None) per tensor",
        )
    result = []
    for number, (edge, gradient) in enumerate(zip(outputs, given, strict=True)):
        output = outputs[number] = stands_for(edge)
        if not isinstance(output, TensorBase):
            raise AutogradError(f"can differentiate tensors, not {type(output).__name__}")
        if not output.keys & AUTOGRAD:
            fix = "compute it from a tensor with requires_grad=True, outside cd.no_grad()"
            if isinstance(output.raw, Wrapper):
                inside = type(output.raw).__name__
                fix = f"differentiate the tensor inside, {inside}.of(x).value: it has the history"
                fix = getattr(output.raw, "without_history", fix)
            raise AutogradError(
                f"element {number} of tensors does not require grad and does not have a grad_fn",
                fix=fix,
            )
        if gradient is None:  # the engine makes it
            if output.raw.shape and _numel(output) != 1:
                raise AutogradError(
                    "grad can be implicitly created only for scalar outputs, this one has shape "
                    f"{tuple(output.raw.shape)}",
                    fix="reduce it with .sum() or .mean(), or pass gradient=",
                )
            if dtype_of(output).is_complex:
                raise AutogradError(
                    "grad can be implicitly created only for real scalar outputs, this one is "
                    f"{dtype_of(output)}",
                    fix="take .abs() or .real of it, or pass gradient=",
                )
            if output is not edge and output._node is not None:
                gradient = implicit_gradient(edge)
        elif tuple(gradient.shape) != tuple(output.raw.shape):
            raise ShapeError(
                f"Mismatch in shape: grad_output[{number}] has a shape of {tuple(gradient.shape)} "
                f"and output[{number}] has a shape of {tuple(output.raw.shape)}",
                fix="pass a gradient of the tensor's shape",
            )
        elif gradient.device != (home := getattr(output, "device", gradient.device)):
            raise DeviceError(
                f"grad_output[{number}] is on {gradient.device} and output[{number}] on {home}",
                fix="pass a gradient on the tensor's device",
            )
        result.append(gradient)
    return result


#: a snapshot of the table, and of its backends with queues the key's bit and what is to be called
_queued: tuple[Any, list[tuple[int, Any]]] = (None, [])


def _wait_for_queues(roots: list[Any], grads: list[Any]) -> None:
    """Let the pass run behind what the forward pass has put on any stream of the device."""
    global _queued
    snapshot, asked = _queued
    if snapshot is not TABLE.snapshot:
        snapshot, usual = TABLE.snapshot, Backend.before_backward
        found = [(snapshot.order.by_name[n].bit, b) for n, (b, _) in snapshot.backends.items()]
        found = [(k, b) for k, b in found if type(b).before_backward is not usual]
        asked = [(k, b.before_backward) for k, b in found if b.device_count()]
        _queued = snapshot, asked
    for bit, call in asked:
        # An edge is on no device, its gradient is.
        if any(isinstance(x, TensorBase) and x.keys & bit for x in (*roots[:1], *grads[:1])):
            call()


def _is_loss(value: Any) -> bool:
    """Whether this is the commonest case, a real number that requires grad."""
    return (
        isinstance(value, TensorBase)
        and value.raw.shape == ()
        and value.keys & AUTOGRAD != 0
        and not dtype_of(value).is_complex
    )


def _numel(tensor: Any) -> int:
    count = 1
    for length in tensor.raw.shape:
        count *= length
    return count


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of ``tensors`` into the ``.grad`` of the leaves.

    ``grad_tensors`` has one gradient per tensor, of the tensor's shape (None for a tensor of one
    element). ``inputs`` limits accumulation to the given tensors; one that is no leaf retains its
    gradient. The graph's saved tensors are freed unless ``retain_graph``, which defaults to
    ``create_graph``. Raises :class:`AutogradError` for a tensor that requires no grad.
    """
    if create_graph:
        warn_once(
            "Using backward() with create_graph=True will create a reference cycle between the "
            "parameter and its gradient which can cause a memory leak. We recommend using "
            "autograd.grad when creating the graph to avoid this. If you have to use this "
            "function, make sure to reset the .grad fields of your parameters to None after use "
            "to break the cycle and avoid the leak."
        )
    keep = create_graph if retain_graph is None else retain_graph
    if grad_tensors is None and inputs is None and _is_loss(tensors):
        _wait_for_queues([tensors], [None])
        run([tensors], [None], keep, create_graph)
        return
    roots = _sequence(tensors)
    grads = _root_grads(roots, grad_tensors)
    if inputs is None:
        _wait_for_queues(roots, grads)
        run(roots, grads, keep, create_graph)
        return
    checked = _checked_inputs(inputs)
    if not checked:
        raise AutogradError(
            "`inputs` argument to `backward()` cannot be empty.",
            fix="leave it out, or name the leaves",
        )
    outputs: set[tuple[int, int]] = set()
    leaves: set[int] = set()
    for tensor in checked:
        node = gradient_node(tensor)
        if isinstance(node, AccumulateGrad):
            leaves.add(node.sequence)
        elif not hasattr(tensor, "retain_grad"):
            raise AutogradError(
                "backward() accumulates into tensors: this gradient edge is of one that is no leaf",
                fix="pass the tensor itself, or use autograd.grad",
            )
        else:
            tensor.retain_grad()
            outputs.add((node.sequence, tensor._output_nr))
    exec_info = _exec_info(roots, outputs | {(number, 0) for number in leaves})
    _wait_for_queues(roots, grads)
    run(roots, grads, keep, create_graph, outputs, exec_info | leaves)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, without touching any ``.grad``.

    Returns one tensor per input, None for an unused one where ``allow_unused``. They may be written
    to. Raises :class:`AutogradError` for an unused input otherwise. ``only_inputs`` has no effect
    and warns when False, as in PyTorch. With ``is_grads_batched`` each of ``grad_outputs`` has a
    dimension in front, and so has each result: a row for a row.
    """
    if not only_inputs:
        warn(
            "only_inputs=False is ignored: gradients are returned for the inputs only",
            FutureWarning,
        )
    if is_grads_batched:
        return _batched(
            outputs,
            inputs,
            grad_outputs,
            retain_graph,
            create_graph,
            allow_unused,
            materialize_grads,
        )
    roots, tensors = _sequence(outputs), _checked_inputs(inputs)
    if not tensors:
        raise AutogradError("`inputs` argument to `grad()` cannot be empty.", fix="give a tensor")
    grads = _root_grads(roots, grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    found = _capture(roots, grads, tensors, keep, create_graph)
    allow = materialize_grads if allow_unused is None else allow_unused
    for position, gradient in enumerate(found):
        if gradient is None and materialize_grads:
            zeros = TABLE.operator("zeros_like")(tensors[position])
            found[position] = zeros.requires_grad_(create_graph)
        elif gradient is None and not allow:
            raise AutogradError(
                "one of the differentiated tensors appears to not have been used in the graph "
                f"(inputs[{position}])",
                fix="set allow_unused=True if this is the desired behavior",
            )
    return tuple(found)


def _batched(
    outputs: Any, inputs: Any, grad_outputs: Any, retain: bool | None, create: bool, *options: Any
) -> tuple[Any, ...]:
    """:func:`grad` for each row of ``grad_outputs``, all at once by ``vmap``."""
    from coredispatch.frontend.vmap import vmap

    given = _sequence(grad_outputs)
    places = [i for i, g in enumerate(given) if g is not None]
    if not places:
        raise AutogradError(
            "is_grads_batched=True needs grad_outputs", fix="pass one with a row per gradient"
        )
    absent: list[bool] = []

    def rows(*vectors: Any) -> Any:
        each = list(given)
        for place, vector in zip(places, vectors, strict=True):
            each[place] = vector
        allow, materialize = options
        found = grad(outputs, inputs, each, retain, create, True, allow, False, materialize)
        absent[:] = [g is None for g in found]
        return tuple(g for g in found if g is not None)

    made = iter(vmap(rows)(*[given[i] for i in places]))
    return tuple(None if none else next(made) for none in absent)


def _checked_inputs(inputs: Any) -> list[Any]:
    tensors = [stands_for(item) for item in _sequence(inputs)]
    for tensor in tensors:
        if not isinstance(tensor, TensorBase):
            raise AutogradError(
                f"can differentiate with respect to tensors, not {type(tensor).__name__}"
            )
        if not tensor.keys & AUTOGRAD:
            raise AutogradError(
                "one of the differentiated tensors does not require grad",
                fix="set requires_grad=True on it before the computation",
            )
    return tensors


def _capture(
    roots: list[Any], grads: list[Any], tensors: Sequence[Any], keep: bool, create: bool
) -> list[Any]:
    keys = [(gradient_node(tensor).sequence, tensor._output_nr) for tensor in tensors]
    capture = set(keys)
    _wait_for_queues(roots, grads)
    found = run(roots, grads, keep, create, capture, _exec_info(roots, capture))
    return [found.get(key) for key in keys]


def _exec_info(roots: list[Any], capture: set[tuple[int, int]]) -> set[int]:
    """Sequence numbers of the nodes from which a captured output can be reached."""
    order: list[Node] = []
    seen: set[int] = set()
    stack = [gradient_node(root) for root in roots]
    while stack:
        node = stack.pop()
        if node.sequence in seen:
            continue
        seen.add(node.sequence)
        order.append(node)
        stack += [edge for edge in node.next_edges if isinstance(edge, Node)]
    exec_info: set[int] = set()
    for node in sorted(order, key=lambda n: n.sequence):
        for position, edge in enumerate(node.next_edges):
            if edge is None:
                continue
            if isinstance(edge, Node):
                key = (edge.sequence, node.edge_number(position))
            else:
                key = (accumulator(edge).sequence, 0)
            if key[0] in exec_info or key in capture:
                exec_info.add(node.sequence)
                break
    return exec_info
