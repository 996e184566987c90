"""``autograd.Function``: a user's own forward and backward as one node of the graph."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.autograd.node import GraphTask, Node, materialized
from coredispatch.frontend.autograd.recording import (
    add_edge,
    alias_of,
    assign_sequence_number,
    attach,
)
from coredispatch.frontend.autograd.saved_tensors import Packed, current_hooks
from coredispatch.frontend.modes import is_recording, no_grad
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.masks import includes_layers, masked
from coredispatch.registry.dispatch.raw_kernels import link_view
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import AutogradError
from coredispatch.registry.model.spelling import SPELLING
from coredispatch.registry.model.value import storage_of, version_of
from coredispatch.registry.wiring import GRAPH, HOOKS

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "FunctionMeta",
    "InplaceFunction",
    "NestedIOFunction",
    "once_differentiable",
]

_INFERENCE = TABLE.bit("inference")


class FunctionCtx:
    """What ``forward`` leaves for ``backward``: saved tensors and any attribute."""

    def __init__(self) -> None:
        self._saved: tuple[Any, ...] = ()
        self._for_forward: tuple[Any, ...] | None = None
        self._outputs: dict[int, int] = {}
        self._dirty: tuple[Any, ...] = ()
        self._nondifferentiable: set[int] = set()
        self._marked: tuple[Any, ...] = ()
        self._materialize = True
        self._node: FunctionNode | None = None
        self._storages: dict[int, Any] = {}
        self._versions: list[int] = []
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors (inputs, outputs or intermediates; None allowed) for ``backward``."""
        self._saved = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save tensors for ``jvp``, where ``saved_tensors`` gives them."""
        self._for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """Declare inputs that ``forward`` wrote in place and returns."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Declare outputs that get no gradient."""
        self._nondifferentiable = {id(t) for t in tensors}
        # Until forward returns: another tensor could get the id of one that is gone.
        self._marked = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing output gradients come as zeros (default) or as None."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved; raises when a saved tensor was written in place since."""
        node = self._node
        if node is None:
            return self._saved
        if node.freed:
            raise GRAPH.freed_error(node)
        result = []
        for position, tensor in enumerate(self._saved):
            number = self._outputs.get(position)
            if isinstance(tensor, Packed):
                tensor = tensor.unpack()
                if number is not None:
                    tensor = alias_of(tensor)
                    tensor._node, tensor._output_nr = node, number
                    tensor.keys |= AUTOGRAD
                result.append(tensor)
                continue
            if number is not None:
                raw, keys = tensor
                tensor = HOOKS.value_type(raw, keys)
                tensor._storage = self._storages[position]
                tensor._node, tensor._output_nr = node, number
                tensor.keys |= AUTOGRAD
            if isinstance(tensor, TensorBase) and version_of(tensor) != self._versions[position]:
                raise saved_was_written(node, tensor, self._versions[position])
            result.append(tensor)
        return tuple(result)

    saved_variables = saved_tensors


def saved_was_written(node: Node, tensor: TensorBase, version: int) -> AutogradError:
    """The error of a tensor that was saved at ``version``, and written to since."""
    return AutogradError(
        f"a tensor saved by {node.opname!r} was modified by an in-place operation: it is at "
        f"version {version_of(tensor)}, expected version {version}",
        fix=".clone() the tensor before writing to it",
    )


def inference_saved(node: Node) -> AutogradError:
    """The error of an inference tensor that is to be saved."""
    return AutogradError(
        f"{node.name()} would save an inference tensor for backward",
        fix="pass a .clone() of it, or make it under cd.no_grad() instead of cd.inference_mode()",
    )


class FunctionNode(Node):
    """The node of one ``Function.apply``."""

    def __init__(self, function: type[Function], ctx: FunctionCtx) -> None:
        super().__init__(function.__name__, True)
        self.function = function
        self.ctx = ctx
        self.freed = False
        self.inputs = 0
        self.returned = 0  # number of outputs
        self.positions: list[int] = []  # of those that are tensors

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        if self.ctx._materialize:
            grads = materialized(self, grads)
        each = [None] * self.returned  # one per output, also of those that are no tensors
        for position, grad in zip(self.positions, grads, strict=True):
            each[position] = grad
        function = self.function
        run = function.backward
        if run is Function.backward and function.vjp is not Function.vjp:
            run = function.vjp
        result = run(self.ctx, *each)
        result = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(result) > self.inputs and all(g is None for g in result[self.inputs :]):
            result = result[: self.inputs]
        return result

    def __getattr__(self, name: str) -> Any:
        # As in PyTorch, where the context is the node: ``y.grad_fn.saved_tensors``.
        if name.startswith("__") or name == "ctx":
            raise AttributeError(name)
        return getattr(self.ctx, name)

    def release(self) -> None:
        self.freed = bool(self.ctx._saved)
        self.ctx._saved = ()

    def name(self) -> str:
        """Name of the node."""
        return f"{self.opname}Backward"

    def __repr__(self) -> str:
        return f"<{SPELLING.of('autograd.function')}.{self.name()} object at {hex(id(self))}>"


