"""What the engine does with a gradient that is not of the form its target has, and its errors."""

from __future__ import annotations

import traceback
from typing import Any

from coredispatch._frames import program_frames
from coredispatch._warnings import warn
from coredispatch.frontend.autograd.node import GraphTask, Node, OpNode
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.registry.around.checks import describe, describe_call
from coredispatch.registry.dispatch.dispatcher import dispatch
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.derivative import NUMBER
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import (
    AutogradError,
    CoreDispatchError,
    DTypeError,
    MissingDerivative,
)
from coredispatch.registry.model.value import dtype_of
from coredispatch.registry.wiring import ENGINE, GRAPH

__all__: list[str] = []


def validate_outputs(
    node: Node, index: int, grad: Any, shape: tuple[int, ...], dtype: DType
) -> Any:
    """Sum a broadcast gradient to ``shape`` and cast it to ``dtype``; raise where it cannot."""
    have = tuple(grad.raw.shape)
    shape = tuple(shape)
    if have != shape:
        writer = getattr(node, "inner", node)  # CopySlices passes on its inner node's gradients
        # A program's own Function may leave the sum over broadcast dimensions to autograd, as in
        # PyTorch; a derivative of an operator says that it does.
        allowed = not isinstance(writer, OpNode) or writer.plan.rule.unbroadcast
        if not allowed or not _broadcasts(shape, have):
            raise AutogradError(
                f"the vjp of {node.opname!r} returned a gradient of shape {have} for input "
                f"{index} of shape {shape}",
                fix="return one gradient of each input's own shape",
            )
        grad = unbroadcast(grad, shape)
    found = dtype_of(grad)
    if found is not dtype:
        if found.is_complex and not dtype.is_complex:
            grad = TABLE.operator("real")(grad)
        if dtype_of(grad) is not dtype:
            grad = TABLE.operator("to_dtype")(grad, dtype)
    return grad


def _broadcasts(shape: tuple[int, ...], have: tuple[int, ...]) -> bool:
    if len(shape) > len(have):
        return False
    tail = have[len(have) - len(shape) :]
    return all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def unbroadcast(grad: Any, shape: tuple[int, ...]) -> Any:
    """Sum ``grad`` over the dimensions along which ``shape`` was broadcast."""
    have = tuple(grad.raw.shape)
    extra = len(have) - len(shape)
    if extra:
        grad = TABLE.operator("sum")(grad, tuple(range(extra)))
    dims = tuple(
        i for i, (want, got) in enumerate(zip(shape, have[extra:], strict=True)) if want != got
    )
    return TABLE.operator("sum")(grad, dims, True) if dims else grad


def zeros(shape: tuple[int, ...], dtype: DType, keys: int, beside: Any) -> Any:
    """A zero gradient for an output that received none, on the device of one that did."""
    s = TABLE.snapshot
    backends = s.order.backend_bits
    known = beside is not None and not (beside.keys ^ keys) & backends
    device = beside.device if known else Device(s.order.names(keys & backends)[0])
    return dispatch(TABLE.operator("zeros"), (tuple(shape), dtype, device))  # nothing to bind


def version_error(node: OpNode, position: int, saved: int, current: int) -> Exception:
    """A saved tensor was written in place since."""
    op = TABLE.snapshot.ops.get(node.opname)
    name = "the result"
    if position >= 0 and isinstance(op, Operator):
        name = f"argument {op.schema.params[node.plan.saves[position] >> NUMBER].name!r}"
    return AutogradError(
        f"{name} of {node.opname!r} was modified by an in-place operation after it was saved "
        f"for the backward pass: it is at version {current}, expected version {saved}",
        fix="use the out-of-place form, or .clone() the tensor before writing to it"
        + _forward_line(node),
    )


def freed_error(node: Node) -> Exception:
    """A second backward through freed buffers."""
    return AutogradError(
        f"trying to backward through the graph a second time: the saved tensors of "
        f"{node.opname!r} have already been freed",
        fix="pass retain_graph=True to the first backward" + _forward_line(node),
    )


def no_derivative(op: Operator, args: tuple[Any, ...]) -> Exception:
    """An operator without derivative met a tensor that requires grad."""
    error = MissingDerivative(
        "the derivative is not implemented",
        fix=f"add @{op.name}.vjp, or call it on .detach()ed tensors",
    )
    error.call = describe_call(op, args)
    return error


