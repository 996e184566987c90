"""``cd.compile`` and ``cd.compiler``: programs as graphs that a compiler runs.

``compile`` runs a function once as it is, records the operators that it calls below autograd, and
what it read of Python's state. Later calls that find the same state run the graphs instead of
Python. What cannot be captured soundly runs eagerly, is counted, and :func:`explain` says why.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from coredispatch.frontend.compiling.settings import (
    COUNTERS,
    SETTINGS,
    STANCE,
    is_compiling,
    recorder,
)
from coredispatch.frontend.nn.module import Module
from coredispatch.plugin import OpError

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "explain",
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
#: options of PyTorch's compiler that say how fast a program is, and never what it gives. They are
#: taken; ``triton.cudagraphs`` means something to the compiler ``cuda``, the others to none here
_TAKEN = (
    "epilogue_fusion",
    "fallback_random",
    "max_autotune",
    "max_autotune_gemm",
    "max_autotune_pointwise",
    "shape_padding",
    "triton.cudagraphs",
)
_STANCES = "default force_eager eager_on_recompile fail_on_recompile eager_then_compile".split()
_MODES = (
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
    None,
)


@overload
def compile(
    model: _F,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> _F: ...
@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Callable[[_F], _F]: ...
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
    """A function or module that computes what ``model`` does, by graphs that ``backend`` compiled.

    Args:
        model: a function, a module, or nothing to have a decorator. A whole training step, with
            ``backward()`` and the optimizer's ``step()`` inside, is a function like any other.
        fullgraph: whether it is an error that the program looks at a value or does what no graph
            can hold; else the program is split there, or runs eagerly.
        dynamic: whether sizes of the arguments are symbols, so that one graph serves all of them;
            None: those that differ from the first call, and numbers among the arguments that do.
            False compiles for every size and number. Sizes of 0 and 1 have graphs of their own.
        backend: ``"inductor"`` asks the plugins in turn, ``"eager"`` runs the graph operator by
            operator, another name is that of a plugin, and a function ``(graph, inputs) ->
            callable`` is a compiler itself (``docs/write_a_compiler.md``).
        mode, options: a compiler that is a function gets them by keyword, unless they are the
            default. ``"reduce-overhead"``, ``"max-autotune"`` and ``{"triton.cudagraphs": True}``
            let the compiler ``cuda`` capture CUDA graphs. Other modes, and the other options by
            which PyTorch's compiler may be faster, change nothing; others are refused.
        disable: return ``model`` as it is.

    The first call runs ``model`` itself and is recorded. Later calls run the graph if what the
    first one depended on is as it was: the arguments' shapes (but for sizes that are symbols),
    dtypes, strides, devices and sharing, modes, and what the program read of globals, closures,
    attributes and modules. Where it is not, another graph is captured, up to
    ``cd._dynamo.config.recompile_limit`` times. Results are differentiable, in-place writes,
    gradients, random numbers and changes of Python's state are those of the eager call.

    Raises RuntimeError for a mode, an option or a backend that is not there, and with
    ``fullgraph=True`` what names the line that cannot be in a graph.

    Example:
        >>> step = cd.compile(lambda x: (x.sin() + 1).sum())
        >>> step(cd.zeros(3)), step(cd.zeros(3))
        (tensor(3.), tensor(3.))
    """
    if model is None:
        return lambda function: compile(
            function,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            disable=disable,
        )
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified")
    if mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {_MODES[:-1]}")
    if dynamic not in (None, True, False):
        raise TypeError(f"compile() takes dynamic=True, False or None, got {dynamic!r}")
    off = os.environ.get("TORCH_COMPILE_DISABLE", "0") == "1"
    off = off or os.environ.get("TORCHDYNAMO_DISABLE", "0") == "1"
    if disable or off:
        return model
    if not callable(model):
        raise RuntimeError(f"compile takes a function or a module, not {type(model).__name__}")
    from coredispatch.frontend.compiling.function import CompiledFunction
    from coredispatch.frontend.compiling.module import OptimizedModule
    from coredispatch.frontend.compiling.recording import load
    from coredispatch.graph.compilers import compiler_named

    load()
    settings = _settings(mode, options)
    if callable(backend):
        backend = functools.partial(backend, **settings) if settings else backend
    elif options:
        _check_options(options, backend)
    compiler = compiler_named(backend, settings)
    if isinstance(model, OptimizedModule):
        model = model._orig_mod  # names of parameters have one prefix, however often
    if isinstance(model, CompiledFunction):
        known = (model.backend, model.settings, model.fullgraph, model.dynamic)
        if known == (backend, settings, fullgraph, dynamic):
            return model
        model = model._fn  # compiled as it is asked for now
    made = CompiledFunction(model, compiler, fullgraph, dynamic)
    made.backend, made.settings = backend, settings
    if isinstance(model, Module):
        return OptimizedModule(model, made)
    return made


def _settings(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """What the user set for a compiler."""
    if options is not None and not isinstance(options, dict):
        raise OpError(
            f"compile: options is a dict of names and values, got {options!r}",
            fix="leave it out, or pass options={'triton.cudagraphs': True}",
        )
    settings: dict[str, Any] = {}
    if mode not in (None, "default"):
        settings["mode"] = mode
    if options:
        settings["options"] = dict(options)
    return settings


def _check_options(options: dict[str, Any], backend: Any) -> None:
    unknown = next((name for name in options if name not in _TAKEN), None)
    if unknown is not None:
        raise OpError(
            f"Unexpected optimization option {unknown}={options[unknown]!r} of compile: the "
            f"compiler {backend!r} does not have it; {', '.join(_TAKEN)} are taken",
            fix="leave it out, or give a function as backend=, which gets options= by keyword",
        )


def explain(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """What compiling ``fn`` gives for these arguments: an :class:`Explanation`, to be printed.

    ``fn`` is a compiled function, about which it tells what it knows, or any function, which is
    compiled with the backend ``"eager"``. With arguments ``fn`` is called with them, which has all
    the effects that the call has; without any, ``explain(fn)(*args)`` is the form that PyTorch
    has as well.
    """
    from coredispatch.frontend.compiling.report import explained

    if not args and not kwargs:
        return lambda *given, **named: explained(fn, given, named)
    return explained(fn, args, kwargs)


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """``fn`` for Python alone: a program that calls it is not compiled. Also a decorator."""
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason)
    if isinstance(fn, (Module, type)):
        owner: Any = fn
        if getattr(owner, "forward", None) is not None:
            owner.forward = disable(owner.forward, recursive, reason=reason)
        return fn

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        recording = recorder()
        if recording is not None:
            why = f": {reason}" if reason else ""
            recording.refuse(f"{getattr(fn, '__name__', fn)} is not to be compiled{why}")
        if not recursive:
            return fn(*args, **kwargs)
        with set_stance("force_eager"):
            return fn(*args, **kwargs)

    disabled._torchdynamo_disable = True  # type: ignore[attr-defined]
    return disabled


def allow_in_graph(fn: Any) -> Any:
    """A mark for functions of operators: what they call is captured anyway. Returns ``fn``."""
    return fn


def assume_constant_result(fn: _F) -> _F:
    """A mark: ``fn`` always returns the same. It is captured like any other. Returns it."""
    return fn


def nested_compile_region(fn: Any = None, options: Any = None) -> Any:
    """A mark: a region that is called often. It is captured at each call. A decorator."""
    return fn if fn is not None else lambda function: function


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[_F], _F]:
    """A mark: a compiler takes the decorated function for ``original_fn``."""
    return lambda function: function


def is_dynamo_compiling() -> bool:
    """Whether the call that runs is being captured."""
    return recorder() is not None


def is_exporting() -> bool:
    """False: nobody exports."""
    return False


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names of the compilers, ``"eager"`` only where those for debugging are asked for."""
    from coredispatch.graph.compilers import compiler_names

    names = [name for name in compiler_names() if name != "eager"]
    names.append("inductor")
    return sorted(names if "debug" in (exclude_tags or ()) else [*names, "eager"])


