"""Activation checkpointing: compute again in the backward pass instead of keeping in the forward.

``use_reentrant=False`` packs what the graph saves into placeholders and runs the function again
when the first of them is needed, until it has saved as much. ``use_reentrant=True`` runs it
without recording, and again, in a backward pass of its own, when its gradient is wanted. Names,
arguments and messages are PyTorch's (``torch.utils.checkpoint``).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.amp.autocast import current_blocks
from coredispatch.frontend.autograd.backward import backward
from coredispatch.frontend.autograd.function import Function
from coredispatch.frontend.autograd.saved_tensors import saved_tensors_hooks
from coredispatch.frontend.modes import enable_grad, is_grad_enabled, no_grad
from coredispatch.frontend.random import fork_rng
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.transforms.levels import top_level
from coredispatch.frontend.utils.checkpoint_policies import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    DefaultDeviceType,
    GraphExecGroup,
    SelectiveCheckpointContext,
    check_backward_validity,
    create_selective_checkpoint_contexts,
    detach_variable,
    get_device_states,
    set_checkpoint_debug_enabled,
    set_device_states,
)
from coredispatch.graph.capture import recorder_in_force
from coredispatch.registry.dispatch.masks import current_pass
from coredispatch.registry.model.dtypes import float32
from coredispatch.registry.model.errors import AutogradError
from coredispatch.registry.model.generator import default_generator

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointError",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]


class CheckpointError(AutogradError):
    """The second run of a checkpointed function saved other tensors than the first."""


def noop_context_fn() -> tuple[Any, Any]:
    """The contexts of forward and recomputation that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


class CallState:
    """What a function may depend on besides its arguments: random state and autocast."""

    def __init__(self, args: tuple[Any, ...], preserve_rng_state: bool) -> None:
        devices = {str(a.device) for a in args if isinstance(a, Tensor)} - {"cpu"}
        self.devices = sorted(devices) if preserve_rng_state else []
        self.preserve = preserve_rng_state
        generators = [default_generator(), *map(default_generator, self.devices)]
        self.states = [g.state_bytes() for g in generators] if preserve_rng_state else []
        self.autocast = current_blocks()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """As they were, for the time of the block."""
        with fork_rng(self.devices, enabled=self.preserve):
            generators = [default_generator(), *map(default_generator, self.devices)]
            for generator, state in zip(generators, self.states, strict=False):
                generator.load_state_bytes(state)
            with contextlib.ExitStack() as blocks:
                for block in self.autocast:
                    blocks.enter_context(block)
                yield


_RECOMMENDED = (
    "use_reentrant=False is recommended, but if you need to preserve the current default behavior, "
    "you can pass use_reentrant=True. Refer to docs for more details on the differences between "
    "the two variants."
)


class CheckpointFunction(Function):
    """The kind with ``use_reentrant=True``: one node, with a backward pass inside."""

    @staticmethod
    def forward(ctx: Any, function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            warn("None of the inputs have requires_grad=True. Gradients will be None")
        ctx.function = function
        ctx.state = CallState(args, preserve_rng_state)
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.args = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        task = current_pass()
        if task is not None and task.exec_info is not None:
            raise AutogradError(
                "when use_reentrant=True, checkpoint is incompatible with .grad() or passing an "
                "`inputs` parameter to .backward()",
                fix="set use_reentrant=False",
            )
        args = list(ctx.args)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with ctx.state.restored(), enable_grad():
            outputs = ctx.function(*args)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        roots = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if isinstance(output, Tensor) and output.requires_grad
        ]
        if not roots:
            raise AutogradError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        backward([output for output, _ in roots], [grad for _, grad in roots])
        return None, None, *[a.grad if isinstance(a, Tensor) else None for a in args]


class _Saving(Function):
    """Saves tensors, and gives a tensor whose history holds them."""

    @staticmethod
    def forward(ctx: Any, anchor: Any, *tensors: Any) -> Any:
        ctx.save_for_backward(*tensors)
        return anchor.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("no loss depends on this result")


class _SavedArguments:
    """The arguments of a call, whose tensors are saved as a derivative saves what it reads.

    A write to one of them is seen, and hooks of saved tensors get them.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.names = list(kwargs)
        self.arguments = [*args, *kwargs.values()]
        self.places = [i for i, a in enumerate(self.arguments) if isinstance(a, Tensor)]
        tensors = [self.arguments[i] for i in self.places]
        self.kept: Any = None
        # Tensors of a transform (vmap, grad) are no business of a graph outside of it.
        if tensors and is_grad_enabled() and not top_level(tensors):
            anchor = tensors[0].new_empty(0, dtype=float32).requires_grad_()
            self.kept = _Saving.apply(anchor, *tensors)
            for i in self.places:
                self.arguments[i] = None

    def restored(self) -> tuple[list[Any], dict[str, Any]]:
        """Positional arguments and keywords; raises where a tensor was written since."""
        arguments = list(self.arguments)
        if self.kept is not None:
            for i, tensor in zip(self.places, self.kept.grad_fn.saved_tensors, strict=True):
                arguments[i] = tensor
        first = len(arguments) - len(self.names)
        return arguments[:first], dict(zip(self.names, arguments[first:], strict=True))


class _Holder:
    """Stands in the graph for a tensor: what recomputation gave, by the pass that asked for it."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}


class _StopRecomputation(Exception):
    """Everything that is needed has been saved again."""


def _metadata(tensor: Any) -> dict[str, Any]:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


_DETERMINISM_CHECKS: dict[str, Callable[[Any], Any] | None] = {
    "default": _metadata,
    "none": None,
}


