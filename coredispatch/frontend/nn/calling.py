"""Calling a module that has hooks, its own or global ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.autograd.function import Function
from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.frontend.modes import is_recording
from coredispatch.frontend.nn.older_backward_hooks import CLASH, hook_last_node
from coredispatch.frontend.tensor import Tensor

__all__ = [
    "GLOBAL",
    "call",
    "REGISTRATION",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

#: hooks of every module, by kind, each with its options; empty while there are none
GLOBAL: dict[str, dict[int, Any]] = {}
#: hooks of what is assigned to any module, by name table
REGISTRATION: dict[str, dict[int, Any]] = {}


class _GlobalHandle(RemovableHandle):
    """Takes its kind out of :data:`GLOBAL` with its last hook, which makes calls fast again."""

    def remove(self) -> None:
        """Take the hook out."""
        super().remove()
        for kind in [kind for kind, hooks in GLOBAL.items() if not hooks]:
            del GLOBAL[kind]


def _register(kind: str, hook: Any, *options: bool) -> RemovableHandle:
    return _GlobalHandle(GLOBAL.setdefault(kind, {}), (hook, *options))


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``register_forward_pre_hook`` for every module there is and will be."""
    return _register("forward_pre", hook, False, False)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """``register_forward_hook`` for every module there is and will be."""
    return _register("forward", hook, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``register_full_backward_pre_hook`` for every module there is and will be."""
    return _register("backward_pre", hook, False, False)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``register_full_backward_hook`` for every module there is and will be.

    Raises RuntimeError where there are older backward hooks of all modules.
    """
    if "backward_older" in GLOBAL:
        raise RuntimeError(CLASH.replace("a single Module", "all modules"))
    return _register("backward", hook, False, False)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """``register_backward_hook`` for every module there is and will be.

    Raises RuntimeError where there are full backward hooks of all modules.
    """
    if "backward" in GLOBAL:
        raise RuntimeError(CLASH.replace("a single Module", "all modules"))
    return _register("backward_older", hook, False, False)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(module, name, parameter)`` for every parameter that is assigned to a module.

    What it returns, if not None, takes the parameter's place.
    """
    return RemovableHandle(REGISTRATION.setdefault("_parameter_names", {}), hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """:func:`register_module_parameter_registration_hook` of buffers."""
    return RemovableHandle(REGISTRATION.setdefault("_buffer_names", {}), hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """:func:`register_module_parameter_registration_hook` of submodules."""
    return RemovableHandle(REGISTRATION.setdefault("_module_names", {}), hook)


def _hooks(module: Any, kind: str) -> list[Any]:
    """``(hook, with_kwargs, always_call)`` of every module's hooks, then of this one's."""
    found = list(GLOBAL[kind].values()) if kind in GLOBAL else []
    own = module._hooks
    if own is not None and kind in own:
        options = own.get("options", {})
        found += [(hook, *options.get(n, (False, False))) for n, hook in own[kind].items()]
    return found


def call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``forward`` with everything that was hooked to it."""
    pending = _hooks(module, "forward")
    try:
        for hook, with_kwargs, _ in _hooks(module, "forward_pre"):
            args, kwargs = _replaced(hook, with_kwargs, module, args, kwargs)
        backward = _BackwardHooks.of(module)
        if backward is not None:
            args = backward.enter(args)
        output = module.forward(*args, **kwargs)
        while pending:
            hook, with_kwargs, _ = pending.pop(0)
            found = (
                hook(module, args, kwargs, output) if with_kwargs else hook(module, args, output)
            )
            output = output if found is None else found
        if backward is not None:
            output = backward.leave(output)
        older = [hook for hook, *_ in _hooks(module, "backward_older")]
        if older:
            hook_last_node(module, args, output, older)
        return output
    except BaseException:
        for hook, with_kwargs, always in pending:
            if always:
                hook(module, args, kwargs, None) if with_kwargs else hook(module, args, None)
        raise


def _replaced(
    hook: Callable[..., Any],
    with_kwargs: bool,
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if with_kwargs:
        found = hook(module, args, kwargs)
        if found is None:
            return args, kwargs
        if not (isinstance(found, tuple) and len(found) == 2):
            raise RuntimeError(
                "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                f"but got {found}."
            )
        return found
    found = hook(module, args)
    if found is None:
        return args, kwargs
    return (found if isinstance(found, tuple) else (found,)), kwargs


class BackwardHookFunction(Function):
    """The identity, which reports the gradients that pass it."""

    @staticmethod
    def forward(ctx: Any, report: Any, *tensors: Any) -> Any:
        ctx.report = report
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, *ctx.report(grads)


class _BackwardHooks:
    """The backward hooks of one call: between the gradients of its outputs and of its inputs."""

    def __init__(self, module: Any, hooks: list[Any], pre_hooks: list[Any]) -> None:
        self.module = module
        self.hooks, self.pre_hooks = hooks, pre_hooks
        self.grad_output: tuple[Any, ...] | None = None
        self.inputs = 0
        self.places: list[int] | None = None  # of the inputs that require grad

    @classmethod
    def of(cls, module: Any) -> _BackwardHooks | None:
        """The hooks of ``module``, or None where there are none or nothing is recorded."""
        hooks = [hook for hook, *_ in _hooks(module, "backward")]
        pre_hooks = [hook for hook, *_ in _hooks(module, "backward_pre")]
        if not (hooks or pre_hooks) or not is_recording():
            return None
        return cls(module, hooks, pre_hooks)

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, their gradients watched."""
        self.inputs = len(args)
        places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.requires_grad]
        if not self.hooks or not places:
            return args
        self.places = places
        watched = BackwardHookFunction.apply(self.input_grads, *(args[i] for i in places))
        result = list(args)
        for place, tensor in zip(places, _several(watched)):
            result[place] = tensor
        return tuple(result)

    def leave(self, output: Any) -> Any:
        """The output (a tensor, or a tuple or list of them), its gradients watched."""
        items = list(output) if isinstance(output, (tuple, list)) else [output]
        places = [i for i, a in enumerate(items) if isinstance(a, Tensor) and a.requires_grad]
        if not places:
            return output
        self.outputs = len(items)
        self.output_places = places
        watched = BackwardHookFunction.apply(self.output_grads, *(items[i] for i in places))
        for place, tensor in zip(places, _several(watched)):
            items[place] = tensor
        if isinstance(output, tuple) and hasattr(output, "_fields"):
            return type(output)(*items)
        return type(output)(items) if isinstance(output, (tuple, list)) else items[0]

    def output_grads(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the outputs have come."""
        spread: list[Any] = [None] * self.outputs
        for place, grad in zip(self.output_places, grads):
            spread[place] = grad
        for hook in self.pre_hooks:
            found = hook(self.module, tuple(spread))
            if found is not None:
                spread = list(found) if isinstance(found, tuple) else [found]
        self.grad_output = tuple(spread)
        if self.places is None:  # no input takes a gradient: there is nothing to wait for
            for hook in self.hooks:
                hook(self.module, (None,) * self.inputs, self.grad_output)
        return tuple(spread[place] for place in self.output_places)

    def input_grads(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the inputs have come."""
        assert self.places is not None
        spread: list[Any] = [None] * self.inputs
        for place, grad in zip(self.places, grads):
            spread[place] = grad
        for hook in self.hooks:
            found = hook(self.module, tuple(spread), self.grad_output)
            if found is not None:
                found = found if isinstance(found, tuple) else (found,)
                if len(found) != len(spread):
                    raise RuntimeError(
                        "Backward hook returned an invalid number of grad_input, "
                        f"got {len(found)}, but expected {len(spread)}"
                    )
                spread = list(found)
        return tuple(spread[place] for place in self.places)


def _several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