class FunctionMeta(type):
    """The class of Function classes."""


class Function(metaclass=FunctionMeta):
    """Base of user-defined differentiable functions.

    Subclasses define static methods ``forward(ctx, *args)`` and ``backward(ctx, *grads)``, or
    ``forward(*args)`` with ``setup_context(ctx, inputs, output)``. Call ``apply``.

    For the transforms of ``coredispatch.func`` the second form is needed. ``vmap`` asks for
    ``generate_vmap_rule = True``, where ``forward`` and ``backward`` are made of operators, or for
    a static method ``vmap(info, in_dims, *args)`` that returns the output and the dimension of the
    samples in it; forward mode for a static method ``jvp(ctx, *tangents)``.
    """

    #: whether ``forward`` is one operator, which every transform serves by itself
    _one_operator = False
    #: whether ``vmap`` maps over ``forward`` and ``backward`` themselves
    generate_vmap_rule = False

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result(s) from the inputs."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def backward(*args: Any, **kwargs: Any) -> Any:
        """One gradient per input of ``forward`` (None for inputs that take none)."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself. Instantiating an autograd "
            "function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """The output for all samples, and their dimension in it."""
        raise NotImplementedError("define a static method vmap(info, in_dims, *args)")

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """The tangents of the outputs from those of the inputs (None where there is none)."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    setup_context: Any = None

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward``; record one node when an input requires grad and grad is enabled."""
        if kwargs or cls.setup_context is not None:
            args, kwargs = cls._bound(args, kwargs)
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(
            isinstance(a, TensorBase) and bool(a.keys & AUTOGRAD) for a in args
        )
        if includes_layers():
            from coredispatch.frontend.autograd.captured_functions import captured
            from coredispatch.graph.capture import recorder_in_force

            recorder = recorder_in_force()
            if recorder is not None:
                return captured(recorder, cls, ctx, args, kwargs)
        if any(isinstance(a, TensorBase) and _is_transformed(a.raw) for a in args):
            from coredispatch.frontend.transforms import custom

            args, output = custom.transformed(cls, ctx, args, kwargs)
            return cls._recorded(ctx, args, output)
        with no_grad():
            if cls.setup_context is None:
                output = cls.forward(ctx, *args, **kwargs)
            else:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, output)
        return cls._recorded(ctx, args, output)

    # A graph that holds a call keeps it, also where nobody uses the result.
    apply.__func__._is_impure = True  # type: ignore[attr-defined]

    @classmethod
    def _bound(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All inputs by position, so that each has its gradient; those that cannot be stay named.

        ``setup_context`` sees defaults too.
        """
        code = getattr(cls.forward, "__code__", None)
        first = 1 if cls.setup_context is None else 0
        if not kwargs and (code is None or len(args) >= code.co_argcount - first):
            return args, kwargs
        bound = inspect.signature(cls.forward).bind(*[None] * first, *args, **kwargs)
        if cls.setup_context is not None:
            bound.apply_defaults()
        return bound.args[first:], bound.kwargs

    @classmethod
    def _node_class(cls) -> Any:
        """The class of the nodes of this function, called as PyTorch calls it."""
        found = cls.__dict__.get("_own_node_class")
        if found is None:
            found = type(
                f"{cls.__name__}Backward", (FunctionNode,), {"__module__": Function.__module__}
            )
            cls._own_node_class = found  # type: ignore[attr-defined]
        return found

    @classmethod
    def _recorded(cls, ctx: FunctionCtx, args: tuple[Any, ...], output: Any) -> Any:
        """``output`` as what a node of this function made, where an input requires grad."""
        if not (is_recording() and any(ctx.needs_input_grad)):
            return output
        node = cls._node_class()(cls, ctx)
        for argument in args:
            add_edge(node, argument)
        assign_sequence_number(node)
        node.inputs = len(args)
        outputs = list(output) if isinstance(output, (tuple, list)) else [output]
        inputs = {id(a) for a in args}
        dirty = {id(t) for t in ctx._dirty}
        node.returned = len(outputs)
        for position, item in enumerate(outputs):
            if not isinstance(item, TensorBase):
                continue
            node.positions.append(position)
            if id(item) in dirty:
                GRAPH.check_dirty(node.name(), item)
            if id(item) in inputs and id(item) not in dirty:
                outputs[position] = item = _passed_through(item)
            if id(item) in dirty and item._view is not None:
                outputs[position] = item = GRAPH.rebase(node, item)
                continue
            attach(node, item)
            if item._view is not None and id(item) not in inputs:
                item._view.custom = True  # a write to it would be replayed past the backward
                item._view.version = version_of(item)  # of one before there was this history, not
            if id(item) in ctx._nondifferentiable:
                item._node = None
                item.keys &= ~AUTOGRAD
        ctx._marked = ()
        cls._keep(ctx, node, outputs)
        if GRAPH.watched:
            GRAPH.after_record(node)
        if isinstance(output, (tuple, list)):
            return tuple(outputs)
        return outputs[0]

    @staticmethod
    def _keep(ctx: FunctionCtx, node: FunctionNode, outputs: list[Any]) -> None:
        """Saved outputs are kept as raw data: the node must not own its outputs."""
        ctx._node = node
        tensors = [t for t in outputs if isinstance(t, TensorBase)]
        numbers = {id(t): i for i, t in enumerate(tensors) if t.keys & AUTOGRAD}
        saved = list(ctx._saved)
        if any(isinstance(t, TensorBase) and masked(t.keys) & _INFERENCE for t in saved):
            raise inference_saved(node)
        ctx._versions = [version_of(t) if isinstance(t, TensorBase) else 0 for t in saved]
        hooks = current_hooks() if GRAPH.watched else None
        for position, tensor in enumerate(saved):
            number = numbers.get(id(tensor))
            if hooks is not None and isinstance(tensor, TensorBase):
                if number is not None:
                    ctx._outputs[position] = number
                    tensor = alias_of(tensor)
                saved[position] = Packed(tensor, hooks)
                continue
            if isinstance(tensor, TensorBase) and number is not None:
                ctx._outputs[position] = number
                ctx._storages[position] = storage_of(tensor)
                saved[position] = (tensor.raw, tensor.keys & ~AUTOGRAD)
        ctx._saved = tuple(saved)