class _Frame:
    """One checkpointed call: what its graph saves, and how to compute it again."""

    def __init__(self, recompute: Callable[[], Any], early_stop: bool, describe: Any) -> None:
        self.recompute = recompute
        self.early_stop = early_stop
        self.describe = describe
        self.holders: list[Any] = []  # weak: what nobody needs is not computed for
        self.metadata: list[Any] = []
        self.done: set[int] = set()  # passes that have computed again
        self.complete = False  # the first run has ended

    def pack(self, tensor: Any) -> Any:
        """In the first run: a placeholder."""
        holder = _Holder()
        self.holders.append(weakref.ref(holder))
        self.metadata.append(None if self.describe is None else self.describe(tensor))
        return holder

    def unpack(self, holder: _Holder) -> Any:
        """In a backward pass: the tensor, computed with all others at the first request."""
        task = current_pass()
        number = -1 if task is None else task.number
        if number not in self.done or number == -1:
            self.run_again(number)
        if number not in holder.values:
            raise CheckpointError(
                "unpack is being triggered for a tensor that was already unpacked once",
                fix="call ctx.saved_tensors only once in a backward",
            )
        return holder.values.pop(number)

    def run_again(self, number: int) -> None:
        """Call the function, and hand out what it saves to the holders in order."""
        count = 0

        def pack(tensor: Any) -> Any:
            nonlocal count
            place = count
            count += 1
            if place >= len(self.holders):
                if not self.complete:  # a backward pass inside the first run
                    return tensor
                raise CheckpointError(
                    "trying to save more tensors during recomputation than during the original "
                    "forward pass"
                )
            holder = self.holders[place]()
            if holder is not None:
                self.check(place, tensor)
                holder.values[number] = tensor
            if self.early_stop and count == len(self.holders):
                raise _StopRecomputation
            return tensor

        with contextlib.suppress(_StopRecomputation):
            with saved_tensors_hooks(pack, lambda tensor: tensor), enable_grad():
                self.recompute()
        self.done.add(number)
        if count != len(self.holders) and self.complete:
            raise CheckpointError(
                "a different number of tensors was saved during the original forward and "
                f"recomputation: {len(self.holders)} during forward, {count} during recomputation"
            )

    def check(self, place: int, tensor: Any) -> None:
        """Whether a tensor has the form of the one that was saved in its place."""
        if self.describe is None:
            return
        saved, again = self.metadata[place], self.describe(tensor)
        if saved != again:
            raise CheckpointError(
                "recomputed values have different metadata than during the forward pass: tensor at "
                f"position {place}, saved metadata: {saved}, recomputed metadata: {again}",
                fix="do the same in both runs, or pass determinism_check='none'",
            )


_early_stop: list[bool] = []


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether recomputation stops once all tensors are there, for checkpoints in the block."""
    _early_stop.append(enable)
    try:
        yield
    finally:
        _early_stop.pop()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose intermediate tensors are computed again for backward.

    Both runs see the same random state (``preserve_rng_state``) and autocast. With
    ``use_reentrant=False`` (recommended) any backward works, keywords are allowed, ``context_fn``
    gives two contexts for the two runs, and ``determinism_check`` compares shape, dtype and
    device of what they save ("none": nothing). With ``use_reentrant=True`` at least one argument
    must require grad, and ``autograd.grad`` and ``backward(inputs=)`` are refused.

    Raises :class:`CheckpointError` in the backward pass where the two runs differ.
    """
    if use_reentrant is None:
        warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
            "Starting in PyTorch 2.9, calling checkpoint without use_reentrant will raise an "
            f"exception. {_RECOMMENDED}"
        )
        use_reentrant = True
    if debug:
        raise AutogradError("checkpoint: debug=True is not supported", fix="leave it out")
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn:
            raise ValueError("Passing `context_fn` is only supported when use_reentrant=False.")
        if recorder_in_force() is None:
            return CheckpointFunction.apply(function, preserve_rng_state, *args)
        return function(*args)
    if determinism_check not in _DETERMINISM_CHECKS:
        raise ValueError(
            f"determinism_check should be one of {list(_DETERMINISM_CHECKS)}, "
            f"but got {determinism_check!r}"
        )
    if recorder_in_force() is not None:  # a graph has no memory to save: it is captured once
        with context_fn()[0]:
            return function(*args, **kwargs)
    state = CallState((*args, *kwargs.values()), preserve_rng_state)
    first, second = context_fn()
    saved = _SavedArguments(args, kwargs)

    def recompute() -> None:
        again, named = saved.restored()
        with state.restored(), second:
            function(*again, **named)

    stops = _early_stop[-1] if _early_stop else early_stop
    frame = _Frame(recompute, stops, _DETERMINISM_CHECKS[determinism_check])
    with saved_tensors_hooks(frame.pack, frame.unpack), first:
        result = function(*args, **kwargs)
    frame.complete = True
    return result


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """``input`` through the functions (a Sequential or a list), checkpointed in ``segments`` parts.

    The last part is not checkpointed: its tensors are needed first. ``preserve_rng_state`` as in
    :func:`checkpoint`.
    """
    if use_reentrant is None:
        warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be "
            "passed explicitly. In version 2.9 we will raise an exception if use_reentrant is not "
            f"passed. {_RECOMMENDED}"
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions.children() if hasattr(functions, "children") else functions)

    def part(start: int, end: int) -> Callable[[Any], Any]:
        def forward(value: Any) -> Any:
            for function in functions[start:end]:
                value = function(value)
            return value

        return forward

    length = len(functions) // segments
    end = 0
    for start in range(0, length * (segments - 1), length):
        end = start + length
        input = checkpoint(
            part(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve
        )
    return part(end, len(functions))(input)
