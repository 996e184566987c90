"""Functions and modules whose forward and backward pass are CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.amp.autocast import is_autocast_enabled
from coredispatch.frontend.amp.settings import is_autocast_cache_enabled
from coredispatch.frontend.autograd.backward import grad as gradients_of
from coredispatch.frontend.autograd.function import Function, once_differentiable
from coredispatch.frontend.cuda.devices import asked, present, synchronize
from coredispatch.frontend.cuda.streams import Stream
from coredispatch.frontend.cuda.streams import stream as stream_context
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import ArgumentError, OpError, RequirementError

__all__ = ["make_graphed_callables"]

_empty_like = TABLE.operator("empty_like")


class _Part:
    """One callable: its inputs and outputs that stay in place, and its two graphs."""

    def __init__(self, function: Any, args: tuple[Any, ...], allow_unused: bool) -> None:
        from coredispatch.frontend.cuda.graphs import CUDAGraph

        self.function, self.args, self.allow_unused = function, args, allow_unused
        self.given = tuple(tree_leaves(args))
        _check(function, self.given)
        self.parameters = tuple(function.parameters()) if isinstance(function, Module) else ()
        self.inputs = self.given + self.parameters
        self.forward, self.backward = CUDAGraph(), CUDAGraph()
        self.outputs: tuple[Any, ...] = ()
        self.spec: Any = None
        self.grad_outputs: tuple[Any, ...] = ()
        self.grad_inputs: tuple[Any, ...] = (None,) * len(self.inputs)

    def _differentiated(self, outputs: Any, grad_outputs: Any) -> Any:
        wanted = tuple(x for x in self.inputs if x.requires_grad)
        return gradients_of(
            tuple(x for x in outputs if x.requires_grad),
            wanted,
            tuple(g for g in grad_outputs if g is not None),
            allow_unused=self.allow_unused,
        )

    def warm_up(self) -> None:
        """Run once, so that nothing is compiled or made for the first time in the capture."""
        outputs = tree_leaves(self.function(*self.args))
        grads = [_empty_like(x) if x.requires_grad else None for x in outputs]
        if any(x.requires_grad for x in outputs):
            self._differentiated(outputs, grads)

    def capture_forward(self, pool: Any) -> None:
        from coredispatch.frontend.cuda.graphs import graph

        with graph(self.forward, pool=pool):
            result = self.function(*self.args)
        leaves, self.spec = tree_flatten(result)
        self.outputs = tuple(leaves)

    def capture_backward(self, pool: Any) -> None:
        from coredispatch.frontend.cuda.graphs import graph

        self.grad_outputs = tuple(_empty_like(x) if x.requires_grad else None for x in self.outputs)
        if not any(x.requires_grad for x in self.outputs):
            return
        with graph(self.backward, pool=pool):
            found = iter(self._differentiated(self.outputs, self.grad_outputs))
        self.grad_inputs = tuple(next(found) if x.requires_grad else None for x in self.inputs)

    def graphed(self) -> Callable[..., Any]:
        """The callable that replays."""
        part = self

        class Graphed(Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> Any:
                for static, given in zip(part.given, inputs):
                    if static.data_ptr() != given.data_ptr():
                        static.copy_(given)
                part.forward.replay()
                return tuple(x.detach() for x in part.outputs)

            @staticmethod
            @once_differentiable
            def backward(ctx: Any, *grads: Any) -> Any:
                for static, given in zip(part.grad_outputs, grads, strict=True):
                    if static is not None and static.data_ptr() != given.data_ptr():
                        static.copy_(given)
                part.backward.replay()
                return tuple(None if x is None else x.detach() for x in part.grad_inputs)

        def call(*args: Any) -> Any:
            given = tree_leaves(args)
            _check_shapes(part.given, given)
            results = Graphed.apply(*given, *part.parameters)
            return tree_unflatten(results, part.spec)

        return call


def _check(function: Any, given: tuple[Any, ...]) -> None:
    if isinstance(function, Module):
        hooks = (function._backward_hooks, function._forward_hooks, function._forward_pre_hooks)
        if any(len(each) for each in hooks):
            raise RequirementError(
                "Modules must not have hooks registered at the time they are passed. However, "
                "registering hooks on modules after passing them through make_graphed_callables is "
                "allowed.",
                fix="register the hooks afterwards",
            )
        if any(buffer.requires_grad for buffer in function.buffers()):
            raise RequirementError(
                "In any :class:`~torch.nn.Module` passed to :func:`~make_graphed_callables`, only "
                "parameters may be trainable. All buffers must have ``requires_grad=False``.",
                fix="make it a Parameter",
            )
    if not all(isinstance(x, Tensor) for x in given):
        raise RequirementError(
            "In the beta API, sample_args for each callable must contain only Tensors. Other types "
            "are not allowed.",
            fix="bind other arguments with functools.partial",
        )


def _check_shapes(static: tuple[Any, ...], given: Any) -> None:
    """A replay computes with the captured shapes, whatever it is given."""
    found = [(tuple(x.shape), x.dtype) for x in given]
    wanted = [(tuple(x.shape), x.dtype) for x in static]
    if found != wanted:
        raise OpError(
            f"a graphed callable was captured with {_shown(wanted)} and called with "
            f"{_shown(found)}",
            fix="call it with the shapes and dtypes of its sample_args",
        )


def _shown(tensors: Any) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in tensors) or "no tensor"


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """Callables that replay CUDA graphs of ``callables``, forward and backward.

    Args:
        callables: a function or module, or a tuple of them in the order in which they will run.
            A module is changed and returned: its ``forward`` replays as long as it is in the mode,
            training or evaluation, of the capture.
        sample_args: a tuple of tensors with the shapes, dtypes and ``requires_grad`` of the
            arguments to come; a tuple of such tuples for several callables.
        num_warmup_iters: how often each callable runs before it is captured.
        allow_unused_input: whether inputs may have no part in the outputs.
        pool: memory to share, from :func:`graph_pool_handle`.

    Raises ``AssertionError`` for modules with hooks or trainable buffers, and for samples that are
    not tensors; ``RuntimeError`` under autocast with a cache of weights; :class:`OpError` when a
    result is called with other shapes or dtypes. What is returned has no second derivatives.

    Example:
        >>> layer = cd.cuda.make_graphed_callables(layer, (sample,))  # doctest: +SKIP
    """
    present()
    if is_autocast_enabled() and is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set "
            "`cache_enabled=False`."
        )
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    if not isinstance(sample_args, tuple) or len(callables) != len(sample_args):
        raise ArgumentError(
            f"make_graphed_callables takes a tuple of sample_args for each of {len(callables)} "
            f"callables, got {type(sample_args).__name__} of {len(sample_args)}",
            fix="make_graphed_callables((f, g), ((x,), (y,)))",
        )
    parts = [
        _Part(f, args, allow_unused_input) for f, args in zip(callables, sample_args, strict=True)
    ]
    pool = asked("graph_pool") if pool is None else pool
    synchronize()
    with stream_context(Stream()):
        for part in parts:
            for _ in range(num_warmup_iters):
                part.warm_up()
    synchronize()
    # In the order in which they will run: parts of one pool use its memory one after the other.
    for part in parts:
        part.capture_forward(pool)
    for part in reversed(parts):
        part.capture_backward(pool)
    made = tuple(_installed(part) for part in parts)
    return made[0] if single else made


def _installed(part: _Part) -> Any:
    """A module with its forward pass replaced, or the new function."""
    graphed = part.graphed()
    module = part.function
    if not isinstance(module, Module):
        return graphed
    training, usual = module.training, module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return (graphed if module.training == training else usual)(*args, **kwargs)

    module.forward = forward  # type: ignore[method-assign]
    return module
