"""``autograd.Function`` in a program that is captured.

A ``jit.trace`` keeps the call, so that its gradients are those of the user's ``backward``; such a
trace holds Python code and cannot be saved. Every other capture, ``export`` first of all, has the
operators of ``forward`` in its place, and their derivatives.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.ownership import of_library
from coredispatch.graph.capture import Recorder, Traced
from coredispatch.plugin import OpError
from coredispatch.registry.model.value import Value, version_of

__all__ = ["captured"]


def captured(
    recorder: Recorder, cls: Any, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What ``cls.apply(*args, **kwargs)`` gives, and its part of the graph of ``recorder``."""
    if getattr(recorder, "keeps_scripts", False) and not of_library(cls):
        return _called(recorder, cls, args, kwargs)
    # Without a mask over autograd: the graph would have the forward in a block of no_grad.
    if cls.setup_context is None:
        return cls.forward(ctx, *args, **kwargs)
    output = cls.forward(*args, **kwargs)
    cls.setup_context(ctx, args, output)
    return output


def _called(recorder: Recorder, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from coredispatch.frontend.jit.traced_calls import run_untraced

    tensors = [_real(a) for a in (*args, *kwargs.values()) if isinstance(a, Value)]
    before = [version_of(tensor) for tensor in tensors]
    result = run_untraced(recorder, cls.apply, args, kwargs)
    if before != [version_of(tensor) for tensor in tensors]:
        raise OpError(
            f"{cls.__name__}.apply() writes to one of its arguments, and a trace would not know",
            fix=f"write to a clone in {cls.__name__}.forward and return it",
        )
    return recorder.outcome(cls.apply, args, kwargs, result)


def _real(tensor: Any) -> Any:
    traced = Traced.of(tensor)
    return tensor if traced is None else traced.value