def reset() -> None:
    """Forget everything that was compiled, and all counters."""
    SETTINGS.generation += 1
    COUNTERS.clear()


def cudagraph_mark_step_begin() -> None:
    """Says that a step begins. Nothing depends on it: results of CUDA graphs are copied out."""


class set_stance:
    """What compiled functions do from now on, in a ``with`` block, or in a decorated function.

    ``"force_eager"`` runs them as they were written, ``"eager_on_recompile"`` uses what is
    compiled and compiles nothing more, ``"fail_on_recompile"`` raises RuntimeError where it would
    compile again, ``"eager_then_compile"`` is ``"default"``: the first call is eager anyway.
    Raises RuntimeError for an unknown stance.
    """

    def __init__(self, stance: str = "default", **options: Any) -> None:
        if stance not in _STANCES:
            raise RuntimeError(f"invalid torch.compile stance {stance!r}: one of {_STANCES}")
        self.stance, self.before = stance, STANCE.name
        STANCE.name = stance

    def __enter__(self) -> None:
        STANCE.name = self.stance

    def __exit__(self, *error: object) -> None:
        STANCE.name = self.before

    def __call__(self, fn: _F) -> _F:
        STANCE.name = self.before

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self.stance):
                return fn(*args, **kwargs)

        return cast(_F, wrapper)
