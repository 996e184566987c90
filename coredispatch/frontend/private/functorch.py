"""What ``import functorch`` means under PyTorch's names: transforms and their older spellings."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend import func
from coredispatch.frontend.transforms.modules import functional_call, stack_module_state

__all__ = [
    "MODULES",
    "FunctionalModule",
    "FunctionalModuleWithBuffers",
    "combine_state_for_ensemble",
    "make_functional",
    "make_functional_with_buffers",
]

#: what ``functorch`` has of ``torch.func``
_SHARED = "functionalize grad grad_and_value hessian jacfwd jacrev jvp vjp vmap".split()


class FunctionalModuleWithBuffers:
    """A module without its state: called with parameters, buffers, and its arguments."""

    def __init__(self, module: Any, names: Sequence[str], buffers: Sequence[str]) -> None:
        self.stateless_model = module
        self.param_names, self.buffer_names = tuple(names), tuple(buffers)

    def __call__(self, params: Any, buffers: Any, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)`` with these tensors, in the order of the names."""
        state = dict(zip(self.param_names, params, strict=True))
        state |= zip(self.buffer_names, buffers, strict=True)
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without its parameters: called with them and its arguments."""

    def __call__(self, params: Any, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)`` with these parameters, in the order of the names."""
        return super().__call__(params, (), *args, **kwargs)


def _integrated(name: str) -> None:
    warn(
        "We've integrated functorch into PyTorch. As the final step of the integration, "
        f"`functorch.{name}` is deprecated as of PyTorch 2.0 and will be deleted in a future "
        "version of PyTorch >= 2.3. Please use `torch.func.functional_call` instead.",
        FutureWarning,
    )


def make_functional(
    model: Any, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Any, ...]]:
    """``(function, parameters)`` of a module without buffers; :func:`functional_call` is newer.

    Raises RuntimeError where the module has buffers.

    >>> function, params = make_functional(nn.Linear(3, 2))
    >>> function(params, x)
    """
    _integrated("make_functional")
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    function, params, _ = make_functional_with_buffers(model, disable_autograd_tracking)
    return FunctionalModule(function.stateless_model, function.param_names, ()), params


def make_functional_with_buffers(
    model: Any, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """``(function, parameters, buffers)`` of a module; the function is called with both.

    With ``disable_autograd_tracking`` the parameters require no gradient.
    """
    _integrated("make_functional_with_buffers")
    params, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    function = FunctionalModuleWithBuffers(copy.deepcopy(model), [*params], [*buffers])
    wanted = not disable_autograd_tracking
    copies = [
        p.detach().clone().requires_grad_(wanted and p.requires_grad) for p in params.values()
    ]
    return function, tuple(copies), tuple(b.clone() for b in buffers.values())


def combine_state_for_ensemble(
    models: Sequence[Any],
) -> tuple[FunctionalModuleWithBuffers, tuple[Any, ...], tuple[Any, ...]]:
    """``(function, stacked parameters, stacked buffers)`` of models of one kind, for ``vmap``.

    Raises RuntimeError for an empty list and for models of several kinds or modes.
    """
    params, buffers = stack_module_state([*models])
    function = FunctionalModuleWithBuffers(copy.deepcopy(models[0]), [*params], [*buffers])
    return function, tuple(params.values()), tuple(buffers.values())


def _module(name: str, values: dict[str, Any]) -> ModuleType:
    made = ModuleType(name, __doc__)
    made.__dict__.update(values, __all__=[*values], __path__=[])
    return made


#: the modules below ``functorch``
MODULES = {
    "functorch": _module(
        "functorch",
        {n: getattr(func, n) for n in _SHARED} | {n: globals()[n] for n in __all__[1:]},
    ),
    "functorch.einops": _module("functorch.einops", {"rearrange": func.rearrange}),
    "functorch.experimental": _module(
        "functorch.experimental", {"functionalize": func.functionalize}
    ),
}
