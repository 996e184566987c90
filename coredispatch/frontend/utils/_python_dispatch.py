"""``coredispatch.utils._python_dispatch``: modes that see operators below autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.frontend.stacked_modes import StackedMode
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.torch_dispatch import DispatchModes

__all__ = [
    "BaseTorchDispatchMode",
    "TorchDispatchMode",
    "is_traceable_wrapper_subclass",
    "return_and_correct_aliasing",
    "transform_subclass",
]


class TorchDispatchMode(StackedMode):
    """Sees every operator in its block as autograd leaves it, backward passes included.

    Subclasses define ``__torch_dispatch__(self, func, types, args=(), kwargs=None)``. ``func`` is
    an overload such as ``coredispatch.ops.aten.add.Tensor``, of the operators that there are here:
    a linear layer is ``aten.linear.default``. Inside, the mode itself is not in force.
    """

    family = DispatchModes

    def __init__(self, _dispatch_key: Any = None) -> None:
        pass

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        raise NotImplementedError


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    stack = DispatchModes.current()
    return stack[-1] if stack else None


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return list(DispatchModes.current() or ())


@contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    before = _get_current_dispatch_mode_stack()
    with DispatchModes(()):
        yield before


@contextmanager
def _pop_mode_temporarily(key: Any = None) -> Iterator[TorchDispatchMode]:
    stack = DispatchModes.current()
    with DispatchModes(stack[:-1]):
        yield stack[-1]


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether ``t`` is of a subclass that can be taken apart into tensors and put together."""
    return (
        isinstance(t, Tensor)
        and type(t) is not Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def transform_subclass(
    t: Any,
    callback: Callable[[str, Any], Any],
    outer_size: Any = None,
    outer_stride: Any = None,
) -> Any:
    """Another tensor of the class of ``t``, whose parts are ``callback(name, part)``."""
    names, context = t.__tensor_flatten__()
    parts = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    return type(t).__tensor_unflatten__(parts, context, size, outer_stride)


def return_and_correct_aliasing(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """What a ``__torch_dispatch__`` returns: the argument that ``func`` writes to, or ``out``.

    Storages of views need no correction: wrappers have none.
    """
    op = func._op
    returned = [alias.position for alias in op.schema.aliases if alias.itself]
    return args[returned[0]] if returned else out
