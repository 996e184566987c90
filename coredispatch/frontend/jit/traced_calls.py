"""Compiled programs inside a trace: their control flow stays, whatever the example takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.jit.module_hooks import HOOKS, script_hooks
from coredispatch.graph import Graph, map_arg
from coredispatch.graph.abstract import AbstractRecorder
from coredispatch.graph.capture import Recorder, tracing, unwrapped
from coredispatch.graph.values import info_of
from coredispatch.plugin import Mode, Switch

__all__ = ["call_traced", "recorder_of_scripts", "run_untraced"]


class _untraced(Mode):
    """What runs inside is no part of the trace around."""

    switch = Switch(off=("capture",))


def recorder_of_scripts() -> Any:
    """The recorder that takes compiled programs with their control flow, None where none does.

    It is that of the ``jit.trace`` that is running, outside of such a call, or one of a program
    that is followed without data.
    """
    mode = tracing.current()
    recorder = None if mode is None else mode.recorder
    kept = getattr(recorder, "keeps_scripts", False) or isinstance(recorder, AbstractRecorder)
    return recorder if kept else None


def run_untraced(
    recorder: Recorder, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """``run(*args, **kwargs)`` on the values of the example; the trace gets nothing of it."""
    recorder.keeps_scripts = False  # type: ignore[attr-defined]
    try:
        with _untraced():
            return run(*unwrapped(args), **unwrapped(kwargs))
    finally:
        recorder.keeps_scripts = True  # type: ignore[attr-defined]


def call_traced(
    recorder: Recorder, run: Callable[..., Any], graph: Graph, owner: Any, args: tuple[Any, ...]
) -> Any:
    """``run(*args)`` on the values of the example, and the program as part of the trace.

    The module of a call that the trace knows becomes one node, a call of it; any other program is
    copied, and the tensors that it reads become attributes of the trace. Without data, the program
    is followed node by node.
    """
    if isinstance(recorder, AbstractRecorder):
        from coredispatch.frontend.jit.following import follow

        return follow(recorder, graph, owner, args)
    result = run_untraced(recorder, run, args, {})
    path = next((name for known, name in recorder.modules if known is owner), None)  # type: ignore[attr-defined]
    hooked = any(script_hooks(owner, kind) for kind in HOOKS)  # a call would run them once more
    if path and getattr(owner, "_graph", None) is graph and not hooked:
        node = recorder.graph.call_module(path, recorder.argument(args))
        node.meta["value"] = info_of(result)
        return recorder.wrap(result, recorder._noted(node))
    prefix = "" if not path else f"{path}."
    return _wrapped(recorder, result, _copied(recorder, graph, owner, args, prefix, bool(path)))


def _copied(
    recorder: Any, graph: Graph, owner: Any, args: tuple[Any, ...], prefix: str, inside: bool
) -> Any:
    values: dict[Any, Any] = dict(zip(graph.placeholders, recorder.argument(args)))

    def move(node: Any) -> None:
        if node.op in ("get_attr", "set_attr", "call_module"):
            if inside or owner is None:
                node.target = f"{prefix}{node.target}"
            elif node.op == "get_attr":
                at = owner
                for part in node.target.split("."):
                    at = getattr(at, part)
                node.target = recorder.attribute(at).target
        for inner in node.graphs:
            for below in inner.nodes:
                move(below)

    for node in graph.nodes:
        if node.op == "output":
            return map_arg(node.args[0], lambda n: values[n])
        if node not in values:
            values[node] = made = recorder.graph.node_copy(node, lambda n: values[n])
            move(made)
    return None


def _wrapped(recorder: Recorder, result: Any, argument: Any) -> Any:
    """A result as a value of the trace; ``argument`` is what its graph says of it."""
    if isinstance(argument, (tuple, list)) and isinstance(result, (tuple, list)):
        parts = [_wrapped(recorder, value, part) for value, part in zip(result, argument)]
        return tuple(parts) if isinstance(result, tuple) else parts
    return recorder.entered(result, argument) if hasattr(argument, "op") else result
