"""What programs ask a tracer."""

from __future__ import annotations

from typing import Any

__all__ = ["is_fx_symbolic_tracing", "is_fx_tracing", "wrap"]


def is_fx_tracing() -> bool:
    """False: nobody traces."""
    return False


def is_fx_symbolic_tracing() -> bool:
    """False: nobody traces."""
    return False


def wrap(fn_or_name: Any) -> Any:
    """See :func:`coredispatch.fx.wrap`."""
    from coredispatch.frontend.fx import wrap as mark

    return mark(fn_or_name)
