"""The pluggy hooks of coredispatch. A plugin module implements what it needs with ``hookimpl``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from coredispatch.registry.dispatch.registrar import Registrar


__all__ = ["API_VERSION", "PROJECT", "hookimpl", "hookspec"]

PROJECT = "coredispatch"
#: (major, minor): a plugin of another major, or of a later minor, is refused with an explanation
API_VERSION = (1, 0)

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Hooks:
    """What coredispatch asks of a plugin."""

    @hookspec
    def coredispatch_api_version(self) -> tuple[int, int]:  # type: ignore[empty-body]
        """The :data:`API_VERSION` the plugin was written for; (1, 0) where it does not say."""

    @hookspec
    def coredispatch_register(self, registrar: Registrar) -> None:
        """Register backends, layouts, layers, operators and kernels. All or nothing."""

    @hookspec
    def coredispatch_info(self) -> dict[str, Any]:  # type: ignore[empty-body]
        """Details about the plugin for ``coredispatch info``, such as devices found."""

    @hookspec
    def coredispatch_conformance(self) -> Any:
        """What the conformance suite asks beside operators and layouts, called by the suite only.

        An object, a module say, with ``CASES``: a dict of name -> function of one argument, which
        asserts through it (``docs/write_a_layout.md``); and, optionally, ``FAULTS``: a dict of
        name -> fault that the self-test plants and those cases must catch.
        """

    @hookspec
    def coredispatch_compile(self, graph: Any, inputs: Any, settings: Any) -> Any:
        """A function that computes what ``graph`` computes, None for a graph it leaves to others.

        ``graph`` is a :class:`coredispatch.graph.Graph` whose nodes are inputs, calls of operators
        and of Python's functions, and one output, a tuple. ``inputs`` are examples: a tensor or a
        number for each placeholder. The function takes such values, in this order, and returns
        the tuple of results. It is called with autograd masked; shapes, dtypes, strides and devices
        are those of the examples. ``settings`` has what the user gave ``cd.compile`` besides:
        ``"mode"`` unless it is the default, and ``"options"``; an implementation that has none
        leaves the argument out. Plugins that compile for somebody are asked by name
        (``cd.compile(backend="name of the plugin")``), or in turn (``docs/write_a_compiler.md``).
        """

    @hookspec
    def coredispatch_warmup(self, report: Any) -> str:  # type: ignore[empty-body]
        """Compile, or fetch, what first calls would wait for; ``coredispatch warmup`` calls it.

        ``report(done, total, name)`` is to be called after each piece of work. Returns a line that
        says what was done; raises RuntimeError with the reason where it could not be.
        """

    @hookspec
    def coredispatch_unregister(self) -> None:
        """Called when the plugin is unloaded, before its rows go."""
