"""``cd.compile`` and ``cd.compiler``: there is no compiler yet, and programs run as they are.

Marks are real. ``compile`` raises NotImplementedError unless the program asks for no compiling, in
one of PyTorch's ways: ``backend="eager"``, ``disable=True``, ``set_stance("force_eager")``, or
``TORCH_COMPILE_DISABLE=1`` in the environment.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

from coredispatch.frontend.announced import announced_function

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "nested_compile_region",
    "reset",
    "set_stance",
    "substitute_in_graph",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_STANCES = "default force_eager eager_on_recompile fail_on_recompile eager_then_compile".split()
_stance = ["default"]
_refuse = announced_function(
    "compile",
    'compile(..., backend="eager"), or TORCH_COMPILE_DISABLE=1 in the environment, runs the '
    "program as it is",
)


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """``model`` itself where the program asks for no compiling; see the module. Else it raises."""
    off = os.environ.get("TORCH_COMPILE_DISABLE", "0") == "1"
    off = off or os.environ.get("TORCHDYNAMO_DISABLE", "0") == "1"
    if not (disable or off or backend == "eager" or _stance[0] == "force_eager"):
        _refuse()
    return model if model is not None else lambda function: function


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A mark: a compiler leaves ``fn`` alone. A decorator, with or without arguments."""
    return fn if fn is not None else lambda function: function


def allow_in_graph(fn: Any) -> Any:
    """A mark: a compiler does not look into ``fn`` (or a list of functions). Returns it."""
    return fn


def assume_constant_result(fn: _F) -> _F:
    """A mark: ``fn`` always returns the same. Returns it."""
    return fn


def nested_compile_region(fn: Any = None, options: Any = None) -> Any:
    """A mark: a compiler compiles ``fn`` once and calls it. A decorator."""
    return fn if fn is not None else lambda function: function


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[_F], _F]:
    """A mark: a compiler takes the decorated function for ``original_fn``."""
    return lambda function: function


def is_compiling() -> bool:
    """False: Python runs the program."""
    return False


def is_dynamo_compiling() -> bool:
    """False: Python runs the program."""
    return False


def is_exporting() -> bool:
    """False: nobody exports."""
    return False


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names of the compilers: none; ``"eager"`` where those for debugging are asked for."""
    return [] if "debug" in (exclude_tags or ()) else ["eager"]


def reset() -> None:
    """Forget what was compiled, which is nothing."""


def cudagraph_mark_step_begin() -> None:
    """Says to CUDA graphs, which are not used, that a step begins."""


class set_stance:
    """What :func:`compile` does from now on, in a ``with`` block, or in a decorated function.

    ``"force_eager"`` returns models as they are. Raises RuntimeError for an unknown stance.
    """

    def __init__(self, stance: str = "default", **options: Any) -> None:
        if stance not in _STANCES:
            raise RuntimeError(f"invalid torch.compile stance {stance!r}: one of {_STANCES}")
        self.stance, self.before = stance, _stance[0]
        _stance[0] = stance

    def __enter__(self) -> None:
        _stance[0] = self.stance

    def __exit__(self, *error: object) -> None:
        _stance[0] = self.before

    def __call__(self, fn: _F) -> _F:
        _stance[0] = self.before

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return fn(*args, **kwargs)

        return cast(_F, wrapper)