def wrong_count(node: Node, result: Any) -> Exception:
    """A vjp returned the wrong number of gradients."""
    count = "None" if result is None else str(len(result))
    return AutogradError(
        f"the vjp of {node.opname!r} returned {count} gradients, expected {len(node.next_edges)}",
        fix="return one gradient (or None) per tensor parameter, in schema order",
    )


def wrong_type(node: Node, index: int, grad: Any) -> Exception:
    """A vjp returned something that is no tensor."""
    return AutogradError(
        f"the vjp of {node.opname!r} returned {type(grad).__name__} as gradient {index}",
        fix="return a tensor, None, or a function of no arguments that returns one of them",
    )


def wrong_hook(node: Node, hook: Any, result: Any, grad: Any) -> Exception | None:
    """A hook of a tensor returned something that cannot take the gradient's place."""
    name = getattr(hook, "__name__", type(hook).__name__)
    found: Any = result
    if not isinstance(result, TensorBase):
        return DTypeError(
            f"hook {name!r} of a result of {node.name()} returned {type(result).__name__}",
            fix="return None, or a tensor of the gradient's shape and dtype",
        )
    if tuple(result.raw.shape) != tuple(grad.raw.shape):
        message = (
            f"hook {name!r} of a result of {node.name()} changed the shape of the gradient from "
            f"{tuple(grad.raw.shape)} to {tuple(result.raw.shape)}"
        )
    elif dtype_of(result) is not dtype_of(grad):
        message = (
            f"hook {name!r} of a result of {node.name()} changed the dtype of the gradient from "
            f"{dtype_of(grad)} to {dtype_of(result)}"
        )
    elif found.device != grad.device:
        message = (
            f"hook {name!r} of a result of {node.name()} moved the gradient from {grad.device} to "
            f"{found.device}"
        )
    else:
        return None
    return AutogradError(message, fix="return None, or a tensor of the gradient's shape and dtype")


def _forward_line(node: Node) -> str:
    if not node.forward_trace:
        return ""
    line = node.forward_trace[-1]
    return f"\n  forward: {line.filename}:{line.lineno}, in {line.name}: {line.line}"


def forward_lines() -> traceback.StackSummary:
    """The lines of the user's code that led to an operator, for anomaly mode."""
    frames = [(frame, frame.f_lineno) for frame in program_frames()]
    return traceback.StackSummary.extract(iter(reversed(frames)))


def _warn_of_error(node: Node) -> None:
    """Say which call of the forward pass the node that fails is of."""
    if node.forward_trace:
        lines = "".join(node.forward_trace.format())
        where = f"Traceback of forward call that caused the error:\n{lines}"
    else:
        where = (
            "No forward pass information available. Enable detect anomaly during forward pass for "
            "more information."
        )
    warn(f"Error detected in {node.name()}. {where}")


def instrumented(node: Node, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
    """Run a node's backward in anomaly mode, under a profiler, or both."""
    run = anomaly if GRAPH.anomaly else type(node).backward
    if GRAPH.profile is None:
        return run(node, grads, output_mask, task)
    with GRAPH.profile(node):
        return run(node, grads, output_mask, task)


def anomaly(node: Node, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
    """Run a node's backward in anomaly mode: errors and NaNs point at the forward line."""
    try:
        results = node.backward(grads, output_mask, task)
    except Exception as error:
        _warn_of_error(node)
        if isinstance(error, CoreDispatchError):
            error.fix = (error.fix or "") + _forward_line(node)
        raise
    for index, gradient in enumerate(results or ()):
        if isinstance(gradient, TensorBase) and dtype_of(gradient).category >= 2:
            isnan, any_ = TABLE.operator("isnan"), TABLE.operator("any")
            if bool(any_(isnan(gradient))) and ANOMALY["check_nan"]:
                _warn_of_error(node)
                raise AutogradError(
                    f"the backward of {node.opname!r} returned NaN in gradient {index} "
                    f"({describe(gradient)})",
                    fix="look at the forward call" + _forward_line(node),
                )
    return results


#: whether anomaly mode looks for NaN
ANOMALY = {"check_nan": True}

ENGINE.validate_outputs = validate_outputs
ENGINE.wrong_hook = wrong_hook
GRAPH.zeros = zeros
ENGINE.instrumented = instrumented
ENGINE.wrong_count = wrong_count
ENGINE.wrong_type = wrong_type
GRAPH.version_error = version_error
GRAPH.freed_error = freed_error
GRAPH.no_derivative = no_derivative
GRAPH.traceback = forward_lines
