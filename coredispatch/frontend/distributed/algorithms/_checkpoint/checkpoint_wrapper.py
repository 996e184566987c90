"""Wrappers whose activations are computed again in backward, or kept in the CPU's memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from coredispatch.frontend.autograd.saved_tensors import save_on_cpu
from coredispatch.frontend.distributed.checkpoint.state_dict import CHECKPOINTED
from coredispatch.frontend.distributed.fsdp.wrap import wrap_children
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.utils.checkpoint import checkpoint

__all__ = [
    "ActivationWrapper",
    "CheckpointImpl",
    "CheckpointWrapper",
    "OffloadWrapper",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
    "offload_wrapper",
]


class CheckpointImpl(Enum):
    """Which of the two ways of ``utils.checkpoint`` is used."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """A module around another one; states have the names of the one inside."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(_given_names)
        self.register_load_state_dict_pre_hook(_taken_names)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_checkpoint_wrapped_module":
                raise
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key: Any) -> Any:
        inside: Any = self._checkpoint_wrapped_module
        return inside[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Those of the module inside, with its names."""
        for name, param in super().named_parameters(*args, **kwargs):
            yield name.replace(CHECKPOINTED, ""), param


def _given_names(module: Module, state: Any, prefix: str, metadata: Any) -> None:
    _renamed(state, prefix + CHECKPOINTED, prefix)


def _taken_names(module: Module, state: Any, prefix: str, *rest: Any) -> None:
    _renamed(state, prefix, prefix + CHECKPOINTED)


def _renamed(state: Any, old: str, new: str) -> None:
    """Let names that begin with `old` begin with `new`, in the order that they have."""
    items = [*state.items()]
    state.clear()
    for name, value in items:
        begins = name.startswith(old) and not (len(new) > len(old) and name.startswith(new))
        state[new + name[len(old) :] if begins else name] = value


class OffloadWrapper(ActivationWrapper):
    """Activations of the module inside are kept in the memory of the CPU."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module inside gives."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """Activations of the module inside are computed again in backward.

    Args:
        mod: the module.
        checkpoint_impl: of ``utils.checkpoint.checkpoint``.
        checkpoint_fn: called instead, with the module and its arguments.
        checkpoint_fn_kwargs: for either.
    """

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = checkpoint
            checkpoint_fn_kwargs["use_reentrant"] = checkpoint_impl is CheckpointImpl.REENTRANT
        self.checkpoint_fn = functools.partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module inside gives."""
        if self.checkpoint_impl is not CheckpointImpl.REENTRANT or not kwargs:
            return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)
        names, count = [*kwargs], len(args)

        def called(*values: Any) -> Any:
            named = dict(zip(names, values[count:], strict=True))
            return self._checkpoint_wrapped_module(*values[:count], **named)

        return self.checkpoint_fn(called, *args, *kwargs.values())


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """A :class:`CheckpointWrapper` around `module`."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: Module) -> Module:
    """An :class:`OffloadWrapper` around `module`."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Put wrappers around the modules below `model` for which `check_fn` is true, in place.

    Args:
        checkpoint_wrapper_fn: makes a wrapper.
        auto_wrap_policy: one of ``fsdp.wrap``, instead of `check_fn`.

    Example::

        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))
    """
    if auto_wrap_policy is None:

        def auto_wrap_policy(module: Module, recurse: bool, nonwrapped_numel: int) -> bool:
            return recurse or check_fn(module)

    wrap_children(model, auto_wrap_policy, checkpoint_wrapper_fn, ())
