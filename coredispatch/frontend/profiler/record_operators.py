"""``ops.profiler``: :class:`record_function` as two calls, which graphs are traced to."""

from __future__ import annotations

from coredispatch.frontend.profiler.profile import record_function

__all__ = ["_record_function_enter", "_record_function_enter_new", "_record_function_exit"]

_enter, _exit = record_function.__enter__, record_function.__exit__


def _record_function_enter_new(name: str, args: str | None = None) -> record_function:
    """Begin an event; :func:`_record_function_exit` takes what this returns."""
    return _enter(record_function(name, args))


_record_function_enter = _record_function_enter_new


def _record_function_exit(handle: record_function) -> None:
    """End the event."""
    _exit(handle, None, None, None)