def _passed_through(given: TensorBase) -> TensorBase:
    """An input that ``forward`` returned as it is: a view of it, with a history of its own."""
    made: TensorBase = alias_of(given)
    link_view(TABLE.operator("view"), given, made, (tuple(given.raw.shape),))
    assert made._view is not None
    made._view.custom = True
    return made


class InplaceFunction(Function):
    """The base of functions that may write to their inputs."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """Not supported: the form of nested inputs that PyTorch keeps for old programs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "NestedIOFunction is not supported; write a Function that takes and returns flat "
            "tensors"
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Raises NotImplementedError."""
        return cls(*args, **kwargs)


BackwardCFunction = FunctionCtx


class _OnceNode(Node):
    """Stands behind gradients of a backward that cannot be differentiated."""

    def backward(self, grads: list[Any], output_mask: Any, task: GraphTask) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )

    def name(self) -> str:
        """Name of the node."""
        return "torch::autograd::Error"


def _is_transformed(raw: Any) -> bool:
    """Whether a transform put it there; what other layers wrap is an ordinary input."""
    return isinstance(raw, Wrapper) and raw.layer == "transform"


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a ``backward`` that is not to be recorded, also under ``create_graph``.

    Where gradients that came in require grad, those that go out do too, and a backward pass through
    them raises RuntimeError.
    """

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = fn(ctx, *args)
        if not is_recording():
            return outputs
        inputs = [a for a in args if isinstance(a, TensorBase) and a.keys & AUTOGRAD]
        if not inputs:
            return outputs
        several = isinstance(outputs, tuple)
        marked = []
        for output in outputs if several else (outputs,):
            if isinstance(output, TensorBase):
                node = _OnceNode("once_differentiable", False)
                for argument in inputs:
                    add_edge(node, argument)
                assign_sequence_number(node)
                output = alias_of(output)
                attach(node, output)
            marked.append(output)
        return tuple(marked) if several else marked[0]

    return wrapper
