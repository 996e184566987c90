"""``backward`` and ``grad``: what the user asks of the engine, checked first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.autograd import checks as _checks  # noqa: F401  (installs the errors)
from coredispatch.frontend.autograd.engine import run
from coredispatch.frontend.autograd.node import Node, node_of
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import AutogradError, ShapeError

__all__ = ["backward", "grad"]


def _sequence(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def _root_grads(outputs: list[Any], grads: Any) -> list[Any]:
    given = [None] * len(outputs) if grads is None else _sequence(grads)
    if len(given) != len(outputs):
        raise AutogradError(
            f"{len(outputs)} tensors to differentiate, but {len(given)} gradients",
            fix="give one gradient (or None) per tensor",
        )
    result = []
    for output, gradient in zip(outputs, given, strict=True):
        if not isinstance(output, TensorBase):
            raise AutogradError(f"can differentiate tensors, not {type(output).__name__}")
        if not output.keys & AUTOGRAD:
            raise AutogradError(
                "this tensor does not require grad and has no grad_fn",
                fix="compute it from a tensor with requires_grad=True, outside cd.no_grad()",
            )
        if gradient is None:  # the engine makes it
            if output.raw.shape and _numel(output) != 1:
                raise AutogradError(
                    "grad can be implicitly created only for scalar outputs, this one has shape "
                    f"{tuple(output.shape)}",
                    fix="reduce it with .sum() or .mean(), or pass gradient=",
                )
        elif tuple(gradient.shape) != tuple(output.shape):
            raise ShapeError(
                f"the gradient has shape {tuple(gradient.shape)}, the tensor has shape "
                f"{tuple(output.shape)}",
                fix="pass a gradient of the tensor's shape",
            )
        result.append(gradient)
    return result


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
    element). ``inputs`` limits accumulation to the given leaves. The graph's buffers are freed
    unless ``retain_graph``, which defaults to ``create_graph``. Raises
    :class:`AutogradError` for a tensor that requires no grad.
    """
    roots = _sequence(tensors)
    grads = _root_grads(roots, grad_tensors)
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run(roots, grads, keep, create_graph, None, None)
        return
    leaves = _sequence(inputs)
    for leaf, gradient in zip(
        leaves, _capture(roots, grads, leaves, keep, create_graph), strict=True
    ):
        if gradient is None:
            continue
        if leaf._grad is None:
            leaf._grad = gradient
        else:
            leaf._grad = leaf._grad + gradient


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, without touching any ``.grad``.

    Returns one tensor per input, None for an unused one where ``allow_unused``. Raises
    :class:`AutogradError` for an unused input otherwise.
    """
    if is_grads_batched:
        raise AutogradError("is_grads_batched=True is not supported", fix="loop over the rows")
    roots, wanted = _sequence(outputs), _sequence(inputs)
    for tensor in wanted:
        if not tensor.keys & AUTOGRAD:
            raise AutogradError(
                "one of the differentiated tensors does not require grad",
                fix="set requires_grad=True on it before the computation",
            )
    grads = _root_grads(roots, grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    found = _capture(roots, grads, wanted, keep, create_graph)
    allow = materialize_grads if allow_unused is None else allow_unused
    for position, gradient in enumerate(found):
        if gradient is None and materialize_grads:
            found[position] = TABLE.operator("zeros_like")(wanted[position])
        elif gradient is None and not allow:
            raise AutogradError(
                "one of the differentiated tensors appears to not have been used in the graph "
                f"(inputs[{position}])",
                fix="set allow_unused=True if this is the desired behavior",
            )
    return tuple(found)


def _capture(
    roots: list[Any], grads: list[Any], wanted: Sequence[Any], keep: bool, create: bool
) -> list[Any]:
    keys: list[Any] = []
    capture: dict[Any, Any] = {}
    for tensor in wanted:
        node = node_of(tensor)
        key = id(tensor) if node is None else (node.sequence, tensor._nr)
        keys.append(key)
        capture[key] = tensor
    found = run(roots, grads, keep, create, capture, _needed(roots, capture))
    return [found.get(key) for key in keys]


def _needed(roots: list[Any], capture: dict[Any, Any]) -> set[int]:
    """Sequence numbers of the nodes from which a captured tensor can be reached."""
    order: list[Node] = []
    seen: set[int] = set()
    stack = [node for root in roots if (node := node_of(root)) is not None]
    while stack:
        node = stack.pop()
        if node.sequence in seen:
            continue
        seen.add(node.sequence)
        order.append(node)
        stack += [t for t in node.targets if isinstance(t, Node)]
    needed: set[int] = set()
    for node in sorted(order, key=lambda n: n.sequence):
        for position, target in enumerate(node.targets):
            if isinstance(target, Node):
                hit = (
                    target.sequence in needed
                    or (target.sequence, node.number_at(position)) in capture
                )
            else:
                hit = target is not None and id(target) in capture
            if hit:
                needed.add(node.sequence)
                break
    return needed
